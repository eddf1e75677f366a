"""`RSMQBackend`: Django's Tasks on RSMQ queues.

Sending is three steps: prepare (check everything and encode, so that mistakes surface where the caller is), wait for
the commit of the surrounding transaction, send. The constructor does no I/O and knows no models; connections live in
`rsmq_django.queues`, one per process, because Django makes a backend per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from ..conf import get_settings
from ..core import Client, Queue
from ..core.bands import band_name
from ..core.call import Argument, Call
from ..core.errors import MessageTooLong, QueueNotFound
from ..core.ids import random_suffixes
from ..core.keys import queue_keys, result_key
from ..core.limits import MAX_BATCH
from ..core.replies import read_ids
from ..queues import aensure_queue, ensure_queue, get_client, get_queue
from ..tracing import Span, carried_by, sending, start_sending
from .collecting import send_at_commit
from .compat import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from .envelope import Envelope, Unreadable, new_envelope
from .middleware import chain
from .registry import check_queues, find_task
from .results import UNFINISHED_TTL_S, read_body, read_record, task_result
from .sealing import peek, seal
from .tags import note_tags, untag
from .task import Arguments, Task
from .unique import Holder, UniqueCall

#: So many validated tasks are remembered; using() makes a new one each time.
MAX_CHECKED = 1000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Calls of one task that wait to be sent: ids and bodies, in order."""

    task: Task[..., Any]
    queue: Queue
    ids: list[str]
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
        """Return where to publish: workers listen to the task's queue, and may not know this priority's band yet."""
        return get_queue(self.task.queue_name).keys.channel

    def delay_ms(self) -> Argument:
        """Return the delay from now, or the unit of the queue's own."""
        if self.task.run_after is None:
            return self.queue.vt_unit  # the queue's own delay
        now = datetime.now(self.task.run_after.tzinfo)  # local time without a zone where USE_TZ is off
        return max(0, round((self.task.run_after - now).total_seconds() * 1000))


