"""Placeholders and environment of a worker."""

from pathlib import Path

from moorage.agent.launching import Place, command, environment, missing_source
from moorage.wire.agent import Assignment, Launch

PLACE = Place("10.0.0.7", 18003, Path("/h/w"), Path("/h/o"))


def assignment(**launch):
    return Assignment(worker="wrk-1", run="run-1", epoch=3, attempt=2, launch=Launch(**launch))


def test_each_placeholder_is_filled_and_other_braces_stay():
    it = assignment(
        command=("s", "--bind={host}:{port}", "{model}", "{name}-{rank}", "{gpus}", '{"a": {}}', "{unknown}"),
        source="/m/x.gguf",
        name="gemma",
        rank=4,
        gpus=(0, 3),
    )
    assert command(it, PLACE) == (
        "s",
        "--bind=10.0.0.7:18003",
        "/m/x.gguf",
        "gemma-4",
        "0,3",
        '{"a": {}}',
        "{unknown}",
    )


def test_ours_wins_over_the_spec_and_the_spec_over_what_is_inherited():
    env = environment(
        assignment(env={"A": "spec", "MOORAGE_RUN": "forged", "P": "{port}"}), PLACE, {"A": "inherited", "B": "b"}
    )
    assert (env["A"], env["B"], env["P"], env["MOORAGE_RUN"]) == ("spec", "b", "18003", "run-1")
    assert (env["MOORAGE_EPOCH"], env["MOORAGE_ATTEMPT"]) == ("3", "2")


def test_a_worker_without_gpus_sees_none_on_a_machine_that_has_some():
    with_gpus = Place("h", None, Path("/h/w"), Path("/h/o"), has_gpus=True)
    assert environment(assignment(), with_gpus, {"CUDA_VISIBLE_DEVICES": "0"})["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment(assignment(), PLACE, {})
    assert environment(assignment(), with_gpus, {})["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_source_that_is_not_there_is_named(tmp_path):
    there = tmp_path / "model"
    there.touch()
    assert missing_source(assignment(source=str(there))) is None
    assert str(tmp_path / "no") in (missing_source(assignment(source=str(tmp_path / "no"))) or "")
    assert missing_source(assignment()) is None
