"""The loops and rooms of the control plane: load, decide, commit, act.

Decisions themselves live in `moorage.decide`.
"""
