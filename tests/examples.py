"""How many examples a property test draws that costs too much for the usual hundred, and how far it takes a failure."""

from hypothesis import Phase, settings

LONGER = 50
SHARE = 3
"""`make test` draws a third of the usual number: it has twenty minutes for everything."""
QUICK = (Phase.explicit, Phase.reuse, Phase.generate)


def examples(usual: int) -> int:
    """As many in each run, and many times as many in `make property-long`."""
    return usual * LONGER if _long() else max(1, usual // SHARE)


def phases() -> tuple[Phase, ...]:
    """For whole histories: what failed is shown as it was found, and made smaller only in `make property-long`.

    To make it smaller can take more minutes than a test has; the test's time-out then counts as one more failure that
    does not come again, and is reported as `Flaky` in place of the failure that was found.
    """
    return tuple(Phase) if _long() else QUICK


def _long() -> bool:
    return settings.get_current_profile_name() == "long"
