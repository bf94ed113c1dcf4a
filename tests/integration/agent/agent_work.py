"""Assignments for agent tests."""

import sys
from pathlib import Path
from typing import Any

from moorage.wire.agent import Assignment, Launch, Ready, Stop

FAKE_MODEL = str(Path(__file__).parents[2] / "servers" / "fake_model.py")


def job(*command: str, worker: str = "wrk-1", epoch: int = 1, **launch: Any) -> Assignment:
    """A plain process."""
    return Assignment(worker=worker, run="run-1", epoch=epoch, launch=Launch(command=command, name="job", **launch))


def server(
    *options: str, worker: str = "wrk-1", epoch: int = 1, ready: Ready | None = None, **launch: Any
) -> Assignment:
    """A model server of the test kind that should list `m`."""
    command = (sys.executable, FAKE_MODEL, "--port", "{port}", "--host", "{host}", "--model", "m", *options)
    check = ready or Ready(model="m", interval_s=0.05)
    return job(*command, worker=worker, epoch=epoch, port=True, ready=check, **launch)


def stopping(assignment: Assignment, cause: str = "user", grace_s: float = 5.0) -> Assignment:
    """The same, asked to stop."""
    return assignment.model_copy(update={"desired": "stop", "stop": Stop(cause=cause, grace_s=grace_s)})
