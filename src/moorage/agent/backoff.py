"""How long to wait between tries of a control plane that is away."""

from random import Random

FIRST_S, CAP_S = 0.05, 2.0


class Backoff:
    """50 ms doubling to 2 s, each drawn between half and the whole, so that a fleet does not come back in step.

    Args:
        rng: source of the jitter.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._tries = 0

    def next_s(self) -> float:
        """Seconds to wait before the next try."""
        whole = min(CAP_S, FIRST_S * 2 ** min(self._tries, 16))
        self._tries += 1
        return float(whole * (0.5 + self._rng.random() / 2))

    def reset(self) -> None:
        """It answered."""
        self._tries = 0
