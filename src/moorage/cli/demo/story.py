"""The demonstration, step by step. Each step says what it does, does it with the real commands, and checks the result.

A step that does not come out as told raises `StepFailed`; whatever happens, `play` cleans up and proves it.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from moorage.cli.demo.ask import Answer, ask
from moorage.cli.demo.narrator import Narrator
from moorage.cli.demo.stage import Stage, kill_server, set_up
from moorage.cli.rows import why
from moorage.cli.times import seconds, took
from moorage.client import Client
from moorage.demo.model import ALIAS, find_model
from moorage.domain.errors import MoorageError

STEPS = 7
START_LIMIT_S = 120.0
ASK_LIMIT_S = 120.0
SLEEP_AFTER_S = 3
BROKEN = "broken"
TOLD = frozenset({"Deployment", "Replica", "Worker"})


class StepFailed(Exception):
    """A step did not come out as told."""


class Story:
    """One performance.

    Args:
        stage: where it plays.
        narrator: who speaks.
    """

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self.stage = stage
        self.say = narrator
        self.client: Client

    def run(self) -> None:
        """All steps but the clean-up."""
        self.start()
        self.deploy()
        self.question("What is a harbour?")
        self.crash()
        self.sleep_and_wake()
        self.broken()

    def start(self) -> None:
        """Step 1."""
        self.say.step(1, STEPS, "A control plane, an agent and a gateway on this machine")
        began = time.monotonic()
        self._moor("up")
        self.client = Client.from_environment(self.stage.env)
        machine = self.client.machines.list()[0]
        self.say.good(f"machine {machine['name']} is {machine['state']}")
        self.say.measured("from nothing to ready", time.monotonic() - began)

    def deploy(self) -> None:
        """Step 2."""
        self.say.step(2, STEPS, "A real language model: SmolLM2-135M-Instruct, served by llama.cpp")
        self._write("model.yaml", _spec(minimum=1, idle_timeout="1h"))
        self.say.quote((self.stage.root / "model.yaml").read_text())
        began = time.monotonic()
        self._moor("apply", "-f", "model.yaml", "--wait", "--timeout", f"{START_LIMIT_S:g}s")
        self.say.good("its server is healthy and lists the model that was asked for: requests are routed to it")
        self.say.measured("from apply to live", time.monotonic() - began)

    def question(self, text: str) -> Answer:
        """Step 3: a question, as any OpenAI client would ask it."""
        self.say.step(3, STEPS, "A question through the gateway, answered as it is written")
        answer = self._ask(text)
        self.say.line(f"X-Request-Id {answer.request_id}: where it went is on record")
        self._moor("inspect", "request", answer.request_id)
        return answer

    def crash(self) -> None:
        """Step 4."""
        self.say.step(4, STEPS, "kill -9 of the model server")
        before = self._server_pid()
        self.say.command("kill", "-9", str(before))
        at = kill_server(before, "moorage.demo.server")
        began = time.monotonic()
        self._until(lambda: self._replaced(before), "the replacement to be live")
        live_s = time.monotonic() - began
        self.say.tell("What happened, as its history has it (times count from the kill):")
        rows = self._rows_since(at)
        self._show_rows(rows, at)
        self._first(rows, at, "noticed by the agent", "Worker", "Failed")
        self._first(rows, at, "withdrawn from routing, replacement queued", "Replica", "failed")
        self._first(rows, at, "replacement started", "Worker", "Starting")
        self.say.measured("replacement live (model loaded again)", live_s)
        self._ask("Say hello.")

    def sleep_and_wake(self) -> None:
        """Step 5."""
        self.say.step(5, STEPS, "Sleep when idle, wake on the next request")
        self._write("model.yaml", _spec(minimum=0, idle_timeout=f"{SLEEP_AFTER_S}s"))
        self.say.tell(
            f"The same file with replicas.min 0 and idle_timeout {SLEEP_AFTER_S}s; the model is not restarted:"
        )
        since = time.time()
        self._moor("apply", "-f", "model.yaml")
        self._until(lambda: self._phase() == "SCALED_TO_ZERO", "it to fall asleep")
        self._until(lambda: self._pids() == [], "the model server to be gone")
        rows = [c for c in self._rows_since(since) if c["object"]["kind"] == "Deployment"]
        self._show_rows(rows, seconds(rows[0]["at"]) if rows else since)
        self.say.good("SCALED_TO_ZERO: no process, no memory; the name still answers")
        answer = self._ask("What is a ship?")
        self.say.tell(
            "The request was held, the model was started, the answer came: "
            f"{took(answer.first_token_s)} to the first token instead of an error."
        )

    def broken(self) -> None:
        """Step 6."""
        self.say.step(6, STEPS, "A deployment that cannot work, and a wait that does not lie")
        self._write("broken.yaml", _broken())
        code = self._moor("apply", "-f", "broken.yaml", "--wait", expect=1)
        self.say.good(f"exit code {code}, with the reason: a pipeline stops here")

    # --- the clean-up ---------------------------------------------------------------------------------------------

    def clean_up(self) -> bool:
        """Step 7: stop all and prove it. False when something had to be killed or is left."""
        self.say.step(7, STEPS, "Clean up, and the proof of it")
        ok = self._command("down") == 0
        left = self.stage.processes()
        for pid in left:
            self.say.bad(f"process {pid} was still running; it is killed now")
            self.stage.kill(pid)
        self.stage.remove()
        if ok and not left:
            self.say.good("no process of it is left")
        self.say.good(f"{self.stage.root} is gone; nothing else was written")
        return ok and not left

    # --- what steps are made of -----------------------------------------------------------------------------------

    def _moor(self, *args: str, expect: int = 0) -> int:
        """Run a command as a person would, show its output, check its exit code."""
        code = self._command(*args)
        if code != expect:
            raise StepFailed(f"`moor {' '.join(args)}` ended with exit code {code}, not {expect}")
        return code

    def _command(self, *args: str) -> int:
        self.say.command("moor", *args)
        return self.stage.moor(args, lambda line: (self.say.passing if _is_waiting(line) else self.say.quote)(line))

    def _ask(self, text: str) -> Answer:
        self.say.line(f"> {text}")
        stream = self.say.stream()
        answer = ask(self.stage.gateway_url, ALIAS, text, stream, timeout_s=ASK_LIMIT_S)
        stream.end()
        self.say.measured("first token", answer.first_token_s)
        self.say.measured(f"all of it ({answer.pieces} pieces)", answer.total_s)
        return answer

    def _until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + START_LIMIT_S
        self.say.passing(f"waiting for {what}")
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.05)  # between two looks; what is waited for is the condition
        raise StepFailed(f"waited {START_LIMIT_S:g} s for {what}; last: {self._phase()}")

    def _phase(self) -> str:
        return str(self.client.deployments.get(ALIAS)["phase"])

    def _pids(self) -> list[int]:
        """Processes of the deployment's replicas that are not proven to be gone."""
        replicas = self.client.deployments.replicas(ALIAS)
        live = [r["run"] for r in replicas if r["status"] not in ("failed", "stopped")]
        workers = [worker for run in live for worker in self.client.runs.workers(run)]
        return [int(w["process"]["pid"]) for w in workers if w.get("process") and not w.get("ended_at")]

    def _server_pid(self) -> int:
        pids: list[int] = self._until(self._pids, "the model server")
        return pids[0]

    def _replaced(self, before: int) -> bool:
        return bool(self.client.deployments.get(ALIAS)["ready_replicas"]) and self._pids() not in ([], [before])

    def _rows_since(self, at: float) -> list[Mapping[str, Any]]:
        return [c for c in self.client.history(ALIAS) if seconds(c["at"]) >= at - 0.001 and c["object"]["kind"] in TOLD]

    def _show_rows(self, rows: list[Mapping[str, Any]], at: float) -> None:
        for change in rows:
            thing = change["object"]
            named = f"{thing['kind']} {str(thing['name']).removeprefix(ALIAS).strip('-')}"
            moved = f"→ {change['to']}" if change.get("to") and change.get("kind") != "note" else "(note)"
            after = f"+{took(max(0.0, seconds(change['at']) - at))}"
            self.say.line(f"│ {after:>9}  {named:<13} {moved:<26} {why(change)}".rstrip())

    def _first(self, rows: list[Mapping[str, Any]], at: float, what: str, kind: str, to: str) -> None:
        """Tell when an object of that kind first went to that state."""
        found = next((c for c in rows if c["object"]["kind"] == kind and c.get("to") == to), None)
        if found is None:
            raise StepFailed(f"the history does not have it: {what}")
        self.say.measured(what, max(0.0, seconds(found["at"]) - at))

    def _write(self, name: str, spec: Mapping[str, Any]) -> None:
        (self.stage.root / name).write_text(_yaml(spec))


