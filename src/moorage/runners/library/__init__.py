"""The public runner library: model servers on one machine, kept running by the program that embeds it.

`runner.py` is the front; `model.py` moves one model through the RUNNER table; `attempt.py` is one start of it. Nothing
here knows an agent or a control plane, and the agent uses nothing of this.
"""
