"""pytest imports test modules by their file name alone, so two of one name hide each other when all are collected."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def doubled(names: list[str]) -> list[str]:
    """Names that stand more than once; every folder may have its own conftest."""
    return sorted(name for name, count in Counter(names).items() if count > 1 and name != "conftest.py")


def test_every_test_module_has_a_name_of_its_own() -> None:
    assert doubled([p.name for p in TESTS.rglob("*.py")]) == []


def test_a_planted_double_is_found() -> None:
    assert doubled(["a.py", "b.py", "a.py", "conftest.py", "conftest.py"]) == ["a.py"]
