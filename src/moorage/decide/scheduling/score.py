"""Which of the machines that fit is taken: the one whose free GPUs lose least of their use, then the fullest.

Fragmentation Gradient Descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): a free GPU is a fragment for a
kind of work that the machine cannot take, fragmentation is the expected number of fragments over the kinds of work that
the cluster sees, and each worker goes where it makes that number grow least. Kinds are the numbers of whole GPUs that
live work asks for, by how often; a GPU left without the CPU or memory that usually goes with one is a fragment for all.
So machines that are whole stay whole for large gangs, and work without GPUs keeps off the machines that have them. Ties
go to best fit (GPUs, memory, CPU left), then to the name, so that a cycle replays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from moorage.decide.scheduling.feasible import takes
from moorage.decide.scheduling.fleet import GPUS_MAX, Ints
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.policies import Policy, plain_keys
from moorage.decide.scheduling.snapshot import Ask, Request

# Parts of a key, high to low: 62 bits, so that a key is one positive word and orders machines by itself.
_FRAGMENTS_BITS, _GPUS_BITS, _MEMORY_BITS, _CPU_BITS, _RANK_BITS = 13, 7, 14, 10, 18
_MEMORY_UNIT = 256 << 20
_CPU_UNIT_MILLI = 250
_FRAGMENTS_UNIT = 32
"""Steps of fragmentation in one GPU."""

_SHARE_STEPS = 64
"""Steps of a share of the work: one run more or less must not give every machine another key."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The work that a cluster sees.

    Args:
        fragments: for each number of free GPUs (0 to 64), how many of them are fragments for the mean of that work.
        cpu_milli, memory_bytes: what usually goes with one GPU.
        policy: how machines are ordered; simulations compare others with production's.
        draw: decides what a random policy does.
    """

    fragments: tuple[float, ...]
    cpu_milli: int = 0
    memory_bytes: int = 0
    policy: Policy = Policy.FGD
    draw: int = 0

    @staticmethod
    def of(counts: Iterable[tuple[Request, int]], policy: Policy = Policy.FGD, draw: int = 0) -> "Mix":
        """The mix of these requests, each with how often it is seen.

        A worker of 1 and one of 8 GPUs are always thought of too: the smallest work there is, and a whole machine.
        """
        sizes = np.zeros(GPUS_MAX + 1)
        sizes[1] = sizes[8] = 0.1
        cpu: dict[int, int] = {}
        memory: dict[int, int] = {}
        for request, count in counts:
            gpus = request.gpus
            if gpus:
                sizes[min(gpus, GPUS_MAX)] += count
                for seen, each in ((cpu, request.cpu_milli // gpus), (memory, request.memory_bytes // gpus)):
                    seen[each] = seen.get(each, 0) + count * gpus
        above = 1.0 - np.cumsum(sizes) / sizes.sum()
        shares = np.rint(above * _SHARE_STEPS) / _SHARE_STEPS * np.arange(GPUS_MAX + 1)
        return Mix(tuple(shares.tolist()), _middle(cpu), _middle(memory), policy, draw)


def _middle(seen: Mapping[int, int]) -> int:
    """The median of values, each seen so often."""
    half = sum(seen.values()) / 2
    for value in sorted(seen):
        half -= seen[value]
        if half <= 0:
            return value
    return 0


NOWHERE = (1 << 63) - 1
"""The key of a machine on which the work does not fit."""


def fit_keys(ledger: Ledger, ask: Ask, mix: Mix) -> Ints:
    """For every machine its key, `NOWHERE` where such a worker does not fit now. Not to be changed by the caller.

    Kept for the fleet; what this cycle took is mended in a copy.
    """
    if mix.policy is not Policy.FGD or ledger.touched is None:
        return _fit_keys(ledger, ask, np.arange(ledger.fleet.height), mix)
    found = ledger.fleet.kept(("keys", ask, mix), lambda rows: _fit_keys(Ledger(ledger.fleet), ask, rows, mix))
    if ledger.touched:
        rows = np.fromiter(ledger.touched, np.int64, len(ledger.touched))
        found = found.copy()
        found[rows] = _fit_keys(ledger, ask, rows, mix)
    return found


def _fit_keys(ledger: Ledger, ask: Ask, rows: Ints, mix: Mix) -> Ints:
    found = np.full(len(rows), NOWHERE, np.int64)
    at = np.flatnonzero(takes(ledger.fleet, ask)[rows] & ledger.enough(ask, rows))
    found[at] = keys(ledger, ask, rows[at], mix)
    return found


def keys(ledger: Ledger, ask: Ask, rows: Ints, mix: Mix) -> Ints:
    """A number for each of these machines, all different: the lowest is the one to take."""
    if mix.policy is not Policy.FGD:
        return plain_keys(mix.policy, ledger, ask, rows, mix.draw)
    request, fleet = ask.request, ledger.fleet
    gpus = np.bitwise_count(ledger.gpus[rows]).astype(np.int64)
    cpu, memory = ledger.cpu[rows], ledger.memory[rows]
    cpu_left, memory_left = cpu - request.cpu_milli, memory - request.memory_bytes
    gpus_left = gpus - request.gpus
    grown = _fragments(mix, gpus_left, cpu_left, memory_left) - _fragments(mix, gpus, cpu, memory)
    steps = np.rint(grown * _FRAGMENTS_UNIT).astype(np.int64) + (1 << (_FRAGMENTS_BITS - 1))
    key = _clip(steps, _FRAGMENTS_BITS)
    # Held GPUs of a kind that was not asked for count as left too: a machine with GPUs is the last for work without.
    key = (key << _GPUS_BITS) | _clip(gpus_left, _GPUS_BITS)
    key = (key << _MEMORY_BITS) | _clip(memory_left // _MEMORY_UNIT, _MEMORY_BITS)
    key = (key << _CPU_BITS) | _clip(cpu_left // _CPU_UNIT_MILLI, _CPU_BITS)
    return (key << _RANK_BITS) | _clip(fleet.ranks[rows], _RANK_BITS)


def _fragments(mix: Mix, gpus: Ints, cpu: Ints, memory: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Expected fragments of machines with so much free."""
    served = gpus.copy()
    for have, each in ((cpu, mix.cpu_milli), (memory, mix.memory_bytes)):
        short = np.flatnonzero(have < gpus * each)  # few, and division is the dear part
        if len(short):
            served[short] = np.minimum(served[short], np.maximum(0, have[short]) // each)
    table = np.asarray(mix.fragments)
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = table[served] + (gpus - served)
    return found


def _clip(values: Ints, width: int) -> Ints:
    return np.clip(values, 0, (1 << width) - 1)
