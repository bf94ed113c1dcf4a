"""The ledger of limits: how much of each limit each gateway may use, so that all of them together never exceed it.

Here: who is counted with how much, and what each gateway is told next. Pure: values and `now` in, shares out. Not
here: what is written down before it is told (`control/slices`, which calls this), the limits themselves, how a gateway
keeps to its share (`gateway/limits`).

The rule. What a gateway may have admitted is `counted`: the most of what it was told, what it says that it keeps to,
and what it used within the window. A share is raised only by what all the others' counted amounts leave of the limit;
it is lowered by telling so, and what that frees is free when the gateway's next report confirms it. So the order of a
gateway's reports matters (`sequence`), and a lost answer costs nothing: what was told stays counted. A ledger that was
restored does not know which reports came before; it lowers nothing until a gateway shows that it took an answer of
this very ledger (`epoch`).

A gateway that says no more is counted for `hold_s`, and in windows for as long again as its last admission stays in
one. One that is proven gone (it said goodbye, or its successor of the same id reported) is counted in windows only,
until what it may have admitted has left them.

The policy. What is used and wanted is met first, from the smallest to the largest; then some air for what grows; then
each that spoke of the limit is given an equal part for each live gateway, used or not. The rest stays free for whoever
asks. An idle part is lent away when others want it, and comes back the same way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.domain.incarnations import is_before

WINDOW_S: Final = 61.0
"""How long an admission is counted: 60 s, and the second that a gateway's window may be late to forget it."""

HOLD_S: Final = 600.0
LIVE_S: Final = 30.0
"""A gateway that was silent for longer has no part in what is shared out; what it has stays counted."""

UNMET_S: Final = 10.0
"""How long a wish that could not be met is kept in mind while it is not repeated: a refused client comes again."""

TURN_S: Final = 120.0
"""After so long another gateway gets the odd unit of a limit smaller than their number."""

IN_FLIGHT: Final = "in_flight"
_AIR: Final = 16
"""What is used may grow by up to a sixteenth or two of the limit before more must be asked for."""

Of = tuple[str, str]
"""A limit: (subject, resource)."""


@dataclass(frozen=True, slots=True)
class Want:
    """What a gateway has and needs of a limit; fields as in the routing messages."""

    subject: str
    resource: str
    share: int = 0
    used: int = 0
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """A share that a gateway is told."""

    subject: str
    resource: str
    limit: int
    share: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What must outlive the process of one gateway's amounts.

    Args:
        counted: by limit, of the incarnation.
        left: by limit, what incarnations that are gone may have admitted within a window.
        past: incarnations that are gone, of which a report may still be on its way.
    """

    incarnation: str
    counted: Mapping[Of, int]
    left: Mapping[Of, int] = field(default_factory=dict)
    past: tuple[str, ...] = ()


def outgrown(disk: Kept | None, kept: Kept | None) -> bool:
    """Whether what is on disk counts less than what is so, and must be written before anything more is told.

    What counts more than it should is safe: it is corrected in time.
    """
    if kept is None or disk is None:
        return kept is not None
    return (
        disk.incarnation != kept.incarnation
        or any(disk.counted.get(of, 0) < amount for of, amount in kept.counted.items())
        or any(disk.left.get(of, 0) < amount for of, amount in kept.left.items())
    )


@dataclass(slots=True)
class _Part:
    """A gateway's part of one limit."""

    counted: int = 0
    used: int = 0
    wanted: int = 0
    wanted_at: float = 0.0


@dataclass(slots=True)
class _Left:
    """What a gateway that is gone may have admitted: counted until it has left every window."""

    of: Of
    amount: int
    until: float


@dataclass(slots=True, eq=False)
class _Holder:
    """A gateway."""

    incarnation: str
    heard_at: float
    sequence: int = 0
    parts: dict[Of, _Part] = field(default_factory=dict)
    left: list[_Left] = field(default_factory=list)
    past: dict[str, float] = field(default_factory=dict)
    """incarnations that are gone, and until when a report of theirs is taken for one that was late"""


@dataclass(frozen=True, slots=True)
class _Around:
    """What is alike for all limits of one report.

    Args:
        holders: each gateway, and whether it is live.
        live: how many are.
        gone: by limit, what is left of gateways that are gone.
    """

    now: float
    holders: Sequence[tuple[_Holder, bool]]
    live: int
    gone: Mapping[Of, int]
    turn: int


