"""Hubs that models come from: what a revision is now, and its files, whole and proven.

`hub` starts `child`, a program of its own in which huggingface_hub runs. Called by agents, and by the control plane
where it pins revisions. Nothing here keeps a cache or knows of workers.
"""
