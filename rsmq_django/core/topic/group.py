"""A consumer group of a topic: read, acknowledge, replay, seek.

The consumers of a group share its messages; every group gets all messages. The position of a group is its cursor, which
plain clients use as well.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar, get_args

from ..errors import InvalidValue
from ..limits import MAX_BATCH, checked_count
from ..limits import milliseconds as short_milliseconds
from ..numbers import is_whole
from ..transport.call import Argument, Call
from ..transport.call_steps import arun_in_turn, run_in_turn
from ..transport.client import Client
from .keys import TopicKeys, checked_group, dead_letter_topic, group_keys, topic_keys
from .listing import aregister_dead_letters, register_dead_letters
from .records import GroupStatus, SeekResult, TopicBatch, TopicMessage
from .replies import read_batch, read_group_status, read_held, read_leased, read_seek
from .seeking import Target, seek_words
from .waiting import Patience, Waiter

T = TypeVar("T")
Start = Literal["earliest", "latest", "error"]
Held = TopicMessage | int

#: Interval of heartbeats of a reading consumer, and how long it counts as live.
BEAT_EVERY_S = 5.0
LIVE_MS = 15_000
MAX_DELIVERIES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Options of a group. Raises InvalidValue for invalid options."""

    #: False: messages are settled when delivered, and lost if their consumer crashes: at most once.
    #: True: they are settled when acknowledged, and otherwise delivered again: at least once.
    at_least_once: bool = False
    #: Time to acknowledge a message before it is delivered again.
    visibility_timeout_s: float = 30
    #: Number of deliveries after which a message goes to the dead-letter topic, "<topic>.dlt"; 0 for no limit.
    max_deliveries: int = 5
    #: Start of a new group: at the oldest stored message, after the latest one, or with an error.
    start: Start = "earliest"
    #: Position of a group whose topic was recreated with fewer messages than the group had read.
    on_reset: Start = "error"

    def __post_init__(self) -> None:
        for what in ("start", "on_reset"):
            if getattr(self, what) not in get_args(Start):
                raise InvalidValue(f"{what} is {getattr(self, what)!r}; it must be one of {', '.join(get_args(Start))}")
        short_milliseconds("visibility_timeout_s", self.visibility_timeout_s)
        most = self.max_deliveries
        if not is_whole(most) or not 0 <= most <= MAX_DELIVERIES:
            raise InvalidValue(f"max_deliveries is {most!r}; it must be a whole number between 0 and {MAX_DELIVERIES}")


class ReadTopic(Protocol):
    """A topic, as far as a group needs it."""

    name: str
    client: Client
    keys: TopicKeys
    waiter: Waiter

    def run(self, call: Call[T]) -> T:
        """Run a call."""

    async def arun(self, call: Call[T]) -> T:
        """See run()."""


