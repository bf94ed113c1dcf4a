"""What clients used is kept as sums: nothing counts twice, nothing is lost, and it ends with its time."""

import asyncio

from moorage.domain.nouns import Endpoint, Key
from moorage.domain.reasons import reason
from moorage.domain.usage import UsageRow, UsageSums, total
from moorage.store.store import SqlStore
from tests.contract.store.acting import change, new
from tests.contract.store.conftest import Opener

DAY = "2026-11-30"


def row(sums: UsageSums, incarnation: str = "life-1", **fields: str) -> UsageRow:
    of = {"gateway": "g", "key": "key-1", "namespace": "default", "endpoint": "chat", "day": DAY, **fields}
    return UsageRow(incarnation=incarnation, sums=sums, **of)


async def used(store: SqlStore, key: str | None = "key-1") -> UsageSums:
    return total(one.sums for one in await store.usage("default", DAY, DAY, key=key))


async def test_the_same_told_twice_late_or_out_of_order_counts_once(store: SqlStore) -> None:
    first, second = UsageSums(3, 1, prompt_tokens=30), UsageSums(5, 1, 1, 1, 50, 20, 7)
    await store.keep_usage([row(first)])
    await store.keep_usage([row(second)])
    for _ in range(2):
        await store.keep_usage([row(first)])
        await store.keep_usage([row(second)])
    await store.keep_usage([])
    assert await used(store) == second


async def test_processes_and_their_restarts_add_up_and_keys_endpoints_and_days_stay_apart(store: SqlStore) -> None:
    one = UsageSums(requests=1, completion_tokens=2**40)
    await store.keep_usage(
        [
            row(one),
            row(one, incarnation="life-2"),
            row(one, gateway="h"),
            row(one, endpoint="embed"),
            row(one, day="2026-11-29"),
            row(one, key="key-2"),
            row(one, key="key-3", namespace="research"),
        ]
    )
    found = await store.usage("default", "2026-11-29", DAY)
    told = [(u.key, u.day, u.endpoint, u.sums.requests) for u in found]
    assert told == [
        ("key-1", "2026-11-29", "chat", 1),
        ("key-1", DAY, "chat", 3),
        ("key-1", DAY, "embed", 1),
        ("key-2", DAY, "chat", 1),
    ]
    assert found[1].sums.completion_tokens == 3 * 2**40
    assert await store.usage("default", DAY, DAY, key="key-3") == []


async def test_two_control_planes_that_write_the_same_sums_lose_none(store: SqlStore, another: Opener) -> None:
    other = await another()
    rows = [row(UsageSums(requests=n + 1), key=f"key-{n}") for n in range(40)]
    writes = (s.keep_usage(part) for s, part in ((store, rows), (other, rows[::-1])) for _ in range(5))
    await asyncio.gather(*writes)
    assert (await used(store, None)).requests == sum(range(41))


async def test_what_is_older_than_it_is_kept_goes_and_nothing_else(store: SqlStore) -> None:
    await store.keep_usage([row(UsageSums(1), day="2025-10-26"), row(UsageSums(2), day="2025-10-27")])
    assert await store.prune_usage("2025-10-27") == 1
    assert await store.prune_usage("2025-10-27") == 0
    assert [u.day for u in await store.usage("default", "2000-01-01", DAY)] == ["2025-10-27"]


async def test_keys_and_endpoints_come_back_as_they_were_written(store: SqlStore) -> None:
    key = Key(uid="key-1", name="app", digest="d", endpoints=("chat",), limits={"in_flight": 2}, expires_at=7.5)
    spec = {"routes": [{"deployment": "gemma", "weight": 90}], "limits": {"in_flight": 8}}
    endpoint = Endpoint(uid="ep-1", name="chat", spec=spec)
    await store.commit(change(new(key, reason("key.issued")), new(endpoint, reason("endpoint.made", routes="gemma"))))
    found = await store.get(Key, "key-1")
    assert found is not None
    assert (found.endpoints, dict(found.limits), found.expires_at) == (("chat",), {"in_flight": 2}, 7.5)
    [bound] = await store.find(Endpoint, namespace="default", name="chat")
    assert bound.spec == spec
