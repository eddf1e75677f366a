"""Sending the dead letters of a failure group back to work: from the archive to the queues, without Spark.

A message moves in one atomic step, so doing it again goes on with the rest and doubles nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.core.exceptions import ImproperlyConfigured

from ..conf import get_settings
from ..core.errors import QueueNotFound
from ..core.transfers import Transfer, redrive_slice
from ..queues import get_client
from ..spark.lake import Lake
from ..spark.schemas import DEAD_LETTERS, EVENTS, Table


@dataclass(slots=True)
class Replayed:
    """What became of a failure group."""

    #: Dead letters that the archive knows of.
    known: int = 0
    #: Queue -> how many went back to it.
    moved: Counter[str] = field(default_factory=Counter)
    #: Why -> how many stayed.
    stayed: Counter[str] = field(default_factory=Counter)


def dead_letters_of(lake: Lake, fingerprint: str) -> dict[str, list[str]]:
    """Return the queues of a failure group, and the ids of the messages that died there.

    The log of events knows them, or, where none is kept, the archive of dead letters.
    """
    found: dict[str, dict[str, None]] = {}
    for table in (EVENTS, DEAD_LETTERS):
        for queue, message_id in _deaths(lake, table, fingerprint):
            if queue and message_id:
                found.setdefault(queue, {})[message_id] = None
    return {queue: list(ids) for queue, ids in found.items()}


def _deaths(lake: Lake, table: Table, fingerprint: str) -> Iterator[tuple[str, str]]:
    import pyarrow.compute as pc

    about = ["queue", "message_id", "fingerprint", *(["event"] if table is EVENTS else [])]
    for day in lake.days(table):
        rows = lake.read_day(table, day, names=about)
        rows = rows.filter(pc.equal(rows["fingerprint"], fingerprint))
        if table is EVENTS:
            rows = rows.filter(pc.equal(rows["event"], "dead"))
        yield from zip(rows["queue"].to_pylist(), rows["message_id"].to_pylist(), strict=True)


def replay(lake: Lake, fingerprint: str, *, dry_run: bool, limit: int | None = None) -> Replayed:
    """Send the dead letters of a failure group back to their queues; with `dry_run` only count those that are there."""
    result = Replayed()
    for queue, ids in dead_letters_of(lake, fingerprint).items():
        result.known += len(ids)
        try:
            settings = get_settings().queue(queue)
        except ImproperlyConfigured:
            result.stayed[f"{queue} is not in RSMQ['QUEUES'] any more"] += len(ids)
            continue
        if settings.dead_letter is None:
            result.stayed[f"{queue} discards what fails for good"] += len(ids)
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
