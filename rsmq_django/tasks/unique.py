"""Unique tasks: equal calls are enqueued once.

Which calls are equal is a key of their arguments; a lock in Redis names the existing message. The lock is
only a pointer: the script that sends checks in the same step whether that message still exists, so a message that
was purged, moved or lost can never block later calls, even if a process died in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from ..core.keys import QueueKeys, queue_keys, result_key, unique_key
from ..core.limits import YEAR_S
from ..core.numbers import is_number
from ..core.transport.call import Argument, Call
from .call_key import By, bound_arguments, call_key, check_is_list, check_names, key_text

Scope = Literal["pending", "running", "window"]
Mode = Literal["reject", "replace", "debounce"]

#: Time to live of a lock. It is removed when its message ends, and ignored without its message, even before that.
LOCK_TTL_MS = 30 * 86_400_000
MAX_DIGEST_LENGTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """The rule for duplicates: which calls of a task are equal, until when, and what to do with the next one.

    `by`: names of the arguments that distinguish calls, or a function of the arguments that returns a value JSON can
    represent; default: all arguments.

    `scope`: "pending", until a worker takes it; "running" (default), until it has ended, retries included; "window",
    for `window_s` seconds from the first call, regardless of its outcome.

    `mode`: "reject" (default) drops the new call: its result is that of the existing call. "replace" replaces an
    existing call that no worker has received yet, and drops the new call later. "debounce" does the same and delays
    each call by `window_s`, so that only the last of a burst runs, after `window_s` without a new call, or `max_wait_s`
    after the first call. A member of a workflow is not replaced: the new call is dropped.
    """

    by: By | None = None
    scope: Scope = "running"
    mode: Mode = "reject"
    window_s: float | None = None
    max_wait_s: float | None = None

    def __post_init__(self) -> None:
        _check_word("scope", self.scope, ("pending", "running", "window"))
        _check_word("mode", self.mode, ("reject", "replace", "debounce"))
        needs_window = self.scope == "window" or self.mode == "debounce"
        if needs_window and not _is_time(self.window_s):
            raise ValueError(
                f"window_s is {self.window_s!r}; scope 'window' and mode 'debounce' need seconds above 0, "
                f"at most {YEAR_S}"
            )
        if self.window_s is not None and not needs_window:
            raise ValueError("window_s has no meaning without scope 'window' or mode 'debounce'; leave it out")
        if self.scope == "window" and self.mode == "debounce":
            raise ValueError("mode 'debounce' begins its window again with each call; leave scope='window' out")
        if self.max_wait_s is not None and self.mode != "debounce":
            raise ValueError("max_wait_s has no meaning without mode 'debounce'; leave it out")
        if self.max_wait_s is not None and not _is_time(self.max_wait_s):
            raise ValueError(f"max_wait_s is {self.max_wait_s!r}; it must be seconds above 0, at most {YEAR_S}")
        check_is_list(self.by)

    def check(self, function: Callable[..., Any], path: str) -> None:
        """Raise ValueError when `by` names an argument that the function does not take."""
        check_names(self.by, function, path, what="unique")

    def digest(
        self,
        function: Callable[..., Any],
        path: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        takes_context: bool = False,
    ) -> str:
        """Return the digest of a call, equal for equal calls. Raises TypeError for arguments that do not fit."""
        key = self._key(function, args, kwargs, takes_context=takes_context)
        text = key_text([path, key], what=f"makes {path} unique")
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _key(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, takes_context: bool
    ) -> Any:
        if self.by is None:
            return bound_arguments(function, args, kwargs, takes_context=takes_context)
        return call_key(self.by, function, args, kwargs, takes_context=takes_context)


def _is_time(seconds: object) -> bool:
    """Return whether this is a number of seconds above 0; a time that Redis cannot hold fails after the commit."""
    return is_number(seconds) and 0 < seconds <= YEAR_S


def _check_word(option: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise ValueError(f"{option} is {word!r}; it must be one of {', '.join(map(repr, words))}")


# -- Sending ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holder:
    """The call that the lock names."""

    task_id: str
    queue_name: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The outcome of sending a unique call: its current task id and message."""

    task_id: str
    message_id: str
    is_duplicate: bool
    #: The id of the task that it has replaced; "" for none.
    replaced: str = ""
    #: The tags of that task (JSON).
    replaced_tags: str = ""


@dataclass(slots=True, kw_only=True)
class UniqueCall:
    """One prepared call of a unique task."""

    unique: Unique
    namespace: str
    queue_name: str
    keys: QueueKeys
    channel: str
    delay: Argument
    digest: str
    task_id: str
    body: bytes
    unfinished_ttl_s: int
    keeps_result: bool
    #: Whether it is a member of a workflow, which no other call replaces.
    is_member: bool
    tags: Sequence[str]

    def call(self, holder: Holder | None) -> Call[Accepted | Holder]:
        """Return the Redis call. Its result is a `Holder` if the call must be repeated with the keys of that holder.

        A script may use only keys that it was given, so it needs the keys of the holder's message.
        """
        keys = [self.keys.messages, self.keys.settings, unique_key(self.namespace, self.digest)]
        keys.append(result_key(self.namespace, self.task_id))
        if holder is not None:
            of_holder = queue_keys(self.namespace, holder.queue_name)
            keys += (of_holder.messages, of_holder.settings, result_key(self.namespace, holder.task_id))
        unique = self.unique
        args: tuple[Argument, ...] = (
            self.delay,
            self.channel,
            self.unfinished_ttl_s if self.keeps_result else 0,
            self.queue_name,
            self.task_id,
            self.body,
            unique.scope,
            unique.mode,
            round((unique.window_s or 0) * 1000),
            round((unique.max_wait_s or 0) * 1000),
            LOCK_TTL_MS,
            holder.task_id if holder else "",
        )
        if self.is_member or self.tags:
            args += (int(self.is_member), json.dumps(list(self.tags)) if self.tags else "")
        return Call("tasks/enqueue_unique", tuple(keys), args, self._read, subject=self.queue_name)

    def _read(self, reply: list[bytes]) -> Accepted | Holder:
        word, task_id, *rest = (value.decode("utf-8", "backslashreplace") for value in reply)
        if word == "look":
            return Holder(task_id, rest[0])
        return Accepted(task_id, rest[0], word == "duplicate", *rest[1:3])


def is_digest(value: object) -> TypeGuard[str]:
    """Return whether this is a valid digest of a lock: ours are 32 hex digits, other senders may use other texts."""
    return isinstance(value, str) and 1 <= len(value) <= MAX_DIGEST_LENGTH and value.isprintable()


def unlock(namespace: str, keys: QueueKeys, locks: Sequence[tuple[str, str]]) -> Call[int]:
    """Return the call that removes the locks (message id, digest) of messages that have ended."""
    all_keys = (keys.messages, *(unique_key(namespace, digest) for _, digest in locks))
    return Call("tasks/unlock", all_keys, tuple(message_id for message_id, _ in locks), int, repeatable=True)
