"""What is done to a deployment while clients ask all the time: none of their requests fails, no stream is cut.

As many clients want whole answers as want streams; each asks again as soon as it has its answer. A stream goes on for
so long that each step meets some of them, and has to bring every token and its end, all from one server.
"""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from moorage.client import Client
from tests.acceptance.installation import PATIENCE_S, Installation, until

pytestmark = pytest.mark.acceptance

CLIENTS = 3
"""Of each kind."""
TOKENS = 20
PACE = ("--chunk-interval", "0.02")
ASKS = [{"path": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}}]
"""What the control plane sends itself: short, so that a comparison does not take long."""
LENIENT = {"ttft_percent": 400, "latency_percent": 400, "throughput_percent": 90}
"""For revisions that are alike, on a machine that is anything but quiet."""
ENDED = ("failed", "rejected")


class Asking(threading.Thread):
    """One client, on one connection."""

    def __init__(self, load: "Load", *, streams: bool) -> None:
        super().__init__(daemon=True)
        self._load = load
        self._body = {"model": load.name, "messages": [], "max_tokens": TOKENS, "stream": streams}
        self.answered = 0

    def run(self) -> None:
        with httpx.Client(timeout=PATIENCE_S, verify=False) as http:
            while not self._load.over.is_set():
                try:
                    answer = http.post(self._load.url, json=self._body)
                    wrong = self._wrong(answer)
                except httpx.HTTPError as error:
                    wrong = repr(error)
                if wrong:
                    self._load.failures.append(wrong)
                    return
                self.answered += 1

    def _wrong(self, answer: httpx.Response) -> str | None:
        """What is not as it should be; None: nothing."""
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.text}"
        if not self._body["stream"]:
            self._load.server = str(answer.json()["id"])
            return None
        *parts, end = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        pieces = [json.loads(part) for part in parts]
        servers = {piece["id"] for piece in pieces}
        whole = end == "[DONE]" and len(pieces) == TOKENS + 1 and len(servers) == 1
        return None if whole else f"a stream of {len(pieces)} parts from {servers} that ends with {end}"


