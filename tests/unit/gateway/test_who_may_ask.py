"""Keys at the gateway: what is unknown, over, foreign or of another namespace opens nothing, whoever asks how often."""

import hashlib

import pytest

from moorage.decide.serving.routes import Refuse
from moorage.gateway.keys import REMEMBERED_MAX, Keys
from moorage.wire.routing import Access, KeyRule, NamespaceRule

GOOD = b"moor-key.one.secret"


def rule(text: bytes = GOOD, **fields: object) -> KeyRule:
    known = {"uid": "key-1", "name": "app", "namespace": "default", "digest": hashlib.sha256(text).hexdigest()}
    return KeyRule.model_validate({**known, **fields})


def keys(*rules: KeyRule, required: bool = False, now: float = 100.0) -> Keys:
    namespaces = (NamespaceRule(namespace="default", keys="required"),) if required else ()
    made = Keys(lambda: now)
    made.configure(Access(number=1, keys=rules, namespaces=namespaces))
    return made


def code(answer: object) -> tuple[int, str]:
    assert isinstance(answer, Refuse)
    return answer.status, answer.code


@pytest.mark.parametrize("required", [False, True])
def test_a_good_key_opens_and_another_text_never_does(required: bool) -> None:
    found = keys(rule(), required=required)
    for _ in range(2):  # remembered, it is the same
        assert found.admit(GOOD, "default", "chat") == rule()
        assert code(found.admit(GOOD + b"x", "default", "chat")) == (401, "invalid_api_key")


def test_without_a_key_only_a_namespace_that_asks_for_one_refuses() -> None:
    assert keys().admit(None, "default", "chat") is None
    assert code(keys(required=True).admit(None, "default", "chat")) == (401, "invalid_api_key")
    assert keys(required=True).admit(None, "other", "chat") is None


def test_a_key_opens_neither_another_namespace_nor_an_endpoint_that_it_does_not_name() -> None:
    found = keys(rule(endpoints=["chat"]))
    assert isinstance(found.admit(GOOD, "default", "chat"), KeyRule)
    assert code(found.admit(GOOD, "default", "other")) == (403, "key_not_allowed")
    assert code(found.admit(GOOD, "research", "chat")) == (403, "key_not_allowed")


def test_a_key_ends_with_its_time_though_it_was_remembered() -> None:
    now = [100.0]
    found = Keys(lambda: now[0])
    found.configure(Access(number=1, keys=(rule(expires_at=101.0),)))
    assert isinstance(found.admit(GOOD, "default", "chat"), KeyRule)
    now[0] = 101.0
    assert code(found.admit(GOOD, "default", "chat")) == (401, "invalid_api_key")


def test_a_key_that_is_published_no_more_is_forgotten_at_once() -> None:
    found = keys(rule())
    assert isinstance(found.admit(GOOD, "default", "chat"), KeyRule)
    found.configure(Access(number=2))
    assert code(found.admit(GOOD, "default", "chat")) == (401, "invalid_api_key")


def test_random_keys_are_not_remembered() -> None:
    found = keys(rule())
    for n in range(REMEMBERED_MAX + 10):
        found.admit(b"moor-key.x.%d" % n, "default", "chat")
    assert not found._known
