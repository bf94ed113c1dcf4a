"""What is known here of one attempt, and how the control plane is told of it.

The one place that changes an attempt's row and queues its reports; nothing here waits, starts or stops anything.
Used by `held` and by those that do its work: `preparing` and `serving`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.agent import words
from moorage.agent.ledger import Attempt
from moorage.agent.means import Means
from moorage.agent.models.shelf import Entry
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, WorkerState
from moorage.runners import logfile
from moorage.runners.identity import Exit
from moorage.runners.port import Hosted, PullProgress
from moorage.wire.agent import Assignment, Held, Launch, StepReport


class Account:
    """One attempt as the ledger has it, or is about to.

    Args:
        attempt: as the ledger has it.
        means: what workers share.
    """

    def __init__(self, attempt: Attempt, means: Means) -> None:
        self.attempt = attempt
        self.assignment = Assignment.model_validate_json(attempt.assignment)
        self.log = means.log.bind(worker=attempt.worker, epoch=attempt.epoch)
        self._means = means

    # What is known

    @property
    def launch(self) -> Launch:
        """What it is."""
        return self.assignment.launch

    @property
    def folder(self) -> Path:
        """Its own directory."""
        return Path(self.attempt.folder)

    @property
    def ended(self) -> bool:
        """Whether its end was reported."""
        return self.attempt.state in ENDED_WORKER

    @property
    def at_barrier(self) -> bool:
        """Whether it was reported to wait at the barrier of its gang, and nothing since."""
        return self.attempt.state == WorkerState.READY_TO_START

    @property
    def address(self) -> str | None:
        """Where its server answers, `HOST:PORT`."""
        return self._here(self.attempt.port)

    @property
    def rendezvous(self) -> str | None:
        """Where the others of its gang meet it, `HOST:PORT`; None for one that does not lead."""
        return self._here(self.attempt.rendezvous)

    def _here(self, port: int | None) -> str | None:
        return None if port is None else f"{self._means.config.host}:{port}"

    def held(self, process: Hosted | None) -> Held:
        """As reconciling reports it; what is still being set up counts as alive."""
        identity = process.identity if process is not None else None
        return Held(
            worker=self.attempt.worker,
            epoch=self.attempt.epoch,
            alive=process.alive if process is not None else not self.attempt.gone,
            state=self.attempt.state,
            address=self.address,
            process=identity.to_wire() if identity else None,
            exit_code=self.attempt.exit_code,
            ready=self.attempt.ready and not self.ended,
            gpus=self.assignment.launch.gpus,
            cpu_milli=self.assignment.launch.cpu_milli,
            memory_bytes=self.assignment.launch.memory_bytes,
        )

    # Changing it

    def set(self, **fields: Any) -> None:
        """Change the row in memory; it goes to disk with the next report or `save`."""
        self.attempt = replace(self.attempt, **fields)

    def assigned(self, assignment: Assignment) -> None:
        """The control plane said more of it (where the others of its gang are)."""
        self.assignment = assignment
        self.set(assignment=assignment.model_dump_json())

    async def save(self) -> None:
        """On disk when this returns."""
        await self._means.ledger.update(self.attempt)

    def report(self, steps: list[StepReport], **news: Any) -> None:
        """Queue a report; the row goes to disk with it."""
        self.attempt = self._means.outbox.add(self.attempt, steps, **news)

    def give_ports_back(self) -> None:
        """All of its ports are free again."""
        self._means.ports.give_back(self.attempt.worker)
        self._means.relays.close(self.attempt.worker)

    # On its way up

    def pulling(self, progress: PullProgress) -> None:
        """Its image is being fetched. At the barrier (a second time, after a restart of the agent) it is no news."""
        if self.attempt.state == WorkerState.PULLING:
            self.report([], ready=False, ready_why=words.pull_reason(progress).to_wire())
        elif self.attempt.state in (WorkerState.PENDING, WorkerState.PREPARING):
            self.report([*self._picked_up(), words.pulling(progress)])

    def fetching(self, why: Reason) -> None:
        """Its model is being fetched; why it is so far."""
        if self.attempt.state in (WorkerState.PENDING, WorkerState.PREPARING):
            self.report([*self._picked_up(), words.step(WorkerState.PULLING, "pulling", why)])
        else:
            self.report([], ready=False, ready_why=why.to_wire())

    def fetched(self, entry: Entry) -> None:
        """Its model is here: which bytes, is said once to whoever watched it come."""
        if self.attempt.state == WorkerState.PULLING:
            commit = entry.source.revision
            why = reason("model.fetched", source=str(entry.source), commit=commit, size=entry.size)
            self.report([], ready=False, ready_why=why.to_wire())

    def reached_barrier(self) -> None:
        """It is set up and waits for the other members of its gang."""
        if not self.at_barrier:
            self.report([*self._picked_up(), words.at_barrier()], rendezvous=self.rendezvous)
        elif self.rendezvous is not None:  # a second time, after a restart of the agent
            self.report([], rendezvous=self.rendezvous)

    def running(self, process: Hosted) -> None:
        """Its command executes."""
        identity = process.identity
        steps = self._path_up(process)
        if steps:
            self.report(steps, process=identity.to_wire() if identity else None, address=self.address)

    def ready(self, ready: bool) -> None:
        """Its server is ready, or is so again."""
        self.set(ready=ready)
        self.report([], ready=ready, address=self.address)

    def not_ready(self, why: Reason) -> None:
        """Its server is not ready (any more), and why."""
        self.set(ready=False)
        self.report([], ready=False, ready_why=why.to_wire())

    # Its end

    def failed(self, why: Reason, process: Hosted) -> None:
        """It was given up, and is about to be ended."""
        self.set(ready=False)
        self.report([*self._picked_up(), words.failed(why)], log_tail=logfile.tail(process.folder))
        self.log.warning("failed", code=why.code, why=why.message)

    def exited(self, process: Hosted, how: Exit) -> None:
        """Its command ended, and nobody had asked for that."""
        end = words.ended(how, rebooted=process.rebooted)
        never_ran = (how.error and how.code is not None) or end.trigger == "vanished"
        steps = self._picked_up() if never_ran else self._path_up(process)
        self.set(exit_code=how.code, ready=False)
        log_tail = logfile.tail(self.folder) if end.to == WorkerState.FAILED else None
        self.report([*steps, end], exit_code=how.code, signal=how.signal or None, log_tail=log_tail)
        self.log.info("exited", code=how.code, signal=how.signal, oom=how.oom, error=how.error)

    def gone(self, steps: list[StepReport], **news: Any) -> None:
        """Nothing of it is left here, proven."""
        self.set(gone=True, ready=False)
        self.give_ports_back()
        before = self._picked_up() if any(s.to == WorkerState.DOWN for s in steps) else []
        self.report([*before, *steps], gone=True, **news)

    def not_started(self, why: Reason) -> None:
        """Nothing was executed: the failure is also the proof that nothing of it is here."""
        self.gone([*self._picked_up(), words.failed(why)])
        self.log.warning("not started", code=why.code, why=why.message)

    def _picked_up(self) -> list[StepReport]:
        return [words.picked_up()] if self.attempt.state == WorkerState.PENDING else []

    def _path_up(self, process: Hosted) -> list[StepReport]:
        identity = process.identity
        container = identity.to_wire().get("container") if identity else None
        return words.missing_path(self.attempt.state, identity.pid if identity else None, container)
