"""What every namespace uses now, for people: its holdings, and what the next cycle would keep for it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.scheduling import reserve
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.quota import Budget, Usage


def used_now(book: Book, held: Iterable[Mapping[str, Any]], now: float) -> dict[str, dict[str, int]]:
    """By namespace, the sums over what is held and what is kept for restarts, replacements and preemption plans.

    Args:
        held: every holding, as the store gives it.
    """
    usage = Usage()
    by_machine: dict[str, list[Mapping[str, Any]]] = {}
    for holding in held:
        by_machine.setdefault(str(holding["machine"]), []).append(holding)
    for machine, here in by_machine.items():
        usage.put(machine, here)
    budget = Budget(book.fleet, used={namespace: dict(sums) for namespace, sums in usage.totals.items()})
    for kept in reserve.all_kept(book, Ledger(book.fleet), now):
        budget.used.setdefault(kept.namespace, {})
        budget.take(kept.namespace, kept.claim)
    budget.used.pop("", None)  # what is held by nobody that is known
    return budget.used
