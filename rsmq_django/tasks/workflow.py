"""Workflows: chains of tasks, and groups of tasks with a callback when all have ended.

    chain(call(fetch, url), call(resize, width=300), call(store)).enqueue()
    group([call(resize, path) for path in paths], then=call(report)).enqueue()
    map_tasks(resize, paths_of_millions_of_files(), then=call(report))

A step gets the result of the one before it as its first argument, the callback of a group the list of all results.
Later calls are prepared, signed and encrypted where the workflow is enqueued, and stored in Redis until a member ends:
the script that settles its message sends them. So each is sent exactly once, even if a process dies, and without
polling.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any

from .compat import TaskResult
from .task import Task
from .workflow_plan import KEEP_S, Invocation, WorkflowPlan
from .workflow_sending import aenqueue_plan, amap_items, enqueue_plan, map_items
from .workflow_state import Workflow


def call(task: Task[..., Any], /, *args: Any, **kwargs: Any) -> Invocation:
    """Return a call of a task, for a workflow. Options of this call: `call(task.using(priority=50), ...)`."""
    if not isinstance(task, Task):
        raise TypeError(
            f"{_named(task)} is not a task of an RSMQ backend: write call(task, ...), with a @task function"
        )
    return Invocation(task, args, kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A chain: each call runs when the one before it has succeeded. Created with chain()."""

    steps: tuple[Invocation, ...]
    on_failure: Invocation | None
    name: str
    keep_s: float

    def enqueue(self) -> Workflow:
        """Send the first step when the surrounding transaction commits, or at once when there is none."""
        return enqueue_plan(self._plan())

    async def aenqueue(self) -> Workflow:
        """See enqueue()."""
        return await aenqueue_plan(self._plan())

    def _plan(self) -> WorkflowPlan:
        return WorkflowPlan("chain", [self.steps], name=self.name, keep_s=self.keep_s, on_failure=self.on_failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group: calls and chains that run in parallel, and its callbacks. Created with group()."""

    members: tuple[tuple[Invocation, ...], ...]
    then: Invocation | None
    on_failure: Invocation | None
    then_always: bool
    name: str
    keep_s: float

    def enqueue(self) -> Workflow:
        """Send all members when the surrounding transaction commits, or at once when there is none."""
        return enqueue_plan(self._plan())

    async def aenqueue(self) -> Workflow:
        """See enqueue()."""
        return await aenqueue_plan(self._plan())

    def _plan(self) -> WorkflowPlan:
        return WorkflowPlan(
            "group",
            self.members,
            name=self.name,
            keep_s=self.keep_s,
            then=self.then,
            on_failure=self.on_failure,
            then_always=self.then_always,
        )


def chain(*calls: Invocation, on_failure: Invocation | None = None, name: str = "", keep_s: float = KEEP_S) -> Chain:
    """Return a chain: each call runs when the one before it has succeeded, with its result as first argument.

    A step that fails for good ends the chain; `on_failure` gets a list with that one `Failure`. After a redrive, the
    step continues the chain. `name` is for display; `keep_s` is how long the workflow can be read after its last step.
    Raises InvalidTask at enqueue() for tasks that cannot be in one workflow.
    """
    if not calls:
        raise ValueError("a chain needs at least one call")
    for step in calls:
        if not isinstance(step, Invocation):
            raise _not_a_step(step)
    _check_callbacks(on_failure=on_failure)
    return Chain(steps=calls, on_failure=on_failure, name=name, keep_s=keep_s)


def group(
    members: Iterable[Invocation | Chain],
    *,
    then: Invocation | None = None,
    on_failure: Invocation | None = None,
    then_always: bool = False,
    name: str = "",
    keep_s: float = KEEP_S,
) -> Group:
    """Return a group: calls, or chains, that run in parallel.

    `then` runs once, when all have succeeded, with the list of their results in the order of the members. When all have
    ended and some have failed, `on_failure` runs once with the list of failures instead; with `then_always`, `then`
    runs in either case, and its list has a `Failure` for each failed member. A failed member that succeeds after a
    redrive completes the group.
    """
    if isinstance(members, Invocation | Chain):
        raise TypeError("a group takes a list: write group([...])")
    _check_callbacks(then=then, on_failure=on_failure)
    steps = tuple(_steps_of(member) for member in members)
    return Group(members=steps, then=then, on_failure=on_failure, then_always=then_always, name=name, keep_s=keep_s)


def _steps_of(member: Invocation | Chain) -> tuple[Invocation, ...]:
    if isinstance(member, Invocation):
        return (member,)
    if not isinstance(member, Chain):
        raise TypeError(f"{_named(member)} is not a member of a group: write call(task, ...) or chain(...) for each")
    if member.on_failure is not None:
        raise ValueError("a chain inside a group has no on_failure of its own; give it to the group")
    return member.steps


def _check_callbacks(**callbacks: object) -> None:
    for name, callback in callbacks.items():
        if callback is not None and not isinstance(callback, Invocation):
            raise TypeError(f"{_named(callback)} is not a callback for {name}: write call(task, ...)")


def _not_a_step(value: object) -> TypeError:
    way = "chain(*steps)" if isinstance(value, list) else "call(task, ...) for each"
    return TypeError(f"{_named(value)} is not a step of a chain: write {way}")


def _named(value: object) -> str:
    if isinstance(value, TaskResult):
        return f"a call of {value.task.module_path} that enqueue() has sent already"
    if isinstance(value, list):
        return "a list"
    return f"task {value.module_path}" if isinstance(value, Task) else repr(value)


def map_tasks(  # noqa: PLR0913 - public: an option of the workflow each, all optional
    task: Task[..., Any],
    items: Iterable[Any],
    *,
    then: Invocation | None = None,
    on_failure: Invocation | None = None,
    then_always: bool = False,
    window: int = 1000,
    keep_results: bool = False,
    name: str = "",
    keep_s: float = KEEP_S,
) -> Workflow:
    """Call a task with each of any number of items, with at most `window` unfinished calls at a time.

    Returns when all are sent, so workers have to run meanwhile. Results are stored with `keep_results=True`; only then
    does `then` get them, as one list in memory. When this process dies, or `items` raises, the calls that
    were sent run, but no callback follows. Sends at once, so it refuses to run in a transaction.
    """
    plan = _map_plan(then, on_failure, then_always, keep_results, name, keep_s)
    return map_items(plan, task, items, window=window)


async def amap_tasks(  # noqa: PLR0913 - see map_tasks()
    task: Task[..., Any],
    items: Iterable[Any] | AsyncIterable[Any],
    *,
    then: Invocation | None = None,
    on_failure: Invocation | None = None,
    then_always: bool = False,
    window: int = 1000,
    keep_results: bool = False,
    name: str = "",
    keep_s: float = KEEP_S,
) -> Workflow:
    """See map_tasks(); the items may come from an async generator, too."""
    plan = _map_plan(then, on_failure, then_always, keep_results, name, keep_s)
    return await amap_items(plan, task, items, window=window)


def _map_plan(
    then: Invocation | None,
    on_failure: Invocation | None,
    then_always: bool,
    keep_results: bool,
    name: str,
    keep_s: float,
) -> WorkflowPlan:
    _check_callbacks(then=then, on_failure=on_failure)
    if then is not None and not keep_results:
        then = then.without_result()
    return WorkflowPlan(
        "map",
        name=name,
        keep_s=keep_s,
        then=then,
        on_failure=on_failure,
        then_always=then_always,
        keeps_results=keep_results,
    )
