"""The project's own files, as git knows them (committed or new), for the tests of this folder."""

import gc
import subprocess
from functools import cache
from pathlib import Path

from house_rules import Source

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".txt", ".cfg", ".json", ".jsonl", ""}


@cache
def sources() -> tuple[Source, ...]:
    """Every text file of the project that is not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    paths = [path for path in listed if Path(path).suffix in TEXT and (ROOT / path).is_file()]
    return tuple(Source(path, (ROOT / path).read_text()) for path in sorted(set(paths)))


@cache
def python_sources() -> tuple[Source, ...]:
    """The Python files among them, parsed."""
    found = tuple(source for source in sources() if source.path.endswith(".py"))
    gc.disable()  # millions of nodes that stay to the end: it would walk them all again and again
    for source in found:
        assert source.nodes
    gc.freeze()
    gc.enable()
    return found
