"""Functions that take batches: several executions of one function, run as one call on one thread or as one coroutine.

Only the call is shared. Each message is read, begun, decided on and ended by its own `Execution`, so that attempts,
leases, results, statistics and events stay per message. The call is that of the first member, the lead, which is lent
a function of the whole batch: whatever surrounds a call (time limit, interruption, database connections, middleware,
span) surrounds that one.
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
from .ack_waiter import AckWaiter
from .execution import Execution
from .invoke import Raised, Result, Returned
from .outcomes import Outcome
from .pool import Runnable


class Batch:
    """Executions of one function that run together; the pool sees one runnable."""

    def __init__(self, first: Execution) -> None:
        #: Those without an outcome, in the order of their messages.
        self._open: dict[Execution, None] = {}
        #: The member whose call is that of all.
        self.lead = first
        self.executions: list[Execution] = []
        self.is_async = first.is_async
        self.is_suspect = first.is_suspect
        self.time_limit = first.time_limit
        self.acks_each = first.acks_each
        #: When they began, for all at the same time: their hard limits pass together.
        self.began_at = 0.0
        self.add(first)

    def add(self, execution: Execution) -> None:
        """Let it run with the others."""
        execution.batch = self
        self.executions.append(execution)
        self._open[execution] = None

    def run(self) -> list[Outcome]:
        """Take the messages through their whole life, on this thread."""
        self.began_at, outcomes = time.monotonic(), list[Outcome]()
        for each in self.executions:
            each.begin()
        while members := self._ready():
            with self._lent(members) as lead:
                result = lead.perform()
            for execution, own in _shared_out(members, result):
                outcomes.append(execution.end(own))
                del self._open[execution]
        for each in list(self._open):
            outcomes.append(each.end(each.perform()))
            del self._open[each]
        return outcomes

    async def arun(self) -> list[Outcome]:
        """See run(); on the event loop."""
        self.began_at, outcomes = time.monotonic(), list[Outcome]()
        for each in self.executions:
            await each.abegin()
        while members := self._ready():
            with self._lent(members) as lead:
                result = await lead.aperform()
            for execution, own in _shared_out(members, result):
                outcomes.append(await execution.aend(own))
                del self._open[execution]
        for each in list(self._open):
            outcomes.append(await each.aend(await each.aperform()))
            del self._open[each]
        return outcomes

    # -- What the pool asks -------------------------------------------------------------------------------------------

    @property
    def ack_waiters(self) -> list[AckWaiter]:
        """Return what tells that Redis knows the outcomes, if somebody waits for them."""
        return [told for each in self.executions for told in each.ack_waiters]

    @property
    def interrupted(self) -> bool:
        """Say whether the worker stops and no longer waits for them."""
        return all(each.interrupted for each in self.executions)

    @interrupted.setter
    def interrupted(self, value: bool) -> None:
        for each in self.executions:
            each.interrupted = value

    @property
    def is_cancelled(self) -> bool:
        """Say whether nobody wants any of it any more."""
        return all(each.delivery.cancelled for each in self._open)

    @property
    def was_interrupted(self) -> bool:
        """Return whether a call of it was interrupted."""
        return any(each.was_interrupted for each in self.executions)

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the call; return whether it runs."""
        return self.lead.interrupt(kind)

    def abandon(self) -> None:
        """Give up on what has no outcome: something other than the function failed."""
        for each in self._open:
            each.abandon()

    # -- The call -----------------------------------------------------------------------------------------------------

    def _ready(self) -> list[Execution]:
        """Return what the call is about: not what was cancelled or has expired, which ends by itself."""
        return [each for each in self._open if each.may_run and each.reason_not_to_run() is None]

    @contextmanager
    def _lent(self, members: Sequence[Execution]) -> Iterator[Execution]:
        """Make the first of them call the function for all."""
        lead = self.lead = members[0]
        own, own_args, own_kwargs, own_limit = lead.work, lead.args, lead.kwargs, lead.time_limit
        assert own is not None
        function, items = own.func, [_item(each) for each in members]

        def call_for_all(*given: Any) -> Any:
            current_run.set(None)  # none of them is the one that runs here; items know their own
            return function([replace(items[0], args=list(given))] if given else items)

        lead.work, lead.kwargs = replace(own, func=call_for_all), {}
        lead.args = [] if lead.takes_from is None else own_args
        lead.time_limit, lead.began_at = self.time_limit, time.monotonic()
        try:
            yield lead
        finally:
            lead.work, lead.args, lead.kwargs, lead.time_limit = own, own_args, own_kwargs, own_limit


def in_batches(executions: Iterable[Execution]) -> Iterator[Execution | Batch]:
    """Put together what was received together and is of one function; what takes no batches passes through.

    Middleware and its context surround a call, so only messages of equal context share one. A message whose process
    died while it ran is a batch of its own.
    """
    begun: dict[Hashable, Batch] = {}
    for execution in executions:
        size = execution.work.options.batch if execution.work is not None else None
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
    """Return the executions of what waits or runs, those of batches one by one."""
    for each in runnables:
        if isinstance(each, Batch):
            yield from each.executions
        elif isinstance(each, Execution):
            yield each


def to_interrupt(cancelled: Iterable[Execution]) -> Iterator[Runnable]:
    """Return what to interrupt because these were cancelled: a batch only when nobody wants any of it."""
    for each in cancelled:
        if each.batch is None:
            yield each
        elif each.batch.is_cancelled:
            yield each.batch


def _takes_from_workflow(execution: Execution) -> bool:
    """Say whether the call reads its first argument when it runs, as only one of its own can."""
    return execution.takes_from is not None


def _key(execution: Execution) -> Hashable:
    context = (execution.meta or {}).get("context")
    return execution.path, json.dumps(context, sort_keys=True) if context else ""


def _item(execution: Execution) -> Any:
    assert execution.work is not None
    if execution.work.task is None:
        return execution.args[0]  # the message, for a consumer
    return BatchCall(execution.task_id, execution.args, execution.kwargs, CurrentTask(execution))


def _shared_out(members: Sequence[Execution], result: Result) -> list[tuple[Execution, Result]]:
    """Return what the call's result means for each; nothing when it did not take place."""
    run_us = members[0].run_us
    if run_us is None:  # its lead was cancelled at the last moment
        return []
    for each in members:
        each.run_us = run_us // len(members)
    if not isinstance(result, Returned):
        return [(each, result) for each in members]
    try:
        own = answers(result.value, [each.task_id for each in members])
    except BaseException as error:  # also what methods of the answer's own classes raise
        # Its effect is done; running it again would do it twice and fail again.
        text = str(error) if isinstance(error, BadAnswer) else f"the answer cannot be read: {type(error).__name__}"
        return [(each, Unreadable("bad_return_value", text, each.envelope)) for each in members]
    return [
        (each, Raised(value) if isinstance(value, BaseException) else Returned(value))
        for each, value in zip(members, own, strict=True)
    ]
