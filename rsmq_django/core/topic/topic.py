"""A topic: publishing, status and retention. Groups read it.

As in `Queue`, each operation is defined three times: a pure function that returns a `Call`, the sync method, and its
async twin.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..errors import InvalidValue, RsmqError
from ..limits import Body, checked_count
from ..numbers import is_whole
from ..transport.call import Argument, Call
from ..transport.client import Client
from .entries import publish_words
from .group import ConsumerGroup, GroupOptions
from .keys import TopicKeys, checked_group, checked_topic, topic_keys
from .listing import register_call
from .records import NewMessage, Retention, TopicRange, TopicStatus
from .replies import read_groups, read_published, read_range, read_status
from .retention import milliseconds, retention_words
from .seeking import MAX_INDEX
from .waiting import Waiter

T = TypeVar("T")

#: How long a tombstone stays, so that every reader can read it.
TOMBSTONE_TTL_S = 86_400


class LogBounds(NamedTuple):
    """The identity of a topic's log, "" before its first message, and its lowest stored and its last index."""

    log: str
    first: int
    last: int


class Topic:
    """A topic. Creating the object does no I/O, and the first publish creates the topic.

    On a cluster a topic needs a hash tag, for example `{orders}`. Messages are published with `sender`, a DurableClient
    for example, or else with the client.
    """

    def __init__(self, name: str, client: Client, *, sender: Client | None = None) -> None:
        self.name = checked_topic(name, namespace=client.namespace)
        self.client = client
        self.sender = sender or client
        self.keys: TopicKeys = topic_keys(name)
        self.waiter = Waiter(client)
        self._is_listed = False

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def group(self, name: str, **options: Any) -> ConsumerGroup:
        """Return a group of readers. The options are those of `GroupOptions`."""
        return ConsumerGroup(self, name, GroupOptions(**options))

    # -- Publishing ---------------------------------------------------------------------------------------------------

    def publish(
        self, *bodies: Body | NewMessage, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> range:
        """Append up to 1,000 messages atomically, and return their consecutive indexes.

        `key` and `headers` are defaults for messages without them. Raises InvalidValue, MessageNotBytes,
        MessageTooLong, TopicBroken.
        """
        return self.run(self.publish_call(*bodies, key=key, headers=headers), self.sender)

    async def apublish(
        self, *bodies: Body | NewMessage, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> range:
        """See publish()."""
        return await self.arun(self.publish_call(*bodies, key=key, headers=headers), self.sender)

    def publish_call(
        self, *bodies: Body | NewMessage, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Call[range]:
        """Return publish() as a call, to be run together with others."""
        words = publish_words(self.name, bodies, key=key, headers=headers)
        return self._log_call("topic/publish", words, read_published)

    # -- Reading without a group ---------------------------------------------------------------------------------------

    def status(self) -> TopicStatus:
        """Return the status of the topic and its settings."""
        return self.client.run(self.status_call())

    async def astatus(self) -> TopicStatus:
        """See status()."""
        return await self.client.arun(self.status_call())

    def status_call(self) -> Call[TopicStatus]:
        """Return status() as a call."""
        keys = (self.keys.index, self.keys.meta, self.keys.time, self.keys.groups)
        return Call("topic/status", keys, (), read_status, repeatable=True, subject=self.name)

    def read_range(self, first: int, count: int, *, body_bytes: int | None = None) -> TopicRange:
        """Return up to 1,000 messages from index `first` on, without a group; of each body up to `body_bytes` bytes.

        The same range returns the same messages as long as they are stored: see `TopicRange.first`.
        """
        return self.client.run(self.range_call(first, count, body_bytes=body_bytes))

    async def aread_range(self, first: int, count: int, *, body_bytes: int | None = None) -> TopicRange:
        """See read_range()."""
        return await self.client.arun(self.range_call(first, count, body_bytes=body_bytes))

    def range_call(self, first: int, count: int, *, body_bytes: int | None = None) -> Call[TopicRange]:
        """Return read_range() as a call."""
        args: tuple[Argument, ...] = (self.keys.prefix, _checked_index("first", first), checked_count(count))
        if body_bytes is not None:
            args = (*args, _checked_index("body_bytes", body_bytes))
        keys = (self.keys.index, self.keys.meta, self.keys.time, self.keys.headers, self.keys.keys)
        read = partial(read_range, has_sizes=body_bytes is not None)
        return Call("topic/range", keys, args, read, repeatable=True, subject=self.name)

    def identify_call(self) -> Call[LogBounds]:
        """Return the call that reads the identity and the bounds of the log; a topic without an identity gets one."""
        keys = (self.keys.index, self.keys.meta)
        return Call("topic/identify", keys, (uuid.uuid4().hex,), _read_bounds, repeatable=True, subject=self.name)

    def groups(self) -> list[tuple[str, float]]:
        """Return the groups of this package with the seconds since their last activity; idle groups first."""
        return self.client.run(self.groups_call())

    async def agroups(self) -> list[tuple[str, float]]:
        """See groups()."""
        return await self.client.arun(self.groups_call())

    def groups_call(self) -> Call[list[tuple[str, float]]]:
        """Return groups() as a call."""
        return Call("topic/groups", (self.keys.groups,), (), read_groups, repeatable=True, subject=self.name)

    # -- Retention ---------------------------------------------------------------------------------------------

    def set_retention(self, retention: Retention) -> None:
        """Set the retention of the topic, which applies to all publishers. Raises InvalidValue."""
        self.run(self._set_retention(retention))

    async def aset_retention(self, retention: Retention) -> None:
        """See set_retention()."""
        await self.arun(self._set_retention(retention))

    def _set_retention(self, retention: Retention) -> Call[int]:
        words = retention_words(retention)
        return Call("topic/configure", (self.keys.meta,), words, int, repeatable=True, subject=self.name)

    def trim(self, *, before: int | None = None, keep: int | None = None) -> int:
        """Delete old messages and return the number of deleted indexes.

        Deletes messages before an index, all but the last `keep`, or without either those beyond the topic's retention,
        with idle groups. Groups that have not read the messages skip them, and their next read reports it.
        """
        dropped, has_more = 0, True
        while has_more:
            count, has_more = self.client.run(self.sweep_call(before=before, keep=keep))
            dropped += count
        if before is keep is None:
            self.prune()
        return dropped

    async def atrim(self, *, before: int | None = None, keep: int | None = None) -> int:
        """See trim()."""
        dropped, has_more = 0, True
        while has_more:
            count, has_more = await self.client.arun(self.sweep_call(before=before, keep=keep))
            dropped += count
        if before is keep is None:
            await self.aprune()
        return dropped

    def sweep_call(self, *, before: int | None = None, keep: int | None = None) -> Call[tuple[int, bool]]:
        """Return one step of trim() as a call: the number of deleted messages, and whether more are left."""
        if before is not None and keep is not None:
            raise InvalidValue("give either `before` or `keep`, not both")
        words: list[Argument] = ["retain", ""]
        if before is not None:
            words = ["below", _checked_index("before", before)]
        elif keep is not None:
            words = ["keep", _checked_index("keep", keep)]
        return self._log_call("topic/sweep", words, lambda reply: (reply[0], reply[1] == 1), repeatable=True)

    def compact(self, *, tombstone_ttl_s: float = TOMBSTONE_TTL_S) -> int:
        """Delete messages whose key has a newer message, and old tombstones; return their number.

        Messages without a key stay. Groups that have not read the deleted messages get only the newer ones.
        """
        removed, has_more = 0, True
        while has_more:
            count, has_more = self.client.run(self._compact(tombstone_ttl_s))
            removed += count
        return removed

    async def acompact(self, *, tombstone_ttl_s: float = TOMBSTONE_TTL_S) -> int:
        """See compact()."""
        removed, has_more = 0, True
        while has_more:
            count, has_more = await self.client.arun(self._compact(tombstone_ttl_s))
            removed += count
        return removed

    def _compact(self, tombstone_ttl_s: float) -> Call[tuple[int, bool]]:
        args = (self.keys.prefix, milliseconds("tombstone_ttl_s", tombstone_ttl_s))
        reader: Callable[[Any], tuple[int, bool]] = lambda reply: (reply[0], reply[1] == 1)  # noqa: E731
        return Call("topic/compact", self.keys.log, args, reader, repeatable=True, subject=self.name)

    def prune(self, *, idle_s: float | None = None) -> list[str]:
        """Delete groups idle for a time, by default that of the topic's settings; return their names."""
        retention = self.status().retention if idle_s is None else Retention(group_ttl_s=idle_s)
        if retention.group_ttl_s is None:
            return []
        idle = [name for name, seconds in self.groups() if seconds >= retention.group_ttl_s]
        return [name for name in idle if self.client.run(self.drop_idle_call(name, retention.group_ttl_s))]

    async def aprune(self, *, idle_s: float | None = None) -> list[str]:
        """See prune()."""
        retention = (await self.astatus()).retention if idle_s is None else Retention(group_ttl_s=idle_s)
        if retention.group_ttl_s is None:
            return []
        idle = [name for name, seconds in await self.agroups() if seconds >= retention.group_ttl_s]
        return [name for name in idle if await self.client.arun(self.drop_idle_call(name, retention.group_ttl_s))]

    def drop_idle_call(self, name: str, idle_s: float) -> Call[bool]:
        """Return the call that deletes a group if it has been idle for a time."""
        group = ConsumerGroup(self, checked_group(name), GroupOptions())
        return group.drop_call(idle_ms=milliseconds("idle_s", idle_s))

    # -- Shared -------------------------------------------------------------------------------------------------------

    def run(self, call: Call[T], client: Client | None = None) -> T:
        """Run a call on the topic; the first call of a process adds the topic to the list, in the same round trip."""
        client = client or self.client
        if self._is_listed:
            return client.run(call)
        calls: list[Call[Any]] = [register_call(self.name), call]
        found: T = self._noted(client.run_many(calls))
        return found

    async def arun(self, call: Call[T], client: Client | None = None) -> T:
        """See run()."""
        client = client or self.client
        if self._is_listed:
            return await client.arun(call)
        calls: list[Call[Any]] = [register_call(self.name), call]
        found: T = self._noted(await client.arun_many(calls))
        return found

    def _noted(self, results: list[Any]) -> Any:
        # Only the list fails: a server at its memory limit rejects the name, but serves the reader.
        self._is_listed = not isinstance(results[0], RsmqError)
        if isinstance(results[1], RsmqError):
            raise results[1]
        return results[1]

    def _log_call(
        self, script: str, words: list[Argument], read: Callable[[Any], T], *, repeatable: bool = False
    ) -> Call[T]:
        keys = (*self.keys.log, self.keys.groups)
        args = (self.keys.prefix, self.name, *words)
        return Call(script, keys, args, read, repeatable=repeatable, subject=self.name)


def _checked_index(what: str, index: int) -> int:
    if not is_whole(index) or not 0 <= index <= MAX_INDEX:
        raise InvalidValue(f"{what} is {index!r}; it must be a whole number between 0 and {MAX_INDEX}")
    return index


def _read_bounds(reply: list[Any]) -> LogBounds:
    return LogBounds(reply[0].decode("ascii"), int(reply[1]), int(reply[2]))
