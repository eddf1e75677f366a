"""The options of a task or consumer beyond Django's own: one frozen object, checked at the declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypedDict, TypeGuard, get_args

from django.conf import settings

from ..core import Durability
from ..core.limits import MAX_BATCH, MAX_SECONDS, YEAR_S
from ..core.numbers import is_number, is_whole
from .call_key import By, check_is_list
from .limits import Limit, check_limits
from .retry import Backoff, RetryPolicy, exponential, wrong_backoff
from .unique import Unique

DEFAULT_BACKOFF = exponential()
MAX_TAG_LENGTH = 100
MOST_ATTEMPTS = 1_000_000
LEAST_SECONDS = 0.001
#: When an outcome is settled: together with others within milliseconds, or before the next attempt starts.
Ack = Literal["batch", "each"]


class Discard(Enum):
    """Replaces a dead-letter queue: messages that failed for good are deleted."""

    DISCARD = "discard"


#: For the options that say where failed calls go: nowhere, they are deleted.
DISCARD = Discard.DISCARD

ExceptionClasses = tuple[type[BaseException], ...] | type[BaseException]


class CallOptions(TypedDict, total=False):
    """The options of sending, which can be set for a single call."""

    unique: Unique | None
    expires_in_s: float | None
    tags: Sequence[str]
    fair_by: By | None
    shard_by: By | None
    result_ttl_s: int | None
    max_attempts: int | None
    durability: Durability | Literal[False] | None


CALL_OPTIONS = frozenset(CallOptions.__annotations__)


class OptionArguments(CallOptions, total=False):
    """The options of `TaskOptions` as keyword arguments of a decorator."""

    backoff: Backoff
    retry_on: ExceptionClasses
    give_up_on: ExceptionClasses
    timeout_s: float | None
    hard_timeout_s: float | None
    dead_letter_queue: str | Discard | None
    missing_objects: Discard | None
    once: bool
    limits: Sequence[Limit]
    ack: Ack
    aliases: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of one task. None means the value in the queue's settings."""

    #: Maximum number of attempts; 1 means no retry.
    max_attempts: int | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    retry_on: ExceptionClasses = BaseException
    give_up_on: ExceptionClasses = ()
    #: An attempt that takes longer is stopped with TaskTimeout and counts as a failure.
    timeout_s: float | None = None
    #: The process of an attempt that takes longer is killed; counts as a failure.
    hard_timeout_s: float | None = None
    #: The queue for messages that failed for good; DISCARD: they are deleted.
    dead_letter_queue: str | Discard | None = None
    #: DISCARD: a call is deleted when a row that its arguments name is gone. None: it is a dead letter.
    missing_objects: Discard | None = None
    #: How long a finished result is stored; 0 stores none and saves its cost in Redis.
    result_ttl_s: int | None = None
    #: Run in a transaction that also stores the task's id, so that a repeat of the same task does nothing.
    once: bool = False
    #: The rule for equal calls, of which one is enqueued.
    unique: Unique | None = None
    #: A call that has not started within this time after it was due goes to the dead-letter queue instead.
    expires_in_s: float | None = None
    #: Tags to find and cancel tasks by.
    tags: Sequence[str] = ()
    #: The tenant of a call: names of arguments, or a function of the arguments. None: no fair shares.
    fair_by: By | None = None
    #: What decides the shard of a call on a queue with SHARDS: names of arguments, or a function of the arguments.
    shard_by: By | None = None
    #: Limits on how many calls run at a time, and how many start in a span of time.
    limits: Sequence[Limit] = ()
    #: The function gets a list of up to this many calls; None: it gets one call.
    batch: int | None = None
    #: Other dotted paths of the task, which calls may name: its paths before it was renamed or moved.
    aliases: Sequence[str] = ()
    #: "each": a slot starts nothing else before the outcome is settled.
    ack: Ack = "batch"
    #: What the sender of a call waits for; False: nothing. None: the DURABILITY of the queue.
    durability: Durability | Literal[False] | None = None

    def __post_init__(self) -> None:
        if self.max_attempts is not None and not is_number_of_attempts(self.max_attempts):
            raise ValueError(
                f"max_attempts is {self.max_attempts!r}; it must be a whole number from 1 to {MOST_ATTEMPTS}"
            )
        _check_seconds("timeout_s", self.timeout_s)
        _check_seconds("hard_timeout_s", self.hard_timeout_s)
        if self.timeout_s is not None and self.hard_timeout_s is not None and self.hard_timeout_s <= self.timeout_s:
            raise ValueError(
                f"hard_timeout_s is {self.hard_timeout_s!r} and timeout_s is {self.timeout_s!r}; it must be longer, so "
                "that the task can end by itself first"
            )
        if self.dead_letter_queue == "" or not isinstance(self.dead_letter_queue, str | Discard | None):
            raise ValueError(f"dead_letter_queue is {self.dead_letter_queue!r}; it must be a queue's name or DISCARD")
        if not isinstance(self.missing_objects, Discard | None):
            raise ValueError(f"missing_objects is {self.missing_objects!r}; it must be DISCARD or None")
        if self.result_ttl_s is not None and not _is_kept_time(self.result_ttl_s):
            raise ValueError(f"result_ttl_s is {self.result_ttl_s!r}; it must be whole seconds from 0 to {YEAR_S}")
        if self.once and not _has_inbox():
            raise ValueError("once=True needs a table: add 'rsmq_django.outbox' to INSTALLED_APPS and migrate")
        if self.unique is not None and not isinstance(self.unique, Unique):
            raise ValueError(f"unique is {self.unique!r}; it must be a Unique(...)")
        _check_seconds("expires_in_s", self.expires_in_s)
        _check_tags(self.tags)
        if isinstance(self.aliases, str) or not all(isinstance(each, str) and each for each in self.aliases):
            raise ValueError(f"aliases is {self.aliases!r}; it must be a list of dotted paths")
        check_is_list(self.fair_by, option="fair_by")
        check_is_list(self.shard_by, option="shard_by")
        check_limits(self.limits)
        _check_batch(self)
        if self.ack not in get_args(Ack):
            raise ValueError(f"ack is {self.ack!r}; it must be 'batch' or 'each'")
        if self.durability not in (None, False) and not isinstance(self.durability, Durability):
            raise ValueError(f"durability is {self.durability!r}; it must be a Durability(...), False or None")
        _check_classes("retry_on", self.retry_on)
        _check_classes("give_up_on", self.give_up_on)
        if not callable(self.backoff):
            raise ValueError(wrong_backoff(self.backoff))

    @property
    def named_dead_letters(self) -> str | None:
        """Return the dead-letter queue of these options; None if they do not set one."""
        return self.dead_letter_queue if isinstance(self.dead_letter_queue, str) else None

    def retry_policy(self, default_max_attempts: int) -> RetryPolicy:
        """Return the retry policy; `default_max_attempts` comes from the queue's settings."""
        return RetryPolicy(
            max_attempts=self.max_attempts or default_max_attempts,
            backoff=self.backoff,
            retry_on=_as_tuple(self.retry_on),
            give_up_on=_as_tuple(self.give_up_on),
        )


