"""Which revision answers, case by case; `now` is a number."""

import pytest

from moorage.decide.serving.among import COPIES_MAX
from moorage.decide.serving.routes import (
    EndpointState,
    Generation,
    Held,
    Hold,
    Limits,
    Refuse,
    RevisionSpec,
    RouteSpec,
    Serve,
    TargetSpec,
)
from moorage.decide.serving.routing import Router

ACTIVE = RevisionSpec("rev-a", 3, "m-3")


def candidate(by: str, share: float = 100.0) -> RevisionSpec:
    return RevisionSpec("rev-b", 4, "m-4", "candidate", by, share)


def targets(revision: str, count: int) -> tuple[TargetSpec, ...]:
    return tuple(TargetSpec(f"{revision}-{n}", revision, revision, n + 1) for n in range(count))


def route(*revisions: RevisionSpec, active: int = 1, others: int = 1, **more: object) -> RouteSpec:
    at = targets("rev-a", active) + targets("rev-b", others)
    fields: dict[str, object] = {"targets": at, "limits": Limits(max_in_flight=1, max_queue=3), **more}
    return RouteSpec("m", "serve", revisions=revisions, **fields)  # type: ignore[arg-type]


def world(*revisions: RevisionSpec, **more: object) -> tuple[Router, EndpointState]:
    router = Router(1, 0.0)
    router.control(True, 0.0)
    router.apply(Generation("s", 1), [route(*revisions, **more)], 0.0)  # type: ignore[arg-type]
    endpoint = router.find("m")
    assert endpoint is not None
    return router, endpoint


def went_to(decision: object) -> str:
    assert isinstance(decision, Serve), decision
    return decision.target.spec.revision


def test_a_tenth_is_every_tenth_request() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 10.0), limits=Limits(max_in_flight=1000))
    answered = [went_to(router.arrive(endpoint, n, 0.0)) for n in range(100)]
    assert [n for n, who in enumerate(answered) if who == "rev-b"] == list(range(4, 100, 10))


def test_a_share_goes_on_where_it_was_when_the_table_changes() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 10.0), limits=Limits(max_in_flight=1000))
    answered = []
    for n in range(100):
        again = route(ACTIVE, candidate("share", 10.0), active=1 + n % 2, limits=Limits(max_in_flight=1000))
        router.apply(Generation("s", n + 2), [again], 0.0)
        answered.append(went_to(router.arrive(endpoint, n, 0.0)))
    assert answered.count("rev-b") == 10


def test_a_candidate_that_is_full_is_passed_over_and_nothing_is_made_up_later() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 50.0), active=3)
    first = [went_to(router.arrive(endpoint, n, 0.0)) for n in range(4)]
    assert first == ["rev-b", "rev-a", "rev-a", "rev-a"]
    assert endpoint.revisions["rev-b"].traffic.passed_over == 1


def test_a_share_is_kept_while_all_others_wait_in_the_queue() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 50.0), others=2)
    decisions = [router.arrive(endpoint, n, 0.0) for n in range(4)]
    assert [type(d) for d in decisions] == [Serve, Serve, Serve, Hold]
    assert [went_to(d) for d in decisions[:3]] == ["rev-b", "rev-a", "rev-b"]


def test_a_candidate_that_refuses_connects_costs_no_request() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 100.0))
    decision = router.arrive(endpoint, "t", 0.0)
    assert went_to(decision) == "rev-b"
    assert isinstance(decision, Serve)
    again = router.connect_failed(endpoint, decision.target, Held("t", 60.0), 0.1)
    assert went_to(again) == "rev-a"
    assert endpoint.revisions["rev-b"].traffic.passed_over == 1


def test_what_waits_is_answered_by_the_active_revision_alone() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 1.0))
    one = router.arrive(endpoint, "one", 0.0)
    assert isinstance(one, Serve)
    assert router.arrive(endpoint, "two", 0.0) == Hold(first=True)
    assert router.retry(endpoint, 1.0) == []
    assert [went_to(d) for _, d in router.done(endpoint, one.target, 1.0)] == ["rev-a"]


@pytest.mark.parametrize("word", ["4", "m-4", "rev-b"])
@pytest.mark.parametrize("by", ["header", "share"])
def test_a_request_gets_the_revision_that_it_names(word: str, by: str) -> None:
    router, endpoint = world(ACTIVE, candidate(by))
    assert went_to(router.arrive(endpoint, "t", 0.0, word)) == "rev-b"


