"""Event log -> the table `events`, exactly once; stored events are then trimmed from Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.keys import events_key
from ..core.transport.streams import BEGINNING, readers_key, trim
from .errors import as_our_error, failure_of
from .lake import Lake
from .lock import RunLock
from .log import Offsets, StreamLog
from .options import Options, named_log
from .schemas import EVENTS
from .server import NO_ANSWER, Server
from .session import batch_options
from .transfer import Durable, StreamTransfer, Transferred

#: Name under which Redis knows the position of the archive.
READER = "archive"


@dataclass(slots=True)
class ArchiveJob:
    """One run of the archive."""

    spark: Any
    lake: Lake
    server: Server
    #: Options of the source: the address among them.
    source: Mapping[str, str]
    #: Seconds between batches; None archives the current events and ends.
    every_s: float | None = None
    accept_reset: bool = False
    #: Name of the connection; "" for the first one.
    connection: str = ""
    #: Called with the rows that were archived so far, after each batch and each turn.
    on_progress: Callable[[int], None] = lambda rows: None
    stopped: threading.Event = field(default_factory=threading.Event)
    #: The result so far, also when run() raises.
    result: Transferred = field(default_factory=Transferred)
    #: How much of the table is on the disk.
    durable: Durable = field(default_factory=Durable)

    def run(self) -> Transferred:
        """Archive. Raises DataLoss if entries were trimmed unread, AlreadyRunning if another run is active.

        The lock saves the work of a second run; events are stored once without it, too.
        """
        with RunLock(self.server, f"{self.lake.uri}/{EVENTS.name}"):
            try:
                self.transfer()
            except Exception:
                # Service managers stop all processes at once: Spark may end in mid-batch, which is then repeated.
                if not self.stopped.is_set():
                    raise
        return self.result

    def transfer(self) -> None:
        """Archive without the lock."""
        options = Options.read({"kind": "events", **batch_options(self.spark), **self.source})
        options = replace(options, connection=self.connection)
        log = StreamLog(options, options.streams)
        transfer = StreamTransfer(
            self.spark, self.lake, EVENTS, options, log, self.trim,
            self.accept_reset, self.on_progress, self.stopped, self.result, self.durable,
        )  # fmt: skip
        try:
            transfer.release_stored()
            while True:
                transfer.run(log.newest_ids() if self.every_s is None else None)
                self.on_progress(self.result.rows)
                if self.every_s is None or self.stopped.wait(self.every_s):
                    return
        finally:
            self.accept_reset = transfer.accept_reset
            log.server.close()

    def stop_waiting(self) -> None:
        """Give the server no time to come back."""
        self.server.patience_s, self.source = 0.0, {**self.source, "patienceS": "0"}

    def trim(self, offsets: Offsets, result: Transferred) -> None:
        """Trim stored entries that no other reader needs. Only the log that was read is trimmed."""
        for stream, end in offsets.items():
            if end["id"] != BEGINNING:
                call = trim(stream, readers_key(stream), reader=READER, finished_id=end["id"], log=end["log"])
                result.trimmed += self.server.run(call)


def archive_logs(jobs: Sequence[ArchiveJob], *, every_s: float | None, stopped: threading.Event) -> None:
    """Run the archive of each log. A failure stops no other log; it is raised when all had their turn.

    A server that did not answer is not waited for again with its other logs.
    """
    if len(jobs) == 1:
        jobs[0].every_s = every_s
        jobs[0].run()
        return
    while True:
        failed: dict[str, Exception] = {}
        for job in jobs:
            try:
                job.run()
            except Exception as raised:  # the other logs are archived after any error
                error = as_our_error(raised)
                failed[named_log(job.connection, events_key(job.server.namespace))] = error
                if isinstance(error, NO_ANSWER):
                    for other in jobs:
                        if other.server.url == job.server.url:
                            other.stop_waiting()
        if failed:
            raise failure_of(failed)
        if every_s is None or stopped.wait(every_s):
            return
