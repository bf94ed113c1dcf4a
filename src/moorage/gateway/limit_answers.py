"""What clients are told of their limits: header lines in OpenAI's names, and refusals. Called by `limits`."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Final

from moorage.decide.serving.routes import Refuse
from moorage.gateway.spending import IN_FLIGHT, TOKENS, Account, Limit

_WORDS: Final = {IN_FLIGHT: "requests at once", TOKENS: "tokens per minute"}
_NO_RETRY: Final = b"x-should-retry: false\r\n"
"""What OpenAI's clients ask before they repeat a request."""
_UNKNOWN_RETRY_S: Final = 5.0
_RETRY_S_MAX: Final = 60.0
"""More is not believed by OpenAI's clients, and no window is longer but for the second that it is late."""
_LENT_RETRY_S: Final = 5.0
"""Others have the rest of the limit; the ledger moves it to where it is wanted within seconds."""


def still_of(account: Account, known: Mapping[tuple[str, str], Limit]) -> Account:
    """The limits of a request that waited, without those that were taken away meanwhile: of them nothing is told.

    Args:
        known: the limits that there are, by subject and resource.
    """
    kept = tuple(limit for limit in account.limits if known.get((limit.subject, limit.resource)) is limit)
    return account if len(kept) == len(account.limits) else Account(kept)


def admitted(account: Account, in_c: Callable[..., bytes | None] | None = None) -> bytes:
    """Header lines of a request that was charged just now: how much is left, of the narrowest limit of each kind.

    `limit` is that of all gateways together; `remaining` is what this one still admits; `reset` is when nothing would
    be counted any more, which is a whole window after a charge.

    Args:
        in_c: `spelled` of the core in use.
    """
    told = b""
    for first, others in account.kinds:
        best = first
        for limit in others:
            if limit.free < best.free:
                best = limit
        left = best.free
        if left < 0:
            best = _narrowest((first, *others))
            left = best.left
        if in_c is None:
            told += best.line % left
        else:
            told = in_c(told, best.told, left, best.reset) or told + best.line % left
    return told


def lines(account: Account, now: float) -> bytes:
    """The same of a request that was not admitted."""
    return _of(account.requests, b"requests", now) + _of(account.tokens, b"tokens", now)


def _of(limits: Sequence[Limit], word: bytes, now: float) -> bytes:
    if not limits:
        return b""
    limit = _narrowest(limits)
    reset_s = limit.empties_in_s(now)
    left = 0 if now >= limit.known_until else limit.left
    return b"%b%d\r\nx-ratelimit-reset-%b: %b\r\n" % (limit.told, left, word, _duration(reset_s))


def _narrowest(limits: Sequence[Limit]) -> Limit:
    return min(limits, key=lambda limit: limit.left)


def _duration(seconds: float) -> bytes:
    """`1m0s`, as OpenAI writes it."""
    whole = ceil(seconds)
    return b"%dm%ds" % divmod(whole, 60) if whole >= 60 else b"%ds" % whole


def too_large(limit: Limit, tokens: int, assumed: int) -> tuple[Refuse, bytes]:
    """A request that never fits, and a line that keeps clients from repeating it.

    Args:
        assumed: of `tokens`, those of an answer to which the request sets no bound; 0: it sets one.
    """
    why = f" ({assumed} of them assumed for its answer, as it sets no max_tokens)" if assumed else ""
    message = (
        f"this request may cost {tokens} tokens{why}, and the limit of {_whose(limit)} is {limit.most} tokens per "
        f"minute; {'give a max_tokens, or send less' if assumed else 'send less, or a lower max_tokens'}"
    )
    return Refuse(429, "rate_limit_exceeded", message), _NO_RETRY


def used_up(limit: Limit, amount: int, now: float) -> Refuse:
    """A limit that admits no more now."""
    words = _WORDS.get(limit.resource, "requests per minute")
    left = limit.left if limit.weighs_tokens else 0
    said = f"has {left} left now, and this request may cost {amount}" if left else "is used up"
    message = f"the limit of {_whose(limit)}, {limit.most} {words}, {said}"
    return Refuse(429, "rate_limit_exceeded", message, retry_in_s(limit, amount, now))


def unknown(limit: Limit) -> Refuse:
    """The control plane has not said how much of a limit this gateway may use."""
    message = (
        f"this gateway does not know what is left of the limit of {_whose(limit)}: "
        "the control plane that shares it out does not answer"
    )
    return Refuse(503, "limits_unknown", message, _UNKNOWN_RETRY_S)


def retry_in_s(limit: Limit, amount: int, now: float) -> float:
    """When so much may be had: what was used leaves the window, or others give of theirs."""
    if limit.resource == IN_FLIGHT:
        return 1.0
    if amount > limit.share:
        return _LENT_RETRY_S
    return min(_RETRY_S_MAX, limit.falls_to_in_s(limit.share - amount, now))


def _whose(limit: Limit) -> str:
    who, _, where = limit.subject.partition("@")
    kind, _, name = who.partition("/")
    if kind == "namespace":
        return f"the namespace {name}"
    if not where:
        return "this key"
    return "this key at this endpoint" if name != "-" else "requests without a key at this endpoint"
