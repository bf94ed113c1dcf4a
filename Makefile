# Everything here starts with tools/bootstrap.py, which makes .venv from uv.lock and needs only python3.
# PYTHON=/path/to/python3 chooses another one (3.11 or newer).

SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-combinations unit example-jax property-long fuzz-gateway accelerators check format lock bench-gateway bench-store bench-restart bench-runner bench-cli bench-scheduler bench-placements bench-runs bench-promotions bench-cold bench-azure simulate-openb clean

help: ## this list
	@echo "Moorage: make TARGET"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-15s %s\n", $$1, $$2 }'

setup: ## .venv with everything that tests, checks and benchmarks need
	@$(PYTHON) tools/bootstrap.py full

demo: ## a real small model served end to end, with a crash and a sleep shown; cleans up after itself
	@$(PYTHON) tools/bootstrap.py demo
	@exec $(BIN)/moor demo

# Tests that only compute, on two cores; then those that start processes, ports and databases, four at a time, since
# most of their time is waiting. What shares an engine or an installation stays together (tests/conftest.py). The house
# rules (tests/tidy) belong to `make check`.
FAST := $(wildcard tests/unit tests/property tests/sim)
REAL := $(wildcard tests/contract tests/integration tests/acceptance)
WORKERS ?= 4

# Set on some machines; every process of a test would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

test: setup ## every test but the slow ones; what is skipped is listed with its reason
	@status=0; \
	$(BIN)/pytest -n 2 -rs -m "not slow" $(FAST) || status=1; \
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -rs -m "not slow" $(REAL) \
	  || { [ $$? = 1 ] && $(BIN)/python tools/second_look.py $(REAL); } || status=1; \
	exit $$status

test-slow: setup ## the long forms of what `make test` runs a short form of
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup -rs -m slow $(FAST) $(REAL)

# The gateway where it is attacked: on wires in place of sockets in each form of its hot path; over sockets in Python's
# own, since `make test` has them in the compiled one where that was built.
WIRES := tests/unit/gateway $(wildcard tests/property/test_gateway_*.py)
SOCKETS := $(patsubst %,tests/integration/gateway/test_gateway_%.py,and_published_cases ends headers passes_bytes refuses repeats tunnels under_attack)

FORMS ?= none native compiled both

test-combinations: accelerators ## the gateway's hazard suites with none, either and both of its accelerators
	@status=0; \
	for form in $(FORMS); do \
	  MOORAGE_TEST_ACCELERATORS=$$form $(BIN)/pytest -n 2 -rs -m "not slow" -k "not accelerators and not native_core" $(WIRES) || status=1; \
	done; \
	MOORAGE_TEST_ACCELERATORS=none $(BIN)/pytest -n $(WORKERS) -rs -m "not slow" $(SOCKETS) || status=1; \
	exit $$status

unit: setup ## unit and property tests only, under a minute
	@$(BIN)/pytest -n 2 -rs $(wildcard tests/unit tests/property)

example-jax: setup ## an all-reduce with JAX and gloo over two agents; brings JAX (530 MB) into .venv-jax first
	@test -x .venv-jax/bin/python || $(BIN)/uv venv -q .venv-jax
	@$(BIN)/uv pip install -q --python .venv-jax/bin/python "jax[cpu]"
	@$(BIN)/pytest -k "four_workers and jax" tests/integration/agent/test_agent_examples.py

property-long: setup ## property tests with other examples than usual, and many of them
	@$(BIN)/pytest -n 2 -rs --timeout 0 --hypothesis-profile long tests/property

FUZZ_S ?= 0
fuzz-gateway: setup ## broken conversations through a gateway until one shows a defect; FUZZ_S=60: for a minute
	@$(BIN)/python tools/fuzz_gateway.py --seconds $(FUZZ_S)

accelerators: setup ## the gateway's hot path compiled, where there is a C compiler; without, all works as it is
	@$(BIN)/python tools/build_accelerators.py

check: setup ## format, lint, types, import contracts, house rules, generated files, lock
	@$(BIN)/python tools/check.py

format: setup ## rewrite files as the formatter wants them
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: setup ## after a change of dependencies: uv.lock and tools/requirements.txt again
	@$(PYTHON) tools/lock.py

bench-gateway: setup ## the gateway beside nginx, HAProxy, Envoy and LiteLLM in the same rounds: CPU, rate, latency, memory
	@$(BIN)/python benchmarks/bench_gateway.py

bench-store: setup ## durable transitions per second, beside raw sqlite3 group commit in the same run
	@$(BIN)/python benchmarks/bench_store.py

bench-restart: setup ## kill -9 of a server to the start of its replacement
	@$(BIN)/python benchmarks/bench_restart.py

bench-runner: setup ## the runner library: kill -9 to the replacement beside supervisord and circus; 200 models at rest
	@$(BIN)/python benchmarks/bench_runner.py

bench-cli: setup ## start-up of moor, beside bare python in the same run
	@$(BIN)/python benchmarks/bench_cli.py

bench-scheduler: setup ## placements on 10,000 machines of 8 GPUs, gangs, 10,000 waiting; decision only
	@$(BIN)/python benchmarks/bench_scheduler.py

simulate-openb: setup ## how full the openb cluster gets, beside best fit, first fit and random; needs its trace in ../shared/data
	@$(BIN)/python benchmarks/bench_simulate.py

bench-placements: setup ## 80,000 placements on 10,000 machines with durable commits, beside bare rows in the same run
	@$(BIN)/python benchmarks/bench_placements.py

bench-runs: setup ## 1,000 runs that end in one second, 10,000 that wait: CPU, memory, list and why, on SQLite
	@$(BIN)/python benchmarks/bench_runs.py

bench-promotions: setup ## 500 deployments promote a new revision at once: time, commits, CPU, on SQLite
	@$(BIN)/python benchmarks/bench_promotions.py

bench-cold: setup ## 1,000 requests at once at a deployment that sleeps: wakes, lost answers, another deployment meanwhile
	@$(BIN)/python benchmarks/bench_cold.py

bench-azure: setup ## an hour of recorded requests, 10 times as fast, at a deployment that scales from none; a fixed fleet beside it
	@$(BIN)/python benchmarks/bench_azure.py

clean: ## remove what was fetched and built here (.venv, .cache and tool caches)
	@rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist src/moorage/accelerated
	@find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
