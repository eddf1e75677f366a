"""Queue -> a table of the lake: every drained message is in exactly one row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.limits import MAX_BATCH
from ..core.queue.queue import list_call
from ..core.transport.streams import BEGINNING, step
from .config import JobConfig, on_each
from .drain import Journals, drains
from .lock import RunLock
from .log import Offsets
from .options import Options
from .schemas import drained
from .session import batch_options
from .transfer import StreamTransfer, Transferred


def drain_queue(
    spark: Any,
    config: JobConfig,
    queue: str,
    *,
    lease_s: float = 0,
    consumer: str = "lake",
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Transferred:
    """Move the visible messages of a queue, or of its shards, into the lake. Safe to run again after any crash."""
    lake, result = config.find_lake(), Transferred()
    shards = {name: {**batch_options(spark), **given} for name, given in config.shards().items()}

    def drain(options: Options) -> None:
        journals = Journals(options)
        if len(shards) > 1 and queue not in journals.server.run(list_call(options.namespace)):
            return
        with RunLock(journals.server, f"{lake.uri}/{consumer}/{drained(queue).name}"):
            acknowledge = partial(acknowledge_drained, options)
            transfer = StreamTransfer(
                spark, lake, drained(queue), options, journals, acknowledge, on_progress=on_progress, result=result
            )
            transfer.release_stored()
            # Only messages that are visible now, so that a run on a busy queue ends.
            journals.until_ms = journals.server.now_us() // 1000
            transfer.run()
        journals.server.close()

    if failure := on_each(shards, drain, kind="drain", queue=queue, leaseS=str(lease_s), consumer=consumer):
        raise failure
    return result


def acknowledge_drained(options: Options, offsets: Offsets, result: Transferred) -> None:
    """Trim the journals up to these offsets, and delete leased messages. A journal that was not read is kept."""
    server = options.server()
    for drain in drains(options):
        end = offsets[drain.journal]
        if end["id"] == BEGINNING or end["log"] != server.run(step(drain.journal, after=end["id"], most=1)).log:
            continue
        while True:
            done, foreign = server.run(drain.acknowledge(end["id"]))
            result.trimmed, result.left = result.trimmed + done, result.left + foreign
            if done < MAX_BATCH:
                break
    server.close()
