"""Topic -> a table of the lake, each message in one row, and back: all messages of the table once, or none."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.queue.bulk import Job
from ..core.topic import Topic
from .bulk import BulkSender, read_job, resume, unfinished_jobs
from .columns import Rows
from .config import JobConfig
from .delta import Table
from .errors import PipelineError
from .lock import RunLock
from .log import NO_LIMIT, Offsets
from .options import Options
from .schemas import archived_topic
from .server import Server
from .session import batch_options
from .topic_log import TopicLog
from .transfer import StreamTransfer, Transferred


def topic_transfer(spark: Any, config: JobConfig, name: str) -> StreamTransfer:
    """Return the transfer of the messages of a topic that are not in the lake yet."""
    # Messages that were trimmed unread are lost; a refusal would only lose more.
    given = (
        (batch_options(spark) if spark else {}) | {"failOnDataLoss": "false"} | config.options(kind="topic", topic=name)
    )
    options = Options.read(given)
    return StreamTransfer(spark, config.find_lake(), archived_topic(name), options, TopicLog(options), _keep)


def transfer_topic(job: StreamTransfer) -> None:
    """Store the current messages; the topic keeps them. Safe to run again after any crash.

    The lock saves the work of a second run; messages are stored once without it, too.
    """
    server = job.log.server
    with RunLock(server, f"{job.lake.uri}/{job.definition.name}"):
        job.run(job.log.newest_ids())
    server.close()


def unarchived_messages(config: JobConfig, name: str) -> int:
    """Return the number of messages of a topic that are not in the lake."""
    job = topic_transfer(None, config, name)
    begin = job.offsets(job.lake.open(job.definition))
    ends = job.log.advance_all(begin, NO_LIMIT)
    job.log.server.close()
    return 0 if ends == begin else sum(end["rows"] for end in ends.values())


def _keep(offsets: Offsets, result: Transferred) -> None:
    """Remove nothing: the topic has its own retention."""


@dataclass(slots=True)
class Restored:
    """The result of a restore."""

    #: Messages in the lake.
    known: int
    #: Messages that were published.
    sent: int = 0


def restore_topic(config: JobConfig, name: str, *, into: str, dry_run: bool) -> Restored:
    """Publish the archived messages of a topic in their order, with keys and headers: all of them once, or none.

    They get new indexes and times. A restore into this topic that has begun to publish, and ended there or still runs,
    is completed instead, with the messages that the table had then. Raises PipelineError for a topic that has messages,
    was restored before, or is being restored from another archive.
    """
    table = config.find_lake().open(archived_topic(name))
    result = Restored(sum(file.rows for file in table.files))
    if not result.known:
        raise PipelineError(f"the lake {config.lake} has no messages of topic {name!r}; archive it first")
    # Of one name for any number of rows: of two restores at once, one begins to publish, and the other continues it.
    job = f"{_restores_into(into)}{_digest(table.identity)}"
    options = Options.read(config.options(kind="topic", topic=into, job=job))
    server = options.server()
    try:
        state = read_job(server, Job(config.namespace, job)).get("state")
        if state == "publishing":
            result.sent = 0 if dry_run else resume(server, job)
            return result
        if state == "done":
            raise PipelineError(f"topic {into!r} was restored from this archive before; restore into another topic")
        _check_empty(server, into, job)
        if not dry_run:
            result.sent = _send(BulkSender(options, ("body", "key", "headers")), table, server)
    finally:
        server.close()
    return result


def _check_empty(server: Server, into: str, job: str) -> None:
    """Raise PipelineError for a topic that has messages, or gets those of another job."""
    if any(each.startswith(_restores_into(into)) and each != job for each in unfinished_jobs(server)):
        why = "is being restored from another archive; complete that first, or restore into another topic"
        raise PipelineError(f"topic {into!r} {why}")
    if server.run(Topic(into, server.client).status_call()).length:
        raise PipelineError(f"topic {into!r} has messages; restore into another topic")


def _send(sender: BulkSender, table: Table, server: Server) -> int:
    try:
        staged = sender.stage(_messages(table), attempt="0.0")
        if not read_job(server, Job(server.namespace, sender.job)):  # else another restore of this archive has begun
            _check_empty(server, sender.options.topic, sender.job)
    except BaseException:
        sender.abort()
        raise
    return sender.commit([staged])


def _messages(table: Table) -> Iterator[Rows]:
    """Yield the messages by log, in the order in which the logs began, and by index.

    A day is in memory at a time; where a clock was set back over midnight, the days whose indexes overlap.
    """
    import pyarrow.compute as pc

    for log, spans in _spans(table).items():
        for days in _apart(spans):
            rows = table.read(days, where=pc.field("log") == log).sort_by("index")
            for batch in rows.select(["body", "key", "headers"]).to_batches(max_chunksize=10_000):
                yield batch.to_pydict()


def _spans(table: Table) -> dict[str, dict[dt.date, tuple[int, int]]]:
    """Return the first and the last index of each day of each log, in the order in which the logs began."""
    found: dict[str, dict[dt.date, tuple[int, int]]] = {}
    for day in table.days:
        rows = table.read({day}, names=["log", "index", "published_at"])
        spans = rows.group_by("log").aggregate([("published_at", "min"), ("index", "min"), ("index", "max")])
        for row in spans.sort_by("published_at_min").to_pylist():
            found.setdefault(row["log"], {})[day] = row["index_min"], row["index_max"]
    return found


def _apart(spans: Mapping[dt.date, tuple[int, int]]) -> list[set[dt.date]]:
    """Return the days in the order of their indexes, days with common indexes together."""
    groups: list[set[dt.date]] = []
    end = -1
    for day in sorted(spans, key=spans.__getitem__):
        first, last = spans[day]
        if first <= end:
            groups[-1].add(day)
        else:
            groups.append({day})
        end = max(end, last)
    return groups


def _restores_into(into: str) -> str:
    """Return the beginning of the names of jobs that restore into this topic."""
    return f"restore-{_digest(into)}-"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
