"""From a call of a task to its message: prepare it, wait for the commit of the surrounding transaction, send it.

Everything is checked and encoded first, so that mistakes surface where the caller is. What follows is one round trip:
at once, at the commit, or by a relay that finds the call in the outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import get_settings
from ..core import Queue
from ..core.bands import band_name
from ..core.call import Argument, Call
from ..core.errors import MessageTooLong, QueueNotFound
from ..core.ids import random_suffixes
from ..core.keys import result_key
from ..core.replies import read_ids
from ..queues import aensure_queue, ensure_queue, get_queue
from ..tracing import Span, carried_by, sending, start_sending
from .collecting import send_at_commit
from .compat import InvalidTask
from .envelope import encode
from .middleware import chain
from .results import UNFINISHED_TTL_S
from .sealing import seal
from .tags import note_tags, untag
from .task import Arguments, Task
from .unique import Holder, UniqueCall


@dataclass(slots=True)  # not frozen, which would cost a microsecond for each call
class Outgoing:
    """Calls of one task that wait to be sent, never changed: ids and bodies, in order."""

    task: Task[..., Any]
    queue: Queue
    ids: list[str]
    #: What was written down.
    written: list[bytes]
    #: What travels: the same, unless the queue's messages are sealed.
    bodies: list[bytes]
    #: What makes each call unique; nothing for tasks that are not.
    digests: list[str] = field(default_factory=list)
    #: Ends when they are sent; None when nothing is traced.
    span: Span | None = None

    @property
    def is_plain(self) -> bool:
        """Say whether it is one call with nothing that others could not share when they are sent together."""
        return len(self.ids) == 1 and not self.digests and self.span is None

    def unique_call(self, number: int) -> UniqueCall:
        """Return one call of a unique task."""
        unique = self.task.options.unique
        assert unique is not None
        return UniqueCall(
            unique=unique,
            namespace=self.queue.client.namespace,
            queue_name=self.queue.name,
            keys=self.queue.keys,
            channel=self.channel,
            delay=self.delay_ms(),
            digest=self.digests[number],
            task_id=self.ids[number],
            body=self.bodies[number],
            unfinished_ttl_s=UNFINISHED_TTL_S,
            keeps_result=result_ttl_s(self.task) > 0,
        )

    def call(self) -> Call[list[str]]:
        """Return the Redis call that sends them; a delay counts from now, the moment of sending."""
        args: list[Argument] = [self.delay_ms(), self.channel, UNFINISHED_TTL_S, self.queue.name]
        for task_id, body in zip(self.ids, self.bodies, strict=True):
            args += (task_id, body)
        keys = [self.queue.keys.messages, self.queue.keys.settings]
        if result_ttl_s(self.task):
            keys += [result_key(self.queue.client.namespace, task_id) for task_id in self.ids]
        return Call("tasks/enqueue", tuple(keys), tuple(args), read_ids, subject=self.queue.name)

    @property
    def channel(self) -> str:
        """Return where to publish: workers listen to the task's queue, and may not know this band or lane yet."""
        return get_queue(self.task.queue_name).keys.channel

    def delay_ms(self) -> Argument:
        """Return the delay from now, or the unit of the queue's own."""
        if self.task.run_after is None:
            return self.queue.vt_unit  # the queue's own delay
        now = datetime.now(self.task.run_after.tzinfo)  # local time without a zone where USE_TZ is off
        return max(0, round((self.task.run_after - now).total_seconds() * 1000))


