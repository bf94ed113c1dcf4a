"""The project's own files, as git knows them (committed or new), for the tests of this folder."""

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
    """The Python files among them."""
    return tuple(source for source in sources() if source.path.endswith(".py"))
