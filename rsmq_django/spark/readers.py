"""The readers for Spark's API, around `snapshot`, `dead_letters`, `events`, `topic`, `drain`.

Spark pickles a reader to the planner and to every task, so it has options but no connection. `_log` exists only in the
long-lived process at the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from .columns import Rows
from .dead_letters import DeadLetters
from .drain import Journals
from .events import EventLogReader
from .log import NO_LIMIT, StreamLog, StreamRange
from .options import Options
from .snapshot import Ids, QueueSnapshot
from .topic import Indexes, TopicRows


@dataclass
class ReadPart(InputPartition):
    """The part that one task reads."""

    content: Any


def _parts(contents: Iterable[Any]) -> list[ReadPart]:
    return [ReadPart(content) for content in contents]


def _batches(schema: Any, tables: Iterable[Rows]) -> Iterator[Any]:
    """Yield tables of rows as Arrow batches of exactly the schema that Spark expects: it checks the first one only."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    for table in tables:
        yield pa.RecordBatch.from_pydict(table, schema=wanted)


class _TableReader:
    """Base class of readers: options, the schema chosen by Spark, and a connection that is not pickled."""

    def __init__(self, options: Options, schema: Any) -> None:
        self.options = options
        self.schema = schema

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


# -- Batch -------------------------------------------------------------------------------------------------------------


class SnapshotReader(_TableReader, DataSourceReader):
    """spark.read, kind=queue."""

    def partitions(self) -> list[ReadPart]:
        """Plan. Spark keeps the plan for all later actions of the same DataFrame."""
        return _parts(QueueSnapshot(self.options).plan())

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor. For an empty plan, Spark passes a partition of another type."""
        if isinstance(partition, ReadPart) and isinstance(partition.content, Ids):
            yield from _batches(self.schema, QueueSnapshot(self.options).read(partition.content))


class DeadLetterReader(_TableReader, DataSourceReader):
    """spark.read, kind=dead."""

    def partitions(self) -> list[ReadPart]:
        """Plan."""
        return _parts(DeadLetters(self.options).plan())

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor."""
        if isinstance(partition, ReadPart) and isinstance(partition.content, Ids):
            yield from _batches(self.schema, DeadLetters(self.options).read(partition.content))


class EventReader(_TableReader, DataSourceReader):
    """spark.read, kind=events: the current log, or a range of ids."""

    def partitions(self) -> list[ReadPart]:
        """Plan."""
        log = StreamLog(self.options, self.options.streams)
        begin, newest = log.beginning(), log.newest_ids()
        upto = {stream: newest[stream] if self.options.end_at == "+" else self.options.end_at for stream in newest}
        return _parts(part for stream in upto for part in log.cut(stream, begin[stream]["id"], upto[stream]))

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor."""
        if isinstance(partition, ReadPart) and isinstance(partition.content, StreamRange):
            yield from _batches(self.schema, EventLogReader(self.options).read(partition.content))


class TopicReader(_TableReader, DataSourceReader):
    """spark.read, kind=topic: the stored messages, or a range of indexes."""

    def partitions(self) -> list[ReadPart]:
        """Plan."""
        return _parts(TopicRows(self.options).plan())

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor."""
        if isinstance(partition, ReadPart) and isinstance(partition.content, Indexes):
            yield from _batches(self.schema, TopicRows(self.options).read(partition.content))


# -- Streams -----------------------------------------------------------------------------------------------------------


class _StreamReader(_TableReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Base class of the three streams: an admission limit, and no use of Spark's commit().

    Spark commits a batch to a source while it builds the next one, so the last batch of a run is never committed. The
    log is trimmed by the archive (`transfer`), which does not use a stream.
    """

    def getDefaultReadLimit(self) -> Any:
        """Return the maximum number of rows of a batch."""
        return ReadMaxRows(self.options.max_rows) if self.options.max_rows else ReadAllAvailable()

    def commit(self, end: Any) -> None:
        """Ignore the commit, see the class."""


def _most(limit: Any) -> int:
    return int(getattr(limit, "max_rows", NO_LIMIT))


class EventStreamReader(_StreamReader):
    """spark.readStream, kind=events."""

    def __init__(self, options: Options, schema: Any) -> None:
        super().__init__(options, schema)
        self._targets: dict[str, str] | None = None
        self._log: StreamLog | None = None

    @property
    def log(self) -> StreamLog:
        """Return the log, on a connection of this process."""
        log: StreamLog | None = self.__dict__.get("_log")
        if log is None:
            log = self._log = self.new_log()
        return log

    def new_log(self) -> StreamLog:
        """Return the log of this reader."""
        return StreamLog(self.options, self.options.streams)

    def initialOffset(self) -> dict[str, Any]:
        """Return the start offset of a new query."""
        return self.log.beginning()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the current end, so that the run ends there."""
        self._targets = self.log.newest_ids()

    def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
        """Return the end of the next batch."""
        return self.log.advance_all(start, _most(limit), self.__dict__.get("_targets"))

    def partitions(self, start: Any, end: Any) -> list[ReadPart]:
        """Plan a batch. After a restart the offsets come from the checkpoint."""
        return _parts(self.log.ranges(start, end))

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor."""
        if isinstance(partition, ReadPart):
            yield from _batches(self.schema, EventLogReader(self.options).read(partition.content))


class DrainStreamReader(EventStreamReader):
    """spark.readStream, kind=drain: the journals, which grow by claiming."""

    def new_log(self) -> StreamLog:
        """Return the journals as the log."""
        return Journals(self.options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Claim only messages visible now, so that a run on a busy queue ends."""
        assert isinstance(self.log, Journals)
        self.log.until_ms = self.log.server.now_us() // 1000

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor."""
        if isinstance(partition, ReadPart):
            yield from _batches(self.schema, Journals(self.options).read(partition.content))


class TopicStreamReader(_StreamReader):
    """spark.readStream, kind=topic."""

    def __init__(self, options: Options, schema: Any) -> None:
        super().__init__(options, schema)
        self._target: int | None = None
        self._topic: TopicRows | None = None

    @property
    def topic(self) -> TopicRows:
        """Return the topic, on a connection of this process."""
        topic: TopicRows | None = self.__dict__.get("_topic")
        if topic is None:
            topic = self._topic = TopicRows(self.options)
        return topic

    def initialOffset(self) -> dict[str, Any]:
        """Return the start offset of a new query."""
        return self.topic.beginning()

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the current end, so that the run ends there."""
        self._target = self.topic.bounds()[1]

    def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
        """Return the end of the next batch."""
        return self.topic.advance(start, _most(limit), self.__dict__.get("_target"))

    def partitions(self, start: Any, end: Any) -> list[ReadPart]:
        """Plan a batch."""
        return _parts(self.topic.cut(end["first"], end["index"])) if end != start else []

    def read(self, partition: Any) -> Iterator[Any]:
        """Read on an executor."""
        if isinstance(partition, ReadPart):
            yield from _batches(self.schema, TopicRows(self.options).read(partition.content))
