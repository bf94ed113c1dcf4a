"""The agent: runs on each machine, pulls what should run there, runs it, and reports what it sees.

It lives through outages of the control plane, and its workers live through its own. May import runners, wire, domain,
ports and clock; `python -m moorage.agent.main --config FILE` starts it.
"""
