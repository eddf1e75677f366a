"""Topic -> a table of the lake, each message in one row, and back: all messages of the table once, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..core.queue.bulk import Job
from ..core.topic import Topic
from .bulk import BulkSender, read_job, resume
from .columns import Rows
from .config import JobConfig
from .delta import Table
from .errors import PipelineError
from .lock import RunLock
from .log import NO_LIMIT, Offsets
from .options import Options
from .schemas import archived_topic
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

    They get new indexes and times. Raises PipelineError for a topic that has messages, unless they are of this restore.
    """
    table = config.find_lake().open(archived_topic(name))
    result = Restored(sum(file.rows for file in table.files))
    if not result.known:
        raise PipelineError(f"the lake {config.lake} has no messages of topic {name!r}; archive it first")
    job = f"restore-{_digest(table, into)}"
    options = Options.read(config.options(kind="topic", topic=into, job=job))
    server = options.server()
    try:
        state = read_job(server, Job(config.namespace, job)).get("state")
        if state == "publishing":
            result.sent = 0 if dry_run else resume(server, job)
        elif state == "done" or server.run(Topic(into, server.client).status_call()).length:
            why = "has got these messages before" if state == "done" else "has messages"
            raise PipelineError(f"topic {into!r} {why}; restore into another topic")
        elif not dry_run:
            result.sent = _send(BulkSender(options, ("body", "key", "headers")), table, config.lake)
    finally:
        server.close()
    return result


def _send(sender: BulkSender, table: Table, place: str) -> int:
    try:
        staged = sender.stage(_messages(table), attempt="0.0")
    except BaseException:
        sender.abort()
        raise
    return sender.commit([staged])


def _messages(table: Table) -> Iterator[Rows]:
    """Yield the messages by log, in the order in which the logs began, and by index. A day is in memory at a time."""
    import pyarrow.compute as pc

    logs: dict[str, None] = {}
    for day in table.days:
        found = table.read({day}, names=["log", "published_at"]).sort_by("published_at")
        logs |= dict.fromkeys(pc.unique(found["log"]).to_pylist())
    for log in logs:
        for day in table.days:
            rows = table.read({day}, where=pc.field("log") == log).sort_by("index")
            for batch in rows.select(["body", "key", "headers"]).to_batches(max_chunksize=10_000):
                yield batch.to_pydict()


def _digest(table: Table, into: str) -> str:
    """Return a name for this content and target, so that a second restore is the same job."""
    content = [into, table.identity, *(file.path for file in table.files)]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]
