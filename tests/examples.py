"""How many examples a property test draws that costs too much for the usual hundred."""

from hypothesis import settings

LONGER = 50


def examples(usual: int) -> int:
    """As many in each run, and many times as many in `make property-long`."""
    return usual * LONGER if settings.get_current_profile_name() == "long" else usual
