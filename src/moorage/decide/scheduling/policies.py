"""Other ways to order the machines that fit: what simulations compare `score` with. Production uses none of them.

Each policy gives every machine a different number, the lowest to be taken first. `draw` stands for chance: the caller
chooses it, so that a cycle replays.
"""

from enum import StrEnum

import numpy as np

from moorage.decide.scheduling.fleet import Bits, Ints
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.snapshot import Ask


class Policy(StrEnum):
    """How the machines that fit are ordered."""

    FGD = "fgd"
    """what production does: Fragmentation Gradient Descent (`score`)"""
    BEST_FIT = "best-fit"
    """the machine with the least left: CPU, memory and GPUs, each as a part of the largest machine's"""
    FIRST_FIT = "first-fit"
    """the first by name"""
    RANDOM = "random"
    """any"""


_LEFT_STEPS = 1 << 30
_RANK_BITS = 18
_WORD = (1 << 64) - 1


def plain_keys(policy: Policy, ledger: Ledger, ask: Ask, rows: Ints, draw: int) -> Ints:
    """A number for each of these machines, all different: the lowest is the one to take.

    Args:
        policy: any but `FGD`.
        draw: decides what `RANDOM` does.
    """
    ranks = ledger.fleet.ranks[rows]
    if policy is Policy.FIRST_FIT:
        return ranks
    if policy is Policy.RANDOM:
        return _shuffled(ledger, rows, ranks, draw)
    found: Ints = (_left(ledger, ask, rows) << _RANK_BITS) | ranks
    return found


def _left(ledger: Ledger, ask: Ask, rows: Ints) -> Ints:
    """What a machine would have left, summed over resources, in steps."""
    request, fleet = ask.request, ledger.fleet
    gpus = np.bitwise_count(ledger.gpus[rows]).astype(np.int64) - request.gpus
    whole = np.bitwise_count(fleet.base("usable")).max(initial=1)
    parts = (
        gpus / max(1, int(whole)),
        (ledger.cpu[rows] - request.cpu_milli) / max(1, int(fleet.base("limit_cpu").max(initial=1))),
        (ledger.memory[rows] - request.memory_bytes) / max(1, int(fleet.base("limit_memory").max(initial=1))),
    )
    left = np.maximum(0.0, parts[0] + parts[1] + parts[2])
    steps: Ints = np.rint(left * _LEFT_STEPS).astype(np.int64)
    return steps


def _shuffled(ledger: Ledger, rows: Ints, ranks: Ints, draw: int) -> Ints:
    """Machines in an order drawn anew for every draw, and for a machine whenever something is taken from it."""
    word: Bits = ranks.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    word ^= ledger.gpus[rows] ^ (ledger.cpu[rows].astype(np.uint64) << np.uint64(20)) ^ np.uint64(draw & _WORD)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    word ^= word >> np.uint64(31)
    found: Ints = ((word >> np.uint64(_RANK_BITS + 1)).astype(np.int64) << _RANK_BITS) | ranks
    return found