class Ledger:
    """All shares of all limits.

    Args:
        hold_s: how long a silent gateway is counted.
    """

    def __init__(self, hold_s: float = HOLD_S) -> None:
        self.hold_s = hold_s
        self.epoch = ""
        self._holders: dict[str, _Holder] = {}

    def restore(self, kept: Mapping[str, Kept], now: float, epoch: str) -> None:
        """Begin from what was written down: every gateway counts as heard just now, for nobody knows better.

        Args:
            epoch: never used before; goes with every answer, and comes back with the reports that follow it.
        """
        self.epoch = epoch
        self._holders = {
            gateway: _Holder(
                of.incarnation,
                now,
                parts={limit: _Part(counted=amount) for limit, amount in of.counted.items()},
                left=[_Left(limit, amount, now + WINDOW_S) for limit, amount in of.left.items()],
                past=dict.fromkeys(of.past, now + WINDOW_S),
            )
            for gateway, of in kept.items()
        }

    def kept(self, gateway: str) -> Kept | None:
        """What must be on disk before the gateway hears of it; None: nothing."""
        holder = self._holders.get(gateway)
        if holder is None:
            return None
        counted = {of: part.counted for of, part in holder.parts.items() if part.counted}
        left: dict[Of, int] = {}
        for gone in holder.left:
            left[gone.of] = left.get(gone.of, 0) + gone.amount
        return Kept(holder.incarnation, counted, left, tuple(sorted(holder.past))) if counted or left else None

    def gateways(self) -> Iterable[str]:
        """Those of which anything is known."""
        return self._holders.keys()

    def report(
        self,
        gateway: str,
        incarnation: str,
        wants: Sequence[Want],
        limit_of: Callable[[str, str], int | None],
        now: float,
        *,
        sequence: int = 0,
        epoch: str = "",
        leaving: bool = False,
    ) -> list[Told]:
        """Take a gateway's report and say what it may have now.

        Args:
            wants: of every limit of which it uses or needs anything.
            limit_of: (subject, resource) -> the limit of all gateways together, None where there is none (any more).
            now: monotonic seconds of whoever keeps the ledger.
            sequence: of the report; 0 of a gateway that does not number them.
            epoch: of the last answer that it took.
            leaving: it admits nothing more, and nothing of it runs.

        Returns:
            Its shares; of a limit that is not there nothing is said. Whatever `kept` says differently from before must
            be written down before they are told.
        """
        self._forget(now)
        holder = self._holder(gateway, incarnation, now)
        if holder is None or (sequence and sequence <= holder.sequence):
            return []
        holder.sequence, holder.heard_at = sequence, now
        if leaving:
            _leave(holder, {(w.subject, w.resource): w.used for w in wants}, now)
            return []
        in_order = epoch == self.epoch
        if in_order:
            spoken = {(w.subject, w.resource) for w in wants}
            holder.parts = {of: part for of, part in holder.parts.items() if of in spoken}
        answered = []
        around = self._around(now)
        for want in wants:
            told = self._settle(holder, want, limit_of(want.subject, want.resource), around, in_order)
            if told is not None:
                answered.append(told)
        return answered

    def used(self, subject: str, resource: str, now: float) -> int:
        """What live gateways say that they used of a limit within the last minute (in flight: now)."""
        of = (subject, resource)
        return sum(h.parts[of].used for h, live in self._around(now).holders if live and of in h.parts)

    def shares(self, subject: str, resource: str) -> dict[str, int]:
        """By gateway, what is counted of a limit: the sum is what cannot be given to others."""
        of = (subject, resource)
        found = {}
        for gateway, holder in self._holders.items():
            amount = sum(gone.amount for gone in holder.left if gone.of == of)
            amount += holder.parts[of].counted if of in holder.parts else 0
            if amount:
                found[gateway] = amount
        return found

    # --- inside --------------------------------------------------------------------------------------------------

    def _holder(self, gateway: str, incarnation: str, now: float) -> _Holder | None:
        """Who reports; None: one whose successor was heard already.

        A process that died before anything of it was heard is known by its beginning: its report came late. Should a
        clock have been set back between the two, the true successor waits until the one before it leaves the windows.
        """
        holder = self._holders.get(gateway)
        if holder is None:
            holder = self._holders[gateway] = _Holder(incarnation, now)
        elif holder.incarnation != incarnation:
            late = is_before(incarnation, holder.incarnation) and now - holder.heard_at < WINDOW_S
            if late or incarnation in holder.past:
                return None
            # Its successor reports: nothing of the one before runs any more, but its windows still count.
            _leave(holder, {of: part.counted for of, part in holder.parts.items()}, now)
            holder.past[holder.incarnation] = now + WINDOW_S
            holder.incarnation, holder.sequence = incarnation, 0
        return holder

    def _forget(self, now: float) -> None:
        """Drop what no longer counts."""
        for gateway, holder in list(self._holders.items()):
            if holder.left:
                holder.left = [gone for gone in holder.left if gone.until > now]
            if holder.past:
                holder.past = {past: until for past, until in holder.past.items() if until > now}
            silent_s = now - holder.heard_at
            if silent_s < self.hold_s:
                continue
            for of in [of for of in holder.parts if of[1] == IN_FLIGHT or silent_s >= self.hold_s + WINDOW_S]:
                del holder.parts[of]
            if not holder.parts and not holder.left:
                del self._holders[gateway]

    def _around(self, now: float) -> _Around:
        holders = [(holder, now - holder.heard_at <= LIVE_S) for holder in self._holders.values()]
        gone: dict[Of, int] = {}
        for holder, _ in holders:
            for left in holder.left:
                if left.until > now:
                    gone[left.of] = gone.get(left.of, 0) + left.amount
        return _Around(now, holders, sum(live for _, live in holders), gone, int(now // TURN_S))

    def _settle(self, holder: _Holder, want: Want, limit: int | None, around: _Around, in_order: bool) -> Told | None:
        """Note what one gateway said of one limit, and what it may have from now on."""
        of = (want.subject, want.resource)
        part = holder.parts.get(of)
        if part is None:
            part = holder.parts[of] = _Part()
        part.used = want.used
        if want.wanted or around.now - part.wanted_at > UNMET_S or want.share >= part.used + part.wanted:
            part.wanted, part.wanted_at = want.wanted, around.now
        sure = max(want.share, want.used, 0 if in_order else part.counted)
        part.counted = sure
        if limit is None:
            return None
        counted, claiming, away = 0, [], 0
        for other, is_live in around.holders:
            its = other.parts.get(of)
            if its is None:
                continue
            if other is not holder:
                counted += its.counted
            if is_live:
                claiming.append((other, its))
            else:
                away += its.counted
        gone = around.gone.get(of, 0)
        turn = around.turn % len(claiming)
        claiming = claiming[turn:] + claiming[:turn]
        needs = [min(limit, its.used + its.wanted) for _, its in claiming]
        fair = shared_out(max(0, limit - gone - away), limit, needs, limit // around.live)
        own = next(place for place, (other, _) in enumerate(claiming) if other is holder)
        share = min(fair[own], max(limit - counted - gone, want.share))
        part.counted = max(sure, share)
        return Told(want.subject, want.resource, limit, share)


def _leave(holder: _Holder, admitted: Mapping[Of, int], now: float) -> None:
    """A gateway's process is gone: what it may have admitted stays in the windows."""
    holder.left += [_Left(of, n, now + WINDOW_S) for of, n in admitted.items() if of[1] != IN_FLIGHT and n > 0]
    holder.parts.clear()


def shared_out(amount: int, limit: int, needs: Sequence[int], sure: int) -> list[int]:
    """Shares of what there is: needs first, then air above them, then an equal part.

    Args:
        amount: of the limit, what is not away with gateways that are silent or gone.
        needs: used and wanted, of each.
        sure: of each, used or not, as far as the needs of all leave it.
    """
    step = max(1, limit // _AIR)
    airy = [min(limit, (need // step + 2) * step) if need else 0 for need in needs]
    most = [max(sure, cap) for cap in airy]
    if sum(most) <= amount:
        return most
    found = [0] * len(needs)
    for caps in (needs, airy, most):
        more = filled(amount - sum(found), [max(0, cap - has) for cap, has in zip(caps, found, strict=True)])
        found = [has + extra for has, extra in zip(found, more, strict=True)]
    return found


def filled(amount: int, caps: Sequence[int]) -> list[int]:
    """Whole units up to each cap, the least raised first (max-min); of equals the last gets what does not divide."""
    found = [0] * len(caps)
    order = sorted(range(len(caps)), key=caps.__getitem__)
    for place, index in enumerate(order):
        found[index] = min(caps[index], amount // (len(caps) - place))
        amount -= found[index]
    return found
