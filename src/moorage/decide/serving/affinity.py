"""The same key comes to the same replica: rendezvous hashing with a bounded load.

Here: the order of replicas for a key, and how full the first may be before the next takes over. Not here: where keys
come from (the gateway's `toplevel`), who may take a request (`routes.TargetState.open_to`). Called by `picking`.

Each replica gets a score from the key and its own name; the highest takes the request. So a replica that comes or goes
moves only the keys that are its own: about one in n. A replica that has more in flight than a quarter above the mean
is passed over for the next in the key's order, so that one busy key never makes a hot spot while others idle.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from moorage.decide.serving.routes import TargetState

_MASK: Final = (1 << 64) - 1


def number_of(text: bytes) -> int:
    """64 bits of a text, the same in every process and on every machine (Python's `hash` is not)."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def score(key: int, replica: int) -> int:
    """How much a key likes a replica; both as `number_of` made them. The finaliser of splitmix64 over both."""
    mixed = (key ^ replica) * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)


def bound(in_flight: int, replicas: int) -> int:
    """How many one replica may have in flight with one more request: a quarter above the mean, rounded up.

    Args:
        in_flight: on all of them, without it.
        replicas: that are open.
    """
    return -(-5 * (in_flight + 1) // (4 * replicas))


def order(targets: "Sequence[TargetState]", number: int) -> "list[TargetState]":
    """All of them as a key likes them, the highest score first.

    Args:
        number: of the key, by `number_of`.
    """
    return sorted(targets, key=lambda target: score(number, target.number), reverse=True)


def first(ordered: "Sequence[TargetState]", now: float, limit: int) -> "TargetState | None":
    """The first in the key's order that is open and not above its bound; None when none is open.

    Args:
        ordered: by `order`, at least one.
    """
    best = ordered[0]
    here = best.in_flight
    if here < limit and not best.aside and 4 * len(ordered) * here < 5 * (here + 1):
        return best  # whatever the others have, and however many of them are open: its bound can only be higher
    in_flight = replicas = 0
    for target in ordered:
        if target.open_to(now, limit):
            in_flight += target.in_flight
            replicas += 1
    if not replicas:
        return None
    most = bound(in_flight, replicas)
    return next(target for target in ordered if target.in_flight < most and target.open_to(now, limit))
