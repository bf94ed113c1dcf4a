"""The skimmer finds exactly what a JSON parser would, however the body is cut."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.gateway.skim import ModelSkimmer, Skimmed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just("model"), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(
    st.text() | st.sampled_from(["model", "mod", "model ", "Model", '"model"']), VALUES, max_size=6
)


def expected(document: Any) -> str | Skimmed:
    value = document.get("model") if isinstance(document, dict) else None
    return value if isinstance(value, str) else Skimmed.ABSENT


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
def test_the_name_is_what_a_parser_finds(document: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    found = ModelSkimmer().feed(body, True)
    assert found == expected(document)


@given(VALUES)
def test_what_is_no_object_has_no_model(document: Any) -> None:
    assert ModelSkimmer().feed(json.dumps(document).encode(), True) == expected(document)


@given(OBJECTS, st.text(min_size=1), st.lists(st.integers(1, 40), min_size=1, max_size=60), st.booleans())
def test_the_name_is_found_however_the_body_is_cut(document: Any, name: str, cuts: list[int], first: bool) -> None:
    document.pop("model", None)
    whole = {"model": name, **document} if first else {**document, "model": name}
    body = json.dumps(whole).encode()
    skimmer, have, at = ModelSkimmer(), bytearray(), 0
    found: str | Skimmed = Skimmed.MORE
    while found is Skimmed.MORE and at < len(body):
        step = cuts[at % len(cuts)]
        have += body[at : at + step]
        at += step
        found = skimmer.feed(have, at >= len(body))
    assert found == name


@given(st.binary(max_size=200))
def test_any_bytes_at_all_end_with_an_answer(body: bytes) -> None:
    assert ModelSkimmer().feed(body, True) is not Skimmed.MORE
    assert ModelSkimmer().feed(b'{"model":' + body, True) is not Skimmed.MORE
