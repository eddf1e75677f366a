"""Functions that take batches: several executions of one function, run as one call on one thread or as one coroutine.

Only the call is shared. Each message is read, begun, decided on and ended by its own `Execution`, so that attempts,
leases, results, statistics and events stay per message. The call is that of the first member, the lead, which gets a
function for the whole batch: everything that surrounds a call (time limit, interruption, database connections,
middleware, span) surrounds the call of the lead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...tasks.batch import BadAnswer, BatchCall, answers
from ...tasks.envelope import Unreadable
from ...tasks.running import CurrentTask, current_run
from ..delivery import AckWaiter
from .execution import Execution
from .invoke import Raised, Result, Returned
from .pool import Runnable
from .sequence import MessageSequence


class Batch:
    """Executions of one function that run together; the pool sees one runnable."""

    def __init__(self, first: Execution) -> None:
        #: Members without an outcome, in the order of their messages.
        self._open: dict[Execution, None] = {}
        #: The member whose call runs for all members.
        self.lead = first
        #: The members that the call is for.
        self.members: Sequence[Execution] = (first,)
        self.executions: list[Execution] = []
        self.is_async = first.is_async
        self.is_suspect = first.is_suspect
        self.time_limit = first.time_limit
        self.acks_each = first.acks_each
        #: When the members began, for all at the same time: their hard limits expire together.
        self.began_at = 0.0
        self.add(first)

    def add(self, execution: Execution) -> None:
        """Add an execution to the batch."""
        execution.batch = self
        self.executions.append(execution)
        self._open[execution] = None

    def run(self) -> None:
        """Run the messages from reading to settling on this thread."""
        self.began_at = time.monotonic()
        for each in self.executions:
            each.begin()
        while members := self._ready():
            with self._shared_call(members) as lead:
                result = lead.perform()
            for execution, own in _results_of_members(members, result):
                execution.end(own)
                del self._open[execution]
        for each in list(self._open):
            each.end(each.perform())
            del self._open[each]

    async def arun(self) -> None:
        """See run(); on the event loop."""
        self.began_at = time.monotonic()
        for each in self.executions:
            await each.abegin()
        while members := self._ready():
            with self._shared_call(members) as lead:
                result = await lead.aperform()
            for execution, own in _results_of_members(members, result):
                await execution.aend(own)
                del self._open[execution]
        for each in list(self._open):
            await each.aend(await each.aperform())
            del self._open[each]

    # -- Interface for the pool ---------------------------------------------------------------------------------------

    @property
    def ack_waiters(self) -> list[AckWaiter]:
        """Return the waiters for the outcomes of the members; empty without `ack="each"`."""
        return [waiter for each in self.executions for waiter in each.ack_waiters]

    @property
    def interrupted(self) -> bool:
        """Return whether the worker is stopping and does not wait for the batch any more."""
        return all(each.interrupted for each in self.executions)

    @interrupted.setter
    def interrupted(self, value: bool) -> None:
        for each in self.executions:
            each.interrupted = value

    @property
    def is_cancelled(self) -> bool:
        """Return whether all members were cancelled."""
        return all(each.delivery.cancelled for each in self._open)

    @property
    def was_interrupted(self) -> bool:
        """Return whether a call of the batch was interrupted."""
        return any(each.was_interrupted for each in self.executions)

    @property
    def running_now(self) -> Batch:
        """Return this batch; see Runnable."""
        return self

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the call; return whether it is running."""
        return self.lead.interrupt(kind)

    def abandon(self) -> None:
        """Abandon the members without an outcome: something other than the function failed."""
        for each in self._open:
            each.abandon()

    # -- The call -----------------------------------------------------------------------------------------------------

    def _ready(self) -> list[Execution]:
        """Return the members to run: those not cancelled and not expired. The others end without a call."""
        return [each for each in self._open if each.may_run and each.reason_not_to_run() is None]

    @contextmanager
    def _shared_call(self, members: Sequence[Execution]) -> Iterator[Execution]:
        """Replace the call of the first member by one call for all members."""
        lead, self.members = members[0], members
        self.lead = lead
        own, own_args, own_kwargs, own_limit = lead.handler, lead.args, lead.kwargs, lead.time_limit
        assert own is not None
        function, items = own.func, [_item(each) for each in members]

        def call_for_all(*given: Any) -> Any:
            current_run.set(None)  # no single member runs here; each item knows its own run
            return function([replace(items[0], args=list(given))] if given else items)

        lead.handler, lead.kwargs = replace(own, func=call_for_all), {}
        lead.args = [] if lead.takes_from is None else own_args
        lead.time_limit, lead.began_at = self.time_limit, time.monotonic()
        try:
            yield lead
        finally:
            lead.handler, lead.args, lead.kwargs, lead.time_limit = own, own_args, own_kwargs, own_limit


