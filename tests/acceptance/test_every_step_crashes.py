"""The control plane is killed at every single commit of apply, promote, rollback, pause, wake and delete.

Commits are counted, not drawn: the action is done again and again with the crash one commit further, until it ends
before the crash comes. Each time it must end as if nothing had happened: no client error on what serves, no second
copy, nothing left over, its operation finished. The long form crashes before each commit and after it.
"""

from collections.abc import Iterator

import pytest

from moorage.domain.errors import NotFound
from tests.acceptance.crash_world import COMMITS_MAX, Action, CrashWorld
from tests.acceptance.installation import Installation, Traffic, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

STEADY = "steady"
ENOUGH = 2
"""Times in a row that it was over before the crash came: what happens at one time may take a commit more or less."""


@pytest.fixture(scope="module")
def world(shared: Installation) -> Iterator[CrashWorld]:
    it = CrashWorld(shared)
    it.client.deployments.apply(it.spec(STEADY, 0)).wait("ready", timeout_s=120)
    yield it
    it.close()


def fresh(world: CrashWorld) -> str:
    return f"new-{world.number}"


def _apply_new(world: CrashWorld) -> object:
    return world.client.deployments.apply(world.spec(fresh(world), 0), key=f"apply-{world.number}")


def _make(world: CrashWorld) -> object:
    return world.client.deployments.apply(world.spec(fresh(world), 0)).wait("ready", timeout_s=120)


def _serves(world: CrashWorld) -> str:
    shown = world.deployment(STEADY)
    (active,) = [r for r in world.client.deployments.revisions(STEADY) if r["id"] == shown["active_revision"]]
    return str(active["spec"]["runtime"]["env"]["NUMBER"])


def _gone(world: CrashWorld) -> bool:
    try:
        world.deployment(fresh(world))
    except NotFound:
        return not world.servers(fresh(world)) and not world.open_operations()
    return False


def _other(world: CrashWorld) -> None:
    if len(world.client.deployments.revisions(STEADY)) < 2:
        world.client.deployments.apply(world.spec(STEADY, 1)).wait("promoted", timeout_s=120)
        until(lambda: world.settled(STEADY, "ACTIVE", 1), "the first revision to have drained")
    world.previous = _serves(world)


ACTIONS = {
    "apply": Action(
        _apply_new,
        lambda w: w.settled(fresh(w), "ACTIVE", 1),
        lambda w: None,
    ),
    "promote": Action(
        lambda w: w.client.deployments.apply(w.spec(STEADY, w.number), key=f"promote-{w.number}"),
        lambda w: _serves(w) == str(w.number) and w.settled(STEADY, "ACTIVE", 1),
        lambda w: None,
    ),
    "rollback": Action(
        lambda w: w.client.deployments.rollback(STEADY, key=f"rollback-{w.number}"),
        lambda w: _serves(w) != w.previous and w.settled(STEADY, "ACTIVE", 1),
        _other,
    ),
    "pause": Action(
        lambda w: w.client.deployments.pause(fresh(w), key=f"pause-{w.number}"),
        lambda w: w.settled(fresh(w), "SCALED_TO_ZERO", 0),
        _make,
    ),
    "wake": Action(
        lambda w: w.client.deployments.wake(fresh(w), key=f"wake-{w.number}"),
        lambda w: w.settled(fresh(w), "ACTIVE", 1),
        lambda w: (
            _make(w),
            w.client.deployments.pause(fresh(w)),
            until(lambda: w.settled(fresh(w), "SCALED_TO_ZERO", 0), "it sleeps"),
        ),
    ),
    "delete": Action(
        lambda w: w.client.deployments.delete(fresh(w), key=f"delete-{w.number}"),
        _gone,
        _make,
    ),
}


def crash_everywhere(world: CrashWorld, name: str, when: str) -> int:
    """At each commit of an action; how many there were."""
    action = ACTIONS[name]
    crashes = uncrashed = 0
    for number in range(1, COMMITS_MAX):
        world.number += 1
        action.before(world)
        known = len(world.client.operations.list())
        crashed = world.crash_at(when, number, action)
        assert len(world.client.operations.list()) - known == (name not in ("pause", "wake")), "it was done once"
        _nothing_is_left(world)
        if name not in ("promote", "rollback", "delete"):
            world.client.deployments.delete(fresh(world))
            until(lambda: _gone(world), "it is gone")
        crashes, uncrashed = (number, 0) if crashed else (crashes, uncrashed + 1)
        if uncrashed == ENOUGH:
            return crashes
    raise AssertionError(f"{name} took {COMMITS_MAX} commits and was not over")


def _nothing_is_left(world: CrashWorld) -> None:
    found = world.client.orphans()
    assert found["inventory_complete"], found
    assert found["items"] == []
    failed = [o for o in world.client.operations.list() if o["state"] in ("failed", "needs_attention")]
    assert failed == []


@pytest.mark.parametrize("name", ["delete"])
def test_killed_after_each_commit_it_ends_as_if_nothing_had_happened(world: CrashWorld, name: str) -> None:
    _under_traffic(world, name, "after")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ACTIONS)
def test_killed_before_and_after_each_commit_it_ends_as_if_nothing_had_happened(
    world: CrashWorld, name: str, when: str
) -> None:
    _under_traffic(world, name, when)


def _under_traffic(world: CrashWorld, name: str, when: str) -> None:
    with Traffic(world.installation, STEADY, rest_s=0.02) as traffic:
        traffic.more(10)
        crashes = crash_everywhere(world, name, when)
        traffic.more(10)
    print(f"{name}: killed {when} each of {crashes} commits; {traffic.answered} requests answered meanwhile")
    assert traffic.failures == []
    assert crashes >= 3
