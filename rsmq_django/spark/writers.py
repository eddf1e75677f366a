"""The writers for Spark's API, around `bulk`.

write() runs on the executors, commit() and abort() at the driver. For a stream, they run in a new process with a new
writer for each batch, so the commit messages contain all state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from .bulk import BulkSender, Staged
from .columns import Rows
from .options import Options


@dataclass
class Written(WriterCommitMessage):
    """The message of one task to commit()."""

    staged: Staged


class _Writer:
    def __init__(self, options: Options, schema: Any) -> None:
        self.options = options
        self.sender = BulkSender(options, schema.names)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Stage the rows of one task on an executor."""
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        tables = map(_as_rows, iterator)
        if self.options.direct:
            return Written(self.sender.send_directly(tables))
        query = task.getLocalProperty("sql.streaming.queryId")
        job = f"{query}:{task.getLocalProperty('streaming.sql.batchId')}" if query else ""
        return Written(self.sender.stage(tables, attempt=f"{task.partitionId()}.{task.taskAttemptId()}", job=job))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """df.write."""

    def commit(self, messages: Sequence[Any]) -> None:
        """Publish."""
        if not self.options.direct:
            self.sender.commit(_staged(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        """Remove the stages. Spark calls this also after an error in commit()."""
        self.sender.abort()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """df.writeStream."""

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Publish one batch; only the last batch of a query is ever repeated."""
        staged = _staged(messages)
        if self.options.direct or not staged:
            return
        query = staged[0].job.rpartition(":")[0]
        self.sender.commit(staged, forget=f"{query}:{batchId - 2}" if batchId > 1 else "")

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Remove the stages."""
        for staged in _staged(messages)[:1]:
            self.sender.abort(staged.job, run=staged.run)


def _staged(messages: Sequence[Any]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, Written)]


def _as_rows(batch: Any) -> Rows:
    import pyarrow as pa

    rows = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if name == "body" and pa.types.is_string(column.type):
            column = column.cast(pa.binary())  # the same bytes; strings would be decoded and encoded again
        rows[name] = column.to_pylist()
    return rows