class RSMQBackend(BaseTaskBackend):
    """A Tasks backend on RSMQ queues; which queue lives where stands in `settings.RSMQ`."""

    task_class = Task
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        #: Tasks by their identity, which `using()` changes, and the settings under which they were validated.
        self._checked: dict[int, Any] = {}
        self._checked_under: object = None

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask when the task cannot work here. Runs where the task is declared, and at each enqueue."""
        check_queues(task.module_path, task.queue_name, task.options.dead_letter_queue)
        if self.queues and task.queue_name not in self.queues:
            raise InvalidTask(
                f"Task {task.module_path}: TASKS[{self.alias!r}] does not allow queue {task.queue_name!r}; add it to "
                "its 'QUEUES', or write 'QUEUES': [] to allow every queue of RSMQ"
            )
        super().validate_task(task)

    # -- Sending ------------------------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Send one call when the surrounding transaction commits, or at once when there is none.

        The id of the result is known in either case. Raises TypeError or ValueError for arguments that JSON lacks,
        MessageTooLong, and where it sends at once the errors of `Queue.send()`.
        """
        outgoing, result = self._prepare_one(task, args, kwargs)

        def tell(ids: list[str]) -> None:
            if ids == [result.id]:
                task_enqueued.send(type(self), task_result=result)
            else:
                object.__setattr__(result, "id", ids[0])  # an equal call was there before

        hand_over([outgoing], then=tell)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """See enqueue()."""
        outgoing, result = self._prepare_one(task, args, kwargs)
        # A transaction cannot be open here: Django's transactions do not span awaits, and its connections belong to
        # one thread.
        ids = await ahand_over([outgoing])
        if ids == [result.id]:
            await task_enqueued.asend(type(self), task_result=result)
        else:
            object.__setattr__(result, "id", ids[0])
        return result

    def enqueue_many(self, task: Any, calls: Iterable[Arguments]) -> list[str]:
        """See Task.enqueue_many()."""
        batches = self._prepare_many(task, calls)
        hand_over(batches)
        return [task_id for batch in batches for task_id in batch.ids]

    async def aenqueue_many(self, task: Any, calls: Iterable[Arguments]) -> list[str]:
        """See Task.enqueue_many()."""
        batches = self._prepare_many(task, calls)
        await ahand_over(batches)
        return [task_id for batch in batches for task_id in batch.ids]

    def _check_once(self, task: Any) -> None:
        """Validate a task that was not validated before under these settings."""
        if self._checked_under is not get_settings() or len(self._checked) >= MAX_CHECKED:
            self._checked, self._checked_under = {}, get_settings()
        if self._checked.get(id(task)) is not task:
            self.validate_task(task)
            self._checked[id(task)] = task

    def _prepare_one(self, task: Any, args: Any, kwargs: Any) -> tuple[Outgoing, TaskResult[..., Any]]:
        self._check_once(task)
        outgoing = prepare(task, [(args, kwargs)])
        # What the worker will see: after JSON a tuple is a list, and the key 1 is "1".
        sent = peek(outgoing.bodies[0], queue_name=task.queue_name, message_id=outgoing.ids[0])
        result: TaskResult[..., Any] = TaskResult(
            task=task,
            id=outgoing.ids[0],
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=sent.args,
            kwargs=sent.kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        return outgoing, result

    def _prepare_many(self, task: Any, calls: Iterable[Arguments]) -> list[Outgoing]:
        self.validate_task(task)
        rest = iter(calls)
        batches = []
        while batch := [split_arguments(call) for call in islice(rest, MAX_BATCH)]:
            batches.append(prepare(task, batch))
        return batches

    # -- Results ------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Read a result from Redis, whichever process the task was sent or ran in.

        A call of a unique task that was dropped has the result of the one that stands for it. Raises
        TaskResultDoesNotExist for an unknown id, and after the result's time to live.
        """
        result = self._find(result_id)
        if result is None and _has_outbox():
            # Once more, because a relay may have taken it to Redis between the two looks.
            result = self._find_in_outbox(result_id) or self._find(result_id)
        if result is None:
            raise _does_not_exist(result_id)
        return result

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """See get_result()."""
        result = await self._afind(result_id)
        if result is None and _has_outbox():
            result = await sync_to_async(self._find_in_outbox)(result_id) or await self._afind(result_id)
        if result is None:
            raise _does_not_exist(result_id)
        return result

    def _find(self, result_id: str) -> TaskResult[..., Any] | None:
        for client in _clients():
            record = client.run(read_record(client.namespace, result_id))
            while "of" in record:  # dropped, and that one perhaps, too: of a burst, each call points to the next
                result_id = record["of"]
                record = client.run(read_record(client.namespace, result_id))
            if record and "body" not in record:
                body = client.run(read_body(queue_keys(client.namespace, record["queue"]), record["message"]))
                if body is not None:
                    return self._restore(result_id, record, body)
                record = client.run(read_record(client.namespace, result_id))  # it ended between the two reads
            if record:
                return self._restore(result_id, record, _body_of(record))
        return None

    async def _afind(self, result_id: str) -> TaskResult[..., Any] | None:
        for client in _clients():
            record = await client.arun(read_record(client.namespace, result_id))
            while "of" in record:  # dropped, and that one perhaps, too: of a burst, each call points to the next
                result_id = record["of"]
                record = await client.arun(read_record(client.namespace, result_id))
            if record and "body" not in record:
                body = await client.arun(read_body(queue_keys(client.namespace, record["queue"]), record["message"]))
                if body is not None:
                    return self._restore(result_id, record, body)
                record = await client.arun(read_record(client.namespace, result_id))
            if record:
                return self._restore(result_id, record, _body_of(record))
        return None

    def _find_in_outbox(self, result_id: str) -> TaskResult[..., Any] | None:
        from ..outbox.writing import find_waiting

        row = find_waiting(result_id)
        if row is None:
            return None
        status = TaskResultStatus.FAILED if row.refusal else TaskResultStatus.READY
        return self._restore(result_id, {"status": status, "queue": row.queue_name}, bytes(row.body))

    def _restore(self, result_id: str, record: Mapping[str, str], body: bytes) -> TaskResult[..., Any]:
        if not _is_known(body, result_id, record.get("queue", "")):
            # This process may not have imported the project's tasks yet. Only modules named `tasks` of installed apps
            # are imported, never what a record names.
            autodiscover_modules("tasks")
        return task_result(result_id, record, body, backend=self.alias)


def prepare(
    task: Task[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    ids: Sequence[str] = (),
    said: Sequence[Mapping[str, Any]] = (),
) -> Outgoing:
    """Encode calls of a task, and check what can be checked before they are sent.

    Without `ids`, new ones are drawn; `said` is what else the meta of each call says.
    """
    queue = get_queue(band_name(task.queue_name, int(task.priority)))
    ids = list(ids or random_suffixes(len(calls)))
    span = start_sending(queue.name, task.module_path, ids)
    digests = _digests(task, calls)
    metas = _metas({**carried_by(span), **_context(task), **_said(task, queue)}, digests, len(ids))
    if said:
        metas = [{**(meta or {}), **own} for meta, own in zip(metas, said, strict=True)]
    envelopes: list[Envelope] = [
        new_envelope(task.module_path, task_id, args, kwargs, meta)
        for task_id, (args, kwargs), meta in zip(ids, calls, metas, strict=True)
    ]
    bodies = [envelope.encode() for envelope in envelopes]
    settings = get_settings().queue(task.queue_name)
    if settings.is_sealed:
        bodies = [seal(body, settings, name=settings.name) for body in bodies]
    limit = settings.max_size_bytes
    longest = max(map(len, bodies), default=0)
    if 0 <= limit < longest:
        # Found out only after the commit, it would be too late to tell the caller.
        raise MessageTooLong(
            f"a call of {task.module_path} is {longest} bytes, queue {queue.name!r} allows {limit}; "
            "store what it works on elsewhere and pass its id"
        )
    return Outgoing(task, queue, ids, bodies, digests, span)


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


def _has_outbox() -> bool:
    return any(queue.outbox for queue in get_settings().queues.values())


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
    delay = Outgoing(task, queue, [], []).delay_ms()
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
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, Sequence) and not isinstance(call, (str, bytes)):
        return call, {}
    raise TypeError(f"a call is a dictionary of keyword arguments or a list of positional ones, not {call!r}")


def _clients() -> list[Client]:
    return [get_client(alias) for alias in get_settings().connections]


def _is_known(body: bytes, task_id: str, queue_name: str) -> bool:
    try:
        return find_task(peek(body, queue_name=queue_name, message_id=task_id).task) is not None
    except Unreadable:
        return True  # there is nothing to look for


def _body_of(record: Mapping[str, str]) -> bytes:
    return record.get("body", "").encode("utf-8", "surrogateescape")


def _does_not_exist(result_id: str) -> Exception:
    return TaskResultDoesNotExist(
        f"no result {result_id!r}: its time to live is over, its task keeps none, or its transaction was not committed"
    )