@pytest.mark.parametrize("word", ["3", "m-3", "rev-a"])
def test_a_request_that_names_the_active_one_is_not_the_canarys(word: str) -> None:
    router, endpoint = world(ACTIVE, candidate("share", 100.0))
    assert went_to(router.arrive(endpoint, "t", 0.0, word)) == "rev-a"


@pytest.mark.parametrize(
    ("revisions", "word"),
    [
        ((ACTIVE, candidate("header")), "5"),
        ((ACTIVE, candidate("header")), "3, 4"),
        ((ACTIVE, candidate("share", 0.0)), "4"),
        ((ACTIVE, candidate("mirror")), "4"),
        ((ACTIVE,), "4"),
        ((), "4"),
    ],
)
def test_a_revision_that_takes_no_such_request_is_a_clear_404(revisions: tuple[RevisionSpec, ...], word: str) -> None:
    router, endpoint = world(*revisions)
    decision = router.arrive(endpoint, "t", 0.0, word)
    assert isinstance(decision, Refuse)
    assert (decision.status, decision.code) == (404, "revision_not_found")
    assert f"`{word}`" in decision.message
    assert endpoint.in_flight == 0 == len(endpoint.waiting)


def test_a_table_without_revisions_is_asked_by_uid() -> None:
    router, endpoint = world(others=0)
    assert went_to(router.arrive(endpoint, "t", 0.0, "rev-a")) == "rev-a"


def test_a_named_candidate_without_a_replica_is_refused_at_once_and_not_answered_by_another() -> None:
    router, endpoint = world(ACTIVE, candidate("header"), others=0)
    decision = router.arrive(endpoint, "t", 0.0, "4")
    assert isinstance(decision, Refuse)
    assert (decision.status, decision.code) == (503, "revision_not_ready")
    assert decision.retry_after_s


def test_a_named_candidate_that_cannot_be_reached_is_refused_after_its_last_replica() -> None:
    router, endpoint = world(ACTIVE, candidate("header"), others=2)
    first = router.arrive(endpoint, "t", 0.0, "4")
    assert isinstance(first, Serve)
    second = router.connect_failed(endpoint, first.target, Held("t", 60.0, "4"), 0.0)
    assert went_to(second) == "rev-b"
    assert isinstance(second, Serve)
    last = router.connect_failed(endpoint, second.target, Held("t", 60.0, "4"), 0.0)
    assert isinstance(last, Refuse)
    assert last.code == "revision_not_ready"


def test_those_that_wait_for_a_named_candidate_keep_nobody_else_back() -> None:
    router, endpoint = world(ACTIVE, candidate("header"))
    busy = router.arrive(endpoint, "busy", 0.0, "4")
    assert isinstance(busy, Serve)
    for n in range(3):
        assert isinstance(router.arrive(endpoint, f"named-{n}", 0.0, "4"), Hold)
    full = router.arrive(endpoint, "named-3", 0.0, "4")
    assert isinstance(full, Refuse)
    assert full.status == 429
    own = router.arrive(endpoint, "own", 0.0)
    assert went_to(own) == "rev-a"
    assert isinstance(own, Serve)
    assert [isinstance(router.arrive(endpoint, f"held-{n}", 0.0), Hold) for n in range(3)] == [True] * 3
    assert [token for token, _ in router.done(endpoint, own.target, 1.0)] == ["held-0"]
    assert [token for token, _ in router.done(endpoint, busy.target, 1.0)] == ["named-0"]


def test_a_named_candidate_with_a_free_place_is_not_kept_back_by_those_that_wait_for_the_active_one() -> None:
    router, endpoint = world(ACTIVE, candidate("header"))
    assert isinstance(router.arrive(endpoint, "own", 0.0), Serve)
    assert isinstance(router.arrive(endpoint, "waits", 0.0), Hold)
    assert went_to(router.arrive(endpoint, "named", 0.0, "4")) == "rev-b"
    assert isinstance(router.arrive(endpoint, "named-active", 0.0, "3"), Hold)


def test_one_that_waited_for_a_revision_is_told_when_it_left_the_table() -> None:
    router, endpoint = world(ACTIVE, candidate("header"))
    assert isinstance(router.arrive(endpoint, "busy", 0.0, "4"), Serve)
    assert isinstance(router.arrive(endpoint, "named", 0.0, "4"), Hold)
    ((token, decision),) = router.apply(Generation("s", 2), [route(ACTIVE, others=0)], 1.0)
    assert (token, decision.code) == ("named", "revision_not_found")
    assert not endpoint.named