class Load:
    """The clients of a deployment, from `with` until its end; then none of their requests may have failed."""

    def __init__(self, installation: Installation, name: str) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{installation.gateway}/v1/chat/completions"
        self.over = threading.Event()
        self.failures: list[str] = []
        self.server = ""
        """which one gave the last whole answer"""
        self.clients = [Asking(self, streams=streams) for streams in (False, True) for _ in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for client in self.clients:
            client.start()
        return self.more()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for client in self.clients:
            client.join(PATIENCE_S)
        print(f"{self.name}: {sum(c.answered for c in self.clients)} answers, {len(self.failures)} failures")
        assert self.failures == []

    def more(self, count: int = 2) -> "Load":
        """Wait until each client has so many further answers, the last of them to a request that began after now."""
        wanted = [client.answered + count for client in self.clients]
        reached = zip(self.clients, wanted, strict=True)
        for client, number in reached:
            until(lambda c=client, n=number: c.answered >= n or self.failures, f"{count} more answers of each client")
        assert self.failures == []
        return self


class House:
    """The installation, and the words of these tests."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.client = Client(home=installation.home)

    def apply(self, name: str, *options: str, guard: dict[str, Any] | None = None, **parts: Any) -> Any:
        """Apply a server with these options."""
        rules = {"minimum_requests": 10, "synthetic": ASKS, **(guard or {})}
        rollout = {**parts.pop("rollout", {}), "guard": rules}
        path = self.installation.spec(name, *PACE, *options, rollout=rollout, gateway={"max_in_flight": 64}, **parts)
        return self.client.deployments.apply(path)

    def revisions(self, name: str) -> dict[int, str]:
        """State of each revision, by number."""
        return {int(r["number"]): str(r["state"]) for r in self.client.deployments.revisions(name)}

    def over(self, operation: str) -> dict[str, Any] | None:
        """The operation, once it is over."""
        found = dict(self.client.operations.get(operation))
        return found if found["state"] in ("succeeded", "failed", "cancelled") else None

    def codes(self, name: str) -> list[str]:
        """The reason codes of everything that happened to it and under it."""
        return [str(e["reason"]["code"]) for e in self.client.deployments.history(name)]

    def replicas(self, name: str) -> list[str]:
        """State of each of its replicas that is not over."""
        shown = [str(r["status"]) for r in self.client.deployments.replicas(name)]
        return [state for state in shown if state not in ("stopped", "failed")]


@pytest.fixture(scope="module")
def house(shared: Installation) -> Iterator[House]:
    it = House(shared)
    yield it
    it.client.close()


STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "canary": {"strategy": "canary", "steps": [20, 50], "step_interval": "1s"},
    "mirror": {"strategy": "mirror"},
}


@pytest.mark.parametrize("strategy", ["none", pytest.param("canary", marks=pytest.mark.slow)])
def test_a_good_revision_takes_over_and_is_gone_back_from(house: House, strategy: str) -> None:
    name, rollout = f"better-{strategy}", STRATEGIES[strategy]
    house.apply(name, guard=LENIENT, rollout=rollout).wait("ready", timeout_s=PATIENCE_S)
    with Load(house.installation, name) as load:
        first = load.server
        house.apply(name, "--say", "second", guard=LENIENT, rollout=rollout).wait("promoted", timeout_s=PATIENCE_S)
        until(lambda: house.revisions(name) == {1: "superseded", 2: "active"}, "the first revision to have drained")
        second = load.more().server
        house.client.deployments.rollback(name)
        until(lambda: house.revisions(name) == {1: "active", 2: "superseded"}, "revision 1 to serve again")
        third = load.more().server
    assert len({first, second, third}) == 3
    codes = house.codes(name)
    assert codes.count("revision.promoted") == 3
    assert "replica.failed" not in codes


CANDIDATES = {
    "crashes at its start": ("--exit-after", "0"),
    "crashes at every fifth request": ("--die-after-requests", "4"),
    "is slow": ("--delay-answer", "0.3"),
    "is another model": ("--wrong-model", "other"),
    "errs at 30 % of the requests": ("--error-rate", "0.3"),
}
HARMLESS = {
    "none": tuple(CANDIDATES),
    "mirror": ("is slow", "errs at 30 % of the requests"),
    "canary": ("crashes at its start", "is another model"),
}
"""Those that no client may notice; with a canary, only what is never ready."""


@pytest.mark.parametrize("strategy", [s if s == "none" else pytest.param(s, marks=pytest.mark.slow) for s in HARMLESS])
def test_a_bad_candidate_never_serves_and_no_client_notices_it(house: House, strategy: str) -> None:
    name = f"worse-{strategy}"
    house.apply(name).wait("ready", timeout_s=PATIENCE_S)
    with Load(house.installation, name) as load:
        serves = load.server
        for number, bad in enumerate(HARMLESS[strategy], start=2):
            # One that keeps crashing is started again until the deadline.
            rollout = {**STRATEGIES[strategy], **({"deadline": "4s"} if "every fifth" in bad else {})}
            applied = house.apply(name, *CANDIDATES[bad], rollout=rollout)
            until(lambda n=number: house.revisions(name)[n] in ENDED, f"the end of a candidate that {bad}")
            ended = until(lambda o=applied.operation: house.over(o), "the end of its apply")
            rejected = house.revisions(name)[number] == "rejected"
            assert (ended["state"], ended["error"]["code"] == "revision_rejected") == ("failed", rejected)
            load.more()
        assert load.server == serves
    assert house.codes(name).count("revision.promoted") == 1
    assert house.client.deployments.get(name)["phase"] == "ACTIVE"


def test_three_replicas_become_one(house: House) -> None:
    house.apply("smaller", "--chunk-interval", "0.1", replicas={"min": 3, "max": 3}).wait("ready", timeout_s=PATIENCE_S)
    until(lambda: house.replicas("smaller") == ["running"] * 3, "three replicas")
    with Load(house.installation, "smaller") as load:
        house.client.deployments.scale("smaller", minimum=1, maximum=1)
        until(lambda: house.replicas("smaller") == ["running"], "two of them to have drained and gone")
        load.more()
    assert "replica.failed" not in house.codes("smaller")


def test_it_is_put_to_sleep_while_asked_and_sleeps_and_is_woken_by_many(house: House) -> None:
    house.apply("sleepy", replicas={"min": 0, "max": 1, "initial": 1}).wait("ready", timeout_s=PATIENCE_S)
    with Load(house.installation, "sleepy") as load:
        for number in range(1, 4):
            house.client.deployments.pause("sleepy")
            until(lambda n=number: decided(house) == n, "the pause to be carried out or given up")
            load.more()
    house.client.deployments.pause("sleepy")
    until(lambda: house.client.deployments.get("sleepy")["phase"] == "SCALED_TO_ZERO", "it to sleep")
    with Load(house.installation, "sleepy") as load:
        load.more()
    assert "deploy.wake_request" in house.codes("sleepy")


def decided(house: House) -> int:
    """How many pauses of it are over, one way or the other."""
    codes = house.codes("sleepy")
    return codes.count("deploy.pause_aborted") + codes.count("deploy.paused_by_person")
