"""RSMQ queues: the whole protocol and its batch forms.

Each operation has three functions side by side: a pure function that returns the `Call` to send, the sync method, and
its async twin. Every operation is one script: one round trip, atomic, on the server's clock. The stored
format is RSMQ's byte for byte, so clients in other languages share these queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..errors import LeaseLost, MessageTooLong, NoAttributeSupplied
from ..ids import checked_id, random_suffixes
from ..keys import QueueKeys, checked_name, paused_key, queue_keys, queues_key
from ..limits import (
    MAX_BODY_BYTES,
    MAX_MAX_SIZE_BYTES,
    Body,
    TimeUnit,
    batches,
    checked_count,
    checked_max_size,
    checked_unit,
    encoded,
    milliseconds,
    milliseconds_or_own,
    stored_time,
)
from ..transport.call import Argument, Call
from ..transport.call_steps import CallSteps
from ..transport.client import Client
from .records import Message, QueueAttributes, SettleResult
from .replies import (
    read_attributes,
    read_ids,
    read_message,
    read_messages,
    read_names,
    read_nothing,
    read_queue_created,
    read_settlements,
)

T = TypeVar("T")


class Queue:
    """One RSMQ queue. Creating the object does no I/O; `create()` makes the queue itself.

    With `realtime=True` each send publishes the number of messages on `{ns}:rt:{name}`, as RSMQ's own realtime option
    does, so that idle consumers wake at once. `vt_unit="ms"` shares a queue with rsmq_async (Rust), which stores
    visibility timeout and delay in milliseconds; all methods still take and return seconds. Messages are sent with
    `sender`, a DurableClient for example, or else with the client.
    """

    def __init__(
        self,
        name: str,
        client: Client,
        *,
        realtime: bool = False,
        vt_unit: TimeUnit = "s",
        sender: Client | None = None,
    ) -> None:
        self.name = checked_name(name)
        self.client = client
        self.sender = sender or client
        self.realtime = realtime
        self.vt_unit = checked_unit(vt_unit)
        self.keys: QueueKeys = queue_keys(client.namespace, name)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, namespace={self.client.namespace!r})"

    # -- The queue itself ---------------------------------------------------------------------------------------------

    def create(
        self, *, visibility_timeout_s: int = 30, delay_s: int = 0, max_size_bytes: int = MAX_MAX_SIZE_BYTES
    ) -> None:
        """Create the queue.

        `visibility_timeout_s` and `delay_s` are whole seconds from 0 to 9,999,999; `max_size_bytes` is 1,024 to 65,536,
        or -1 for no limit. Raises QueueExists, InvalidValue.
        """
        self.client.run(self.create_call(visibility_timeout_s, delay_s, max_size_bytes))

    async def acreate(
        self, *, visibility_timeout_s: int = 30, delay_s: int = 0, max_size_bytes: int = MAX_MAX_SIZE_BYTES
    ) -> None:
        """See create()."""
        await self.client.arun(self.create_call(visibility_timeout_s, delay_s, max_size_bytes))

    def create_call(self, visibility_timeout_s: int, delay_s: int, max_size_bytes: int) -> Call[None]:
        """Return create() as a call, to be run together with others."""
        args = (
            self.name,
            self._stored("visibility_timeout_s", visibility_timeout_s),
            self._stored("delay_s", delay_s),
            checked_max_size(max_size_bytes),
        )
        keys = (self.keys.settings, self.keys.queues)
        return Call("queue/create", keys, args, read_queue_created(self.name), subject=self.name)

    def delete_queue(self) -> None:
        """Delete the queue with all its messages. Raises QueueNotFound."""
        self.client.run(self._delete_queue())

    async def adelete_queue(self) -> None:
        """See delete_queue()."""
        await self.client.arun(self._delete_queue())

    def _delete_queue(self) -> Call[None]:
        keys = self.keys
        sets = (keys.queues, paused_key(self.client.namespace))
        all_keys = (keys.messages, keys.settings, *sets, keys.failures, keys.releases, keys.phantoms)
        return Call("queue/delete_queue", all_keys, (self.name,), read_nothing, subject=self.name)

    def attributes(self) -> QueueAttributes:
        """Read the queue's attributes and counters. Raises QueueNotFound."""
        return self.client.run(self._attributes())

    async def aattributes(self) -> QueueAttributes:
        """See attributes()."""
        return await self.client.arun(self._attributes())

    def _attributes(self) -> Call[QueueAttributes]:
        return self._call("queue/attributes", (), read_attributes(self.vt_unit), repeatable=True)

    def set_attributes(
        self,
        *,
        visibility_timeout_s: int | None = None,
        delay_s: int | None = None,
        max_size_bytes: int | None = None,
    ) -> QueueAttributes:
        """Change the attributes that are given and return all of them.

        Limits as in create(). Raises NoAttributeSupplied, InvalidValue, QueueNotFound.
        """
        return self.client.run(self._set_attributes(visibility_timeout_s, delay_s, max_size_bytes))

    async def aset_attributes(
        self,
        *,
        visibility_timeout_s: int | None = None,
        delay_s: int | None = None,
        max_size_bytes: int | None = None,
    ) -> QueueAttributes:
        """See set_attributes()."""
        return await self.client.arun(self._set_attributes(visibility_timeout_s, delay_s, max_size_bytes))

    def _set_attributes(
        self, visibility_timeout_s: int | None, delay_s: int | None, max_size_bytes: int | None
    ) -> Call[QueueAttributes]:
        if visibility_timeout_s is None and delay_s is None and max_size_bytes is None:
            raise NoAttributeSupplied("nothing to set: give visibility_timeout_s, delay_s or max_size_bytes")
        args: tuple[Argument, ...] = (
            "" if visibility_timeout_s is None else self._stored("visibility_timeout_s", visibility_timeout_s),
            "" if delay_s is None else self._stored("delay_s", delay_s),
            "" if max_size_bytes is None else checked_max_size(max_size_bytes),
        )
        return self._call("queue/set_attributes", args, read_attributes(self.vt_unit), repeatable=True)

    # -- Sending ------------------------------------------------------------------------------------------------------

    def send(self, body: Body, *, delay_s: float | None = None) -> str:
        """Put a message on the queue and return its id.

        The message becomes visible after `delay_s` seconds (0 to 9,999,999, fractions allowed; None: the queue's own
        delay). Text is stored as UTF-8; an empty body is legal. Raises QueueNotFound, MessageTooLong, QueueFull,
        ConnectionFailed, and OutcomeUnknown when the reply was lost: the message may then be stored or not.
        """
        (message_id,) = self.sender.run(self._send([body], delay_s))
        return message_id

    async def asend(self, body: Body, *, delay_s: float | None = None) -> str:
        """See send()."""
        (message_id,) = await self.sender.arun(self._send([body], delay_s))
        return message_id

    def send_many(self, bodies: Iterable[Body], *, delay_s: float | None = None) -> list[str]:
        """Put messages on the queue in the order given and return their ids: one round trip per thousand.

        Each thousand is stored whole or not at all. Raises PartlyDone when a later one fails: it has the ids of the
        stored messages. Other errors as in send().
        """
        steps = CallSteps[str]()
        for batch in batches(bodies):
            with steps.step(len(batch)):
                steps.results += self.sender.run(self._send(batch, delay_s))
        return steps.results

    async def asend_many(self, bodies: Iterable[Body], *, delay_s: float | None = None) -> list[str]:
        """See send_many()."""
        steps = CallSteps[str]()
        for batch in batches(bodies):
            with steps.step(len(batch)):
                steps.results += await self.sender.arun(self._send(batch, delay_s))
        return steps.results

    def _send(self, bodies: Sequence[Body], delay_s: float | None) -> Call[list[str]]:
        args: list[Argument] = [
            milliseconds_or_own("delay_s", delay_s, self.vt_unit),
            self.keys.channel if self.realtime else "",
        ]
        for suffix, body in zip(random_suffixes(len(bodies)), bodies, strict=True):
            args += (suffix, self._encoded(body))
        return self._call("queue/send", tuple(args), read_ids)

    # -- Receiving ----------------------------------------------------------------------------------------------------

    def receive(self, *, visibility_timeout_s: float | None = None) -> Message | None:
        """Receive the oldest ready message and return it, or None when no message is ready.

        Its lease lasts `visibility_timeout_s` seconds (0 to 9,999,999, fractions allowed; None: the queue's own). After
        that the message is ready again unless it was deleted. Raises QueueNotFound.
        """
        messages = self.client.run(self._receive(1, visibility_timeout_s))
        return messages[0] if messages else None

    async def areceive(self, *, visibility_timeout_s: float | None = None) -> Message | None:
        """See receive()."""
        messages = await self.client.arun(self._receive(1, visibility_timeout_s))
        return messages[0] if messages else None

    def receive_many(self, count: int, *, visibility_timeout_s: float | None = None) -> list[Message]:
        """Receive up to `count` (1 to 1,000) ready messages, oldest first. See receive()."""
        return self.client.run(self._receive(count, visibility_timeout_s))

    async def areceive_many(self, count: int, *, visibility_timeout_s: float | None = None) -> list[Message]:
        """See receive_many()."""
        return await self.client.arun(self._receive(count, visibility_timeout_s))

    def _receive(self, count: int, visibility_timeout_s: float | None) -> Call[list[Message]]:
        args = (
            checked_count(count),
            milliseconds_or_own("visibility_timeout_s", visibility_timeout_s, self.vt_unit),
        )
        return self._call("queue/receive", args, read_messages, more_keys=(self.keys.phantoms,))

    def pop(self) -> Message | None:
        """Remove the oldest ready message and return it. Delivery is at most once: a lost reply loses the message."""
        return self.client.run(self._pop())

    async def apop(self) -> Message | None:
        """See pop()."""
        return await self.client.arun(self._pop())

    def _pop(self) -> Call[Message | None]:
        more_keys = (self.keys.phantoms, self.keys.failures, self.keys.releases)
        return self._call("queue/pop", (), read_message, more_keys=more_keys)

    # -- Ending and changing leases -----------------------------------------------------------------------------------

    def delete(self, message: Message | str) -> bool:
        """Delete a message and return whether it existed.

        A received `Message` is fenced: raises LeaseLost when another consumer has received it since. A bare id follows
        RSMQ's own rule: the message is deleted even if another consumer has its lease.
        """
        return as_answer(message, self.client.run(self._delete([message])))

    async def adelete(self, message: Message | str) -> bool:
        """See delete()."""
        return as_answer(message, await self.client.arun(self._delete([message])))

    def delete_many(self, messages: Iterable[Message | str]) -> list[SettleResult]:
        """Delete messages, one round trip per thousand, and return the result of each in order. See delete().

        Raises PartlyDone when an exchange after the first one fails; deleting again does no harm.
        """
        steps = CallSteps[SettleResult]()
        for batch in batches(messages):
            with steps.step(len(batch)):
                steps.results += self.client.run(self._delete(batch))
        return steps.results

    async def adelete_many(self, messages: Iterable[Message | str]) -> list[SettleResult]:
        """See delete_many()."""
        steps = CallSteps[SettleResult]()
        for batch in batches(messages):
            with steps.step(len(batch)):
                steps.results += await self.client.arun(self._delete(batch))
        return steps.results

    def _delete(self, messages: Sequence[Message | str]) -> Call[list[SettleResult]]:
        args = tuple(word for message in messages for word in receipt(message))
        more_keys = (self.keys.failures, self.keys.releases)
        return self._call("queue/delete", args, read_settlements, repeatable=True, more_keys=more_keys)

    def change_visibility(self, message: Message | str, visibility_timeout_s: float) -> bool:
        """Make a message visible `visibility_timeout_s` seconds from now and return whether it existed.

        Renews a lease, releases a message (0) or makes a delayed one ready (0). Fenced like delete().
        """
        return as_answer(message, self.client.run(self.change_visibility_call([message], visibility_timeout_s)))

    async def achange_visibility(self, message: Message | str, visibility_timeout_s: float) -> bool:
        """See change_visibility()."""
        return as_answer(message, await self.client.arun(self.change_visibility_call([message], visibility_timeout_s)))

    def change_visibility_call(
        self, messages: Sequence[Message | str], visibility_timeout_s: float
    ) -> Call[list[SettleResult]]:
        """Return change_visibility() for up to 1,000 messages as a call, to be run together with others."""
        visibility_ms = milliseconds("visibility_timeout_s", visibility_timeout_s)
        args = (visibility_ms, *(word for message in messages for word in receipt(message)))
        return self._call("queue/change_visibility", args, read_settlements, repeatable=True)

    # -- Shared -------------------------------------------------------------------------------------------------------

    def _call(
        self,
        script: str,
        args: tuple[Argument, ...],
        read: Callable[[Any], T],
        *,
        repeatable: bool = False,
        more_keys: tuple[str, ...] = (),
    ) -> Call[T]:
        keys = (self.keys.messages, self.keys.settings, *more_keys)
        return Call(script, keys, args, read, repeatable=repeatable, subject=self.name)

    def _stored(self, what: str, seconds: int) -> int:
        return stored_time(what, seconds, self.vt_unit)

    def _encoded(self, body: Body) -> bytes:
        data = encoded(body)
        if len(data) > MAX_BODY_BYTES:
            raise MessageTooLong(
                f"body is {len(data)} bytes, this client sends at most {MAX_BODY_BYTES}; "
                f"store it elsewhere and send queue {self.name!r} a reference",
                queue_name=self.name,
                size_bytes=len(data),
                limit_bytes=MAX_BODY_BYTES,
            )
        return data


def list_queues(client: Client) -> list[str]:
    """Return the names of all queues of the client's namespace, sorted."""
    return client.run(list_call(client.namespace))


async def alist_queues(client: Client) -> list[str]:
    """See list_queues()."""
    return await client.arun(list_call(client.namespace))


def list_call(namespace: str) -> Call[list[str]]:
    """Return list_queues() as a call, to be run together with others."""
    return Call("SMEMBERS", (queues_key(namespace),), (), read_names, repeatable=True)


def receipt(message: Message | str) -> tuple[str, Argument]:
    """Return the receipt of a message: id and receive count, or a bare id without a fence."""
    if isinstance(message, Message):
        return message.id, message.receive_count
    return checked_id(message), ""


def as_answer(message: Message | str, settlements: Sequence[SettleResult]) -> bool:
    """Return whether the one message existed; raise LeaseLost when another consumer has its lease now."""
    (settlement,) = settlements
    if settlement is SettleResult.LEASE_LOST and isinstance(message, Message):
        raise LeaseLost(
            f"message {message.id!r} was delivered again after receive {message.receive_count}; "
            "its lease is lost, so nothing was changed"
        )
    return settlement is SettleResult.DONE
