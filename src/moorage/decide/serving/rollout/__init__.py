"""How a new revision takes over from the one that serves: candidates, promotion, draining, going back.

`advance` is the stage of the serving decision; `record` reads what a rollout keeps; `sizes` says how many replicas each
revision should have; `following` tells operations what was done. Pure, like everything under `decide`.
"""
