"""Names, uids and digests."""

import re
import string
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import InvalidSpec
from moorage.domain.ids import UID_RANDOM_BYTES, canonical_json, check_name, digest, new_uid, uid_bytes
from moorage.domain.nouns import KINDS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", ["a", "7", "gemma-2b", "a" * 63, "0-0"])
def test_a_good_name_is_given_back(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a" * 64, "a\n", "ä", "a b", "../x"])
def test_a_bad_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_name(name, "namespace")
    assert "namespace" in refused.value.message
    assert "63" in str(refused.value.remedy)


@given(st.text(alphabet=string.ascii_letters + string.digits + "-_. \n", max_size=70))
def test_only_what_can_be_a_host_label_is_a_name(name: str) -> None:
    good = 0 < len(name) <= 63 and not name.startswith("-") and not name.endswith("-")
    good = good and all(c in string.ascii_lowercase + string.digits + "-" for c in name)
    try:
        check_name(name)
    except InvalidSpec:
        assert not good
    else:
        assert good


def test_every_kind_has_uids_of_its_own_form() -> None:
    uids = {kind: new_uid(kind, bytes(range(10))) for kind in KINDS}
    assert all(re.fullmatch(r"(dep|rev|rep|run|wrk|mch|op|ns|key|ep)-[a-z2-7]{16}", uid) for uid in uids.values())
    assert len(set(uids.values())) == len(KINDS)
    assert uids["Worker"].startswith("wrk-")


@given(st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_different_randomness_gives_different_uids(one: bytes, other: bytes) -> None:
    assert (new_uid("Run", one) == new_uid("Run", other)) == (one == other)


def test_uids_of_one_moment_lie_together_and_differ_and_a_later_one_lies_elsewhere() -> None:
    one, other, later = (
        new_uid("Run", uid_bytes(now, bytes([n] * 10)))
        for n, now in enumerate((1_796_000_000.01, 1_796_000_000.02, 1_796_000_001.0))
    )
    assert one != other
    assert one[:10] == other[:10] != later[:10]


@given(st.floats(min_value=0, max_value=1e11), st.binary(min_size=10, max_size=10))
def test_any_time_makes_as_many_bytes_as_a_uid_takes(now: float, random_bytes: bytes) -> None:
    assert len(uid_bytes(now, random_bytes)) == UID_RANDOM_BYTES


@pytest.mark.parametrize("size", [0, UID_RANDOM_BYTES - 1, UID_RANDOM_BYTES + 1])
def test_a_uid_of_too_little_or_too_much_randomness_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="10 random bytes"):
        new_uid("Run", bytes(size))


@given(st.dictionaries(st.text(), JSON, max_size=6))
def test_the_order_of_keys_never_changes_a_digest(value: dict[str, object]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)
    assert digest(MappingProxyType(value)) == digest(value)


@given(JSON, JSON)
def test_different_values_have_different_digests(one: object, other: object) -> None:
    assert (digest(one) == digest(other)) == (canonical_json(one) == canonical_json(other))


def test_a_digest_is_the_same_on_every_machine() -> None:
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}])
def test_what_json_cannot_say_has_no_digest(value: object) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        digest(value)
