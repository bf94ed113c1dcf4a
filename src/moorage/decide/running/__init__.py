"""Decisions about runs and workers: derived run states, reports from machines, liveness, adoption."""
