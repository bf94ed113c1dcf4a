"""All workers in this machine's hands, brought to the desired set each time it changes.

Holds the `HeldWorker`s and the epochs ever seen, applies what `desired.compare` says, and answers what is held. Called
by the session's loops.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any

from moorage.agent import drives, setting_up, words
from moorage.agent.desired import Actions, HeldView, compare
from moorage.agent.held import HeldWorker
from moorage.agent.inventory import Ours
from moorage.agent.keeping import InUse, Keeping, prune_outputs, remove_output
from moorage.agent.ledger import Attempt, Remembered
from moorage.agent.means import Means
from moorage.domain.states import WorkerState
from moorage.runners.belonging import Mark
from moorage.runners.port import Hosted
from moorage.wire.agent import Assignment, Held, Launch, Stop

ATTEMPT_FILE = "attempt"


class Roster:
    """The held workers.

    Args:
        means: what workers share.
        rng: source of cookies; a cryptographic one.
        on_change: called when the desired set should be applied again.
    """

    def __init__(self, means: Means, rng: Random, on_change: Callable[[], None]) -> None:
        self._means = means
        self._rng = rng
        self._on_change = on_change
        self._held: dict[str, HeldWorker] = {}
        self._seen: dict[str, int] = {}
        self._confirmed: set[tuple[str, int]] = set()
        self._refused: set[tuple[str, int]] = set()
        self._writes: set[asyncio.Task[None]] = set()
        config = means.config
        self._keeping = Keeping(
            config.home / "workers",
            means.clock,
            means.log,
            budget_bytes=config.logs_bytes,
            age_s=config.logs_age_s,
            in_use=self._in_use,
        )
        self._kept: asyncio.Task[None] | None = None

    async def recall(self, remembered: Remembered) -> None:
        """Adopt, collect or fence what an earlier agent left."""
        self._seen = dict(remembered.epochs)
        for attempt in remembered.attempts:
            worker = self._held[attempt.worker] = HeldWorker(attempt, self._means, self._on_change)
            await worker.resume()

    # What is held

    def held(self) -> tuple[Held, ...]:
        """For reconciling: everything alive, or whose end the control plane may not know yet."""
        return tuple(w.to_held() for w in self._held.values() if not self._view(w).settled)

    def alive(self) -> dict[str, int]:
        """Worker → epoch of those whose process was seen alive now."""
        return {name: w.attempt.epoch for name, w in self._held.items() if w.seen_alive}

    def beats(self) -> dict[str, float]:
        """Worker → seconds since its program last beat, of those alive whose programs beat by themselves."""
        ages = {name: w.beat_age_s() for name, w in self._held.items() if w.seen_alive}
        return {name: age for name, age in ages.items() if age is not None}

    def cookies(self) -> dict[str, bool]:
        """Cookie → whether it is as it should be, of each attempt that the ledger knows."""
        return {w.attempt.cookie: w.attempt.ready or w.assignment.launch.ready is None for w in self._held.values()}

    def ours(self) -> Ours:
        """By what processes of held workers are known, and which GPUs they have."""
        unended = self._unended()
        gpus = frozenset(index for w in unended for index in w.assignment.launch.gpus)
        return Ours(tuple(_mark(w) for w in unended), gpus)

    @property
    def shortest_silence_s(self) -> float:
        """The shortest time without heartbeats that means something to anything held; infinite where nothing is."""
        return min((_silence_s(w.assignment.launch) for w in self._unended()), default=math.inf)

    @property
    def longest_grace_s(self) -> float:
        """The longest grace that a stop of all would give."""
        return max((w.assignment.launch.stop_grace_s for w in self._unended()), default=0.0)

    @property
    def counts_contact(self) -> bool:
        """Whether something here is to be stopped when the control plane stays away."""
        return any(w.assignment.launch.on_disconnect == "stop" for w in self._unended())

    def _unended(self) -> list[HeldWorker]:
        return [w for w in self._held.values() if not w.attempt.gone]

    def folder_of(
        self, worker: str, epoch: int | None, previous: bool = False, attempt: int | None = None
    ) -> Path | None:
        """Directory with the log of a worker's attempt, or None when it is not kept.

        Args:
            worker: uid.
            epoch: of that placement; None: the newest.
            previous: the placement before.
            attempt: instead of both: the newest placement of that attempt.
        """
        base = self._means.config.home / "workers" / worker
        found = {int(p.name.split("-")[0]): p for p in base.glob("*-*")} if base.is_dir() else {}
        if attempt is not None:
            return next((p for _, p in sorted(found.items(), reverse=True) if self.attempt_of(p) == attempt), None)
        newest = max(found, default=0)
        wanted = epoch if epoch is not None and not previous else newest
        if previous:
            wanted = max((e for e in found if e < (epoch if epoch is not None else newest)), default=-1)
        return found.get(wanted)

    def attempt_of(self, folder: Path) -> int | None:
        """Which attempt a directory is of; None where that was not written down."""
        try:
            return int((folder / ATTEMPT_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def has_ended(self, worker: str, folder: Path) -> bool:
        """Whether nothing more will be written to the log in this directory."""
        held = self._held.get(worker)
        return held is None or held.folder != folder or held.attempt.gone

    def hosted(self, worker: str, epoch: int | None) -> tuple[Hosted | None, str | None]:
        """What runs of a worker's placement here, and its state; (None, None) where it is not held."""
        held = self._held.get(worker)
        if held is None or (epoch is not None and held.attempt.epoch != epoch):
            return None, None
        return held.process, held.attempt.state

    def reading(self, folder: Path) -> None:
        """Somebody reads the log in this directory now: it is not the first to go. From any thread."""
        self._keeping.reading(folder)

    def keep(self) -> None:
        """From now on keep what of ended workers is to be kept, and no more: see `keeping`."""
        prune_outputs(self._means.config.home / "output", self._outputs())
        self._remove_copies()
        self._kept = asyncio.create_task(self._keeping.keep())
        self._kept.add_done_callback(self._note_failure)

    def folders(self) -> list[tuple[str, Path]]:
        """The workers of which something may still run here, each with its directory."""
        return [(name, worker.folder) for name, worker in self._held.items() if not worker.attempt.gone]

    def _in_use(self) -> InUse:
        held = self._held.values()
        return InUse(frozenset(w.folder for w in held), frozenset(w.assignment.run for w in held))

    def _outputs(self) -> set[Path]:
        return {setting_up.output_of(w.assignment, self._means.config) for w in self._held.values()}

    def _remove_copies(self) -> None:
        """Copies of drives go with the last worker of their run."""
        gone = drives.set_aside(self._means.config.data_location, {w.assignment.run for w in self._held.values()})
        if gone:
            self._keep(asyncio.to_thread(drives.remove, gone, self._means.log))

    def _ended(self, worker: HeldWorker) -> None:
        failed = worker.attempt.state not in (WorkerState.COMPLETED, WorkerState.CANCELLED)
        self._keeping.ended(worker.folder, worker.assignment.run, failed=failed)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._means.log.error("internal error", exc_info=task.exception())

    @property
    def all_gone(self) -> bool:
        """Whether nothing runs here."""
        return all(w.attempt.gone or not w.born for w in self._held.values())

    # Bringing it to the desired set

    def apply(self, assignments: Sequence[Assignment]) -> Actions:
        """Start, stop and forget what follows from the desired set; what it did is returned."""
        actions = compare(assignments, {n: self._view(w) for n, w in self._held.items()}, self._seen)
        for name in actions.forget:
            self._forget(name)
        for assignment in actions.go:
            self._held[assignment.worker].go(assignment)
        for assignment in actions.stop:
            self._held[assignment.worker].stop(_stop_of(assignment))
        for name in actions.supersede:
            self._held[name].stop(Stop(cause="default", text="a newer attempt is placed here"))
        for assignment in actions.absent:
            self._confirm_absent(assignment)
        for assignment in actions.refused:
            self._refuse(assignment)
        for assignment in actions.start:
            self._start(assignment)
        return actions

    def stop_unwanted(self, names: Sequence[str]) -> None:
        """Stop what reconciling says must not run here."""
        for name in names:
            worker = self._held.get(name)
            if worker is not None and not worker.attempt.gone:
                launch = worker.assignment.launch
                worker.stop(Stop(cause="default", signal=launch.stop_signal, grace_s=launch.stop_grace_s))

    def drain(self) -> None:
        """Stop everything; this agent goes away with its workers."""
        for worker in self._held.values():
            worker.drain(self._means.config.name)

    async def close(self) -> None:
        """Let go of everything without touching it."""
        if self._kept is not None:
            self._kept.cancel()
            await asyncio.gather(self._kept, return_exceptions=True)
        await asyncio.gather(*(w.close() for w in self._held.values()))
        if self._writes:
            await asyncio.gather(*self._writes)

    def _view(self, worker: HeldWorker) -> HeldView:
        attempt = worker.attempt
        settled = attempt.gone and attempt.last_seq <= self._means.outbox.acknowledged
        return HeldView(attempt.epoch, worker.born, attempt.gone, settled, worker.waits_for_go)

    def _start(self, assignment: Assignment) -> None:
        self._seen[assignment.worker] = max(assignment.epoch, self._seen.get(assignment.worker, 0))
        cookie = f"{self._rng.getrandbits(128):032x}"
        folder = self._means.config.home / "workers" / assignment.worker / f"{assignment.epoch}-{cookie[:8]}"
        before = self._held.get(assignment.worker)
        again = before.attempt if before is not None and before.attempt.epoch == assignment.epoch else None
        attempt = Attempt(
            worker=assignment.worker,
            state=again.state if again else "Pending",
            port=again.port if again else None,
            rendezvous=again.rendezvous if again else None,
            epoch=assignment.epoch,
            cookie=cookie,
            folder=str(folder),
            assignment=assignment.model_dump_json(),
            digest=assignment.digest,
        )
        self._note_attempt(folder, assignment.attempt)
        worker = self._held[assignment.worker] = HeldWorker(attempt, self._means, self._on_change)
        if before is not None:
            self._ended(before)
        worker.begin()

    def _note_attempt(self, folder: Path, attempt: int) -> None:
        """For whoever asks for the log of an attempt, long after it is forgotten here."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / ATTEMPT_FILE).write_text(f"{attempt}\n")
        except OSError as cause:  # the start itself meets the same disk, and tells
            self._means.log.warning("cannot write down the attempt", folder=str(folder), why=str(cause))

    def _confirm_absent(self, assignment: Assignment) -> None:
        """A stop for what is not here: its absence is proven by the ledger, so it is confirmed."""
        key = (assignment.worker, assignment.epoch)
        held = self._held.get(assignment.worker)
        if key in self._confirmed or (held is not None and held.attempt.state == WorkerState.CANCELLED):
            return
        self._confirmed.add(key)
        self._seen[key[0]] = max(key[1], self._seen.get(key[0], 0))
        self._keep(self._means.ledger.saw(*key))
        attempt = Attempt(worker=key[0], epoch=key[1], cookie="", folder="", assignment="", gone=True)
        self._means.outbox.note(attempt, [words.cancelled(None, False)], gone=True)

    def _refuse(self, assignment: Assignment) -> None:
        key = (assignment.worker, assignment.epoch)
        if key not in self._refused:
            self._refused.add(key)
            seen = self._seen.get(assignment.worker)
            self._means.log.warning("refused an old command", worker=key[0], epoch=key[1], seen=seen)

    def _forget(self, name: str) -> None:
        worker = self._held.pop(name)
        self._means.ports.give_back(name)
        self._keep(worker.close())
        self._keep(self._means.ledger.forget(name))
        self._ended(worker)
        self._remove_copies()
        remove_output(setting_up.output_of(worker.assignment, self._means.config), self._outputs())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)


def _mark(worker: HeldWorker) -> Mark:
    identity = worker.process.identity if worker.process is not None else None
    if identity is None:
        return Mark(worker.attempt.cookie)
    return Mark(worker.attempt.cookie, identity.pid, identity.cgroup)


def _stop_of(assignment: Assignment) -> Stop:
    launch = assignment.launch
    return assignment.stop or Stop(cause="default", signal=launch.stop_signal, grace_s=launch.stop_grace_s)


def _silence_s(launch: Launch) -> float:
    own = launch.disconnect_after_s if launch.on_disconnect == "stop" else math.inf
    return min(launch.heartbeat_ttl_s, own)
