"""The parts of the shim, imported in its own process only; builtin modules only, so that it starts fast.

`kernel.py` is also read by the runners, which ask the same questions of /proc.
"""
