"""Sending calls: prepare the message, wait for the commit of the surrounding transaction, send it.

Calls are checked and encoded first, so that errors are raised in the caller. Sending is one round trip: at once, at the
commit, or by a relay that reads the call from the outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf.settings import get_settings
from ..core import Queue
from ..core.errors import MessageTooLong
from ..core.ids import random_suffixes
from ..core.keys import result_key
from ..core.limits import MAX_BODY_BYTES
from ..core.queue.replies import read_ids
from ..core.tasks.workflows import MemberBatch
from ..core.transport.call import Argument, Call
from .collecting import AfterCommit, send_at_commit
from .compat import InvalidTask
from .envelope import encode
from .middleware import chain
from .proofs import owner_of
from .results import UNFINISHED_TTL_S
from .round_trips import Sent, asend_all, in_portions, send_all, send_each
from .route import Destination, route_of
from .sealing import seal
from .task import Arguments, Task
from .tracing import Span, carried_by, sending, start_sending
from .unique import UniqueCall


@dataclass(slots=True)  # not frozen, which would cost a microsecond for each call
class Outgoing:
    """Prepared calls of one task, never changed: ids and bodies, in order."""

    route: Destination
    ids: list[str]
    #: The encoded calls.
    written: list[bytes]
    #: The bodies to send: the same, unless the queue's messages are sealed.
    bodies: list[bytes]
    #: The unique key of each call; empty for tasks that are not unique.
    digests: Sequence[str] = ()
    #: The span of the send; None without tracing.
    span: Span | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether it is a single call that can be sent together with others."""
        return len(self.ids) == 1 and not self.digests and self.span is None

    @property
    def size_bytes(self) -> int:
        """Return the size of all bodies together."""
        return sum(map(len, self.bodies))

    @property
    def task(self) -> Task[..., Any]:
        """Return the task of the calls."""
        return self.route.task

    @property
    def queue(self) -> Queue:
        """Return the queue, band or lane that will store them."""
        return self.route.queue

    def unique_call(self, number: int) -> UniqueCall:
        """Return one call of a unique task."""
        unique, queue = self.task.options.unique, self.queue
        assert unique is not None
        return UniqueCall(
            unique=unique,
            namespace=queue.client.namespace,
            queue_name=queue.name,
            keys=queue.keys,
            channel=self.route.channel,
            delay=self.route.delay_ms(),
            digest=self.digests[number],
            task_id=self.ids[number],
            body=self.bodies[number],
            unfinished_ttl_s=UNFINISHED_TTL_S,
            keeps_result=self.route.keeps_result,
        )

    def batch(self, numbers: Mapping[str, int]) -> MemberBatch:
        """Return the calls as members of a workflow, with their numbers by task id."""
        calls = [(numbers[task_id], task_id, body) for task_id, body in zip(self.ids, self.bodies, strict=True)]
        record_ttl_s = UNFINISHED_TTL_S if self.route.keeps_result else 0
        owner = owner_of(self.queue.name) if self.route.settings.is_sealed else ""
        return MemberBatch(self.queue.name, self.route.channel, self.route.delay_ms(), record_ttl_s, calls, owner)

    def call(self) -> Call[list[str]]:
        """Return the Redis call that sends them, and returns the ids of their messages.

        A delay counts from now, the moment of sending.
        """
        route, queue = self.route, self.route.queue
        args: list[Argument] = [route.delay_ms(), route.channel, UNFINISHED_TTL_S, queue.name]
        for task_id, body in zip(self.ids, self.bodies, strict=True):
            args += (task_id, body)
        keys = [queue.keys.messages, queue.keys.settings]
        if route.keeps_result:
            keys += [result_key(queue.client.namespace, task_id) for task_id in self.ids]
        return Call("tasks/enqueue", tuple(keys), tuple(args), read_ids, subject=queue.name)


