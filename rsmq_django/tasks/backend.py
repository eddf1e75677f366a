"""`RSMQBackend`: Django's Tasks on RSMQ queues.

Implements Django's interface of a backend: checks tasks, sends calls (`sending.py`) and finds results. The constructor
does no I/O and knows no models; connections live in `rsmq_django.queues`, one per process, because Django creates a
backend per thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from ..conf.problem_ids import NOT_INSTALLED
from ..conf.settings import get_settings
from ..core.errors import PartlyDone
from ..core.ids import random_suffixes
from ..core.keys import queue_keys
from ..core.limits import MAX_BATCH
from ..core.numbers import is_number
from .arguments import check_arguments
from .backend_options import read_backend_options
from .compat import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    anybody_listens,
    task_enqueued,
)
from .envelope import Unreadable
from .outgoing import Outgoing, prepare, prepare_one, split_arguments
from .registry import check_no_consumer, check_queues, check_stays_sealed
from .results import has_outbox, next_of, read_body, read_record, task_result
from .round_trips import Sent, in_rounds
from .sealing import peek
from .sending import ahand_over, hand_over, hand_over_one
from .sent_result import SentResult
from .shards import by_destination, check_shards, clients_for, hint_of_shard, id_in_shard
from .task import Arguments, Task, find_task
from .typed_arguments import as_sent, types_of_task
from .waiting import await_end_of, wait_for_end

#: Maximum number of validated tasks that are remembered; using() creates a new one each time.
MAX_CHECKED = 1000
ADD_IT = "Add it: without it there is no `manage.py rsmq_worker`, and settings.RSMQ is not checked."


class RSMQBackend(BaseTaskBackend):
    """A Tasks backend on RSMQ queues; `settings.RSMQ` names the connection of each queue."""

    task_class = Task
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    #: It has no state of a thread, so tasks need not ask Django for the one of their thread. Not inherited.
    serves_all_threads = True

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        options = read_backend_options(alias, self.options)
        self.task_defaults = options.task_defaults
        self.enqueue_on_commit = options.enqueue_on_commit
        self._problems = options.problems
        #: Tasks by their identity, which `using()` changes, and the settings under which they were validated.
        self._checked: dict[int, Any] = {}
        self._checked_under: object = None

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask when the task cannot work here. Runs where the task is declared, and at each enqueue."""
        check_queues(task.module_path, task.queue_name, task.options.named_dead_letters)
        check_stays_sealed(task.module_path, task.queue_name)
        check_no_consumer(task.module_path, task.queue_name)
        if self.queues and task.queue_name not in self.queues:
            raise InvalidTask(
                f"Task {task.module_path}: Queue {task.queue_name!r} is not valid for backend. Add it to the 'QUEUES' "
                f"of TASKS[{self.alias!r}], or write 'QUEUES': [] to allow every queue of RSMQ"
            )
        check_shards(task)
        _check_types(task)
        super().validate_task(task)

    def check(self, **_: Any) -> list[CheckMessage]:
        """Return an error without rsmq_django in INSTALLED_APPS: the other system checks do not run then."""
        if apps.is_installed("rsmq_django"):
            return []
        return [Error(f"{self._is_not_installed()}.", hint=ADD_IT, id=NOT_INSTALLED)]

    def _is_not_installed(self) -> str:
        return f"TASKS[{self.alias!r}] is an RSMQBackend, but 'rsmq_django' is not in INSTALLED_APPS"

    def _validate_to_send(self, task: Any) -> None:
        if not apps.is_installed("rsmq_django"):
            raise ImproperlyConfigured(f"{self._is_not_installed()}; nothing was sent. {ADD_IT}")
        if self._problems:
            raise ImproperlyConfigured("; ".join(f"{said}: {hint}" for said, hint in self._problems))
        self.validate_task(task)

    # -- Sending ------------------------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Send one call when the surrounding transaction commits, or at once when there is none.

        The id of the result is known in either case. Raises TypeError for arguments that the function does not take,
        TypeError or ValueError for values that are not JSON, MessageTooLong, and where it sends at once the errors of
        `Queue.send()`.
        """
        outgoing, result = self._prepare_one(task, args, kwargs)
        hand_over_one(outgoing, then=lambda sent: self._tell(result, sent))
        return result

    def _tell(self, result: SentResult, sent: Sent) -> None:
        if not result.note_sent(sent) and anybody_listens(task_enqueued):
            task_enqueued.send(type(self), task_result=result)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """See enqueue()."""
        outgoing, result = self._prepare_one(task, args, kwargs)
        sent = await ahand_over([outgoing], then=partial(self._tell, result))
        if sent is not None and not result.note_sent(sent) and anybody_listens(task_enqueued):
            await task_enqueued.asend(type(self), task_result=result)
        return result

    def enqueue_many(self, task: Any, calls: Iterable[Arguments]) -> list[str]:
        """See Task.enqueue_many()."""
        batches, ids = self._prepare_many(task, calls)
        with _in_order_of(ids, batches):
            hand_over(batches, then=partial(self._tell_many, task, batches))
        return ids

    def _tell_many(self, task: Any, batches: Sequence[Outgoing], sent: Sent) -> None:
        if anybody_listens(task_enqueued):
            for result in _new_results(task, batches, sent):
                task_enqueued.send(type(self), task_result=result)

    async def aenqueue_many(self, task: Any, calls: Iterable[Arguments]) -> list[str]:
        """See Task.enqueue_many()."""
        batches, ids = self._prepare_many(task, calls)
        with _in_order_of(ids, batches):
            sent = await ahand_over(batches, then=partial(self._tell_many, task, batches))
            if sent is not None and anybody_listens(task_enqueued):
                for result in _new_results(task, batches, sent):
                    await task_enqueued.asend(type(self), task_result=result)
        return ids

    def _check_once(self, task: Any) -> None:
        """Validate a task once for the current settings."""
        if self._checked_under is not get_settings() or len(self._checked) >= MAX_CHECKED:
            self._checked, self._checked_under = {}, get_settings()
        if self._checked.get(id(task)) is not task:
            self._validate_to_send(task)
            self._checked[id(task)] = task

    def _prepare_one(self, task: Any, args: Any, kwargs: Any) -> tuple[Outgoing, SentResult]:
        self._check_once(task)
        check_arguments(task, args, kwargs)
        outgoing = prepare_one(task, args, kwargs)
        return outgoing, SentResult.of(task, outgoing.ids[0], outgoing.written[0])

    def _prepare_many(self, task: Any, calls: Iterable[Arguments]) -> tuple[list[Outgoing], list[str]]:
        """Return the messages to send, and the ids of the calls in their order."""
        self._validate_to_send(task)
        rest, batches, ids = iter(calls), list[Outgoing](), list[str]()
        at_once = MAX_BATCH * get_settings().queue(task.queue_name).shards
        while batch := [split_arguments(call) for call in islice(rest, at_once)]:
            for args, kwargs in batch:
                check_arguments(task, args, kwargs)
            if types_of_task(task).arguments is not None:
                batch = [as_sent(task, *call) for call in batch]
            drawn, prepared = random_suffixes(len(batch)), list[Outgoing]()
            for (lane, shard), positions in by_destination(task, batch).items():
                for position in positions if shard is not None else ():
                    drawn[position] = id_in_shard(drawn[position], shard)
                for at in range(0, len(positions), MAX_BATCH):
                    part = positions[at : at + MAX_BATCH]
                    own, own_ids = [batch[each] for each in part], [drawn[each] for each in part]
                    prepared.append(prepare(task, own, ids=own_ids, lane=lane, shard=shard))
            batches += in_rounds(prepared)
            ids += drawn
        return batches, ids

    # -- Results ------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return a result from Redis, from any process.

        A dropped call of a unique task has the result of the existing call. Raises
        TaskResultDoesNotExist for an unknown id, for what cannot be one, and after the result's time to live.
        """
        _check_can_be_id(result_id)
        result = self._find(result_id)
        if result is None and has_outbox():
            # Again, because a relay may have sent it to Redis between the two reads.
            result = self._find_in_outbox(result_id) or self._find(result_id)
        if result is None:
            raise _does_not_exist(result_id)
        return result

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """See get_result()."""
        _check_can_be_id(result_id)
        result = await self._afind(result_id)
        if result is None and has_outbox():
            result = await sync_to_async(self._find_in_outbox)(result_id) or await self._afind(result_id)
        if result is None:
            raise _does_not_exist(result_id)
        return result

    def wait_for_end(self, result: TaskResult[..., Any], timeout_s: float) -> None:
        """See BaseResult.wait()."""
        wait_for_end(result, timeout_s)

    async def await_end(self, result: TaskResult[..., Any], timeout_s: float) -> None:
        """See BaseResult.await_end()."""
        await await_end_of(result, timeout_s)

    def _find(self, result_id: str) -> TaskResult[..., Any] | None:
        for client in clients_for(result_id):
            record, passed = client.run(read_record(client.namespace, result_id)), set[str]()
            # Dropped, and the existing call perhaps, too: of a burst, each call points to the next.
            while (following := next_of(record, result_id, passed)) is not None:
                result_id = following
                record = client.run(read_record(client.namespace, result_id))
            if _is_elsewhere(record):
                body = client.run(read_body(queue_keys(client.namespace, record["queue"]), record["message"]))
                if body is not None:
                    return self._restore(result_id, record, body)
                record = client.run(read_record(client.namespace, result_id))  # it ended between the two reads
                if "of" in record:  # or was replaced
                    return self._find(result_id)
            if record:
                return self._restore(result_id, record, _body_of(record))
        return None

    async def _afind(self, result_id: str) -> TaskResult[..., Any] | None:
        for client in clients_for(result_id):
            record, passed = await client.arun(read_record(client.namespace, result_id)), set[str]()
            # Dropped, and the existing call perhaps, too: of a burst, each call points to the next.
            while (following := next_of(record, result_id, passed)) is not None:
                result_id = following
                record = await client.arun(read_record(client.namespace, result_id))
            if _is_elsewhere(record):
                body = await client.arun(read_body(queue_keys(client.namespace, record["queue"]), record["message"]))
                if body is not None:
                    return self._restore(result_id, record, body)
                record = await client.arun(read_record(client.namespace, result_id))
                if "of" in record:
                    return await self._afind(result_id)
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


