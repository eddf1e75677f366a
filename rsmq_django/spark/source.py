"""`format("rsmq")`: the Spark data source for queues, logs and topics.

It only selects the reader or writer of a kind. Only Spark is imported at the top: a failed import would make Spark's
lookup of all Python formats fail.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """`spark.read`, `readStream`, `write` and `writeStream` with `.format("rsmq")`.

    | kind    | read                       | readStream               | write, writeStream              |
    |---------|----------------------------|--------------------------|---------------------------------|
    | queue   | the current messages       |                          | rows as messages                |
    | dead    | the current dead letters   |                          |                                 |
    | events  | the task event log         | the same, with offsets   |                                 |
    | topic   | a topic, by index          | the same, with offsets   | rows as messages of the topic   |
    | drain   |                            | messages, then deleted   |                                 |
    | tasks   |                            |                          | rows as calls of Django tasks   |
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for format()."""
        return "rsmq"

    def schema(self) -> Any:
        """Return the columns of the kind."""
        from . import dead_letters, drain, events, snapshot, topic
        from .columns import spark_schema

        schemas = {
            "queue": snapshot.SCHEMA,
            "dead": dead_letters.SCHEMA,
            "events": events.SCHEMA,
            "drain": drain.SCHEMA,
            "topic": topic.SCHEMA,
        }
        return spark_schema(self._one_of(schemas, "read"))

    def reader(self, schema: Any) -> Any:
        """Return the reader of spark.read."""
        from . import readers

        kinds = {
            "queue": readers.SnapshotReader,
            "dead": readers.DeadLetterReader,
            "events": readers.EventReader,
            "topic": readers.TopicReader,
        }
        return self._one_of(kinds, "read")(self._options(), schema)

    def streamReader(self, schema: Any) -> Any:
        """Return the reader of spark.readStream."""
        from . import readers

        kinds = {
            "events": readers.EventStreamReader,
            "drain": readers.DrainStreamReader,
            "topic": readers.TopicStreamReader,
        }
        return self._one_of(kinds, "read as a stream")(self._options(), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Return the writer of df.write."""
        from . import writers

        self._refuse_overwrite(overwrite)
        kinds = dict.fromkeys(("queue", "topic", "tasks"), writers.BatchWriter)
        return self._one_of(kinds, "written")(self._options(), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Return the writer of df.writeStream."""
        from . import writers

        self._refuse_overwrite(overwrite)
        kinds = dict.fromkeys(("queue", "topic", "tasks"), writers.StreamWriter)
        return self._one_of(kinds, "written")(self._options(), schema)

    def _options(self) -> Any:
        from .options import Options

        return Options.read(self.options)

    def _one_of(self, kinds: dict[str, Any], done: str) -> Any:
        from .errors import WrongOption

        kind = self._options().kind
        if kind not in kinds:
            raise WrongOption(f"kind={kind} cannot be {done}; supported kinds are {', '.join(kinds)}")
        return kinds[kind]

    def _refuse_overwrite(self, overwrite: bool) -> None:
        from .errors import WrongOption

        # Without this, mode("overwrite") and output mode "complete" would silently append.
        if overwrite:
            raise WrongOption("messages can only be appended: use mode('append')")
