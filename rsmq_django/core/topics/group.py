"""A group of readers of a topic: read, acknowledge, replay, seek.

Consumers that read in the name of one group share its messages; every group gets all of them. Where a group is, its
cursor says, which plain clients know as well.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..call import Argument, Call
from ..errors import InvalidValue
from ..limits import MAX_BATCH, checked_count
from ..limits import milliseconds as short_milliseconds
from ..steps import arun_in_turn, run_in_turn
from .keys import checked_group, dead_letter_topic, group_keys, topic_keys
from .listing import register_call
from .records import Batch, GroupStatus, SeekResult, TopicMessage
from .replies import read_batch, read_group_status, read_leased, read_seek
from .seeking import Target, seek_words
from .waiting import Patience

if TYPE_CHECKING:
    from .topic import Topic

Start = Literal["earliest", "latest", "error"]
Held = TopicMessage | int

#: A consumer that reads says so that often, and counts as live for that long.
BEAT_EVERY_S = 5.0
LIVE_MS = 15_000
MAX_DELIVERIES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """How a group reads. Raises InvalidValue where it is made."""

    #: False: messages are done with when they are handed out, and lost when their reader dies: at most once.
    #: True: they are done with when they are acknowledged, and handed out again otherwise: at least once.
    at_least_once: bool = False
    #: How long a reader may take to acknowledge a message.
    visibility_timeout_s: float = 30
    #: A message that was handed out so often goes to the dead-letter topic, "<topic>.dlt"; 0 tries for ever.
    max_deliveries: int = 5
    #: Where a group begins that nobody has read for: at the first message that is kept, behind the last one, or not.
    start: Start = "earliest"
    #: Where a group goes on whose topic was deleted and has fewer messages now than the group had read.
    on_reset: Start = "error"

    def __post_init__(self) -> None:
        for what in ("start", "on_reset"):
            if getattr(self, what) not in get_args(Start):
                raise InvalidValue(f"{what} is {getattr(self, what)!r}; it must be one of {', '.join(get_args(Start))}")
        short_milliseconds("visibility_timeout_s", self.visibility_timeout_s)
        most = self.max_deliveries
        if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MAX_DELIVERIES:
            raise InvalidValue(f"max_deliveries is {most!r}; it must be a whole number between 0 and {MAX_DELIVERIES}")


class Group:
    """One group of a topic; make it with `Topic.group()`. Threads may share it."""

    def __init__(self, topic: Topic, name: str, options: GroupOptions) -> None:
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

    def read(self, count: int = 1, *, block_ms: int = 0) -> Batch:
        """Return the next messages, up to 1,000; wait for the first one up to `block_ms`.

        Raises GroupNotFound, TopicReset where the options say "error", TopicBroken, InvalidValue. When the reply is
        lost (OutcomeUnknown), messages read at most once are lost with it.
        """
        patience = Patience(block_ms)
        batch = self.topic.run(self.read_call(count))
        while slice_ms := patience.slice_ms(batch):
            if not batch.left:
                self.topic.waiter.wait(self.topic.name, self.topic.keys.wake, batch.last, slice_ms)
            batch = self.topic.run(self.read_call(count))
        if batch.dead_lettered:
            self.client.run(register_call(dead_letter_topic(self.topic.name)))
        return batch

    async def aread(self, count: int = 1, *, block_ms: int = 0) -> Batch:
        """See read()."""
        patience = Patience(block_ms)
        batch = await self.topic.arun(self.read_call(count))
        while slice_ms := patience.slice_ms(batch):
            if not batch.left:
                await self.topic.waiter.await_(self.topic.name, self.topic.keys.wake, batch.last, slice_ms)
            batch = await self.topic.arun(self.read_call(count))
        if batch.dead_lettered:
            await self.client.arun(register_call(dead_letter_topic(self.topic.name)))
        return batch

    def read_call(self, count: int) -> Call[Batch]:
        """Return read() without waiting as a call."""
        keys, args = self.read_keys, self.read_words(checked_count(count))
        if not self.options.at_least_once:
            return Call("topic/read", keys, args, read_batch, subject=self.subject)
        dead_letters = topic_keys(dead_letter_topic(self.topic.name))
        origin = json.dumps({"topic": self.topic.name, "group": self.name})[:-1]
        timeout_ms = short_milliseconds("visibility_timeout_s", self.options.visibility_timeout_s)
        args += (timeout_ms, self.options.max_deliveries, dead_letters.prefix, origin)
        return Call("topic/lease", (*keys, *dead_letters.log), args, read_leased, subject=self.subject)

    @property
    def read_keys(self) -> tuple[str, ...]:
        """Return the keys that every script which reads begins with."""
        log = self.topic.keys
        return (log.index, log.meta, log.headers, log.keys, *self.keys.all)

    def read_words(self, count: int) -> tuple[Argument, ...]:
        """Return the arguments that every script which reads begins with."""
        options = self.options
        return (self.topic.keys.prefix, self.name, count, options.start, options.on_reset, self._beat())

    def ack(self, messages: Iterable[Held] | Held) -> int:
        """Acknowledge messages; return how many of them were still held.

        A missing one was acknowledged before, was handed out again because its time was over, or the group was set back
        since. A bare index is compared with no receipt.
        """
        return sum(run_in_turn(self.client, self._ack(messages), each=2))

    async def aack(self, messages: Iterable[Held] | Held) -> int:
        """See ack()."""
        return sum(await arun_in_turn(self.client, self._ack(messages), each=2))

    def _ack(self, messages: Iterable[Held] | Held) -> list[Call[int]]:
        own = self.keys
        keys = (own.cursor, own.own, own.pending, own.due, own.counts)
        return [
            Call("topic/ack", keys, tuple(part), int, repeatable=True, subject=self.subject)
            for part in _receipt_batches(messages)
        ]

    def retry(self, messages: Iterable[Held] | Held, *, after_s: float = 0) -> int:
        """Have messages handed out again after `after_s` seconds; return how many of them were still held, as in ack().

        With 0 that is at once, to whoever reads first. A longer time than is left gives their reader more time.
        """
        return sum(run_in_turn(self.client, self._retry(messages, after_s), words=1, each=2))

    async def aretry(self, messages: Iterable[Held] | Held, *, after_s: float = 0) -> int:
        """See retry()."""
        return sum(await arun_in_turn(self.client, self._retry(messages, after_s), words=1, each=2))

    def _retry(self, messages: Iterable[Held] | Held, after_s: float) -> list[Call[int]]:
        after_ms = short_milliseconds("after_s", after_s)
        keys = (self.keys.own, self.keys.pending, self.keys.due, self.keys.counts)
        return [
            Call("topic/retry", keys, (after_ms, *part), int, repeatable=True, subject=self.subject)
            for part in _receipt_batches(messages)
        ]

    # -- Going somewhere else -----------------------------------------------------------------------------------------

    def replay(self, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None) -> SeekResult:
        """Have everything that is kept handed out again, from the first message on. See seek()."""
        return self.client.run(self._seek("replay", "", force=force, dry_run=dry_run, seen=seen))

    async def areplay(
        self, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None
    ) -> SeekResult:
        """See replay()."""
        return await self.client.arun(self._seek("replay", "", force=force, dry_run=dry_run, seen=seen))

    def seek(
        self, target: Target, *, force: bool = False, dry_run: bool = False, seen: SeekResult | None = None
    ) -> SeekResult:
        """Set which message comes next: an index, "earliest", "latest", "+10" or "-10", a datetime or a timedelta ago.

        A time leads to the first message published since then, or up to 100 ms earlier. What lies outside the log is
        moved to its nearer end. Raises GroupLive while consumers read, unless forced: they would go on with what they
        hold. A dry run changes nothing; given as `seen`, GroupMoved is raised when somebody has read since.
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

    # -- Looking, leaving ---------------------------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Look at the group."""
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
        """Return how many indexes the group has not been given yet; takes no longer for a million than for one."""
        return self.status().lag

    async def alag(self) -> int:
        """See lag()."""
        return (await self.astatus()).lag

    def beat_call(self) -> Call[int]:
        """Return the call that says that this consumer is at work; reading says so by itself."""
        keys = (self.keys.groups, self.keys.consumers)
        return Call("topic/beat", keys, (self.name, self.consumer), int, repeatable=True, subject=self.subject)

    def retry_calls(self, messages: Iterable[Held], *, after_s: float) -> list[Call[int]]:
        """Return retry() as calls."""
        return self._retry(messages, after_s)

    def leave(self) -> None:
        """Say that this consumer reads no more, so that the group can be set back without waiting."""
        self.client.run(self._leave())

    async def aleave(self) -> None:
        """See leave()."""
        await self.client.arun(self._leave())

    def _leave(self) -> Call[int]:
        self._next_beat_at = 0.0
        keys = (self.keys.consumers,)
        return Call("topic/leave", keys, (self.consumer,), int, repeatable=True, subject=self.subject)

    def drop(self) -> bool:
        """Forget the group and where it is; return whether there was one. Raises GroupLive while consumers read."""
        return self.client.run(self.drop_call())

    async def adrop(self) -> bool:
        """See drop()."""
        return await self.client.arun(self.drop_call())

    def drop_call(self, *, idle_ms: int | None = None) -> Call[bool]:
        """Return drop() as a call; with `idle_ms` only a group goes that was not seen for so long."""
        args = (self.name, "" if idle_ms is None else idle_ms, LIVE_MS)
        return Call("topic/drop_group", self.keys.all, args, bool, repeatable=True, subject=self.subject)

    # -- Shared -------------------------------------------------------------------------------------------------------

    @property
    def consumer(self) -> str:
        """Return the name under which this process reads."""
        if self._consumer_pid != os.getpid():  # after a fork
            self._consumer_pid, self._next_beat_at = os.getpid(), 0.0
            self._consumer = f"{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(3)}"
        return self._consumer

    def _beat(self) -> str:
        """Return the consumer's name when it is time to say that it is there, else "": an idle read writes nothing."""
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
        """Return what error messages are about. Neither name has a colon, so they can tell them apart."""
        return f"{self.topic.name}:{self.name}"


def _receipt_batches(messages: Iterable[Held] | Held) -> list[list[Argument]]:
    """Return index and receipt in turn, of up to a thousand messages each."""
    if isinstance(messages, (TopicMessage, int)):
        messages = [messages]
    words: list[Argument] = []
    for message in messages:
        words += (_index(message), message.receipt if isinstance(message, TopicMessage) else "")
    return [words[at : at + 2 * MAX_BATCH] for at in range(0, len(words), 2 * MAX_BATCH)]


def _index(message: Held) -> int:
    index = message.index if isinstance(message, TopicMessage) else message
    if isinstance(index, bool) or not isinstance(index, int) or index < 1:
        raise InvalidValue(f"{message!r} is no message of a topic and no index from 1 on")
    return index