def in_batches(executions: Iterable[Execution]) -> Iterator[Execution | Batch]:
    """Group executions that were received together and have the same function; others pass through unchanged.

    Middleware and its context surround a call, so only messages of equal context share one. A message whose process
    died while it ran is a batch of its own.
    """
    begun: dict[Hashable, Batch] = {}
    for execution in executions:
        size = execution.handler.options.batch if execution.handler is not None else None
        if size is None:
            yield execution
        elif execution.is_suspect or _takes_from_workflow(execution):
            yield Batch(execution)
        else:
            key = _key(execution)
            if (batch := begun.get(key)) is None:
                batch = begun[key] = Batch(execution)
            else:
                batch.add(execution)
            if len(batch.executions) == size:
                yield begun.pop(key)
    yield from begun.values()


def executions_of(runnables: Iterable[Runnable]) -> Iterator[Execution]:
    """Return the executions in these runnables; a batch or a sequence contains several."""
    for each in runnables:
        if isinstance(each, Batch | MessageSequence):
            yield from each.executions
        elif isinstance(each, Execution):
            yield each


def to_interrupt(cancelled: Iterable[Execution]) -> Iterator[Runnable]:
    """Return the runnables to interrupt for these cancelled executions: a batch only if all its members are."""
    for each in cancelled:
        if each.batch is None:
            yield each
        elif each.batch.is_cancelled:
            yield each.batch


def _takes_from_workflow(execution: Execution) -> bool:
    """Return whether the call reads its first argument when it runs, which must be its own."""
    return execution.takes_from is not None


def _key(execution: Execution) -> Hashable:
    context = (execution.meta or {}).get("context")
    return execution.path, json.dumps(context, sort_keys=True) if context else ""


def _item(execution: Execution) -> Any:
    assert execution.handler is not None
    if execution.handler.task is None:
        return execution.args[0]  # the message, for a consumer
    return BatchCall(execution.task_id, execution.args, execution.kwargs, CurrentTask(execution))


def _results_of_members(members: Sequence[Execution], result: Result) -> list[tuple[Execution, Result]]:
    """Return the result of each member from the result of the call; empty if the call did not take place."""
    run_us = members[0].run_us
    if run_us is None:  # the lead was cancelled at the last moment
        return []
    for each in members:
        each.run_us = run_us // len(members)
    if not isinstance(result, Returned):
        return [(each, result) for each in members]
    try:
        own = answers(result.value, [each.task_id for each in members])
    except BaseException as error:  # also from methods of the answer's own classes
        # The function has had its effect; running it again would repeat that, and fail again.
        text = str(error) if isinstance(error, BadAnswer) else f"the answer cannot be read: {type(error).__name__}"
        return [(each, Unreadable("bad_return_value", text, each.envelope)) for each in members]
    return [
        (each, Raised(value) if isinstance(value, BaseException) else Returned(value))
        for each, value in zip(members, own, strict=True)
    ]
