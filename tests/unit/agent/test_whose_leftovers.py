"""Whose an unknown process is: only what carries this home's whole identity is ever ended."""

import os

import pytest

from moorage.agent.leftovers import judge
from moorage.runners.orphans import Sight, Survey

COOKIE = "0123456789abcdef"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "agent"


def carried(home, **changed):
    env = {
        "MOORAGE_WORKER": "wrk-1",
        "MOORAGE_EPOCH": "3",
        "MOORAGE_COOKIE": COOKIE,
        "MOORAGE_HEARTBEAT_FILE": f"{home}/workers/wrk-1/3-{COOKIE[:8]}/heartbeat",
    }
    return {**env, **changed}


def look(*sights, above=frozenset(), own_cookie=""):
    carriers = tuple(s for s in sights if not s.folder)
    return Survey(carriers, tuple(s for s in sights if s.folder), {}, above, own_cookie)


def found(survey, home, known=frozenset()):
    it = judge(survey, home, known)
    return [s.number for s in it.ours], [s.number for s in it.unproven]


def test_what_carries_the_whole_identity_is_ours(home):
    assert found(look(Sight(7, 1, 6, carried(home))), home) == ([7], [])


def test_a_home_that_is_reached_by_a_link_is_the_same_home(home, tmp_path):
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    assert found(look(Sight(7, 1, 6, carried(tmp_path / "link"))), home) == ([7], [])


def test_what_the_ledger_knows_is_not_looked_at(home):
    shim = Sight(6, 1, 1, folder=f"{home}/workers/wrk-1/3-{COOKIE[:8]}")
    assert found(look(Sight(7, 1, 6, carried(home)), shim), home, frozenset({COOKIE})) == ([], [])


@pytest.mark.parametrize("other", ["other", "agent2", "agent/nested"])
def test_another_installation_is_neither_ours_nor_counted(home, tmp_path, other):
    there = tmp_path / other
    shim = Sight(6, 1, 1, folder=f"{there}/workers/wrk-1/3-{COOKIE[:8]}")
    assert found(look(Sight(7, 1, 5, carried(there)), shim), home)[0] == []
    if other != "agent/nested":
        assert found(look(Sight(7, 1, 5, carried(there)), shim), home)[1] == []


def test_a_program_of_the_runner_library_is_nobody_of_ours(home):
    assert found(look(Sight(7, 1, 6, {"MOORAGE_COOKIE": COOKIE})), home) == ([], [])


@pytest.mark.parametrize(
    "changed",
    [
        {"MOORAGE_WORKER": "wrk-2"},
        {"MOORAGE_WORKER": ""},
        {"MOORAGE_EPOCH": "4"},
        {"MOORAGE_COOKIE": "f" * 16},
    ],
)
def test_an_identity_whose_parts_do_not_agree_is_left_and_counted(home, changed):
    assert found(look(Sight(7, 1, 6, carried(home, **changed))), home) == ([], [7])


def test_the_same_path_in_another_view_of_the_file_system_is_left_and_counted(home):
    assert found(look(Sight(7, 1, 6, carried(home), here=False)), home) == ([], [7])


def test_what_this_agent_itself_descends_from_is_left_and_counted(home):
    assert found(look(Sight(7, 1, 6, carried(home)), above=frozenset({7})), home) == ([], [7])
    assert found(look(Sight(7, 1, 6, carried(home)), own_cookie=COOKIE), home) == ([], [7])


def test_a_shim_is_ours_by_its_directory_or_by_its_command(home):
    by_folder = Sight(6, 1, 1, folder=f"{home}/workers/wrk-1/3-{COOKIE[:8]}")
    assert found(look(by_folder), home) == ([6], [])
    moved = Sight(6, 1, 1, folder=f"{os.sep}away/workers/wrk-1/3-{COOKIE[:8]}")
    assert found(look(moved), home) == ([], [])
    assert found(look(moved, Sight(7, 1, 6, carried(home))), home) == ([7, 6], [])


def test_a_tree_is_all_that_descends_from_its_roots_and_nothing_beside_it():
    parents = {1: (0, 0), 6: (1, 0), 7: (6, 0), 8: (7, 0), 9: (1, 0), 10: (9, 0)}
    assert Survey((), (), parents).below(frozenset({6, 99})) == {6, 7, 8}
