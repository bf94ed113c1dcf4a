"""The file of synthetic requests: what a line may be, what is told of a wrong one, and that it travels in the spec."""

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.client.documents import plain_document
from moorage.control.submitted import checked_spec
from moorage.domain.errors import InvalidSpec
from moorage.wire.deployment import SYNTHETIC_MAX
from moorage.wire.prompts import BYTES_MAX, parse_prompts
from moorage.wire.spec import document, normalise


def spec_in(folder: Path, lines: str | None) -> Path:
    spec = {
        "kind": "Deployment",
        "name": "gemma",
        "model": {"id": "gemma"},
        "runtime": {"command": ["serve"]},
        "rollout": {"guard": {"synthetic": "prompts.jsonl"}},
    }
    (folder / "gemma.json").write_text(json.dumps(spec))
    if lines is not None:
        (folder / "prompts.jsonl").write_text(lines)
    return folder / "gemma.json"


def test_each_form_of_a_line_becomes_a_request() -> None:
    text = '"Why?"\n\n{"messages": [], "model": "m"}\n{"prompt": "x"}\n{"path": "/generate", "body": {"a": 1}}\n'
    found = parse_prompts(text, "p.jsonl")
    assert [one.path for one in found] == [
        "/v1/chat/completions",
        "/v1/chat/completions",
        "/v1/completions",
        "/generate",
    ]
    assert found[0].body["messages"] == [{"role": "user", "content": "Why?"}]
    assert found[1].body == {"messages": [], "model": "m"}
    assert found[3].body == {"a": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{bad", "not JSON"),
        ("[1]", "expected a mapping"),
        ('""', "expected a mapping"),
        ('{"prom": 1}', "expected path and body"),
        ('{"path": "generate", "body": {}}', "/generate"),
        ('{"path": "/g", "bdy": {}}', "bdy"),
        ('{"path": "/g", "body": {"n": 1e999}}', "finite"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(line: str, says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_prompts(f'"fine"\n{line}\n', "p.jsonl")
    assert [one["line"] for one in caught.value.errors] == [2]
    assert says in str(caught.value.errors[0]["message"])


def test_every_wrong_line_is_told() -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_prompts('{bad\n"fine"\n7\n', "p.jsonl")
    assert [one["line"] for one in caught.value.errors] == [1, 3]


@pytest.mark.parametrize(
    "text",
    ["", "\n \n", '"x"\n' * (SYNTHETIC_MAX + 1), json.dumps("x" * BYTES_MAX)],
    ids=["empty", "blank", "many", "long"],
)
def test_a_file_of_nothing_or_of_too_much_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec):
        parse_prompts(text, "p.jsonl")


def test_the_file_lies_beside_the_spec_and_its_requests_travel_in_it(tmp_path: Path) -> None:
    plain = plain_document(spec_in(tmp_path, '"Why?"\n'), "Deployment", "default")
    sent = plain["rollout"]["guard"]["synthetic"]
    assert sent[0]["path"] == "/v1/chat/completions"
    assert normalise(document(plain)) == plain
    assert checked_spec("Deployment", "default", "gemma", plain, verb="apply")["rollout"]["guard"]["synthetic"] == sent


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"prompts\.jsonl"):
        plain_document(spec_in(tmp_path, None), "Deployment", "default")


def test_a_server_refuses_the_path_of_a_file_that_it_cannot_read() -> None:
    raw: dict[str, Any] = {
        "kind": "Deployment",
        "name": "gemma",
        "runtime": {"command": ["serve"]},
        "rollout": {"guard": {"synthetic": "/tmp/prompts.jsonl"}},
    }
    with pytest.raises(InvalidSpec, match=r"rollout\.guard\.synthetic"):
        checked_spec("Deployment", "default", "gemma", raw, verb="apply")
