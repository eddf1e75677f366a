"""Redrive of the dead letters of a failure group, found in the archive, without Spark.

Each message is moved atomically, so a repeated replay continues with the rest and duplicates nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.core.exceptions import ImproperlyConfigured

from ..conf.settings import get_settings
from ..core.errors import QueueNotFound
from ..core.queue.transfers import Transfer, redrive_slice
from ..queues import get_client
from ..spark.lake import Lake
from ..spark.schemas import DEAD_LETTERS, EVENTS, LakeTable


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    #: Dead letters in the archive.
    known: int = 0
    #: Queue -> number of messages sent back to it.
    moved: Counter[str] = field(default_factory=Counter)
    #: Reason -> number of messages not sent.
    stayed: Counter[str] = field(default_factory=Counter)


def dead_letters_of(lake: Lake, fingerprint: str) -> dict[str, list[str]]:
    """Return the queues of a failure group, and the ids of the messages that failed there.

    They are read from the archived events, or, without events, from the archived dead letters.
    """
    found: dict[str, dict[str, None]] = {}
    for table in (EVENTS, DEAD_LETTERS):
        for queue, message_id in _deaths(lake, table, fingerprint):
            if queue and message_id:
                found.setdefault(queue, {})[message_id] = None
    return {queue: list(ids) for queue, ids in found.items()}


def _deaths(lake: Lake, table: LakeTable, fingerprint: str) -> Iterator[tuple[str, str]]:
    import pyarrow.compute as pc

    about = ["queue", "message_id", "fingerprint", *(["event"] if table is EVENTS else [])]
    opened = lake.open(table)
    for day in opened.days:
        rows = opened.read({day}, names=about)
        rows = rows.filter(pc.equal(rows["fingerprint"], fingerprint))
        if table is EVENTS:
            rows = rows.filter(pc.equal(rows["event"], "dead"))
        yield from zip(rows["queue"].to_pylist(), rows["message_id"].to_pylist(), strict=True)


def replay(lake: Lake, fingerprint: str, *, dry_run: bool, limit: int | None = None) -> Replayed:
    """Send the dead letters of a failure group back to their queues; with `dry_run`, only count them."""
    result = Replayed()
    for queue, ids in dead_letters_of(lake, fingerprint).items():
        result.known += len(ids)
        try:
            settings = get_settings().queue(queue)
        except ImproperlyConfigured:
            result.stayed[f"{queue} is no longer in RSMQ['QUEUES']"] += len(ids)
            continue
        if settings.dead_letter is None:
            result.stayed[f"{queue} has no dead-letter queue"] += len(ids)
            continue
        client = get_client(settings.connection)
        transfer = Transfer(client, settings.dead_letter, ids=ids, limit=limit)
        try:
            for part in transfer.slices():
                if dry_run:
                    transfer.moved[queue] += len(part)
                else:
                    redrive_slice(transfer, part, queue)
        except QueueNotFound:
            transfer.stayed["gone"] += len(ids)
        result.moved += transfer.moved
        result.stayed += transfer.stayed
    return result