def _new_results(task: Any, batches: Sequence[Outgoing], sent: Sent) -> Iterator[SentResult]:
    """Yield the results of calls that were sent together, without those for which an equal call stands."""
    calls = [call for batch in batches for call in zip(batch.ids, batch.written, strict=True)]
    message_ids = sent.message_ids or [""] * len(calls)
    for (task_id, body), stands, message_id in zip(calls, sent.ids, message_ids, strict=True):
        result = SentResult.of(task, task_id, body)
        if not result.note_sent(Sent([stands], [message_id] if message_id else [])):
            yield result


def _check_types(task: Any) -> None:
    # Django compares both before it looks at their types.
    if not is_number(task.priority):
        raise InvalidTask(f"priority is {task.priority!r}; it must be a whole number between -100 and 100.")
    if task.run_after is not None and not isinstance(task.run_after, datetime):
        raise InvalidTask(f"run_after is {task.run_after!r}; it must be an aware datetime, or in using() a timedelta.")


@contextmanager
def _in_order_of(ids: Sequence[str], batches: Sequence[Outgoing]) -> Iterator[None]:
    """Renumber PartlyDone in the order of `ids`, which is that of the caller; lanes are sent in another order."""
    try:
        yield
    except PartlyDone as error:
        places = {task_id: place for place, task_id in enumerate(ids)}
        sent = [places[task_id] for outgoing in batches for task_id in outgoing.ids]
        error.done = {sent[position]: task_id for position, task_id in error.done.items()}
        error.unknown = {sent[position]: task_id for position, task_id in error.unknown.items()}
        raise


def _is_known(body: bytes, task_id: str, queue_name: str) -> bool:
    try:
        return find_task(peek(body, queue_name=queue_name, message_id=task_id).task) is not None
    except Unreadable:
        return True  # there is no such result


def _is_elsewhere(record: Mapping[str, str]) -> bool:
    """Return whether the body of a result's message is still in the queue, as far as the record says where."""
    return "body" not in record and "queue" in record and "message" in record


def _body_of(record: Mapping[str, str]) -> bytes:
    return record.get("body", "").encode("utf-8", "surrogateescape")


def _check_can_be_id(result_id: object) -> None:
    if not isinstance(result_id, str) or not result_id.isprintable():
        raise TaskResultDoesNotExist(f"no result {result_id!r}: an id is a text of printable characters, `result.id`")


def _does_not_exist(result_id: str) -> Exception:
    return TaskResultDoesNotExist(
        f"no result {result_id!r}: its time to live is over, its task keeps none, or its transaction was not committed"
        + hint_of_shard(result_id)
    )
