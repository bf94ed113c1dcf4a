"""The reference pages say what the code says, and the tool that makes them tells when they do not."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "generate_reference.py"


def generate(tool: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(tool), *args], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def copied_tool(tmp_path: Path) -> Path:
    """The tool in a tree of its own, so that what it writes stays there."""
    copy = tmp_path / "tools" / TOOL.name
    copy.parent.mkdir()
    copy.write_bytes(TOOL.read_bytes())
    return copy


def test_the_committed_pages_are_as_the_code_says() -> None:
    done = generate(TOOL, "--check")
    assert done.returncode == 0, done.stderr


def test_pages_are_the_same_every_time(copied_tool: Path) -> None:
    assert generate(copied_tool).returncode == 0
    made = {p.name: p.read_bytes() for p in (copied_tool.parents[1] / "docs/reference").iterdir()}
    assert made == {p: (ROOT / "docs/reference" / p).read_bytes() for p in ("lifecycles.md", "reasons.md")}


@pytest.mark.parametrize("page", ["lifecycles.md", "reasons.md"])
def test_a_page_that_was_changed_by_hand_is_found_and_not_rewritten_by_the_check(copied_tool: Path, page: str) -> None:
    generate(copied_tool)
    path = copied_tool.parents[1] / "docs/reference" / page
    path.write_text(path.read_text() + "more\n")
    done = generate(copied_tool, "--check")
    assert (done.returncode, page in done.stderr) == (1, True)
    assert path.read_text().endswith("more\n")


def test_missing_pages_are_found(copied_tool: Path) -> None:
    assert generate(copied_tool, "--check").returncode == 1


def test_every_row_and_code_is_on_its_page() -> None:
    tool = runpy.run_path(str(TOOL))
    lifecycles, reasons = tool["lifecycles_page"](), tool["reasons_page"]()
    for noun, table in tool["TABLES"].items():
        section = lifecycles.split(f"## {noun}\n")[1].split("\n## ")[0]
        for row in table.rows:
            line = next(x for x in section.splitlines() if x.startswith(f"| {row.source} | {row.target} | "))
            assert f"`{row.trigger}`" in line
            assert f"{row.source} --> {row.target}: " in section
        assert all(f"| `{word}` | " in section for word in table.triggers)
    assert all(f"| `{e.code}` | " in reasons for group in tool["GROUPS"].values() for e in group)