def test_a_mirror_copies_its_share_and_no_more_at_once_than_its_bound() -> None:
    router, endpoint = world(ACTIVE, candidate("mirror", 50.0), limits=Limits(max_in_flight=1000))
    decisions = [router.arrive(endpoint, n, 0.0) for n in range(100)]
    assert {went_to(d) for d in decisions} == {"rev-a"}
    copied = [n for n, d in enumerate(decisions) if d.copy is not None]
    assert copied == list(range(0, 2 * COPIES_MAX, 2))
    assert endpoint.revisions["rev-b"].traffic.copies_dropped == 50 - COPIES_MAX
    assert endpoint.copies == COPIES_MAX
    router.copy_ended(endpoint, decisions[0].copy)
    assert router.arrive(endpoint, 100, 0.0).copy is not None


def test_a_mirror_without_a_free_replica_costs_the_copy_only() -> None:
    router, endpoint = world(ACTIVE, candidate("mirror"), active=2)
    first, second = (router.arrive(endpoint, n, 0.0) for n in range(2))
    assert first.copy.spec.revision == "rev-b"
    assert second.copy is None
    assert went_to(second) == "rev-a"


def test_a_request_that_waited_is_copied_when_it_goes() -> None:
    router, endpoint = world(ACTIVE, candidate("mirror"), others=2)
    first = router.arrive(endpoint, "one", 0.0)
    assert isinstance(router.arrive(endpoint, "two", 0.0), Hold)
    ((_, released),) = router.done(endpoint, first.target, 1.0)
    assert released.copy is not None


def test_a_promotion_moves_new_requests_and_leaves_running_ones_where_they_are() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 0.0))
    running = router.arrive(endpoint, "old", 0.0)
    assert went_to(running) == "rev-a"
    promoted = route(RevisionSpec("rev-b", 4), active=0)
    router.apply(Generation("s", 2), [promoted], 1.0)
    assert went_to(router.arrive(endpoint, "new", 1.0)) == "rev-b"
    assert [t.spec.revision for t in endpoint.leaving] == ["rev-a"]
    assert "rev-a" in endpoint.revisions
    router.done(endpoint, running.target, 2.0)
    router.apply(Generation("s", 3), [promoted], 3.0)
    assert endpoint.leaving == []
    assert set(endpoint.revisions) == {"rev-b"}


def test_a_replica_that_comes_back_has_the_requests_that_it_still_runs() -> None:
    router, endpoint = world(ACTIVE, others=0)
    running = router.arrive(endpoint, "t", 0.0)
    router.apply(Generation("s", 2), [route(ACTIVE, active=0, others=0)], 1.0)
    router.apply(Generation("s", 3), [route(ACTIVE, others=0)], 2.0)
    assert endpoint.targets == [running.target]
    assert endpoint.leaving == []
    assert isinstance(router.arrive(endpoint, "u", 2.0), Hold), "its one place is taken"


def test_targets_of_a_revision_that_the_table_does_not_list_get_nothing() -> None:
    router, endpoint = world(ACTIVE, limits=Limits(max_in_flight=1000))
    assert {went_to(router.arrive(endpoint, n, 0.0)) for n in range(50)} == {"rev-a"}


def test_another_comparison_begins_at_zero_and_counts_only_what_was_sent_after_it_began() -> None:
    router, endpoint = world(ACTIVE, candidate("share", 50.0), evidence_id="one")
    revision = endpoint.revisions["rev-a"]
    times = {"first_at": 6.0, "ended_at": 7.0, "tokens": 0}
    revision.comparison.ended("ok", 200, sent_at=5.0, **times)
    assert revision.comparison.requests == 1
    again = route(ACTIVE, candidate("share", 50.0), evidence_id="one")
    router.apply(Generation("s", 2), [again], 8.0)
    assert revision.comparison.requests == 1
    router.apply(Generation("s", 3), [route(ACTIVE, candidate("share", 50.0), evidence_id="two")], 9.0)
    revision.comparison.ended("ok", 200, sent_at=5.0, **times)
    assert revision.comparison.requests == 0
    router.apply(Generation("s", 4), [route(ACTIVE)], 9.0)
    assert revision.comparison is None
