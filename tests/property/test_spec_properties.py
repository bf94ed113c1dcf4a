"""Whatever a file holds, it is a document or it is refused; and what is normalised means itself."""

import json
import string

from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import InvalidSpec
from moorage.domain.ids import canonical_json
from moorage.wire.spec import document, live_part, normalise, parse_documents, revision_part

words = st.text(string.printable, max_size=20)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
durations = st.one_of(
    st.integers(0, 10**6),
    st.floats(0, 10**6, allow_nan=False),
    st.builds(lambda n, unit: f"{n}{unit}", st.integers(1, 999), st.sampled_from(["ms", "s", "m", "h", "d"])),
)
sizes = st.one_of(st.integers(0, 2**50), st.builds(lambda n: f"{n}MiB", st.integers(0, 4096)))
labels = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_./]{0,20}[A-Za-z0-9])?)?", fullmatch=True)
variables = st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), words, max_size=3)


@st.composite
def replica_counts(draw):
    least = draw(st.integers(0, 4))
    most = draw(st.integers(least, 6))
    return {"min": least, "max": most, "initial": draw(st.integers(min(1, least), most))}


deployments = st.fixed_dictionaries(
    {
        "kind": st.just("Deployment"),
        "name": names,
        "runtime": st.fixed_dictionaries(
            {"command": st.lists(st.sampled_from(["run", "{port}", "-v", "{"]), min_size=1)},
            optional={"env": variables, "stop": st.fixed_dictionaries({"grace": durations})},
        ),
    },
    optional={
        "labels": st.dictionaries(names, labels, max_size=3),
        "replicas": replica_counts(),
        "scaling": st.fixed_dictionaries({"idle_timeout": durations}),
        "resources": st.fixed_dictionaries(
            {"cpu": st.one_of(st.integers(0, 64), st.builds(lambda m: f"{m}m", st.integers(0, 9999)))},
            optional={"memory": sizes, "gpus": st.integers(0, 8)},
        ),
        "priority": st.integers(-100, 100),
    },
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=20,
)


@given(deployments)
def test_what_is_normalised_read_again_and_normalised_is_unchanged(fields):
    plain = normalise(document(fields))
    assert normalise(document(plain)) == plain
    assert normalise(parse_documents(json.dumps(plain), source="x")[0]) == plain
    canonical_json(plain)


@given(deployments, st.integers(-5, 5), replica_counts())
def test_nothing_of_the_live_part_ever_makes_a_new_revision(fields, priority, counts):
    before = normalise(document(fields))
    after = normalise(document({**before, "priority": priority, "replicas": counts, "labels": {"a": "b"}}))
    assert canonical_json(revision_part(after)) == canonical_json(revision_part(before))
    assert {**after, **live_part(before)}["labels"] == before["labels"]


def refusals(read):
    """The errors with which a reading was refused; none where it was not. Any other exception is a fault."""
    try:
        read()
    except InvalidSpec as error:
        return error.errors or [{}]
    return []


@given(st.text(max_size=200))
def test_any_text_is_documents_or_is_refused(text):
    assert all(e["message"] for e in refusals(lambda: parse_documents(text, source="x")))


@given(st.dictionaries(st.sampled_from(["name", "runtime", "replicas", "labels", "gateway", "zzz"]), values))
def test_any_values_under_known_keys_are_a_document_or_are_refused_with_places(fields):
    errors = refusals(lambda: document({"kind": "Deployment", **fields}))
    assert all(isinstance(e["path"], str) and e["message"] for e in errors)