def _has_inbox() -> bool:
    # Not from the app registry: tasks are declared while it is being filled.
    return any(name.startswith("rsmq_django.outbox") for name in settings.INSTALLED_APPS)


def _as_tuple(classes: ExceptionClasses) -> tuple[type[BaseException], ...]:
    return classes if isinstance(classes, tuple) else (classes,)


def is_number_of_attempts(value: object) -> TypeGuard[int]:
    """Return whether this is a valid maximum number of attempts."""
    return is_whole(value) and 1 <= value <= MOST_ATTEMPTS


def is_tag(value: object) -> bool:
    """Return whether this is a valid tag."""
    return isinstance(value, str) and 1 <= len(value) <= MAX_TAG_LENGTH and value.isprintable()


def _check_tags(tags: Sequence[str]) -> None:
    if isinstance(tags, str):
        raise ValueError(f"tags is the text {tags!r}; write a list, tags=[{tags!r}]")
    for tag in tags:
        if not is_tag(tag):
            raise ValueError(f"tags has {tag!r}; a tag is a text of 1 to {MAX_TAG_LENGTH} printable characters")


def _check_batch(options: TaskOptions) -> None:
    size = options.batch
    if size is None:
        return
    if not is_whole(size) or not 1 <= size <= MAX_BATCH:
        raise ValueError(f"batch is {size!r}; it must be a whole number from 1 to {MAX_BATCH}")
    if options.once:
        raise ValueError("once=True notes each call in a transaction of its own, which a batch has not; leave one out")


def _check_classes(name: str, classes: ExceptionClasses) -> None:
    for each in _as_tuple(classes):
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise ValueError(f"{name} has {each!r}; it must be an exception class or a tuple of them")


def _check_seconds(name: str, value: float | None) -> None:
    if value is None:
        return
    if not is_number(value) or not LEAST_SECONDS <= value <= MAX_SECONDS:
        raise ValueError(f"{name} is {value!r}; it must be seconds from {LEAST_SECONDS} to {MAX_SECONDS}")


def _is_kept_time(value: object) -> bool:
    return is_whole(value) and 0 <= value <= YEAR_S
