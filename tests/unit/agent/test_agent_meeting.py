"""What a worker's environment says of its group: ours always, others' names for gangs and never over the spec."""

from pathlib import Path

import pytest

from moorage.agent.launching import Place, environment
from moorage.wire.agent import Assignment, Launch

PLACE = Place("10.0.0.7", 18003, Path("/h/w"), Path("/h/o"))
HOSTS = ("10.0.0.1", "10.0.0.1", "10.0.0.7")


def env_of(inherited=None, *, leader=None, hosts=(), contained=False, **launch):
    it = Assignment(worker="w", run="run-1", epoch=1, leader=leader, hosts=hosts, launch=Launch(**launch))
    place = Place(PLACE.host, PLACE.port, PLACE.folder, PLACE.output, contained=contained)
    return environment(it, place, inherited or {})


@pytest.mark.parametrize("contained", [False, True])
def test_a_member_of_a_gang_knows_its_leader_its_rank_and_where_all_are(contained):
    env = env_of(
        leader="10.0.0.1:18009", hosts=HOSTS, rank=2, world_size=3, group="train", run_name="exp", contained=contained
    )
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", "18009")
    assert (env["RANK"], env["WORLD_SIZE"]) == ("2", "3")
    assert (env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == ("0", "1")
    assert (env["NODE_RANK"], env["GROUP_RANK"], env["GROUP_WORLD_SIZE"]) == ("2", "2", "3")
    assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("3", "2")
    assert (env["PET_MASTER_ADDR"], env["PET_MASTER_PORT"]) == ("10.0.0.1", "18009")
    assert env["MOORAGE_LEADER_ADDR"] == "10.0.0.1"
    assert env["MOORAGE_HOSTS"] == "10.0.0.1,10.0.0.1,10.0.0.7"
    assert (env["MOORAGE_GROUP"], env["MOORAGE_RUN_NAME"]) == ("train", "exp")
    assert (env["MOORAGE_RANK"], env["MOORAGE_WORLD_SIZE"]) == ("2", "3")


def test_names_that_the_spec_sets_itself_are_not_overridden_and_inherited_ones_are():
    env = env_of(
        {"RANK": "7", "WORLD_SIZE": "9"}, leader="h:1", world_size=2, env={"MASTER_PORT": "29500", "RANK": "5"}
    )
    assert (env["MASTER_PORT"], env["RANK"], env["WORLD_SIZE"]) == ("29500", "5", "2")


def test_our_own_names_say_what_is_even_where_a_spec_forges_them():
    assert env_of(leader="h:1", world_size=2, env={"MOORAGE_LEADER_ADDR": "x"})["MOORAGE_LEADER_ADDR"] == "h"


def test_a_worker_alone_is_its_own_leader_and_is_not_told_to_meet_anybody():
    env = env_of()
    assert env["MOORAGE_LEADER_ADDR"] == "10.0.0.7"
    assert not {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "PET_NNODES", "MOORAGE_HOSTS"} & set(env)


def test_elements_of_an_array_know_their_index_and_meet_nobody():
    env = env_of(rank=3, world_size=10, array=True)
    assert env["MOORAGE_ARRAY_INDEX"] == "3"
    assert "MOORAGE_LEADER_ADDR" not in env
    assert "RANK" not in env
    assert "MOORAGE_ARRAY_INDEX" not in env_of(rank=3, world_size=10)


def test_a_leader_with_an_address_of_version_6_is_given_without_brackets():
    env = env_of(leader="[fd00::1]:18009", world_size=2)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("fd00::1", "18009")
