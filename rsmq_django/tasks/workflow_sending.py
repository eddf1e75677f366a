"""Sending workflows. One script creates, sends and seals a workflow of up to a thousand calls: all or nothing.

Of a larger one, the later calls are stored first, then the members are sent, and then it is sealed. A sender that dies
in between leaves a workflow that is not sealed: it never ends, so no callback is sent by mistake, and the doctor can
distinguish it from a workflow with slow members.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NoReturn

from django.db.transaction import TransactionManagementError

from ..core import DurableClient, RsmqError
from ..core.errors import NotConfirmed, OutcomeUnknown
from ..core.limits import MAX_BATCH
from ..core.numbers import is_whole
from ..core.reliable.waiting import SLICE_S, patient, take_token
from ..core.tasks.workflows import await_room, room_key
from ..core.transport.call import Call
from ..core.transport.packing import Command
from ..core.transport.portions import portions, size_of_call
from ..queues import aensure_queue, ensure_queue, get_sender
from .outgoing import Outgoing
from .round_trips import as_stored, asend_together, round_trips, send_together, spans_of, tagging
from .sending import after_commit, in_transaction, in_transaction_of_caller, is_in_transaction, is_only_of_test
from .task import Task
from .workflow_plan import Invocation, Member, Step, WorkflowPlan
from .workflow_progress import WorkflowSending, WorkflowStopped, give_up
from .workflow_state import Workflow

Batch = tuple[list[Member], Outgoing]


# -- Chains and groups ------------------------------------------------------------------------------------------------


def enqueue_plan(plan: WorkflowPlan) -> Workflow:
    """Send a workflow when the surrounding transaction commits, or at once when there is none."""
    batches, steps = list(plan.batches(plan.members)), plan.steps()
    after_commit(lambda: _start(plan, batches, steps), f"workflow {plan.workflow.id}")
    return plan.workflow


def _start(plan: WorkflowPlan, batches: Sequence[Batch], steps: Sequence[Step]) -> None:
    progress = WorkflowSending(plan, len(plan.members))
    with progress.reported(give_up):
        whole = plan.starting([outgoing for _, outgoing in batches], steps)
        progress.is_whole = whole is not None
        if whole is not None:
            _send_whole(plan, whole, batches)
        else:
            _create(plan, progress)
            _run_all(plan, [*plan.preparing(steps), *plan.expecting(plan.members)])
            _send(plan, batches, progress)
            _seal(plan, len(plan.members), progress)
    _confirm(plan)


async def aenqueue_plan(plan: WorkflowPlan) -> Workflow:
    """See enqueue_plan()."""
    if await in_transaction(lambda: enqueue_plan(plan)):
        return plan.workflow
    batches, steps = list(plan.batches(plan.members)), plan.steps()
    progress = WorkflowSending(plan, len(plan.members))
    async with progress.areported():
        whole = plan.starting([outgoing for _, outgoing in batches], steps)
        progress.is_whole = whole is not None
        if whole is not None:
            await _asend_whole(plan, whole, batches)
        else:
            await _acreate(plan, progress)
            await _arun_all(plan, [*plan.preparing(steps), *plan.expecting(plan.members)])
            await _asend(plan, batches, progress)
            await _aseal(plan, len(plan.members), progress)
    await _aconfirm(plan)
    return plan.workflow


# -- Maps -------------------------------------------------------------------------------------------------------------


def map_items(plan: WorkflowPlan, task: Task[..., Any], items: Iterable[Any], *, window: int) -> Workflow:
    """Send a call for each item, with at most `window` unfinished calls at a time."""
    _check_items(task, items, Iterable)
    mapping = _Mapping(plan, task, window)
    if is_in_transaction() or in_transaction_of_caller(_refuse_map):
        _refuse_map()
    progress = WorkflowSending(plan)
    with progress.reported(give_up):
        _create(plan, progress)
        _run_all(plan, plan.preparing(plan.steps()))
        rest = iter(items)
        while batch := list(islice(rest, mapping.slice)):
            _await_room(mapping)
            members = mapping.next_members(batch)
            batches = list(plan.batches(members))
            _run_all(plan, plan.expecting(members))
            _send(plan, batches, progress)
        _seal(plan, mapping.sent, progress)
    _confirm(plan)
    return plan.workflow


def _refuse_map() -> None:
    """Raise TransactionManagementError, unless the open transaction is that of a TestCase, which no code waits for."""
    if not is_only_of_test():
        raise TransactionManagementError(
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
    plan: WorkflowPlan, task: Task[..., Any], items: Iterable[Any] | AsyncIterable[Any], *, window: int
) -> Workflow:
    """See map_items()."""
    _check_items(task, items, Iterable, AsyncIterable)
    mapping = _Mapping(plan, task, window)
    await in_transaction(_refuse_map)
    progress = WorkflowSending(plan)
    async with progress.areported():
        await _acreate(plan, progress)
        await _arun_all(plan, plan.preparing(plan.steps()))
        async for batch in _abatches(items, mapping.slice):
            await _aawait_room(mapping)
            members = mapping.next_members(batch)
            batches = list(plan.batches(members))
            await _arun_all(plan, plan.expecting(members))
            await _asend(plan, batches, progress)
        await _aseal(plan, mapping.sent, progress)
    await _aconfirm(plan)
    return plan.workflow


class _Mapping:
    """The progress of sending a map."""

    def __init__(self, plan: WorkflowPlan, task: Task[..., Any], window: int) -> None:
        if not is_whole(window) or window < 1:
            raise ValueError(f"window is {window!r}; it must be at least 1 call")
        if not isinstance(task, Task):
            raise TypeError(f"{task!r} is not a task of an RSMQ backend; decorate the function with @task")
        plan.check(task, may_be_unique=True)
        plan.check_giver(task)
        self.plan, self._task, self._window = plan, task, window
        plan.mapped = task.module_path
        #: Number of calls that are sent together: a quarter of the window, so that workers always have calls meanwhile.
        self.slice = max(1, min(MAX_BATCH, window // 4))
        self.sent = 0

    @property
    def low(self) -> int:
        """Return the number of unfinished members below which the next slice is sent."""
        return self._window - self.slice

    def next_members(self, items: Sequence[Any]) -> list[Member]:
        """Return the members of the next slice."""
        members = self.plan.numbered([(Invocation(self._task, (item,)),) for item in items], first=self.sent)
        self.sent += len(members)
        return members

    def ask(self) -> Call[int]:
        """Return the call that reads how many members are left."""
        return await_room(self.plan.client.namespace, self.plan.workflow.id, low=self.low)

    def has_room(self, left: int) -> bool:
        """Return whether the next slice may be sent. Raises WorkflowStopped."""
        if left < 0:
            raise WorkflowStopped(f"workflow {self.plan.workflow.id} was cancelled after {self.sent} items")
        return left <= self.low

    def token(self) -> Command:
        """Return the blocking command; it is repeated after a slice of time, in case a token was lost."""
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


def _create(plan: WorkflowPlan, progress: WorkflowSending) -> None:
    missing = plan.client.run(plan.creating())
    progress.is_made = True
    for name in missing:
        ensure_queue(name, shard=0)


async def _acreate(plan: WorkflowPlan, progress: WorkflowSending) -> None:
    missing = await plan.client.arun(plan.creating())
    progress.is_made = True
    for name in missing:
        await aensure_queue(name, shard=0)


def _send_whole(plan: WorkflowPlan, whole: Call[list[str]], batches: Sequence[Batch]) -> None:
    _run_all(plan, tagging([outgoing for _, outgoing in batches]))
    with spans_of(outgoing for _, outgoing in batches):
        while missing := plan.client.run(whole):
            for name in missing:
                ensure_queue(name, shard=0)


async def _asend_whole(plan: WorkflowPlan, whole: Call[list[str]], batches: Sequence[Batch]) -> None:
    await _arun_all(plan, tagging([outgoing for _, outgoing in batches]))
    with spans_of(outgoing for _, outgoing in batches):
        while missing := await plan.client.arun(whole):
            for name in missing:
                await aensure_queue(name, shard=0)


def _seal(plan: WorkflowPlan, members: int, progress: WorkflowSending) -> None:
    progress.is_sent = True
    try:
        is_sealed = plan.client.run(plan.sealing(members))
    except OutcomeUnknown as lost:  # sealing it twice does no harm
        with _still_unknown(lost):
            is_sealed = plan.client.run(plan.sealing(members))
    if not is_sealed:
        _raise_stopped(plan, members)


async def _aseal(plan: WorkflowPlan, members: int, progress: WorkflowSending) -> None:
    progress.is_sent = True
    try:
        is_sealed = await plan.client.arun(plan.sealing(members))
    except OutcomeUnknown as lost:
        with _still_unknown(lost):
            is_sealed = await plan.client.arun(plan.sealing(members))
    if not is_sealed:
        _raise_stopped(plan, members)


def _confirm(plan: WorkflowPlan) -> None:
    """Wait as the DURABILITY of the connection says: its last write was sent."""
    sender = get_sender(plan.workflow.connection)
    if isinstance(sender, DurableClient):
        with _naming(plan):
            sender.confirm()


async def _aconfirm(plan: WorkflowPlan) -> None:
    """See _confirm()."""
    sender = get_sender(plan.workflow.connection)
    if isinstance(sender, DurableClient):
        with _naming(plan):
            await sender.aconfirm()


@contextmanager
def _naming(plan: WorkflowPlan) -> Iterator[None]:
    """Name the workflow in the error of its confirmation."""
    try:
        yield
    except NotConfirmed as error:
        workflow_id = plan.workflow.id
        raise NotConfirmed(f"workflow {workflow_id} was sent: {error}", workflow_id=workflow_id) from error


def _raise_stopped(plan: WorkflowPlan, members: int) -> NoReturn:
    raise WorkflowStopped(
        f"workflow {plan.workflow.id} was cancelled while its {members} members were sent; started members ran"
    )


@contextmanager
def _still_unknown(lost: OutcomeUnknown) -> Iterator[None]:
    """Raise `lost` again when the block fails: an error of the repeat gives no information about the first try."""
    try:
        yield
    except RsmqError as error:
        raise lost from error


def _run_all(plan: WorkflowPlan, calls: Sequence[Call[Any]]) -> None:
    for portion in portions(calls, size_of_call):
        _raise_first(plan.client.run_many(portion))


async def _arun_all(plan: WorkflowPlan, calls: Sequence[Call[Any]]) -> None:
    for portion in portions(calls, size_of_call):
        _raise_first(await plan.client.arun_many(portion))


def _raise_first(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, RsmqError):
            raise reply


def _send(plan: WorkflowPlan, batches: Sequence[Batch], progress: WorkflowSending) -> None:
    rest = iter(batches)
    for part in round_trips([outgoing for _, outgoing in batches]):
        skips = progress.note([next(rest)[0] for _ in part], as_stored(part, send_together(part)))
        _run_all(plan, skips)


async def _asend(plan: WorkflowPlan, batches: Sequence[Batch], progress: WorkflowSending) -> None:
    rest = iter(batches)
    for part in round_trips([outgoing for _, outgoing in batches]):
        skips = progress.note([next(rest)[0] for _ in part], as_stored(part, await asend_together(part)))
        await _arun_all(plan, skips)
