"""The runner's table: one model server on one machine, in the library and in the hands of the agent."""

from collections.abc import Mapping

from moorage.domain.states import RunnerState as S
from moorage.domain.transitions import Table, rows

TRIGGERS: Mapping[str, str] = {
    "pull": "its image or model is fetched before the start",
    "load": "its server was started and loads",
    "ready": "health passed, and the warm-up delay after it",
    "restart": "its server ended, timed out or is unhealthy, and is started again within the restart limit",
    "exited_zero": "its server ended with exit code 0 and nobody had stopped it",
    "stop": "it was asked to stop; written first, so that no watcher restarts it",
    "stopped": "nothing of its server is left",
    "restarts_exhausted": "its server ended or timed out, and the restart limit is spent",
    "failed": "it cannot be pulled or started at all",
}
"""Trigger word → what happened."""

RUNNER = Table(
    "Runner",
    S,
    (S.STOPPED,),
    (
        *rows(S.STOPPED, "pull", S.PULLING),
        *rows(S.STOPPED, "load", S.LOADING),
        *rows(S.PULLING, "load", S.LOADING),
        *rows(S.PULLING, "stop", S.STOPPING),
        *rows(S.PULLING, "failed", S.ERROR),
        *rows(S.LOADING, "ready", S.RUNNING),
        *rows(S.LOADING, "restart", S.LOADING),
        *rows(S.LOADING, "exited_zero", S.STOPPED),
        *rows(S.LOADING, "stop", S.STOPPING),
        *rows(S.LOADING, "restarts_exhausted", S.ERROR),
        *rows(S.LOADING, "failed", S.ERROR),
        *rows(S.RUNNING, "restart", S.LOADING),
        *rows(S.RUNNING, "exited_zero", S.STOPPED),
        *rows(S.RUNNING, "stop", S.STOPPING),
        *rows(S.RUNNING, "restarts_exhausted", S.ERROR),
        *rows(S.STOPPING, "stopped", S.STOPPED),
        *rows(S.ERROR, "load", S.LOADING),
        *rows(S.ERROR, "pull", S.PULLING),
        *rows(S.ERROR, "stop", S.STOPPING),
        *rows(S.ERROR, "stopped", S.STOPPED),
    ),
)
"""A stopped or failed model starts again in place, so that no state is terminal."""
