"""Sending workflows: what it waits for is stored first, then its members are sent, and then it is sealed.

A sender that dies in between leaves a workflow that is not sealed: it never ends, so nothing follows that should not,
and the doctor can tell it from one whose members take their time.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Any

from django.db.transaction import TransactionManagementError

from ..core import RsmqError
from ..core.call import Call
from ..core.connection import Command
from ..core.errors import OutcomeUnknown
from ..core.limits import MAX_BATCH
from ..core.portions import portions, size_of_call
from ..core.reliable.waiting import SLICE_S, patient, take_token
from ..core.workflows import await_room, room_key, stop
from ..queues import aensure_queue, ensure_queue
from .round_trips import asend_each, ids_of, send_each
from .sending import Outgoing, after_commit, in_transaction, is_in_transaction
from .task import Task
from .workflow_plan import Invocation, Member, Plan
from .workflow_state import Workflow

Batch = tuple[list[Member], Outgoing]


class MapStopped(RsmqError):
    """The workflow takes no more members: somebody cancelled it while its items were being sent."""


# -- Chains and groups ------------------------------------------------------------------------------------------------


def enqueue_plan(plan: Plan) -> Workflow:
    """Send a workflow when the surrounding transaction commits, or at once when there is none."""
    batches = list(plan.batches(plan.members))
    calls = [*plan.opening(), *plan.expecting(plan.members)]

    def start() -> None:
        try:
            _create(plan)
            _run_all(plan, calls)
            _send(plan, batches)
            plan.client.run(plan.sealing(len(plan.members)))
        except RsmqError as error:
            _give_up(plan, error)
            raise

    after_commit(start, f"workflow {plan.workflow.id}")
    return plan.workflow


async def aenqueue_plan(plan: Plan) -> Workflow:
    """See enqueue_plan()."""
    if await in_transaction(lambda: enqueue_plan(plan)):
        return plan.workflow
    batches = list(plan.batches(plan.members))
    calls = [*plan.opening(), *plan.expecting(plan.members)]
    try:
        await _acreate(plan)
        await _arun_all(plan, calls)
        await _asend(plan, batches)
        await plan.client.arun(plan.sealing(len(plan.members)))
    except RsmqError as error:
        await _agive_up(plan, error)
        raise
    return plan.workflow


# -- Maps -------------------------------------------------------------------------------------------------------------


def map_items(plan: Plan, task: Task[..., Any], items: Iterable[Any], *, window: int) -> Workflow:
    """Send a call for each item, never more than `window` ahead of the workers."""
    _check_items(task, items, Iterable)
    mapping = _Mapping(plan, task, window)
    if is_in_transaction():
        raise _no_map_in_transaction()
    _create(plan)
    try:
        _run_all(plan, plan.opening())
        rest = iter(items)
        while batch := list(islice(rest, mapping.slice)):
            _await_room(mapping)
            members = mapping.next_members(batch)
            batches = list(plan.batches(members))
            _run_all(plan, plan.expecting(members))
            _send(plan, batches)
        plan.client.run(plan.sealing(mapping.sent))
    except BaseException as error:
        _give_up(plan, error)
        raise
    return plan.workflow


def _no_map_in_transaction() -> TransactionManagementError:
    return TransactionManagementError(
        "map_tasks() sends at once, and its tasks would not see what this transaction writes; call it outside of "
        "atomic(), for example in transaction.on_commit()"
    )


def _check_items(task: object, items: object, *kinds: type) -> None:
    if not isinstance(task, Task):
        raise TypeError(f"map_tasks() got {task!r} as its task; give the function that @task decorates")
    if not isinstance(items, kinds) and not hasattr(items, "__getitem__"):
        raise TypeError(
            f"map_tasks() got {items!r} for {task.module_path}; give a list, or anything to iterate over, with the "
            "argument of each call"
        )


async def amap_items(
    plan: Plan, task: Task[..., Any], items: Iterable[Any] | AsyncIterable[Any], *, window: int
) -> Workflow:
    """See map_items()."""
    _check_items(task, items, Iterable, AsyncIterable)
    mapping = _Mapping(plan, task, window)
    if await in_transaction(lambda: None):
        raise _no_map_in_transaction()
    await _acreate(plan)
    try:
        await _arun_all(plan, plan.opening())
        async for batch in _abatches(items, mapping.slice):
            await _aawait_room(mapping)
            members = mapping.next_members(batch)
            batches = list(plan.batches(members))
            await _arun_all(plan, plan.expecting(members))
            await _asend(plan, batches)
        await plan.client.arun(plan.sealing(mapping.sent))
    except BaseException as error:
        await _agive_up(plan, error)
        raise
    return plan.workflow


class _Mapping:
    """How far a map has been sent."""

    def __init__(self, plan: Plan, task: Task[..., Any], window: int) -> None:
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"window is {window!r}; it must be at least 1 call")
        if not isinstance(task, Task):
            raise TypeError(f"{task!r} is no task of an RSMQ backend; decorate the function with @task")
        plan.check(task, may_be_unique=True)
        self.plan, self._task, self._window = plan, task, window
        #: So many are sent together: a quarter of the window, so that workers never run dry while the next are made.
        self.slice = max(1, min(MAX_BATCH, window // 4))
        self.sent = 0

    @property
    def low(self) -> int:
        """Return how many members may be left when the next slice is sent."""
        return self._window - self.slice

    def next_members(self, items: Sequence[Any]) -> list[Member]:
        """Return the members of the next slice."""
        members = self.plan.numbered([(Invocation(self._task, (item,)),) for item in items], first=self.sent)
        self.sent += len(members)
        return members

    def ask(self) -> Call[int]:
        """Return the call that tells how many members are left."""
        return await_room(self.plan.client.namespace, self.plan.workflow.id, low=self.low)

    def has_room(self, left: int) -> bool:
        """Say whether the next slice may be sent. Raises MapStopped."""
        if left < 0:
            raise MapStopped(f"workflow {self.plan.workflow.id} was cancelled after {self.sent} items")
        return left <= self.low

    def token(self) -> Command:
        """Return the command that waits; a slice of time later one looks again, whatever was lost."""
        return take_token([room_key(self.plan.client.namespace, self.plan.workflow.id)], SLICE_S)


def _await_room(mapping: _Mapping) -> None:
    client = mapping.plan.client
    while not mapping.has_room(client.run(mapping.ask())):
        patient(client.connection).exchange([mapping.token()])


async def _aawait_room(mapping: _Mapping) -> None:
    client = mapping.plan.client
    while not mapping.has_room(await client.arun(mapping.ask())):
        await patient(client.connection).aexchange([mapping.token()])


async def _abatches(items: Iterable[Any] | AsyncIterable[Any], size: int) -> AsyncIterator[list[Any]]:
    if not isinstance(items, AsyncIterable):
        rest = iter(items)
        while batch := list(islice(rest, size)):
            yield batch
        return
    batch = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


# -- One exchange -----------------------------------------------------------------------------------------------------


def _create(plan: Plan) -> None:
    for name in plan.client.run(plan.creating()):
        ensure_queue(name)


async def _acreate(plan: Plan) -> None:
    for name in await plan.client.arun(plan.creating()):
        await aensure_queue(name)


def _run_all(plan: Plan, calls: Sequence[Call[Any]]) -> None:
    for portion in portions(calls, size_of_call):
        _raise_first(plan.client.run_many(portion))


async def _arun_all(plan: Plan, calls: Sequence[Call[Any]]) -> None:
    for portion in portions(calls, size_of_call):
        _raise_first(await plan.client.arun_many(portion))


def _raise_first(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, RsmqError):
            raise reply


def _send(plan: Plan, batches: Sequence[Batch]) -> None:
    sent = send_each([outgoing for _, outgoing in batches])
    for (members, _), stands in zip(batches, sent, strict=True):
        if skips := _skips(plan, members, ids_of(stands)):
            _run_all(plan, skips)


async def _asend(plan: Plan, batches: Sequence[Batch]) -> None:
    rest = iter(batches)
    async for stands in asend_each([outgoing for _, outgoing in batches]):
        members, _ = next(rest)
        if skips := _skips(plan, members, ids_of(stands)):
            await _arun_all(plan, skips)


def _skips(plan: Plan, members: Sequence[Member], stands: Sequence[str]) -> list[Call[bool]]:
    pairs = zip(members, stands, strict=True)
    return [plan.skipping(member) for member, task_id in pairs if task_id != member.task_ids[0]]


def _give_up(plan: Plan, error: BaseException) -> None:
    """Let nothing follow a workflow of which only a part was sent. One whose reply was lost may well be complete."""
    if isinstance(error, OutcomeUnknown):
        return
    try:
        plan.client.run(stop(plan.client.namespace, plan.workflow.id))
    except RsmqError:
        pass  # it waits for members that were never sent, so nothing follows either


async def _agive_up(plan: Plan, error: BaseException) -> None:
    """See _give_up()."""
    if isinstance(error, OutcomeUnknown):
        return
    try:
        await plan.client.arun(stop(plan.client.namespace, plan.workflow.id))
    except RsmqError:
        pass
