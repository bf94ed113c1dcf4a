"""Decisions about what is served: replicas, replacement, pausing, routes, phase, and the gateway's own core."""
