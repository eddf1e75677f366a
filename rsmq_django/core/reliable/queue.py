"""Reliable queues: push, pop, ack, recover, inspect and info of RedisRQ, and further operations.

Each operation is defined three times, as in core/queue/queue.py: a pure function that returns a `Call`, the sync
method, and its async twin. The methods of RedisRQ return plain lists; `pop_messages()`, `recover_messages()`,
`messages()` and `statistics()` return records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from ..errors import ConnectionFailed, InvalidName, InvalidValue, OutcomeUnknown
from ..keys import checked_name, reliable_keys, reliable_queues_key
from ..limits import MAX_BATCH, Body, batches, checked_count, milliseconds
from ..queue.records import SettleResult
from ..queue.replies import read_nothing
from ..transport.call import Argument, Call
from ..transport.call_steps import arun_in_turn, run_in_turn
from ..transport.client import Client, as_our_error
from .arguments import (
    MAX_DELIVERIES,
    MAX_MS,
    Receipt,
    checked_block_ms,
    checked_body,
    checked_kind,
    checked_label,
    checked_room,
    checked_whole,
    receipt_word,
)
from .records import Kind, ReliableMessage, ReliableStatistics, StoredReliableMessage
from .replies import (
    Popped,
    Recovered,
    read_ids_or_none,
    read_info,
    read_moved,
    read_popped,
    read_recovered,
    read_statistics,
    read_stored,
)
from .shapes import Row, as_inspected, as_rows, joined, merged
from .waiting import Wait, async_place_in_line, place_in_line, until_next_poll_s, wake_keys

T = TypeVar("T")
MAX_QUEUES_PER_POP = 100


class ReliableQueue:
    """A reliable queue. Creating the object does no I/O; the first push creates the queue.

    `consumer` is the consumer name of this object, which is stored until its messages are acknowledged. Messages are
    pushed with `sender`, a DurableClient for example, or else with the client.
    """

    def __init__(self, name: str, client: Client, *, consumer: str = "", sender: Client | None = None) -> None:
        self.name = checked_name(name)
        self.client = client
        self.sender = sender or client
        self.consumer = checked_label("consumer", consumer)
        self.keys = (reliable_queues_key(client.namespace), *reliable_keys(client.namespace, name))

    def __repr__(self) -> str:
        return f"ReliableQueue({self.name!r}, namespace={self.client.namespace!r})"

    # -- In -----------------------------------------------------------------------------------------------------------

    def push(self, *bodies: Body, delay_s: float = 0) -> list[str]:
        """Add up to 1,000 messages atomically to the end of the queue, and return their ids.

        With a delay they are added to the end of the queue after it. Raises InvalidValue, MessageTooLong, QueueFull.
        """
        return self.sender.run(self._push(bodies, delay_s))

    async def apush(self, *bodies: Body, delay_s: float = 0) -> list[str]:
        """See push()."""
        return await self.sender.arun(self._push(bodies, delay_s))

    def _push(self, bodies: Sequence[Body], delay_s: float) -> Call[list[str]]:
        if not 1 <= len(bodies) <= MAX_BATCH:
            raise InvalidValue(
                f"push() was given {len(bodies)} bodies; one call takes 1 to {MAX_BATCH}, push the rest with the next"
            )
        args: tuple[Argument, ...] = (
            milliseconds("delay_s", delay_s),
            *(checked_body(self.name, body) for body in bodies),
        )
        return self._call("push", args, lambda ids: read_ids_or_none(ids) or [])

    # -- Out ----------------------------------------------------------------------------------------------------------

    def pop(self, count: int = 1, block_ms: int = 0, *more_queues: str | ReliableQueue) -> list[Row] | None:
        """Pop up to `count` (0 to 1,000) messages in total, from this queue first, then from the others in order.

        Returns [queue, id, body] of each. `block_ms`: 0 returns [] without messages; a positive value is the maximum
        time to wait for the first message, after which None is returned; a negative value waits forever.
        """
        popped = self._take(count, block_ms, more_queues)
        return None if popped is None else as_rows(popped)

    async def apop(self, count: int = 1, block_ms: int = 0, *more_queues: str | ReliableQueue) -> list[Row] | None:
        """See pop()."""
        popped = await self._atake(count, block_ms, more_queues)
        return None if popped is None else as_rows(popped)

    def pop_messages(
        self, count: int = 1, block_ms: int = 0, *more_queues: str | ReliableQueue
    ) -> list[ReliableMessage]:
        """Return records of popped messages, with the number of deliveries; [] also after the timeout. See pop()."""
        return self._take(count, block_ms, more_queues) or []

    async def apop_messages(
        self, count: int = 1, block_ms: int = 0, *more_queues: str | ReliableQueue
    ) -> list[ReliableMessage]:
        """See pop_messages()."""
        return await self._atake(count, block_ms, more_queues) or []

    def _take(
        self, count: int, block_ms: int, more_queues: Sequence[str | ReliableQueue]
    ) -> list[ReliableMessage] | None:
        call, wait = self.pop_call(count, more_queues), Wait(checked_block_ms(block_ms))
        while True:
            popped = self.client.run(call)
            if popped.messages or not wait.is_wanted or count == 0:
                return popped.messages
            if wait.is_over:
                return None
            block_s = wait.block_s()
            if block_s:
                self._stand_in_line(self.pop_call(0, more_queues, is_look=True), block_s, popped.next_due_ms)
            else:
                time.sleep(wait.nap_s())

    async def _atake(
        self, count: int, block_ms: int, more_queues: Sequence[str | ReliableQueue]
    ) -> list[ReliableMessage] | None:
        call, wait = self.pop_call(count, more_queues), Wait(checked_block_ms(block_ms))
        while True:
            popped = await self.client.arun(call)
            if popped.messages or not wait.is_wanted or count == 0:
                return popped.messages
            if wait.is_over:
                return None
            block_s = wait.block_s()
            if block_s:
                await self._astand_in_line(self.pop_call(0, more_queues, is_look=True), block_s, popped.next_due_ms)
            else:
                await asyncio.sleep(wait.nap_s())

    def pop_call(
        self, count: int, more_queues: Sequence[str | ReliableQueue] = (), *, is_look: bool = False
    ) -> Call[Popped]:
        """Return a non-blocking pop as a call, to run it together with others.

        `is_look`: for a waiting client; it leaves the token of a fresh message to the client that was woken.
        """
        names = dict.fromkeys([self.name, *map(self._checked_other, more_queues)])
        if len(names) > MAX_QUEUES_PER_POP:
            raise InvalidValue(f"pop() names {len(names)} queues; one call takes from at most {MAX_QUEUES_PER_POP}")
        keys = [key for name in names for key in reliable_keys(self.client.namespace, name)]
        args = (checked_room(count), self.consumer, *(("look",) if is_look else ()))
        return Call("reliable/pop", (self.keys[0], *keys), args, read_popped, subject=", ".join(names))

    def _stand_in_line(self, look: Call[Popped], block_s: float, next_due_ms: int | None) -> None:
        """Wait for a token; `look` is a pop of no messages, which restores tokens and ends delays."""
        try:
            with place_in_line(self.client.connection, wake_keys(look.keys), block_s) as place:
                while not place.is_served(within_s=until_next_poll_s(next_due_ms)):
                    next_due_ms = self.client.run(look).next_due_ms
                reply = place.leave()
        except OutcomeUnknown as error:
            raise _lost_while_waiting(look, error) from error
        _raise_refusal(look, reply)

    async def _astand_in_line(self, look: Call[Popped], block_s: float, next_due_ms: int | None) -> None:
        """See _stand_in_line()."""
        try:
            async with async_place_in_line(self.client.connection, wake_keys(look.keys), block_s) as waiting:
                while not (await asyncio.wait({waiting}, timeout=until_next_poll_s(next_due_ms)))[0]:
                    next_due_ms = (await self.client.arun(look)).next_due_ms
                (reply,) = await waiting
        except OutcomeUnknown as error:
            raise _lost_while_waiting(look, error) from error
        _raise_refusal(look, reply)

    # -- Settling messages in flight ---------------------------------------------------------------------------

    def ack(self, *messages: Receipt) -> list[str] | None:
        """Acknowledge messages, which deletes them. Returns the deleted ids, in order.

        Missing ids were not in flight or were already deleted. A message or a receipt is skipped if the message was
        delivered again since; an id is valid for any delivery. None if the queue does not exist.
        """
        return joined(run_in_turn(self.client, self.ack_calls(messages)))

    async def aack(self, *messages: Receipt) -> list[str] | None:
        """See ack()."""
        return joined(await arun_in_turn(self.client, self.ack_calls(messages)))

    def ack_calls(self, messages: Sequence[Receipt]) -> list[Call[list[str] | None]]:
        """Return ack() as calls of up to a thousand messages each."""
        return self._settling("ack", (), messages)

    def nack(self, *messages: Receipt, delay_s: float = 0, is_unused: bool = False) -> list[str] | None:
        """Release messages: to the front of the queue at once, or to its end after `delay_s` seconds.

        A message with `max_deliveries` deliveries becomes a dead message instead. With `is_unused`, this delivery is
        not counted. Returns the released ids. See ack() for skipped messages.
        """
        return joined(run_in_turn(self.client, self.nack_calls(messages, delay_s, is_unused=is_unused), words=2))

    async def anack(self, *messages: Receipt, delay_s: float = 0, is_unused: bool = False) -> list[str] | None:
        """See nack()."""
        return joined(await arun_in_turn(self.client, self.nack_calls(messages, delay_s, is_unused=is_unused), words=2))

    def nack_calls(
        self, messages: Sequence[Receipt], delay_s: float = 0, *, is_unused: bool = False
    ) -> list[Call[list[str] | None]]:
        """Return nack() as calls of up to a thousand messages each."""
        args = (milliseconds("delay_s", delay_s), "unused" if is_unused else "failed")
        return self._settling("nack", args, messages)

    def extend(self, *messages: Receipt, seconds: float = 0) -> list[str] | None:
        """Set the delivery time of messages to `seconds` from now, which postpones their recovery.

        Zero is a heartbeat. Returns the changed ids. See ack() for skipped messages.
        """
        return joined(run_in_turn(self.client, self.extend_calls(messages, seconds), words=1))

    async def aextend(self, *messages: Receipt, seconds: float = 0) -> list[str] | None:
        """See extend()."""
        return joined(await arun_in_turn(self.client, self.extend_calls(messages, seconds), words=1))

    def extend_calls(self, messages: Sequence[Receipt], seconds: float = 0) -> list[Call[list[str] | None]]:
        """Return extend() as calls of up to a thousand messages each."""
        return self._settling("extend", (milliseconds("seconds", seconds),), messages)

    def check_in_call(self, receipt: Receipt, *, from_now_ms: int) -> Call[SettleResult]:
        """Return extend() of one message as a call, which returns whether the lease is still valid."""
        words = (from_now_ms, receipt_word(self.name, receipt))
        return self._call("extend", words, lambda ids: SettleResult.DONE if ids else SettleResult.LEASE_LOST)

    def recover(self, count: int, elapsed_ms: int) -> list[Row] | None:
        """Pop up to `count` messages in flight again whose last delivery was at least `elapsed_ms` ago, oldest first.

        Returns [id, body] of each, or None if the queue does not exist. A message with `max_deliveries` deliveries
        becomes a dead message instead.
        """
        recovered = self.client.run(self.recover_call(count, elapsed_ms))
        return None if recovered is None else [[message.id, message.body] for message in recovered]

    async def arecover(self, count: int, elapsed_ms: int) -> list[Row] | None:
        """See recover()."""
        recovered = await self.client.arun(self.recover_call(count, elapsed_ms))
        return None if recovered is None else [[message.id, message.body] for message in recovered]

    def recover_messages(self, count: int, elapsed_ms: int) -> list[ReliableMessage]:
        """Return records of recovered messages, with the number of deliveries. See recover()."""
        return self.client.run(self.recover_call(count, elapsed_ms)) or []

    async def arecover_messages(self, count: int, elapsed_ms: int) -> list[ReliableMessage]:
        """See recover_messages()."""
        return await self.client.arun(self.recover_call(count, elapsed_ms)) or []

    def recover_call(self, count: int, elapsed_ms: int) -> Call[Recovered | None]:
        """Return recover_messages() as a call."""
        room = checked_room(count)
        args = (room, checked_whole("elapsed_ms", elapsed_ms, 0, MAX_MS), self.consumer)
        return self._call("recover", args, read_recovered(self.name))

    def bury(self, *messages: Receipt, reason: str = "") -> list[str] | None:
        """Make messages dead, without further deliveries.

        The reason, up to 200 printable characters, is stored in place of the consumer. Returns the ids that are dead
        now. See ack() for skipped messages.
        """
        return joined(run_in_turn(self.client, self.bury_calls(messages, reason), words=1))

    async def abury(self, *messages: Receipt, reason: str = "") -> list[str] | None:
        """See bury()."""
        return joined(await arun_in_turn(self.client, self.bury_calls(messages, reason), words=1))

    def bury_calls(self, messages: Sequence[Receipt], reason: str) -> list[Call[list[str] | None]]:
        """Return bury() as calls of up to a thousand messages each."""
        return self._settling("bury", (checked_label("reason", reason),), messages)

    # -- Dead messages ------------------------------------------------------------------------------------------------

    def configure(self, *, max_deliveries: int) -> None:
        """Set the maximum number of deliveries before a message is dead; 0 for no limit.

        Pop, recover and nack apply it, in every language. Creates the queue if it does not exist.
        """
        self.client.run(self._configure(max_deliveries))

    async def aconfigure(self, *, max_deliveries: int) -> None:
        """See configure()."""
        await self.client.arun(self._configure(max_deliveries))

    def _configure(self, max_deliveries: int) -> Call[None]:
        args = (checked_whole("max_deliveries", max_deliveries, 0, MAX_DELIVERIES),)
        return self._call("configure", args, read_nothing, repeatable=True)

    def redrive(self, *ids: str, count: int = 0) -> list[str] | None:
        """Move dead messages to the end of the queue, and return their ids; their deliveries are reset.

        Either the messages with these ids or receipts, or the `count` (1 to 1,000) oldest dead messages.
        """
        return joined(run_in_turn(self.client, self._redrive(ids, count), words=1))

    async def aredrive(self, *ids: str, count: int = 0) -> list[str] | None:
        """See redrive()."""
        return joined(await arun_in_turn(self.client, self._redrive(ids, count), words=1))

    def _redrive(self, ids: Sequence[str], count: int) -> list[Call[list[str] | None]]:
        if ids and count:
            raise InvalidValue("redrive() takes ids or a count, not both")
        if not ids:
            return [self._call("redrive", (checked_count(count),), read_ids_or_none)]
        return self._settling("redrive", (0,), ids)

    def discard(self, *ids: str) -> list[str] | None:
        """Delete dead messages by id or receipt, and return the deleted ids."""
        return joined(run_in_turn(self.client, self._discard(ids)))

    async def adiscard(self, *ids: str) -> list[str] | None:
        """See discard()."""
        return joined(await arun_in_turn(self.client, self._discard(ids)))

    def _discard(self, ids: Sequence[str]) -> list[Call[list[str] | None]]:
        return self._settling("discard", (), ids)

    def move(self, target: str | ReliableQueue, *messages: Receipt, kind: Kind) -> dict[str, str] | None:
        """Move messages in any state to the end of another queue of the same namespace.

        Their deliveries are reset. Returns old id -> new id of the moved messages: messages that were deleted, were
        delivered again since their receipt, or have ten thousand ready messages before them are not moved. None if the
        source queue does not exist.
        """
        return merged(run_in_turn(self.client, self._move(target, messages, kind), words=1))

    async def amove(self, target: str | ReliableQueue, *messages: Receipt, kind: Kind) -> dict[str, str] | None:
        """See move()."""
        return merged(await arun_in_turn(self.client, self._move(target, messages, kind), words=1))

    def _move(
        self, target: str | ReliableQueue, messages: Sequence[Receipt], kind: Kind
    ) -> list[Call[dict[str, str] | None]]:
        name = self._checked_other(target)
        if name == self.name:
            raise InvalidValue(f"move() got the source queue {name!r} as its target; give another queue")
        words = [receipt_word(self.name, message) for message in messages]
        if not words:
            raise InvalidValue("move() got no id; give it the messages to move")
        keys = (*self.keys, *reliable_keys(self.client.namespace, name))
        kinds = (checked_kind(kind),)
        return [
            Call("reliable/move", keys, (*kinds, *batch), read_moved, subject=self.name) for batch in batches(words)
        ]

    # -- Inspecting ----------------------------------------------------------------------------------------------------

    def inspect(self, start: int, count: int, pending: bool = False) -> list[Row]:
        """Return up to `count` (1 to 1,000) messages without popping them; a negative start counts from the end.

        Returns [id, body] of undelivered messages; of delivered ones ("pending"), in the order of their last delivery,
        [id, body, last delivery (ms), ms since then, deliveries]. A start outside returns []. Raises QueueNotFound.
        """
        return as_inspected(self.messages("delivered" if pending else "undelivered", start, count))

    async def ainspect(self, start: int, count: int, pending: bool = False) -> list[Row]:
        """See inspect()."""
        return as_inspected(await self.amessages("delivered" if pending else "undelivered", start, count))

    def messages(
        self, kind: Kind, start: int = 0, count: int = 100, *, body_bytes: int | None = None
    ) -> list[StoredReliableMessage]:
        """Return records of messages, also of delayed and dead ones. See inspect().

        With `body_bytes`, of each body up to that many bytes; larger bodies over a megabyte are left out.
        """
        return self.client.run(self._messages(kind, start, count, body_bytes))

    async def amessages(
        self, kind: Kind, start: int = 0, count: int = 100, *, body_bytes: int | None = None
    ) -> list[StoredReliableMessage]:
        """See messages()."""
        return await self.client.arun(self._messages(kind, start, count, body_bytes))

    def _messages(
        self, kind: Kind, start: int, count: int, body_bytes: int | None = None
    ) -> Call[list[StoredReliableMessage]]:
        length = () if body_bytes is None else (checked_whole("body_bytes", body_bytes, 0, MAX_MS),)
        args = (checked_kind(kind), checked_whole("start", start, -MAX_MS, MAX_MS), checked_count(count), *length)
        return self._call("inspect", args, read_stored, repeatable=True)

    def info(self) -> list[str | int]:
        """Return ["undelivered", number, "delivered", number]. Raises QueueNotFound."""
        return self.client.run(self._info())

    async def ainfo(self) -> list[str | int]:
        """See info()."""
        return await self.client.arun(self._info())

    def _info(self) -> Call[list[str | int]]:
        return self._call("info", (), read_info, repeatable=True)

    def statistics(self) -> ReliableStatistics:
        """Return the statistics of the queue. Raises QueueNotFound."""
        return self.client.run(self.statistics_call())

    async def astatistics(self) -> ReliableStatistics:
        """See statistics()."""
        return await self.client.arun(self.statistics_call())

    def statistics_call(self) -> Call[ReliableStatistics]:
        """Return statistics() as a call."""
        return self._call("statistics", (), read_statistics, repeatable=True)

    def delete_queue(self) -> None:
        """Delete the queue with all its messages. Raises QueueNotFound."""
        self.client.run(self._delete_queue())

    async def adelete_queue(self) -> None:
        """See delete_queue()."""
        await self.client.arun(self._delete_queue())

    def _delete_queue(self) -> Call[None]:
        return self._call("delete_queue", (), read_nothing)

    # -- Shared -------------------------------------------------------------------------------------------------------

    def _call(
        self, operation: str, args: tuple[Argument, ...], read: Callable[[Any], T], *, repeatable: bool = False
    ) -> Call[T]:
        return Call(f"reliable/{operation}", self.keys, args, read, repeatable=repeatable, subject=self.name)

    def _settling(
        self, operation: str, args: tuple[Argument, ...], messages: Sequence[Receipt]
    ) -> list[Call[list[str] | None]]:
        words = [each if type(each) is str and each else receipt_word(self.name, each) for each in messages]
        if not words:
            raise InvalidValue(f"{operation}() got no id; give it the messages")
        return [self._call(operation, (*args, *batch), read_ids_or_none) for batch in batches(words)]

    def _checked_other(self, other: str | ReliableQueue) -> str:
        if not isinstance(other, ReliableQueue):
            return checked_name(other)
        if other.client.connection is not self.client.connection or other.client.namespace != self.client.namespace:
            raise InvalidName(
                f"queue {other.name!r} is on another connection or in another namespace than {self.name!r}; an "
                "operation is limited to queues of one namespace"
            )
        return other.name


# -- Waiting ----------------------------------------------------------------------------------------------------------


def _lost_while_waiting(call: Call[Popped], error: OutcomeUnknown) -> ConnectionFailed:
    return ConnectionFailed(
        f"queue {call.subject!r}: lost the connection while waiting, so nothing was popped ({error})"
    )


def _raise_refusal(call: Call[Popped], reply: object) -> None:
    if isinstance(reply, redis.RedisError):
        raise as_our_error(call, reply)
