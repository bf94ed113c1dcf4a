"""How much one object may ask for: the largest numbers that a spec, a command or a call may hold. One place for all.

They keep one order from occupying a whole control plane, and every number within what the store holds. Refused at the
door (`wire`, the API); decisions keep to the same numbers for what is stored already.
"""

WORKERS_MAX = 10_000
"""Workers of one run, all groups together."""

REPLICAS_MAX = 10_000
"""Replicas of one deployment."""

AT_ONCE = 500
"""Workers, or replicas, that one decision makes; the next one goes on, and between the two others have their turn."""

GPUS_TOTAL_MAX = 1_000_000
"""GPUs that one group may ask for in all."""

COUNT_MAX = 1_000_000_000
"""Any other whole number of a spec."""

PRIORITY_MAX = 1_000_000_000
"""A priority lies between this and its negative."""

DURATION_MAX_S = 36_500 * 86_400.0
"""A hundred years: with it, every time of a deadline is still a date."""

SPLIT_SPEC = "submit the work as several runs"
"""What to do with a run of too many workers."""

GUARD_REQUESTS_MAX = 10_000
"""Requests on each side that a release guard may ask for before it compares: what clients do not bring is sent one at
a time, and many more than that would outlast every sensible deadline of a rollout."""

DECISIONS_KEPT = 20
"""Guard decisions kept with a revision."""
