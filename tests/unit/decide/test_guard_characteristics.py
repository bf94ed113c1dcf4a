"""How often the guard errs, by played rollouts of a fixed seed: what docs/decisions/0024 promises."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "guard_characteristics.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guard_characteristics", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("minimum", [20, 60])
def test_equal_revisions_are_hardly_ever_told_apart(tool: ModuleType, minimum: int) -> None:
    played = tool.play(tool.Kind(scatter=0.3), tool.Kind(scatter=0.3), minimum=minimum, rollouts=150, seed=1)
    assert played.rejected <= 0.02
    assert played.accepted >= 0.97


def test_equal_revisions_that_both_fail_now_and_then_are_not_told_apart(tool: ModuleType) -> None:
    flaky = tool.Kind(errors=0.02, scatter=0.1)
    assert tool.play(flaky, flaky, minimum=20, rollouts=100, seed=2).rejected <= 0.02


def test_thirty_per_cent_of_failures_are_never_promoted(tool: ModuleType) -> None:
    played = tool.play(tool.Kind(scatter=0.1), tool.Kind(errors=0.3, scatter=0.1), minimum=20, rollouts=100, seed=3)
    assert played.rejected >= 0.97
    assert played.requests <= 40


def test_half_as_slow_again_is_seen_in_calm_times_and_twice_as_slow_in_any(tool: ModuleType) -> None:
    calm, wild = tool.Kind(scatter=0.1), tool.Kind(scatter=0.5)
    slower = tool.play(calm, tool.Kind(slower=1.5, scatter=0.1), minimum=20, rollouts=60, seed=4)
    twice = tool.play(wild, tool.Kind(slower=2.0, scatter=0.5), minimum=20, rollouts=60, seed=5)
    assert slower.rejected >= 0.98
    assert twice.rejected >= 0.9


@pytest.mark.slow
def test_thirty_per_cent_slower_is_seen_where_the_minimum_is_asked_for(tool: ModuleType) -> None:
    for minimum, scatter, least in ((20, 0.1, 0.9), (200, 0.3, 0.75)):
        even = tool.Kind(scatter=scatter)
        slower = tool.Kind(slower=1.3, scatter=scatter)
        assert tool.play(even, slower, minimum=minimum, rollouts=100, seed=6).rejected >= least