def prepare(
    task: Task[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    ids: Sequence[str] = (),
    said: Sequence[Mapping[str, Any]] = (),
    lane: int | None = None,
) -> Outgoing:
    """Check and encode calls of a task.

    Without `ids`, new ones are created; `said` is additional meta of each call. All of them go to one lane.
    """
    route = route_of(task, lane)
    settings = route.settings
    ids = list(ids) or random_suffixes(len(calls))
    span = start_sending(route.queue.name, route.path, ids)
    digests = _digests(route, calls)
    metas = _metas(_common_meta(route, span), digests, said, len(calls))
    written = [
        encode(route.path, task_id, args, kwargs, meta)
        for task_id, (args, kwargs), meta in zip(ids, calls, metas, strict=True)
    ]
    bodies = _sealed(written, route) if settings.is_sealed else written
    _check_size(bodies, route)
    return Outgoing(route, ids, written, bodies, digests, span)


def _sealed(written: Sequence[bytes], route: Destination) -> list[bytes]:
    settings, namespace = route.settings, route.queue.client.namespace
    return [seal(body, settings, name=settings.name, namespace=namespace) for body in written]


def _check_size(bodies: Sequence[bytes], route: Destination) -> None:
    longest, limit = max(map(len, bodies), default=0), route.settings.max_size_bytes
    if limit < 0:
        limit = MAX_BODY_BYTES
    if limit < longest:
        # After the commit, it would be too late for an error in the caller.
        raise MessageTooLong(
            f"a call of {route.path} is {longest} bytes, queue {route.queue.name!r} allows {limit}; "
            "store what it works on elsewhere and pass its id",
            queue_name=route.queue.name,
            size_bytes=longest,
            limit_bytes=limit,
        )


def hand_over(batches: Sequence[Outgoing], *, then: Callable[[Sent], object] = lambda sent: None) -> None:
    """Send calls when the transaction commits, or write them to the outbox in it; after the commit do `then`."""
    if _uses_outbox(batches):
        _write_to_outbox(batches)
        sent = Sent([task_id for batch in batches for task_id in batch.ids])
        after_commit(lambda: then(sent), "the news of calls in the outbox")
        return
    batches = [portion for batch in batches for portion in in_portions(batch)]
    connection = _in_transaction()
    if connection is not None:
        send_at_commit(connection, batches, then, send=send_each)
    else:
        then(send_all(batches))


async def ahand_over(batches: Sequence[Outgoing], *, then: Callable[[Sent], object] = lambda sent: None) -> Sent | None:
    """See hand_over(). Returns the sent calls; None before a commit: `then` gets them after it."""
    if await in_transaction(lambda: hand_over(batches, then=then)):
        return None
    if _uses_outbox(batches):
        await sync_to_async(_write_to_outbox)(batches)
        return Sent([task_id for batch in batches for task_id in batch.ids])
    return await asend_all([portion for batch in batches for portion in in_portions(batch)])


def _uses_outbox(batches: Sequence[Outgoing]) -> bool:
    return bool(batches) and batches[0].route.settings.outbox


def _write_to_outbox(batches: Sequence[Outgoing]) -> None:
    # Imported only here: the outbox is a separate application with tables, and most projects do not install it.
    from ..outbox.writing import write

    task, route = batches[0].task, batches[0].route
    if batches[0].digests or task.options.tags:
        raise InvalidTask(
            f"Task {route.path} is unique or has tags, and queue {task.queue_name!r} has an outbox, which knows "
            "nothing of either; send it to a queue without OUTBOX"
        )
    write(batches, keeps_result=route.keeps_result)
    for batch in batches:
        with sending(batch.span):
            pass  # ends the span of the call now, because no span is open when its row is sent


def _digests(route: Destination, calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[str]:
    task, unique = route.task, route.task.options.unique
    if unique is None:
        return []
    takes_context = task.takes_context
    return [unique.digest(task.func, route.path, args, kwargs, takes_context=takes_context) for args, kwargs in calls]


def _common_meta(route: Destination, span: Span | None) -> dict[str, Any]:
    """Return the metadata of tracing, the project's middleware and the task's options for all calls."""
    meta = carried_by(span)
    middleware, options = chain(), route.task.options
    if middleware is not None:
        context = middleware.context_of(route.path, route.task.queue_name)
        meta |= {"context": context} if context else {}
    if options.expires_in_s is not None:
        meta["expires_in_s"] = options.expires_in_s
    if route.max_attempts is not None:
        meta["max_attempts"] = route.max_attempts
    if options.tags:
        meta["tags"] = list(options.tags)
    return meta


def _metas(
    common: Mapping[str, Any], digests: Sequence[str], said: Sequence[Mapping[str, Any]], count: int
) -> Sequence[Mapping[str, Any]]:
    """Return the metadata of each call: the common part, its digest, and its own part."""
    if not digests and not said:
        return [common] * count
    own = [{"unique": digest} for digest in digests] or [{}] * count
    return [{**common, **mine, **more} for mine, more in zip(own, said or [{}] * count, strict=True)]


# -- Waiting for a commit ---------------------------------------------------------------------------------------------


def after_commit(do: Callable[[], Any], what: str) -> None:
    """Call a function when the transaction of the configured database commits, or at once when none is open.

    Errors are raised when it is called at once. After a commit they are logged, with a text for the unsent calls.
    """
    connection = _in_transaction()
    if connection is not None:
        transaction.on_commit(AfterCommit(do, what), using=connection.alias, robust=True)
    else:
        do()  # not with on_commit(), which would connect to the database only to find no open transaction


async def in_transaction(do: Callable[[], object]) -> bool:
    """Call `do` in the thread of the transaction that this coroutine runs in; return False if there is none.

    Django's transactions belong to a thread and span no await. But synchronous code that has opened one may run a
    coroutine by async_to_sync(); it waits in its thread for the end of that, and sync_to_async() leads there.
    """
    if is_in_transaction():
        do()
        return True
    if getattr(AsyncToSync.executors, "current", None) is None:
        return False  # no synchronous caller, so no thread has a transaction for this coroutine
    return await sync_to_async(_if_in_transaction)(do)


def _if_in_transaction(do: Callable[[], object]) -> bool:
    is_open = is_in_transaction()
    if is_open:
        do()
    return is_open


def is_in_transaction() -> bool:
    """Return whether enqueue() would wait for the commit of an open transaction."""
    return _in_transaction() is not None


def is_only_of_test() -> bool:
    """Return whether the open transaction is that of a TestCase, without a block opened by the code."""
    connection = _in_transaction()
    blocks = connection.atomic_blocks if connection is not None else []
    return bool(blocks) and all(getattr(block, "_from_testcase", False) for block in blocks)


def _in_transaction() -> BaseDatabaseWrapper | None:
    """Return the connection of the configured database while a transaction is open on it."""
    database = get_settings().tasks.enqueue_on_commit
    if database is False:
        return None
    connection = transaction.get_connection(DEFAULT_DB_ALIAS if database is True else str(database))
    may_be_open = connection.connection is not None and not connection.autocommit
    return connection if connection.in_atomic_block or may_be_open else None


def split_arguments(call: Arguments) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return positional and keyword arguments of one call of enqueue_many()."""
    if type(call) is list or type(call) is tuple:  # most are; a check with the abstract classes takes a microsecond
        return call, {}
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, Sequence) and not isinstance(call, (str, bytes)):
        return call, {}
    raise TypeError(f"a call is a dictionary of keyword arguments or a list of positional ones, not {call!r}")
