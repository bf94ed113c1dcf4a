"""What was seen of a revision while it is compared with another: the input of the release guard.

Evidence comes from gateways (what clients met), from the sender of synthetic requests, and from outside (quality).
Each source tells the sum since the comparison began, so the last value of a source wins and telling again changes
nothing. Kept as plain values in `Revision.evidence`, source -> `Seen.to_wire()`; summed here. The guard reads `Seen`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.domain.histogram import merged

SYNTHETIC = "synthetic"
"""The source that is the control plane's own sender."""

QUALITY = "quality"
"""Begins the name of every source that posts quality from outside."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one source, or all of them together, saw of one revision.

    Args:
        requests: answered or failed; those that the client gave up are not among them.
        errors: of them, those that failed because of the server: status 500 and above, no answer, or cut in the middle.
        client_gone: given up by the client.
        ttft_us: histogram of the time to the first byte, microseconds, of answers that did not fail.
        latency_us: histogram of the time to the last byte, microseconds, of answers that did not fail.
        throughput_milli: histogram of output tokens (or streamed chunks, where no usage is told) a second, thousandths,
            of streamed answers.
        quality: name -> (value, samples), posted from outside; the last word counts.
    """

    requests: int = 0
    errors: int = 0
    client_gone: int = 0
    ttft_us: Mapping[int, int] = field(default_factory=dict)
    latency_us: Mapping[int, int] = field(default_factory=dict)
    throughput_milli: Mapping[int, int] = field(default_factory=dict)
    quality: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """As it is kept and shown; histograms with text keys, since it is JSON."""
        return {
            "requests": self.requests,
            "errors": self.errors,
            "client_gone": self.client_gone,
            "ttft_us": _texts(self.ttft_us),
            "latency_us": _texts(self.latency_us),
            "throughput_milli": _texts(self.throughput_milli),
            "quality": {name: list(pair) for name, pair in sorted(self.quality.items())},
        }

    @classmethod
    def from_wire(cls, kept: Mapping[str, Any]) -> "Seen":
        """From what `to_wire` made; what is absent is nothing."""
        return cls(
            requests=int(kept.get("requests", 0)),
            errors=int(kept.get("errors", 0)),
            client_gone=int(kept.get("client_gone", 0)),
            ttft_us=_numbers(kept.get("ttft_us")),
            latency_us=_numbers(kept.get("latency_us")),
            throughput_milli=_numbers(kept.get("throughput_milli")),
            quality={k: (float(v[0]), int(v[1])) for k, v in dict(kept.get("quality") or {}).items()},
        )


def microseconds(seconds: float) -> int:
    """A duration as the histograms of times count it."""
    return round(seconds * 1_000_000)


def rate_milli(tokens: int, seconds: float) -> int:
    """A throughput as its histogram counts it, whoever measured it.

    Args:
        tokens: of the output, or chunks of the stream where no usage is told.
        seconds: above zero, from the sending of the request to the last byte: so a single burst is no endless rate.
    """
    return round(tokens / seconds * 1_000)


def together(parts: Iterable[Seen]) -> Seen:
    """The sum over sources; of quality the value with the most samples."""
    parts = tuple(parts)
    quality: dict[str, tuple[float, int]] = {}
    for part in parts:
        for name, pair in part.quality.items():
            if name not in quality or pair[1] >= quality[name][1]:
                quality[name] = pair
    return Seen(
        requests=sum(p.requests for p in parts),
        errors=sum(p.errors for p in parts),
        client_gone=sum(p.client_gone for p in parts),
        ttft_us=merged(p.ttft_us for p in parts),
        latency_us=merged(p.latency_us for p in parts),
        throughput_milli=merged(p.throughput_milli for p in parts),
        quality=quality,
    )


def seen_of(evidence: Mapping[str, Any]) -> Seen:
    """All that is kept of a revision, summed."""
    return together(Seen.from_wire(kept) for _, kept in sorted(evidence.items()))


def compared(evidence: Mapping[str, Any], strategy: str) -> Seen:
    """What of a revision's evidence can be compared with the other one's: like with like.

    Args:
        evidence: as it is kept.
        strategy: `none`: no client's request reaches the candidate, so that only what was sent to both of them alike
            counts; `window`: after a promotion, what clients met; any other: everything.
    """
    return together(Seen.from_wire(kept) for source, kept in sorted(evidence.items()) if _counts(source, strategy))


def carried(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """What of it stays when another comparison begins: a score is of one revision, whatever it is held against."""
    return {source: kept for source, kept in evidence.items() if source.startswith(QUALITY)}


def _counts(source: str, strategy: str) -> bool:
    sent = source.startswith((SYNTHETIC, QUALITY))
    if strategy == "none":
        return sent
    return not source.startswith(SYNTHETIC) if strategy == "window" else True


def _texts(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(index): counts[index] for index in sorted(counts)}


def _numbers(counts: Mapping[str, int] | None) -> dict[int, int]:
    return {int(index): int(count) for index, count in (counts or {}).items()}
