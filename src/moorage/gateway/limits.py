"""Limits of this gateway: which hold for a request, whether they admit it, who waits for a share, what is reported.

Here: accounts (the limits of a namespace, a key and an endpoint together), admission, waiting for the ledger's answer,
wants and slices of reports. Not here: counting (`spending`), texts and headers (`limit_answers`), the ledger itself
(the control plane's). The front end asks `admit` where `active` is set, the hub calls `ended` at each request's end.

A request is admitted by all of its limits or charged to none. One that lacks a share which the ledger may still give
waits for its answer, for at most two seconds; the report goes out at once. Nobody waits where that cannot help: while
the control plane is known to be away, and for longer and longer after waits in vain. Shares are kept to until `hold_s`
less half a minute after the report in answer to which they were told, by this process's own clock; then nothing is
admitted.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from moorage.decide.serving.routes import Refuse
from moorage.gateway import limit_answers, native
from moorage.gateway.spending import IN_FLIGHT, REQUESTS, TOKENS, Account, Limit, Permit, prompt_tokens
from moorage.gateway.tokens import Tokens
from moorage.wire.routing import Access, Binding, GatewayReportAnswer, RateLimits, SliceWant

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub

WAIT_S: Final = 2.0
MARGIN_S: Final = 30.0
"""How much earlier than the ledger a gateway lets go of its shares."""
_DRY_S: Final = (5.0, 20.0, 60.0)
"""For how long nobody waits for a limit after one wait in vain, two in a row, and more."""
_NUDGE_S: Final = 0.25
"""While requests wait, the control plane is asked so often: others give up a share within their next report."""
_WAITING_MAX: Final = 4096
_UNLIMITED: Final = 1 << 62
_IDLE_S: Final = 120.0
"""A limit of which nothing was used for so long is given back."""
_CONFIRM_S: Final = 0.25
"""A lowered share is confirmed at once, but no more often than this."""
_MOST_TOKENS = re.compile(rb'"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})')
"""A key in a string would have its quotes escaped; of several, the largest number counts."""

RESOURCES: Final = (REQUESTS, TOKENS, IN_FLIGHT)


class Ended(Protocol):
    """A request that is over, as far as this is concerned with it."""

    permit: Permit | None
    status: int
    tokens: Tokens | None
    rate_lines: bytes
    """header lines of its answer"""


class Limited(Ended, Protocol):
    """A request that begins."""

    def admitted(self) -> None:
        """It waited, and may go on."""
        ...

    def refuse(self, refusal: Refuse) -> None:
        """It waited in vain."""
        ...


class Limits:
    """All limits of one gateway process."""

    def __init__(self, hub: "Hub") -> None:
        self.active = False
        """whether anything at all is limited"""
        self.away = False
        """the control plane was asked and did not answer, so no share is to be had"""
        self.epoch = ""
        """of the ledger whose answer was taken last"""
        self._hub = hub
        core = native.core
        self._most_in_c = None if core is None else core.most_tokens
        self._spelled_in_c = None if core is None else core.spelled
        self._namespaces: Mapping[str, RateLimits] = {}
        self._keys: Mapping[str, RateLimits] = {}
        self._bindings: Mapping[str, RateLimits] = {}
        self._accounts: dict[tuple[str, str, str], Account] = {}
        self._former: list[Account] = []
        """accounts in whose place others are by now, as long as requests of theirs run"""
        self._limits: dict[tuple[str, str], Limit] = {}
        self._waiting: dict[Permit, Limited] = {}
        self._nudging = False
        self._confirmed_at = float("-inf")
        self._sent: object = []
        self._told: object = []

    # --- rules ---------------------------------------------------------------------------------------------------

    def configure(self, access: Access | None, bindings: Iterable[Binding]) -> None:
        """Take the limits of a routing table. Of one that stays, what was used stays counted."""
        rules = (
            {n.namespace: n.limits for n in access.namespaces if _any(n.limits)} if access else {},
            {k.uid: k.limits for k in access.keys if _any(k.limits)} if access else {},
            {b.uid: b.limits for b in bindings if _any(b.limits)},
        )
        if rules == (self._namespaces, self._keys, self._bindings):
            return
        self._namespaces, self._keys, self._bindings = rules
        self.active = any(rules)
        self._begin_accounts_anew()
        for (subject, resource), limit in list(self._limits.items()):
            most = self._most(subject, resource)
            if most is None:
                del self._limits[subject, resource]
                limit.share, limit.known_until = _UNLIMITED, float("inf")  # for those that wait for it
            else:
                limit.set_most(most)
        self._look_again()

    def _most(self, subject: str, resource: str) -> int | None:
        who, _, where = subject.partition("@")
        kind, _, name = who.partition("/")
        if where:
            rules: RateLimits | None = self._bindings.get(where.partition("/")[2])
        else:
            rules = self._namespaces.get(name) if kind == "namespace" else self._keys.get(name)
        most: int | None = getattr(rules, resource) if rules is not None else None
        return most

    def account(self, namespace: str, key: str, binding: str) -> Account:
        """The limits of a request.

        Args:
            namespace: name.
            key: uid; empty: without a key.
            binding: uid of the endpoint that people made and the request named; empty: none.
        """
        which = (namespace, key, binding)
        found = self._accounts.get(which)
        if found is None:
            found = self._accounts[which] = Account(tuple(self._holding_for(namespace, key, binding)))
        return found

    def _begin_accounts_anew(self) -> None:
        self._former = [account for account in self._all_accounts() if account.running]
        self._accounts.clear()

    def _all_accounts(self) -> Iterable[Account]:
        return chain(self._former, self._accounts.values())

    def _holding_for(self, namespace: str, key: str, binding: str) -> Iterable[Limit]:
        own = self._keys.get(key)
        for resource in RESOURCES:
            subjects = [f"namespace/{namespace}"]
            if own is not None and getattr(own, resource) is not None:
                subjects.append(f"key/{key}")
            elif binding:
                subjects.append(f"key/{key or '-'}@endpoint/{binding}")
            for subject in subjects:
                most = self._most(subject, resource)
                if most is not None:
                    yield self._limit(subject, resource, most)

    def _limit(self, subject: str, resource: str, most: int) -> Limit:
        limit = self._limits.get((subject, resource))
        if limit is None:
            limit = self._limits[subject, resource] = Limit(subject, resource, most, self._hub.time())
        return limit

    # --- requests ------------------------------------------------------------------------------------------------

    def admit(self, request: Limited, account: Account, length: int, body: Sequence[bytes]) -> Refuse | None:
        """Whether a request may go on.

        Args:
            account: as `account` says of it.
            length: of its body in bytes, -1 where it does not say.
            body: what has come of it.

        Returns:
            A refusal; or None, when it may go on or, where `request.permit.waiting` is set, waits until `admitted` or
            `refuse` of it is called.
        """
        if not account.limits:
            return None
        now = self._hub.time()
        if not account.tokens:
            tokens = prompt = 0
        else:
            prompt = prompt_tokens(length if length >= 0 else sum([len(part) for part in body]))
            most = _most_tokens(body, self._most_in_c)
            tokens = prompt + (most or account.usual)
            for limit in account.tokens:
                if tokens > limit.most:
                    refusal, request.rate_lines = limit_answers.too_large(limit, tokens, 0 if most else account.usual)
                    return refusal
        permit = Permit(account, tokens, prompt, now)
        if account.take(tokens, now):
            request.permit = permit
            request.rate_lines = limit_answers.admitted(account, self._spelled_in_c)
            return None
        short = account.lacking(tokens, now)
        if self._may_wait(short, tokens, now):
            self._wait(request, permit)
            return None
        for limit in short:
            limit.refused += _of(limit, tokens)
        return self._refusal(request, permit, short, now)

    def ended(self, request: Ended, permit: Permit, outcome: str, *, sent: bool) -> None:
        """A request with a permit is over.

        Args:
            outcome: as of its record.
            sent: to a model server, whole or in part.
        """
        request.permit = None
        if permit.waiting:
            self._waits_no_more(permit)
            return
        permit.settle(
            self._hub.time(),
            sent=sent,
            failed=request.status >= 400 or outcome == "upstream_error",
            usage=permit.usage(request.tokens) if permit.tokens else None,
        )
        if self._waiting and permit.account.in_flight:
            self._hub.loop.call_soon(self._look_again)

    def _refusal(self, request: Limited, permit: Permit, short: Sequence[Limit], now: float) -> Refuse:
        request.permit = None
        request.rate_lines = limit_answers.lines(limit_answers.still_of(permit.account, self._limits), now)
        for limit in short:
            if now >= limit.known_until:
                return limit_answers.unknown(limit)
        last = max(short, key=lambda limit: limit_answers.retry_in_s(limit, _of(limit, permit.tokens), now))
        return limit_answers.used_up(last, _of(last, permit.tokens), now)

    # --- waiting -------------------------------------------------------------------------------------------------

    def _may_wait(self, short: Sequence[Limit], tokens: int, now: float) -> bool:
        """Whether the ledger's answer may help one that lacks these."""
        return (
            not self.away
            and len(self._waiting) < _WAITING_MAX
            and all(limit.more_may_come(_of(limit, tokens), now) for limit in short)
        )

    def _wait(self, request: Limited, permit: Permit) -> None:
        permit.waiting = True
        request.permit = permit
        self._waiting[permit] = request
        for limit in permit.account.limits:
            limit.waiting += _of(limit, permit.tokens)
        self._hub.demand()
        if not self._nudging:
            self._nudging = True
            self._hub.loop.call_later(_NUDGE_S, self._nudge)

    def _waits_no_more(self, permit: Permit) -> None:
        permit.waiting = False
        del self._waiting[permit]
        for limit in permit.account.limits:
            limit.waiting -= _of(limit, permit.tokens)

    def _nudge(self) -> None:
        """Now and then while somebody waits: end what waited too long, and ask again."""
        self._look_again()
        self._nudging = bool(self._waiting)
        if self._nudging:
            self._hub.demand()
            self._hub.loop.call_later(_NUDGE_S, self._nudge)

    def _look_again(self) -> None:
        """Let those go on that may, and refuse those that waited too long."""
        now = self._hub.time()
        for permit, request in list(self._waiting.items()):
            if not permit.waiting:
                continue  # it ended by what was done for one before it
            if permit.take(now):
                self._waits_no_more(permit)
                account = limit_answers.still_of(permit.account, self._limits)
                request.rate_lines = limit_answers.admitted(account, self._spelled_in_c)
                request.admitted()
            elif self.away or now - permit.since >= WAIT_S:
                self._waits_no_more(permit)
                short = permit.account.lacking(permit.tokens, now)
                for limit in short:
                    if not self.away and now >= limit.dry_until:
                        limit.dry_until = now + _DRY_S[min(limit.vain, len(_DRY_S) - 1)]
                        limit.vain += 1
                    limit.refused += _of(limit, permit.tokens)
                request.refuse(self._refusal(request, permit, short, now))

    # --- reports -------------------------------------------------------------------------------------------------

    def wants(self) -> tuple[SliceWant, ...]:
        """What a report says of every limit that is in use. What was idle for long is left out, and so given back."""
        now = self._hub.time()
        busy = {limit for account in self._all_accounts() if account.running for limit in account.limits}
        for key, limit in list(self._limits.items()):
            if limit in busy or limit.waiting or limit.refused or limit.used(now):
                limit.used_at = now
            elif now - limit.used_at > _IDLE_S and not self.away:  # which could not give it again
                del self._limits[key]
                self._begin_accounts_anew()
        for limit in self._limits.values():
            limit.reported = limit.refused
        wants = tuple(_want(limit, now) for limit in self._limits.values())
        self._sent = wants
        return wants

    def last_wants(self) -> tuple[SliceWant, ...]:
        """What the last report of a process says that admits nothing more: what it used, and that it keeps nothing."""
        now = self._hub.time()
        for limit in self._limits.values():
            limit.known_until = float("-inf")
        return tuple(
            SliceWant(subject=limit.subject, resource=limit.resource, used=limit.used(now))  # type: ignore[arg-type]  # one of RESOURCES
            for limit in self._limits.values()
        )

    def answered(self, answer: GatewayReportAnswer, sent_at: float) -> None:
        """Take the shares that were told in answer to the last report.

        Args:
            sent_at: when that report was made, monotonic seconds.
        """
        if not answer.slices_epoch:
            return
        self._told = self._sent
        self.epoch = answer.slices_epoch
        now = self._hub.time()
        confirm = False
        for told in answer.slices:
            limit = self._limits.get((told.subject, told.resource))
            if limit is None:
                continue
            confirm |= told.share < limit.share
            if told.share > limit.share:
                limit.dry_until, limit.vain = float("-inf"), 0
            limit.take_share(told.share, told.limit, self._most(told.subject, told.resource))
            limit.known_until = sent_at + answer.hold_s - MARGIN_S
            limit.refused -= limit.reported
            limit.reported = 0
        self._look_again()
        if confirm and now - self._confirmed_at >= _CONFIRM_S:
            self._confirmed_at = now
            self._hub.demand()

    def forget(self) -> None:
        """Another control plane may not know what was told."""
        self._told = []

    def due(self) -> bool:
        """Whether the ledger does not know yet what is used here."""
        if not self._limits:
            return False
        now = self._hub.time()
        return self._told != tuple(_want(limit, now) for limit in self._limits.values())


def _want(limit: Limit, now: float) -> SliceWant:
    return SliceWant(
        subject=limit.subject,
        resource=limit.resource,  # type: ignore[arg-type]  # one of RESOURCES
        share=limit.share if now < limit.known_until else 0,
        used=limit.used(now),
        wanted=limit.refused + limit.waiting,
    )


def _of(limit: Limit, tokens: int) -> int:
    """How much of a limit a request needs."""
    return tokens if limit.weighs_tokens else 1


def _any(limits: RateLimits) -> bool:
    return not (limits.requests_per_minute is None and limits.tokens_per_minute is None and limits.in_flight is None)


def _most_tokens(body: Sequence[bytes], in_c: Callable[[bytes], int | None] | None = None) -> int:
    """The most tokens that a request lets be made; 0 where it does not say so early enough.

    Args:
        in_c: `most_tokens` of the core in use.
    """
    text = body[0] if len(body) == 1 else b"".join(body)
    if in_c is not None:
        most = in_c(text)
        if most is not None:
            return most
    if b'"max_' not in text:
        return 0
    return max(map(int, _MOST_TOKENS.findall(text)), default=0)
