"""The steps behind `tools/bootstrap.py`: install, index (fetching), system (what only the machine can give).

Standard library only, since nothing is installed yet when they run; nothing in `src/` may import them.
"""
