"""Django's `Task` with our options, the decorator `@task`, and the declared tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils import timezone
from django.utils.module_loading import import_string

from ..core import Durability
from .backend_options import with_defaults
from .batch import BatchCall
from .call_key import By, check_names
from .compat import DEFAULT_TASK_QUEUE_NAME, BaseTask, InvalidTask, TaskResult, task_backends
from .foreign_words import CALLED, TASK_WORDS, missing_attribute, no_option
from .limits import Limit, check_limit_names
from .options import (
    CALL_OPTIONS,
    DEFAULT_BACKOFF,
    Ack,
    CallOptions,
    Discard,
    ExceptionClasses,
    OptionArguments,
    TaskOptions,
)
from .retry import Backoff
from .running import TaskContext
from .unique import Unique

P = ParamSpec("P")
R = TypeVar("R")

#: The arguments of one call: keyword arguments, or positional ones.
Arguments = Mapping[str, Any] | Sequence[Any]

OPTION_NAMES = tuple(each.name for each in fields(TaskOptions))
DJANGO_OPTIONS = frozenset({"priority", "takes_context"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(BaseTask, Generic[P, R]):  # type: ignore[type-arg]
    """A task of an RSMQ backend. The options beyond Django's own are those of `TaskOptions`."""

    max_attempts: int | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    retry_on: ExceptionClasses = BaseException
    give_up_on: ExceptionClasses = ()
    timeout_s: float | None = None
    hard_timeout_s: float | None = None
    dead_letter_queue: str | Discard | None = None
    missing_objects: Discard | None = None
    result_ttl_s: int | None = None
    once: bool = False
    unique: Unique | None = None
    expires_in_s: float | None = None
    tags: Sequence[str] = ()
    fair_by: By | None = None
    shard_by: By | None = None
    limits: Sequence[Limit] = ()
    batch: int | None = None
    ack: Ack = "batch"
    aliases: Sequence[str] = ()
    durability: Durability | Literal[False] | None = None
    #: Names of options that were written down, with the built-in value, too: defaults of the backend spare them.
    named_options: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    options: TaskOptions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in OPTION_NAMES}
        defaults = getattr(self.get_backend(), "task_defaults", None)  # other backends have none
        named = self.named_options
        options = TaskOptions(**(dict(with_defaults(given, defaults, named=named)) if defaults else given))
        if options.unique is not None:
            options.unique.check(self.func, self.module_path)
        check_limit_names(options.limits, self.func, self.module_path)
        check_names(options.fair_by, self.func, self.module_path, what="fair")
        check_names(options.shard_by, self.func, self.module_path, what="shard")
        object.__setattr__(self, "options", options)
        if self.once and iscoroutinefunction(self.func):
            raise ValueError(f"{self.func.__name__} is async; once=True needs a transaction, which only a def can have")
        if self.batch is not None and self.takes_context:
            raise ValueError(f"{self.func.__name__} takes batches; each of its calls has its context as `call.current`")
        BaseTask.__post_init__(self)  # super() without arguments fails in a dataclass with slots
        _register(self)

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for missing attributes.
        raise missing_attribute(self, name, TASK_WORDS, f"task {object.__getattribute__(self, 'func').__qualname__}")

    if not TYPE_CHECKING:  # type checkers know that a task is not callable
        #: For Django's templates.
        do_not_call_in_templates = True

        def __call__(self, *args, **kwargs):
            """Raise TypeError, which explains how to enqueue it."""
            raise TypeError(CALLED.format(path=self.func.__qualname__))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form: dotted path and changes of using(), the same on all versions of Django."""
        declared = find_task(self.module_path)
        changes = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.init and each.name != "func" and getattr(self, each.name) != getattr(declared, each.name, None)
        }
        return _unpickled, (self.module_path, changes)

    def get_backend(self) -> Any:
        """Return the backend; for Django's own method, it takes a tenth of the time of a send to find it."""
        backend = _backends.get(self.backend)
        return _find_backend(self.backend) if backend is None else backend

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Task[P, R]:
        """Return a copy with other options, Django's or ours; `run_after` is a time, or a timedelta from now.

        Raises ValueError for options that workers read from the declaration, where a copy would change nothing.
        """
        _check_is_of_a_call(options)
        if isinstance(run_after, timedelta):
            run_after = _from_now(run_after)
        changed: Any = BaseTask.using(
            self, priority=priority, queue_name=queue_name, run_after=run_after, backend=backend
        )
        if options:
            changed = replace(changed, named_options=self.named_options | options.keys(), **options)
        return cast("Task[P, R]", changed)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]:
        """Send one call when the surrounding transaction commits, or at once when there is none."""
        return cast("TaskResult[P, R]", self.get_backend().enqueue(self, args, kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult[P, R]:
        """See enqueue()."""
        return cast("TaskResult[P, R]", await self.get_backend().aenqueue(self, args, kwargs))

    def enqueue_many(self, calls: Iterable[Arguments]) -> list[str]:
        """Send many calls in the order given, one round trip per thousand, and return their task ids.

        Each call is a dictionary of keyword arguments or a sequence of positional ones. Waits for the commit as
        enqueue() does. Raises PartlyDone when a part of the calls was sent.
        """
        return cast("list[str]", _our_backend(self).enqueue_many(self, calls))

    async def aenqueue_many(self, calls: Iterable[Arguments]) -> list[str]:
        """See enqueue_many()."""
        return cast("list[str]", await _our_backend(self).aenqueue_many(self, calls))


def _refuse_change(task: object, name: str, *_: object) -> NoReturn:
    """Raise FrozenInstanceError; that of a dataclass with slots and a base class is a TypeError of Python's own."""
    raise FrozenInstanceError(
        f"a task cannot be changed, so {name!r} cannot be replaced or mocked; in tests, use "
        "assert_enqueued() of the fixture rsmq or of private_queues()"
    )


Task.__setattr__ = Task.__delattr__ = _refuse_change  # type: ignore[method-assign]


def _from_now(span: timedelta) -> datetime:
    """Return the time after a span, as Django has times: without a zone, it may be in the hour that clocks repeat."""
    when = datetime.now(UTC) + span
    return when if settings.USE_TZ else timezone.make_naive(when, timezone.get_default_timezone())


#: Backends that serve all threads, by alias.
_backends: dict[str, Any] = {}


def _find_backend(alias: str) -> Any:
    backend: Any = task_backends[alias]
    if vars(type(backend)).get("serves_all_threads", False):  # not of a base class
        _backends[alias] = backend
    return backend


@receiver(setting_changed)
def _forget_backends(**_: object) -> None:
    _backends.clear()


def _unpickled(path: str, changes: Mapping[str, Any]) -> Task[..., Any]:
    task = find_task(path) or import_string(path)
    return replace(task, **changes) if changes else task


def _check_is_of_a_call(options: Iterable[str]) -> None:
    for name in options:
        if name in CALL_OPTIONS:
            continue
        if name in OPTION_NAMES or name == "takes_context":
            raise ValueError(f"workers read {name} from the declaration; give it to @task, not to using()")
        known = {*CALL_OPTIONS, "priority", "queue_name", "run_after", "backend"}
        raise no_option("using()", name, known)


def _our_backend(task: Task[..., Any]) -> Any:
    backend = task.get_backend()
    if not hasattr(backend, "enqueue_many"):
        raise TypeError(f"backend {task.backend!r} of {task.module_path} is not an RSMQBackend; it has no enqueue_many")
    return backend


# -- The declared tasks ------------------------------------------------------------------------------------------------

#: By dotted path. No module is ever imported because a message names it.
_tasks: dict[str, Task[..., Any]] = {}


def _register(task: Task[..., Any]) -> None:
    """Register a declared task under its dotted path. Copies made by using() share the function and change nothing."""
    known = _tasks.get(task.module_path)
    if known is None or known.func is not task.func:
        _check_aliases(task)
        _tasks[task.module_path] = task


def _check_aliases(task: Task[..., Any]) -> None:
    """Raise InvalidTask when calls that name one of two tasks could mean both."""
    own = {task.module_path, *task.options.aliases}
    for other in _tasks.values():
        if (task.options.aliases or other.options.aliases) and other.module_path != task.module_path:
            shared = own & {other.module_path, *other.options.aliases}
            if shared:
                raise InvalidTask(
                    f"Task {task.module_path}: {min(shared)!r} is a path or an alias of {other.module_path}, too; "
                    "leave it out of the aliases of one of them"
                )


def find_task(path: str) -> Task[..., Any] | None:
    """Return the task declared under a dotted path or as its alias, or None."""
    found = _tasks.get(path)
    return found if found is not None else _find_renamed(path)


def _find_renamed(path: str) -> Task[..., Any] | None:
    return next((task for task in _tasks.values() if path in task.options.aliases), None)


def registered_tasks() -> dict[str, Task[..., Any]]:
    """Return all declared tasks by dotted path."""
    return dict(_tasks)


# -- Declaring ---------------------------------------------------------------------------------------------------------


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    *,
    queue_name: str = ...,
    backend: str = ...,
    priority: int = ...,
    takes_context: Literal[False] = False,
    **options: Unpack[OptionArguments],
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


@overload
def task(
    *,
    batch: int,
    queue_name: str = ...,
    backend: str = ...,
    priority: int = ...,
    **options: Unpack[OptionArguments],
) -> Callable[[Callable[[list[BatchCall]], R]], Task[..., R]]: ...


@overload
def task(
    *,
    takes_context: Literal[True],
    queue_name: str = ...,
    backend: str = ...,
    priority: int = ...,
    **options: Unpack[OptionArguments],
) -> Callable[[Callable[Concatenate[TaskContext, P], R]], Task[P, R]]: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = "default",
    **options: Any,
) -> Any:
    """Declare a function as a task. Use it bare or with options.

    Django's own options, and: `max_attempts` (attempts in total; default: the queue's), `backoff` (function of the
    failed attempt that returns seconds; default: `exponential()`), `retry_on` and `give_up_on` (exception classes;
    default: every exception is retried), `timeout_s` (per attempt; default: none), `hard_timeout_s` (per attempt, after
    which its process is killed; default: none), `dead_letter_queue` (default: the queue's; DISCARD: none),
    `missing_objects` (DISCARD: a call whose row is gone is deleted; default: it is a dead letter),
    `result_ttl_s` (seconds a finished result is kept; 0 keeps none), `unique` (a `Unique`: equal calls are enqueued
    once), `expires_in_s` (seconds after its due time from which a call is not started), `tags` (to find and cancel
    tasks by), `fair_by` (the tenant whose calls take turns: names of arguments or a function of them), `limits`
    (`Concurrency` and `Rate`: how many run at a time, and how many start in a span of time), `batch` (the function gets
    a list of up to this many `BatchCall`s), `aliases` (dotted paths that the task had before),
    `durability` (what senders wait for). Raises InvalidTask or ValueError at the declaration for an option that cannot
    work.
    """

    def declare(function: Callable[..., Any]) -> Any:
        _check_function(function)
        for name in options:
            if name not in DJANGO_OPTIONS and name not in OPTION_NAMES:
                known = {"backend", "queue_name", *DJANGO_OPTIONS, *OPTION_NAMES}
                raise no_option("a task", name, known)
        task_class = task_backends[backend].task_class
        # Another backend (for example Django's immediate one in tests) does not have our options.
        if issubclass(task_class, Task):
            ours = {**options, "named_options": frozenset(options)}
        else:
            ours = {name: value for name, value in options.items() if name in DJANGO_OPTIONS}
        # Django 6.0 has no defaults for these two.
        given = {"priority": 0, "run_after": None, **ours}
        return task_class(func=function, queue_name=queue_name, backend=backend, **given)

    return declare if function is None else declare(function)


def _check_function(function: Any) -> None:
    """Raise InvalidTask for values that are not functions, and for functions whose values are never results."""
    if isinstance(function, BaseTask):
        raise InvalidTask(f"{function.func.__qualname__} is a task already; write @task once")
    if not hasattr(function, "__qualname__"):
        raise InvalidTask(f"{function!r} is not a function; write @task or @task(queue_name=...) above a def")
    if "<locals>" in function.__qualname__:
        raise InvalidTask(  # it begins with Django's own words
            f"Task function must be defined at a module level. {function.__qualname__} is inside another function: "
            "move it out, or use functools.wraps in the decorator that returns it."
        )
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise InvalidTask(f"{function.__qualname__} is a generator; let the task return a list")
