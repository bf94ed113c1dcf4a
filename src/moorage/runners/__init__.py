"""Runners: what starts, watches and ends model servers and jobs on one machine.

`process.py` and its shim run plain processes. Nothing here knows the control plane; the agent uses these as its hands.
"""
