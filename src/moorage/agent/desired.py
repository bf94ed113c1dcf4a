"""What to do about the desired set: pure, level-triggered, and deaf to anything older than what it has seen.

Compares the assignments of the control plane with what this machine holds and the highest epoch it ever saw of each
worker. Called by the agent at every change of either side; the same input gives the same actions, so nothing needs to
be remembered between two calls.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.wire.agent import Assignment


@dataclass(frozen=True, slots=True)
class HeldView:
    """One attempt that this machine has in its ledger.

    Args:
        epoch: its placement epoch.
        born: False when it is proven that its command was never executed; it may be started again.
        gone: its process tree is proven gone.
        settled: all that was seen of it has been acknowledged.
        waiting: it is kept back by the barrier of its gang.
    """

    epoch: int
    born: bool = True
    gone: bool = False
    settled: bool = False
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Actions:
    """What follows.

    Args:
        start: begin these.
        go: the barrier of the gang of these held workers is open.
        stop: end these held workers because the assignment says so.
        supersede: end these held workers: a newer epoch is placed here, and the old one goes first.
        forget: drop these from the ledger.
        absent: report that nothing of this epoch is here (a stop for something never started, done and forgotten, or
            done and told while the other side already wanted it stopped).
        refused: commands older than what was seen, ignored.
        unclaimed: held and alive, and the desired set does not name them: to be asked about by reconciling.
    """

    start: tuple[Assignment, ...] = ()
    go: tuple[Assignment, ...] = ()
    stop: tuple[Assignment, ...] = ()
    supersede: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    absent: tuple[Assignment, ...] = ()
    refused: tuple[Assignment, ...] = ()
    unclaimed: tuple[str, ...] = ()


def compare(assignments: Iterable[Assignment], held: Mapping[str, HeldView], seen: Mapping[str, int]) -> Actions:
    """The actions that bring this machine to the desired set.

    Args:
        assignments: the whole desired set.
        held: worker → what the ledger has of it.
        seen: worker → highest epoch ever seen in a command.
    """
    lists: dict[str, list[Assignment]] = {k: [] for k in ("start", "go", "stop", "absent", "refused")}
    supersede: list[str] = []
    forget: list[str] = []
    named = set()
    for wanted in assignments:
        named.add(wanted.worker)
        have = held.get(wanted.worker)
        if have is not None and have.epoch == wanted.epoch:
            what = _same_epoch(wanted, have)
            if what is not None:
                lists[what].append(wanted)
        elif have is not None and have.epoch < wanted.epoch and not have.gone:
            supersede.append(wanted.worker)
        elif wanted.desired == "stop":
            lists["absent"].append(wanted)
        elif wanted.epoch <= max(seen.get(wanted.worker, 0), have.epoch if have else 0):
            lists["refused"].append(wanted)
        else:
            if have is not None:
                forget.append(wanted.worker)
            lists["start"].append(wanted)
    unnamed = [w for w in held if w not in named]
    forget += [w for w in unnamed if held[w].gone and held[w].settled]
    return Actions(
        **{k: tuple(v) for k, v in lists.items()},
        supersede=tuple(supersede),
        forget=tuple(forget),
        unclaimed=tuple(w for w in unnamed if not held[w].gone),
    )


def _same_epoch(wanted: Assignment, have: HeldView) -> str | None:
    if wanted.desired == "stop":
        if not have.gone:
            return "stop"
        return "absent" if have.settled else None
    if have.gone:
        return None
    if not have.born:
        return "start"
    return "go" if wanted.go and have.waiting else None
