"""Batches of requests that ended, as tests have them."""

from moorage.gateway.records import Batch, Record
from moorage.gateway.tokens import columns_of


def batch_of(*records: Record, numbers: tuple[int, ...] = ()) -> Batch:
    """These, which must have ended alike.

    Args:
        numbers: theirs; from 0 where they are not told.
    """
    one = records[0]
    queued_s = [record.queued_s for record in records if record.queued_s is not None]
    total_s = [record.total_s for record in records]
    first_s = [record.first_s for record in records]
    return Batch(
        numbers=numbers or range(len(records)),
        endpoint=one.endpoint,
        deployment=one.deployment,
        generation=one.generation,
        target=one.target,
        status=one.status,
        request_ids=tuple(record.request_id for record in records),
        queued_s=queued_s if one.queued_s is not None else None,
        first_s=total_s if first_s == total_s else first_s,
        total_s=total_s,
        bytes=tuple(record.bytes for record in records),
        outcomes=tuple(record.outcome for record in records),
        tokens=[record.tokens for record in records],
        told=columns_of([record.tokens for record in records]),
        keys=tuple(record.key or "" for record in records),
        retried=tuple(record.retried for record in records),
    )
