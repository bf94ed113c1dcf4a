"""pytest imports test modules by their file name alone, so two of one name hide each other when all are collected."""

import ast
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


def from_conftest(source: str) -> bool:
    """Whether a module takes names from plain `conftest`: with two folders in one command that may be the other's."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "conftest":
            return True
        if isinstance(node, ast.Import) and any(name.name == "conftest" for name in node.names):
            return True
    return False


def test_no_module_takes_anything_from_a_conftest_that_another_folder_has_too() -> None:
    assert [str(p.relative_to(TESTS)) for p in TESTS.rglob("*.py") if from_conftest(p.read_text())] == []


def test_a_planted_import_of_a_conftest_is_found() -> None:
    assert from_conftest("from conftest import World")
    assert from_conftest("import conftest")
    assert not from_conftest("from tests.contract.store.conftest import Opened")