class ConsumerGroup:
    """A group of a topic, created with `Topic.group()`. It is thread-safe."""

    def __init__(self, topic: ReadTopic, name: str, options: GroupOptions) -> None:
        self.topic = topic
        self.name = checked_group(name)
        self.options = options
        self.keys = group_keys(topic.name, name)
        self.client = topic.client
        self._consumer = ""
        self._consumer_pid = 0
        self._next_beat_at = 0.0

    def __repr__(self) -> str:
        return f"Group({self.topic.name!r}, {self.name!r})"

    # -- Reading ------------------------------------------------------------------------------------------------------

    def read(self, count: int = 1, *, block_ms: int = 0) -> TopicBatch:
        """Return the next messages, up to 1,000; wait for the first one up to `block_ms`.

        Raises GroupNotFound, TopicReset if the options say "error", TopicBroken, InvalidValue. If the reply is lost
        (OutcomeUnknown), messages read at most once are lost with it.
        """
        patience = Patience(block_ms)
        batch = self.topic.run(self.read_call(count))
        while slice_ms := patience.slice_ms(batch):
            if not batch.left:
                self.topic.waiter.wait(self.topic.name, self.topic.keys.wake, batch.last, slice_ms)
            batch = self.topic.run(self.read_call(count))
        if batch.dead_lettered:
            register_dead_letters(self.client, self.topic.name)
        return batch

    async def aread(self, count: int = 1, *, block_ms: int = 0) -> TopicBatch:
        """See read()."""
        patience = Patience(block_ms)
        batch = await self.topic.arun(self.read_call(count))
        while slice_ms := patience.slice_ms(batch):
            if not batch.left:
                await self.topic.waiter.await_(self.topic.name, self.topic.keys.wake, batch.last, slice_ms)
            batch = await self.topic.arun(self.read_call(count))
        if batch.dead_lettered:
            await aregister_dead_letters(self.client, self.topic.name)
        return batch

    def read_call(self, count: int, *, most_tried: int | None = None) -> Call[TopicBatch]:
        """Return read() without waiting as a call; it reads only `most_tried` when one of them was tried before."""
        keys, args = self.read_keys, self.read_words(checked_count(count))
        if not self.options.at_least_once:
            return Call("topic/read", keys, args, read_batch, subject=self.subject)
        dead_letters = topic_keys(dead_letter_topic(self.topic.name))
        origin = json.dumps({"topic": self.topic.name, "group": self.name})[:-1]
        timeout_ms = short_milliseconds("visibility_timeout_s", self.options.visibility_timeout_s)
        args += (timeout_ms, self.options.max_deliveries, dead_letters.prefix, origin, most_tried or count)
        return Call("topic/lease", (*keys, *dead_letters.log), args, read_leased, subject=self.subject)

    @property
    def read_keys(self) -> tuple[str, ...]:
        """Return the first keys of all reading scripts."""
        log = self.topic.keys
        return (log.index, log.meta, log.headers, log.keys, *self.keys.all)

    def read_words(self, count: int) -> tuple[Argument, ...]:
        """Return the first arguments of all reading scripts."""
        options = self.options
        return (self.topic.keys.prefix, self.name, count, options.start, options.on_reset, self._beat())

    def ack(self, messages: Iterable[Held] | Held) -> int:
        """Acknowledge messages; return how many of them were still in flight.

        The others were already acknowledged, were delivered again after their visibility timeout, or the group was
        moved back. A bare index is not compared with a receipt.
        """
        return _how_many(run_in_turn(self.client, self.ack_calls(messages), each=2))

    async def aack(self, messages: Iterable[Held] | Held) -> int:
        """See ack()."""
        return _how_many(await arun_in_turn(self.client, self.ack_calls(messages), each=2))

    def ack_calls(self, messages: Iterable[Held] | Held) -> list[Call[list[bool]]]:
        """Return ack() as calls; each tells which of its messages were still in flight."""
        own = self.keys
        keys = (own.cursor, own.own, own.pending, own.due, own.counts)
        return [self._settle_call("topic/ack", keys, (), part) for part in _receipt_batches(messages)]

    def retry(self, messages: Iterable[Held] | Held, *, after_s: float = 0) -> int:
        """Redeliver messages after `after_s` seconds; return how many of them were still in flight, as ack() does.

        With 0 they are redelivered at once, to the next reader. A longer time than is left extends the lease.
        """
        return _how_many(run_in_turn(self.client, self.retry_calls(messages, after_s=after_s), words=2, each=2))

    async def aretry(self, messages: Iterable[Held] | Held, *, after_s: float = 0) -> int:
        """See retry()."""
        return _how_many(await arun_in_turn(self.client, self.retry_calls(messages, after_s=after_s), words=2, each=2))

    def retry_calls(self, messages: Iterable[Held] | Held, *, after_s: float) -> list[Call[list[bool]]]:
        """Return retry() as calls; each tells which of its messages were still in flight."""
        return self._retry_calls(messages, after_s, "")

    def release_call(self, messages: Sequence[TopicMessage], *, after_s: float = 0) -> Call[list[bool]]:
        """Return a call that redelivers messages as retry() does, without counting this delivery of them.

        It counts neither towards `max_deliveries` nor in `TopicMessage.attempt`. At most 1,000 messages, all of them
        released equally often before.
        """
        (call,) = self._retry_calls(messages, after_s, messages[0].released + 1)
        return call

    def _retry_calls(
        self, messages: Iterable[Held] | Held, after_s: float, released: Argument
    ) -> list[Call[list[bool]]]:
        after_ms = short_milliseconds("after_s", after_s)
        keys = (self.keys.own, self.keys.pending, self.keys.due, self.keys.counts)
        return [
            self._settle_call("topic/retry", keys, (after_ms, released), part) for part in _receipt_batches(messages)
        ]

    def _settle_call(
        self, script: str, keys: tuple[str, ...], words: tuple[Argument, ...], part: Sequence[Argument]
    ) -> Call[list[bool]]:
        read = partial(read_held, count=len(part) // 2)
        return Call(script, keys, (*words, *part), read, repeatable=True, subject=self.subject)

    # -- Seeking -----------------------------------------------------------------------------------------

    def replay(self, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None) -> SeekResult:
        """Move the group back to the oldest stored message. See seek()."""
        return self.client.run(self._seek("replay", "", force=force, dry_run=dry_run, seen=seen))

    async def areplay(
        self, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None
    ) -> SeekResult:
        """See replay()."""
        return await self.client.arun(self._seek("replay", "", force=force, dry_run=dry_run, seen=seen))

    def seek(
        self, target: Target, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None
    ) -> SeekResult:
        """Move the group to an index, "earliest", "latest", "+10" or "-10", a datetime or a timedelta ago.

        A time selects the first message published since then, or up to 100 ms earlier. A target outside the log becomes
        its nearer end. Raises GroupLive while the group has live consumers, unless forced: they would continue with
        their messages in flight. A dry run changes nothing; with its result as `seen`, a later move raises GroupMoved.
        """
        return self.client.run(self._seek(*seek_words(target), force=force, dry_run=dry_run, seen=seen))

    async def aseek(
        self, target: Target, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None
    ) -> SeekResult:
        """See seek()."""
        return await self.client.arun(self._seek(*seek_words(target), force=force, dry_run=dry_run, seen=seen))

    def _seek(
        self, kind: str, value: Argument, *, force: bool, dry_run: bool, seen: SeekResult | None
    ) -> Call[SeekResult]:
        args = (self.name, kind, value, int(dry_run), int(force), LIVE_MS, "" if seen is None else seen.before)
        return Call("topic/seek", self._log_and_own, args, read_seek, subject=self.subject)

    # -- Status, leaving ---------------------------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Return the status of the group."""
        return self.client.run(self.status_call())

    async def astatus(self) -> GroupStatus:
        """See status()."""
        return await self.client.arun(self.status_call())

    def status_call(self) -> Call[GroupStatus]:
        """Return status() as a call."""
        reader = read_group_status(self.name)
        args = (self.name, LIVE_MS)
        return Call("topic/group_status", self._log_and_own, args, reader, repeatable=True, subject=self.subject)

    def lag(self) -> int:
        """Return the lag: the number of unread indexes, in constant time."""
        return self.status().lag

    async def alag(self) -> int:
        """See lag()."""
        return (await self.astatus()).lag

    def beat_call(self) -> Call[int]:
        """Return the call for a heartbeat of this consumer; reads send heartbeats automatically."""
        keys = (self.keys.groups, self.keys.consumers)
        return Call("topic/beat", keys, (self.name, self.consumer), int, repeatable=True, subject=self.subject)

    def leave(self) -> None:
        """Unregister this consumer, so that the group can be moved without waiting."""
        self.client.run(self.leave_call())

    async def aleave(self) -> None:
        """See leave()."""
        await self.client.arun(self.leave_call())

    def leave_call(self) -> Call[int]:
        """Return leave() as a call."""
        self._next_beat_at = 0.0
        keys = (self.keys.consumers,)
        return Call("ZREM", keys, (self.consumer,), int, repeatable=True, subject=self.subject)

    def drop(self) -> bool:
        """Delete the group with its position; return whether it existed. Raises GroupLive if it has live consumers."""
        return self.client.run(self.drop_call())

    async def adrop(self) -> bool:
        """See drop()."""
        return await self.client.arun(self.drop_call())

    def drop_call(self, *, idle_ms: int | None = None) -> Call[bool]:
        """Return drop() as a call; with `idle_ms`, only a group idle for that time is deleted."""
        args = (self.name, "" if idle_ms is None else idle_ms, LIVE_MS)
        return Call("topic/drop_group", self.keys.all, args, bool, repeatable=True, subject=self.subject)

    # -- Shared -------------------------------------------------------------------------------------------------------

    @property
    def consumer(self) -> str:
        """Return the consumer name of this process."""
        if self._consumer_pid != os.getpid():  # after a fork
            self._consumer_pid, self._next_beat_at = os.getpid(), 0.0
            self._consumer = f"{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(3)}"
        return self._consumer

    def _beat(self) -> str:
        """Return the consumer's name if its heartbeat is due, else "": an idle read writes nothing."""
        consumer, now = self.consumer, time.monotonic()
        if now < self._next_beat_at:
            return ""
        self._next_beat_at = now + BEAT_EVERY_S
        return consumer

    @property
    def _log_and_own(self) -> tuple[str, ...]:
        log = self.topic.keys
        return (log.index, log.meta, log.time, *self.keys.all)

    @property
    def subject(self) -> str:
        """Return the subject of error messages. Neither name has a colon, so it can be split."""
        return f"{self.topic.name}:{self.name}"


def _how_many(parts: Iterable[list[bool]]) -> int:
    return sum(map(sum, parts))


def _receipt_batches(messages: Iterable[Held] | Held) -> list[list[Argument]]:
    """Return lists of alternating indexes and receipts, of up to a thousand messages each."""
    if isinstance(messages, (TopicMessage, int)):
        messages = [messages]
    words: list[Argument] = []
    for message in messages:
        words += (_index(message), message.receipt if isinstance(message, TopicMessage) else "")
    return [words[at : at + 2 * MAX_BATCH] for at in range(0, len(words), 2 * MAX_BATCH)]


def _index(message: Held) -> int:
    index = message.index if isinstance(message, TopicMessage) else message
    if not is_whole(index) or index < 1:
        raise InvalidValue(f"{message!r} is neither a message of a topic nor an index of at least 1")
    return index
