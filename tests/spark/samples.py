"""Event logs for tests: entries as a worker writes them, and what a reader makes of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import redis

from rsmq_django.core.stats.events import VALUES
from rsmq_django.spark.events import FIELDS, rows
from rsmq_django.spark.files import NEVER_US, split_rows, write_files
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.log import Offsets, StreamLog
from rsmq_django.spark.schemas import EVENTS, MOST_AHEAD_S

STREAM = "rsmq::events"

DEFAULTS: dict[str, Any] = {
    "event": "succeeded",
    "queue": "mail",
    "task": "shop.tasks.send",
    "task_id": "t1",
    "message_id": "m1",
    "attempt": 1,
    "enqueued_at": 1_795_000_000_000,
    "wait_us": 1500,
    "run_us": 20_000,
    "body_bytes": 90,
    "worker": "web1:4711:0",
    "error_type": "",
    "error": "",
}


def entry(**values: Any) -> dict[bytes, Any]:
    """Return the field of one entry; names are those of the columns."""
    return {VALUES: "\n".join(str((DEFAULTS | values)[name]) for name, _, _ in FIELDS)}


def log_events(server: redis.Redis, count: int, *, stream: str = STREAM, **values: Any) -> None:
    """Write events that differ in their task id."""
    add_all(server, ({"task_id": f"t{number}"} | values for number in range(count)), stream=stream)


def add_all(server: redis.Redis, events: Iterator[Mapping[str, Any]], *, stream: str = STREAM) -> None:
    """Write events; the key `id` is the entry's id."""
    pipe = server.pipeline(transaction=False)
    for event in events:
        values = dict(event)
        entry_id = values.pop("id", "*")
        pipe.xadd(stream, entry(**values), id=entry_id)
        if len(pipe) >= 5000:
            pipe.execute()
    pipe.execute()


def store_events(lake: Lake, events: Iterable[Mapping[str, Any]], *, now_us: int = NEVER_US) -> None:
    """Put events into the lake as a batch of the archive does, without Spark; the key `id` is the entry's id."""
    entries = []
    for event in events:
        values = dict(event)
        entry_id = values.pop("id").encode()
        words = [word for field, value in entry(**values).items() for word in (field, str(value).encode())]
        entries.append((entry_id, words))
    table = lake.open(EVENTS, create=True)
    found = [rows(STREAM, entries)]
    parts = split_rows(found, EVENTS.columns, time="event_at", now_us=now_us, most_ahead_s=MOST_AHEAD_S)
    table.commit(write_files(table.uri, parts, EVENTS.columns))


def ids_between(log: StreamLog, start: Offsets, end: Offsets) -> list[str]:
    """Return the ids that a batch reads."""
    return [
        entry_id.decode() for part in log.ranges(start, end) for chunk in log.entries(part) for entry_id, _ in chunk
    ]
