"""A revision's model is the commit that its source meant when it was made; the same file again is the same revision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from moorage.control.pinning import Look, Pins, pinned, warnings
from moorage.decide.serving.commands import Intent, Known
from moorage.decide.serving.starting import run_spec
from moorage.domain.errors import InvalidSpec, NotFound, Unavailable
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.sources import HubSource

OLD, NEW = "a" * 40, "b" * 40
SOURCE = "hf://org/name@main/m.gguf"


class Hub:
    """What a source means, or an error; remembers the tokens."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.tokens: list[str | None] = []

    async def commit_of(self, source: HubSource, token: str | None) -> str:
        self.tokens.append(token)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Secrets:
    async def values(self, ns: str, name: str) -> Mapping[str, str] | None:
        return {"value": f"{ns}-{name}"}


def pins(answer: str | Exception) -> tuple[Pins, Hub]:
    hub = Hub(answer)
    return Pins(hub, Secrets()), hub  # type: ignore[arg-type]  # of the vault only its values are read


def intent(source: str | None = SOURCE, **runtime: Any) -> Intent:
    part = {"model": {"id": "m", "source": source}, "runtime": {"command": ["s"], **runtime}}
    return Intent("default", "x", {**part, "name": "x"}, part, "sha256:unpinned")


def known(source: str = SOURCE, commit: str = OLD) -> Known:
    wanted = intent(source)
    at = pinned(wanted, None, Look(HubSource("org/name", "main", "m.gguf"), commit))
    row = Deployment(uid="d", name="x", spec=wanted.spec, active_revision="r")
    made = Revision(uid="r", name="x-1", deployment="d", spec=at.revision, digest=at.digest, pins=at.pins)
    return Known(row, (made,))


async def test_a_branch_becomes_its_commit_for_workers_and_stays_a_branch_in_the_spec() -> None:
    asked, hub = pins(NEW)
    wanted = intent(secrets={"HF_TOKEN": "hub/value"})
    look = await asked.look(wanted)
    made = pinned(wanted, None, look)
    assert made.pins == {"model.source": f"hf://org/name@{NEW}/m.gguf"}
    assert (made.spec, made.revision) == (wanted.spec, wanted.revision)
    (group,) = run_spec(made.revision, made.pins)["groups"]
    assert group["model"] == {"id": "m", "source": f"hf://org/name@{NEW}/m.gguf"}
    assert made.digest != wanted.digest
    assert hub.tokens == ["default-hub"]
    assert warnings(wanted, None, look) == []


@pytest.mark.parametrize("source", [None, "/models/m.gguf", f"hf://org/name@{OLD}"])
async def test_what_cannot_move_is_not_looked_up(source: str | None) -> None:
    asked, hub = pins(NEW)
    wanted = intent(source)
    look = await asked.look(wanted)
    assert pinned(wanted, None, look) == wanted
    assert hub.tokens == []


async def test_the_same_file_is_the_same_revision_as_long_as_the_branch_stays() -> None:
    asked, _ = pins(OLD)
    wanted = intent()
    look = await asked.look(wanted)
    assert pinned(wanted, known(), look).digest == known().revisions[0].digest
    assert warnings(wanted, known(), look) == []


async def test_a_branch_that_moved_is_another_revision_and_said_so() -> None:
    asked, _ = pins(NEW)
    wanted = intent()
    look = await asked.look(wanted)
    assert pinned(wanted, known(), look).digest != known().revisions[0].digest
    (said,) = warnings(wanted, known(), look)
    assert OLD in said
    assert NEW in said


async def test_a_hub_that_is_away_makes_no_new_revision_of_what_was_pinned() -> None:
    asked, _ = pins(Unavailable("no way out"))
    wanted = intent()
    look = await asked.look(wanted)
    assert pinned(wanted, known(), look).digest == known().revisions[0].digest
    (said,) = warnings(wanted, known(), look)
    assert "no way out" in said
    assert "stays at" in said


async def test_what_was_never_looked_up_is_left_to_the_machines_with_a_warning() -> None:
    asked, _ = pins(Unavailable("no way out"))
    wanted = intent()
    look = await asked.look(wanted)
    assert pinned(wanted, None, look) == wanted
    (said,) = warnings(wanted, None, look)
    assert "each machine looks it up" in said


async def test_a_pin_of_another_source_is_not_taken_over() -> None:
    asked, _ = pins(Unavailable("no way out"))
    wanted = intent("hf://org/name@v2/m.gguf")
    look = await asked.look(wanted)
    assert pinned(wanted, known(), look) == wanted


async def test_a_revision_that_is_not_there_is_refused_at_its_place() -> None:
    asked, _ = pins(NotFound("org/name has no revision main"))
    with pytest.raises(InvalidSpec) as raised:
        await asked.look(intent())
    assert raised.value.errors[0]["path"] == "model.source"


async def test_the_candidates_pin_counts_before_that_of_the_active() -> None:
    before = known()
    candidate = replace(known(commit=NEW).revisions[0], uid="c")
    both = Known(replace(before.deployment, candidate_revision="c"), (*before.revisions, candidate))
    asked, _ = pins(Unavailable("away"))
    wanted = intent()
    assert pinned(wanted, both, await asked.look(wanted)).digest == candidate.digest
