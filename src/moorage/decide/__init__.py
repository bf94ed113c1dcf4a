"""Decisions: a snapshot and `now` in, changes and reasons out.

Pure: no await, clock, randomness, environment or logging; identities come from an `Ids` argument. Loops in
`moorage.control` load the snapshot, commit the changes and do nothing else.
"""
