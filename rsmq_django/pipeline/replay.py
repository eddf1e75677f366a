"""Redrive of the dead letters of a failure group, found in the archive, without Spark.

Each message is moved atomically, so a repeated replay continues with the rest and duplicates nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..conf.settings import aliases_of, get_settings
from ..core.errors import QueueNotFound
from ..core.queue.transfers import GONE, Transfer, redrive_slice
from ..queues import get_client
from ..spark.lake import Lake
from ..spark.schemas import DEAD_LETTERS, EVENTS, LakeTable


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    #: Dead letters in the part of the archive that was read.
    known: int = 0
    #: Queue -> number of messages sent back to it.
    moved: Counter[str] = field(default_factory=Counter)
    #: Reason -> number of messages not sent.
    stayed: Counter[str] = field(default_factory=Counter)


def dead_letters_of(lake: Lake, fingerprint: str) -> Iterator[tuple[str, list[str]]]:
    """Yield queues of a failure group with ids of messages that failed there, as far as the lake is read.

    They are read from the archived events, or, without events, from the archived dead letters.
    """
    seen: set[tuple[str, str]] = set()
    for table in (EVENTS, DEAD_LETTERS):
        for batch in _deaths(lake, table, fingerprint):
            found: dict[str, list[str]] = {}
            for place in zip(batch["queue"].to_pylist(), batch["message_id"].to_pylist(), strict=True):
                if all(place) and place not in seen:
                    seen.add(place)
                    found.setdefault(place[0], []).append(place[1])
            yield from found.items()


def _deaths(lake: Lake, table: LakeTable, fingerprint: str) -> Iterator[Any]:
    import pyarrow.compute as pc

    where = pc.field("fingerprint") == fingerprint
    if table is EVENTS:
        where &= pc.field("event") == "dead"
    return lake.open(table).scan(names=["queue", "message_id"], where=where)


def replay(lake: Lake, fingerprint: str, *, dry_run: bool, limit: int | None = None) -> Replayed:
    """Send dead letters of a failure group back to their queues, up to `limit`; with `dry_run`, only count them."""
    result = Replayed()
    for queue, ids in dead_letters_of(lake, fingerprint):
        result.known += len(ids)
        _replay_ids(result, queue, ids, dry_run=dry_run, limit=limit)
        if limit is not None and result.moved.total() >= limit:
            break  # the rest of the lake is not read
    return result


def _replay_ids(result: Replayed, queue: str, ids: list[str], *, dry_run: bool, limit: int | None) -> None:
    try:
        settings = get_settings().queue(queue)
    except ImproperlyConfigured:
        result.stayed[f"{queue} is no longer in RSMQ['QUEUES']"] += len(ids)
        return
    if settings.dead_letter is None:
        result.stayed[f"{queue} has no dead-letter queue"] += len(ids)
        return
    found = 0
    for alias in aliases_of(settings):
        left = None if limit is None else limit - result.moved.total()
        if left == 0:
            return
        transfer = Transfer(get_client(alias), settings.dead_letter, ids=ids, limit=left)
        with suppress(QueueNotFound):
            for part in transfer.slices():
                if dry_run:
                    transfer.moved[queue] += len(part)
                else:
                    redrive_slice(transfer, part, queue)
        del transfer.stayed[GONE]  # it may be in another shard
        result.moved += transfer.moved
        result.stayed += transfer.stayed
        found += transfer.tally.all
    if found < len(ids) and (limit is None or result.moved.total() < limit):
        result.stayed[GONE] += len(ids) - found
