"""Everything that must hold of the tree besides its tests: `make check`.

    .venv/bin/python tools/check.py [NAME …]    all of it, or only the named checks

Each check is one command; two run at a time; the output of one that fails is shown whole and the others still run,
so that one look tells all that is wrong.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")


@dataclass(frozen=True, slots=True)
class Check:
    """One command, and what to do when it fails."""

    name: str
    command: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check said."""

    check: Check
    code: int
    output: str
    seconds: float


def checks() -> list[Check]:
    """All of them, the slow ones first so that two cores end together."""
    return [
        Check("types", (str(BIN / "mypy"),), "mend the types; `# type: ignore[code]  # why` only with a reason"),
        Check("house rules", (str(BIN / "pytest"), "-q", "tests/tidy"), "each message names the replacement"),
        Check("imports", (str(BIN / "lint-imports"),), "imports go downward only: ARCHITECTURE.md, the map"),
        Check("format", (str(BIN / "ruff"), "format", "--check", "."), "make format"),
        Check("lint", (str(BIN / "ruff"), "check", "."), "make format mends most of it"),
        Check("lock", (PYTHON, "tools/lock.py", "--check"), "make lock, and commit both files"),
        *(
            Check(f"generated: {tool.stem}", (PYTHON, str(tool), "--check"), f"python {tool.relative_to(ROOT)}")
            for tool in sorted((ROOT / "tools").glob("generate_*.py"))
        ),
    ]


def main(names: list[str]) -> int:
    """Run them; 0 when all hold."""
    wanted = [check for check in checks() if not names or check.name in names]
    if not wanted:
        print(f"error: no such check; there are: {', '.join(check.name for check in checks())}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(max_workers=2) as pool:
        failed = [outcome for outcome in pool.map(_run, wanted) if not _passed(outcome)]
    if failed:
        print(f"\n{len(failed)} of {len(wanted)} checks failed: {', '.join(one.check.name for one in failed)}")
    return 1 if failed else 0


def _run(check: Check) -> Outcome:
    began = time.monotonic()
    done = subprocess.run(check.command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Outcome(check, done.returncode, done.stdout + done.stderr, time.monotonic() - began)


def _passed(outcome: Outcome) -> bool:
    verdict = "ok" if outcome.code == 0 else "FAILED"
    print(f"{outcome.check.name:<28} {verdict:<7} {outcome.seconds:5.1f} s", flush=True)
    if outcome.code:
        print(f"{outcome.output.rstrip()}\n  → {outcome.check.remedy}\n", flush=True)
    return outcome.code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
