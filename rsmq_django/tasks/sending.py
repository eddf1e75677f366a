"""Sending prepared calls: wait for the commit of the surrounding transaction, then send them.

Sending is one round trip: at once, at the commit, or by a relay that reads the call from the outbox.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from asgiref.sync import AsyncToSync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf.settings import get_settings
from .collecting import AfterCommit, send_at_commit
from .compat import InvalidTask
from .outgoing import Outgoing
from .round_trips import Sent, asend_all, in_portions, send, send_all, send_each
from .tracing import sending

#: How long a coroutine that calls enqueue() waits for the thread of its synchronous caller.
CALLER_ANSWERS_WITHIN_S = 10.0


def hand_over_one(outgoing: Outgoing, *, then: Callable[[Sent], object]) -> None:
    """Do what hand_over() does with a single call."""
    if outgoing.route.settings.outbox:
        hand_over([outgoing], then=then)
        return
    database = outgoing.route.enqueue_on_commit
    connection = _in_transaction(database)
    if connection is not None:
        send_at_commit(connection, [outgoing], then, send=send_each)
    elif _get_running_loop() is None:  # as in_transaction_of_caller() finds, too; most calls are spared it
        then(send(outgoing))
    elif not in_transaction_of_caller(partial(hand_over_one, outgoing, then=then), database):
        then(send(outgoing))


def hand_over(batches: Sequence[Outgoing], *, then: Callable[[Sent], object] = lambda sent: None) -> None:
    """Send calls when the transaction commits, or write them to the outbox in it; after the commit do `then`."""
    if _uses_outbox(batches):
        _write_to_outbox(batches)
        sent = Sent([task_id for batch in batches for task_id in batch.ids])
        after_commit(lambda: then(sent), "the news of calls in the outbox")
        return
    database = _database_of(batches)
    batches = [portion for batch in batches for portion in in_portions(batch)]
    connection = _in_transaction(database)
    if connection is not None:
        send_at_commit(connection, batches, then, send=send_each)
    elif not in_transaction_of_caller(partial(hand_over, batches, then=then), database):
        then(send_all(batches))


async def ahand_over(batches: Sequence[Outgoing], *, then: Callable[[Sent], object] = lambda sent: None) -> Sent | None:
    """See hand_over(). Returns the sent calls; None before a commit: `then` gets them after it."""
    if await in_transaction(lambda: hand_over(batches, then=then), _database_of(batches)):
        return None
    if _uses_outbox(batches):
        await sync_to_async(_write_to_outbox)(batches)
        return Sent([task_id for batch in batches for task_id in batch.ids])
    return await asend_all([portion for batch in batches for portion in in_portions(batch)])


def _database_of(batches: Sequence[Outgoing]) -> bool | str | None:
    return batches[0].route.enqueue_on_commit if batches else None


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
        with sending(batch.span, is_alone=False):
            pass  # ends the span of the call now, because no span is open when its row is sent


# -- Waiting for a commit ---------------------------------------------------------------------------------------------


def after_commit(do: Callable[[], Any], what: str) -> None:
    """Call a function when the transaction of the configured database commits, or at once when none is open.

    Errors are raised when it is called at once. After a commit they are logged, with a text for the unsent calls.
    """
    connection = _in_transaction()
    if connection is not None:
        transaction.on_commit(AfterCommit(do, what), using=connection.alias, robust=True)
    elif not in_transaction_of_caller(partial(after_commit, do, what)):
        do()  # not with on_commit(), which would connect to the database only to find no open transaction


async def in_transaction(do: Callable[[], object], database: bool | str | None = None) -> bool:
    """Call `do` in the thread of the transaction that this coroutine runs in; return False if there is none.

    Django's transactions belong to a thread and span no await. But synchronous code that has opened one may run a
    coroutine by async_to_sync(); it waits in its thread for the end of that, and does meanwhile what it is asked to.
    """
    if is_in_transaction(database):
        do()
        return True
    answer = _ask_caller(do, database)
    return answer is not None and await asyncio.wrap_future(answer)


def in_transaction_of_caller(do: Callable[[], object], database: bool | str | None = None) -> bool:
    """Do what in_transaction() does where a coroutine calls a function without await, for example enqueue().

    Raises SynchronousOnlyOperation when the thread is busy: it may wait for the event loop, which waits here.
    """
    if database is None:
        database = get_settings().tasks.enqueue_on_commit
    if database is False or _get_running_loop() is None:
        return False
    answer = _ask_caller(do, database)
    if answer is None:
        return False
    try:
        return answer.result(CALLER_ANSWERS_WITHIN_S)
    except TimeoutError:
        if not answer.cancel():  # it has begun, and waits for nothing
            return answer.result()
    raise SynchronousOnlyOperation(
        "the thread that runs this coroutine is busy, and only it knows whether a transaction is open; nothing was "
        "sent. Use the async form, such as await task.aenqueue(...)"
    )


def _ask_caller(do: Callable[[], object], database: bool | str | None) -> Future[bool] | None:
    """Let the thread of the synchronous caller of this coroutine answer; None where no caller waits."""
    caller = getattr(AsyncToSync.executors, "current", None)
    if caller is None:
        return None
    try:
        answer: Future[bool] = caller.submit(_if_in_transaction, do, database)
    except RuntimeError:  # it has ended before this coroutine, and so has its transaction
        return None
    return answer


def _if_in_transaction(do: Callable[[], object], database: bool | str | None) -> bool:
    is_open = is_in_transaction(database)
    if is_open:
        do()
    return is_open


def is_in_transaction(database: bool | str | None = None) -> bool:
    """Return whether enqueue() would wait for the commit of an open transaction, on the configured database or this."""
    return _in_transaction(database) is not None


def is_only_of_test() -> bool:
    """Return whether the open transaction is that of a TestCase, without a block opened by the code."""
    connection = _in_transaction()
    blocks = connection.atomic_blocks if connection is not None else []
    return bool(blocks) and all(getattr(block, "_from_testcase", False) for block in blocks)


def _in_transaction(database: bool | str | None = None) -> BaseDatabaseWrapper | None:
    """Return the connection of a database, by default the configured one, while a transaction is open on it."""
    if database is None:
        database = get_settings().tasks.enqueue_on_commit
    if database is False:
        return None
    connection = transaction.get_connection(DEFAULT_DB_ALIAS if database is True else str(database))
    may_be_open = connection.connection is not None and not connection.autocommit
    return connection if connection.in_atomic_block or may_be_open else None