def prepare(
    task: Task[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    ids: Sequence[str] = (),
    said: Sequence[Mapping[str, Any]] = (),
    lane: int | None = None,
) -> Outgoing:
    """Encode calls of a task, and check what can be checked before they are sent.

    Without `ids`, new ones are drawn; `said` is what else the meta of each call says. All of them go to one lane.
    """
    queue = get_queue(band_name(task.queue_name, int(task.priority), lane))
    path = task.module_path
    ids = list(ids or random_suffixes(len(calls)))
    span = start_sending(queue.name, path, ids)
    digests = _digests(task, calls)
    metas = _metas({**carried_by(span), **_context(task), **_said(task, queue)}, digests, len(ids))
    if said:
        metas = [{**(meta or {}), **own} for meta, own in zip(metas, said, strict=True)]
    written = [
        encode(path, task_id, args, kwargs, meta)
        for task_id, (args, kwargs), meta in zip(ids, calls, metas, strict=True)
    ]
    settings = get_settings().queue(task.queue_name)
    bodies = [seal(body, settings, name=settings.name) for body in written] if settings.is_sealed else written
    _check_size(bodies, path, queue, limit_bytes=settings.max_size_bytes)
    return Outgoing(task, queue, ids, written, bodies, digests, span)


def _check_size(bodies: Sequence[bytes], path: str, queue: Queue, *, limit_bytes: int) -> None:
    longest = max(map(len, bodies), default=0)
    if 0 <= limit_bytes < longest:
        # Found out only after the commit, it would be too late to tell the caller.
        raise MessageTooLong(
            f"a call of {path} is {longest} bytes, queue {queue.name!r} allows {limit_bytes}; "
            "store what it works on elsewhere and pass its id",
            queue_name=queue.name,
            size_bytes=longest,
            limit_bytes=limit_bytes,
        )


def hand_over(batches: Sequence[Outgoing], *, then: Callable[[list[str]], object] = lambda ids: None) -> None:
    """Send calls when the transaction commits, or write them to the outbox in it; after the commit do `then`.

    It gets the ids of the tasks that stand for the calls: their own, unless a call is unique.
    """
    if _uses_outbox(batches):
        _write_to_outbox(batches)
        ids = [task_id for batch in batches for task_id in batch.ids]
        after_commit(lambda: then(ids))
        return
    connection = _in_transaction()
    if connection is not None:
        send_at_commit(connection, batches, then, send=send)
    else:
        then([task_id for batch in batches for task_id in send(batch)])


async def ahand_over(batches: Sequence[Outgoing]) -> list[str]:
    """See hand_over(); returns what `then` would get."""
    if _uses_outbox(batches):
        await sync_to_async(_write_to_outbox)(batches)
        return [task_id for batch in batches for task_id in batch.ids]
    return [task_id for batch in batches for task_id in await asend(batch)]


def _uses_outbox(batches: Sequence[Outgoing]) -> bool:
    return bool(batches) and get_settings().queue(batches[0].task.queue_name).outbox


def _write_to_outbox(batches: Sequence[Outgoing]) -> None:
    # Only here: the outbox is an application of its own, with tables, and most projects do not install it.
    from ..outbox.writing import write

    task = batches[0].task
    if batches[0].digests or task.options.tags:
        raise InvalidTask(
            f"Task {task.module_path} is unique or has tags, and queue {task.queue_name!r} has an outbox, which knows "
            "nothing of either; send it to a queue without OUTBOX"
        )
    write(batches, keeps_result=bool(result_ttl_s(batches[0].task)))
    for batch in batches:
        with sending(batch.span):
            pass  # who traces wants to see the call end; when its row is sent, no span is waiting for it


def _digests(task: Task[..., Any], calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[str]:
    unique = task.options.unique
    if unique is None:
        return []
    path, takes_context = task.module_path, task.takes_context
    return [unique.digest(task.func, path, args, kwargs, takes_context=takes_context) for args, kwargs in calls]


def _said(task: Task[..., Any], queue: Queue) -> dict[str, Any]:
    """Return what the task's options say about each of its calls."""
    options, said = task.options, dict[str, Any]()
    if options.expires_in_s is not None:
        said["expires_in_s"] = round(_delay_s(task, queue) + options.expires_in_s, 3)
    if options.tags:
        said["tags"] = list(options.tags)
    return said


def _delay_s(task: Task[..., Any], queue: Queue) -> float:
    delay = Outgoing(task, queue, [], [], []).delay_ms()
    return delay / 1000 if isinstance(delay, int) else get_settings().queue(task.queue_name).delay_s


def _context(task: Task[..., Any]) -> dict[str, Any]:
    """Return what the project's middleware wants to travel with a call."""
    middleware = chain()
    context = None if middleware is None else middleware.context_of(task.module_path, task.queue_name)
    return {"context": context} if context else {}


def _metas(carried: Mapping[str, Any], digests: Sequence[str], count: int) -> list[dict[str, Any] | None]:
    """Return what features say about each call: `carried` about all, and a digest about each when they are unique."""
    if digests:
        return [{**carried, "unique": digest} for digest in digests]
    return [dict(carried) or None] * count


def send(outgoing: Outgoing) -> list[str]:
    """Send prepared calls, and return the ids of the tasks that stand for them: their own, unless a call is unique.

    A queue that does not exist yet is created as the settings say.
    """
    with sending(outgoing.span):
        try:
            return _send(outgoing)
        except QueueNotFound:  # nothing was stored
            ensure_queue(outgoing.queue.name)
            return _send(outgoing)


def _send(outgoing: Outgoing) -> list[str]:
    client = outgoing.queue.client
    if outgoing.task.options.tags:
        client.run(note_tags(client.namespace, outgoing.task.options.tags, outgoing.ids))
    if not outgoing.digests:
        client.run(outgoing.call())
        return outgoing.ids
    stands, gone = list[str](), list[str]()
    for number, task_id in enumerate(outgoing.ids):
        call = outgoing.unique_call(number)
        answer = client.run(call.call(None))
        while isinstance(answer, Holder):  # another one may take the lock between the two tries
            answer = client.run(call.call(answer))
        stands.append(answer.task_id)
        gone += [task_id] if answer.is_duplicate else answer.replaced
    for tag in outgoing.task.options.tags if gone else ():
        client.run(untag(client.namespace, tag, gone))
    return stands


async def asend(outgoing: Outgoing) -> list[str]:
    """See send()."""
    with sending(outgoing.span):
        try:
            return await _asend(outgoing)
        except QueueNotFound:
            await aensure_queue(outgoing.queue.name)
            return await _asend(outgoing)


async def _asend(outgoing: Outgoing) -> list[str]:
    client = outgoing.queue.client
    if outgoing.task.options.tags:
        await client.arun(note_tags(client.namespace, outgoing.task.options.tags, outgoing.ids))
    if not outgoing.digests:
        await client.arun(outgoing.call())
        return outgoing.ids
    stands, gone = list[str](), list[str]()
    for number, task_id in enumerate(outgoing.ids):
        call = outgoing.unique_call(number)
        answer = await client.arun(call.call(None))
        while isinstance(answer, Holder):
            answer = await client.arun(call.call(answer))
        stands.append(answer.task_id)
        gone += [task_id] if answer.is_duplicate else answer.replaced
    for tag in outgoing.task.options.tags if gone else ():
        await client.arun(untag(client.namespace, tag, gone))
    return stands


def after_commit(do: Callable[[], Any]) -> None:
    """Do it when the transaction of the configured database commits, or at once when none is open."""
    connection = _in_transaction()
    if connection is not None:
        transaction.on_commit(do, using=connection.alias)
    else:
        do()  # not through on_commit(), which would connect to the database to find out that nothing is open


def is_in_transaction() -> bool:
    """Say whether a transaction is open whose commit enqueue() would wait for."""
    return _in_transaction() is not None


def _in_transaction() -> BaseDatabaseWrapper | None:
    """Return the connection of the configured database while a transaction is open on it."""
    database = get_settings().tasks.enqueue_on_commit
    if database is False:
        return None
    connection = transaction.get_connection(DEFAULT_DB_ALIAS if database is True else str(database))
    may_be_open = connection.connection is not None and not connection.autocommit
    return connection if connection.in_atomic_block or may_be_open else None


def result_ttl_s(task: Task[..., Any]) -> int:
    """Return how many seconds a finished result of this task is kept; 0 means that none is."""
    own = task.options.result_ttl_s
    return get_settings().tasks.result_ttl_s if own is None else own


def split_arguments(call: Arguments) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return positional and keyword arguments of one call of enqueue_many()."""
    if type(call) is list or type(call) is tuple:  # most are; asking the abstract classes takes a microsecond
        return call, {}
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, Sequence) and not isinstance(call, (str, bytes)):
        return call, {}
    raise TypeError(f"a call is a dictionary of keyword arguments or a list of positional ones, not {call!r}")