def play(env: Mapping[str, str], *, keep: bool) -> int:
    """Perform it.

    Args:
        env: the caller's environment.
        keep: leave it running at the end, and say how to reach it.

    Returns:
        0 when every step came out as told and nothing was left.
    """
    find_model()  # says how to get it, before anything is started
    narrator = Narrator()
    stage = set_up(env)
    story = Story(stage, narrator)
    for signum in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal is a Ctrl-C as well
        signal.signal(signum, signal.default_int_handler)
    narrator.title("Moorage, on this machine, in seven steps. All of it lies in a temporary folder and goes again.")
    outcome = _perform(story)
    if keep and outcome == 0:
        _how_to_reach(stage, narrator)
        return 0
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it behind
    clean = story.clean_up()
    narrator.closing(outcome == 0 and clean)
    return outcome or (0 if clean else 1)


def _perform(story: Story) -> int:
    try:
        story.run()
    except KeyboardInterrupt:
        story.say.bad("interrupted")
        return 130
    except StepFailed as failed:
        story.say.bad(str(failed))
        return 1
    except MoorageError as error:
        story.say.bad(f"{error.message}{f'; {error.remedy}' if error.remedy else ''}")
        return 1
    return 0


def _how_to_reach(stage: Stage, narrator: Narrator) -> None:
    narrator.tell("It is left running, as --keep says. To use it and to end it:")
    for line in (
        f"export MOORAGE_HOME={stage.home}",
        "moor status smollm2",
        f"""curl {stage.gateway_url}/v1/chat/completions -d '{{"model": "{ALIAS}", "messages": [...]}}'""",
        f"moor down && rm -r {stage.root}",
    ):
        narrator.line(line)


def _spec(*, minimum: int, idle_timeout: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "moorage.demo.server", "--model", "{model}", "--port", "{port}", "--alias", ALIAS]
    return {
        "kind": "Deployment",
        "name": ALIAS,
        "model": {"id": ALIAS, "source": str(find_model())},
        "runtime": {"command": command},
        "replicas": {"min": minimum, "max": 1},
        "scaling": {"idle_timeout": idle_timeout},
    }


def _broken() -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "name": BROKEN,
        "model": {"id": BROKEN},
        "runtime": {"command": ["/opt/nowhere/llama-server", "--port", "{port}"]},
    }


def _yaml(spec: Mapping[str, Any]) -> str:
    """Block style for mappings, flow style for lists: as people write it."""
    import yaml

    text: str = yaml.safe_dump(dict(spec), sort_keys=False, default_flow_style=None, width=1000)
    return text


def _is_waiting(line: str) -> bool:
    """Lines that a terminal would have overwritten."""
    return "waiting for " in line or line.startswith("stopping")
