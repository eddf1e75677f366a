"""Shards: which part of a queue with SHARDS stores a call, and where the call with an id is.

Calls with a key share a shard: it is the CRC-32 of the key's text, modulo the number of shards, which other programs
can compute as well. Calls without a key take the shards in turn. The id of a call begins with the number of its shard,
so that its result is found at once, whatever number of shards the queue has by then.
"""

from __future__ import annotations

import itertools
import random
import string
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ..conf.settings import get_settings
from ..core import Client
from ..core.limits import MOST_SHARDS
from ..queues import get_client
from .call_key import By, bound_arguments, call_key, key_text
from .compat import InvalidTask
from .lanes import CallArguments, lane_of_call

if TYPE_CHECKING:
    from .task import Task

#: The digits of the number of a shard in an id.
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
#: The turn of the next call without a key.
_turns = itertools.count(random.randrange(1 << 16))  # noqa: S311 - spreads load


# -- The key of a task's calls ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardKey:
    """What decides in which shard a call is."""

    #: The option it comes from, for errors.
    option: str
    #: Names of arguments, or a function of them; None for all arguments, and () for one shard for the whole task.
    by: By | None

    def decides_for(self, other: ShardKey) -> bool:
        """Return whether calls that are equal by the other key are always equal by this one."""
        if self.by == () or other.by is None or self.by is other.by:
            return True
        if self.by is None or callable(self.by) or callable(other.by):
            return False
        return set(self.by) <= set(other.by)

    def text(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the text of the key of a call: a value that is a text itself, else JSON."""
        if self.by is None:
            key: Any = bound_arguments(task.func, args, kwargs, takes_context=task.takes_context)
        elif self.by == ():
            key = task.module_path
        else:
            key = call_key(self.by, task.func, args, kwargs, takes_context=task.takes_context)
            if not callable(self.by) and len(self.by) == 1:
                key = key[0]
        return key if isinstance(key, str) else key_text(key, what=f"chooses a shard for {task.module_path}")

    def __str__(self) -> str:
        if self.by is None:
            return f"{self.option} (all arguments)"
        if self.by == ():
            return f"{self.option} (all calls)"
        return f"{self.option} ({'a function' if callable(self.by) else ', '.join(self.by)})"


def key_of_shard(task: Task[..., Any]) -> ShardKey | None:
    """Return the key that decides the shard of a task's calls; None if none has to be in the same one as another.

    Raises InvalidTask when two options would need different shards for the same call.
    """
    keys = list(_keys(task))
    own = [key for key in keys if key.option == "shard_by"]
    for key in own or keys:
        if all(key.decides_for(other) for other in keys):
            return key
    if not keys:
        return None
    first = (own or keys)[0]
    other = next(other for other in keys if not first.decides_for(other))
    raise InvalidTask(
        f"Task {task.module_path}: queue {task.queue_name!r} has shards, and {first} and {other} would choose "
        "different shards for the same call; use the same arguments in both, or a queue without SHARDS"
    )


def _keys(task: Task[..., Any]) -> Iterator[ShardKey]:
    options = task.options
    if options.shard_by is not None:
        yield _key("shard_by", options.shard_by)
    if options.unique is not None:
        by = options.unique.by
        yield ShardKey("unique", None) if by is None else _key("unique", by)
    for limit in options.limits:
        yield _key(f"the limit {type(limit).__name__}", () if limit.by is None else limit.by)
    if options.fair_by is not None:
        yield _key("fair_by", options.fair_by)


def _key(option: str, by: By) -> ShardKey:
    return ShardKey(option, by if callable(by) else tuple(by))


def check_shards(task: Task[..., Any]) -> None:
    """Raise InvalidTask for a task that cannot be on its queue because the queue has shards."""
    try:
        if not has_shards(task.queue_name):
            return
    except ImproperlyConfigured:
        return  # check_queues() reports a wrong queue
    key_of_shard(task)
    shared = next((limit for limit in task.options.limits if limit.name), None)
    if shared is not None:
        raise InvalidTask(
            f"Task {task.module_path}: queue {task.queue_name!r} has shards, and the limit {shared.name!r} is shared "
            "between tasks, whose calls may be in different shards; use a queue without SHARDS for these tasks"
        )


def check_first_shard(task: Task[..., Any], what: str) -> None:
    """Raise InvalidTask for a task whose calls need a shard of their own, where `what` sends to the first shard."""
    key = next(iter(_keys(task)), None) if has_shards(task.queue_name) else None
    if key is not None and key.option != "fair_by":
        raise InvalidTask(
            f"Task {task.module_path}: queue {task.queue_name!r} has shards, and {what} sends to the first one, while "
            f"{key} decides the shard of other calls; use a queue without SHARDS"
        )


def has_shards(queue_name: str) -> bool:
    """Return whether a queue has more than one shard. Raises ImproperlyConfigured for an unknown queue."""
    return get_settings().queue(queue_name).shards > 1


# -- The shard of a call ----------------------------------------------------------------------------------------------


def shard_of_key(text: str, shards: int) -> int:
    """Return the number of the shard for the text of a key."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % shards


def shard_of_call(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the shard for a new call; None for a queue without shards.

    Raises TypeError for arguments that the function does not take, and for a key that JSON cannot represent, and
    the exceptions of a function that returns the key.
    """
    shards = get_settings().queue(task.queue_name).shards
    if shards == 1:
        return None
    key = key_of_shard(task)
    return next(_turns) % shards if key is None else shard_of_key(key.text(task, args, kwargs), shards)


def by_destination(
    task: Task[..., Any], calls: Sequence[CallArguments]
) -> dict[tuple[int | None, int | None], list[int]]:
    """Return the positions of calls by their lane and shard."""
    if task.options.fair_by is None and not has_shards(task.queue_name):
        return {(None, None): list(range(len(calls)))}
    positions: dict[tuple[int | None, int | None], list[int]] = {}
    for position, (args, kwargs) in enumerate(calls):
        there = lane_of_call(task, args, kwargs), shard_of_call(task, args, kwargs)
        positions.setdefault(there, []).append(position)
    # The lanes of a shard next to each other: they travel together.
    return dict(sorted(positions.items(), key=lambda item: item[0][1] or 0))


# -- Ids --------------------------------------------------------------------------------------------------------------


def id_in_shard(task_id: str, shard: int | None) -> str:
    """Return a random id as one of a call in this shard; unchanged for a queue without shards."""
    if shard is None:
        return task_id
    return f"{_DIGITS[shard // len(_DIGITS)]}{_DIGITS[shard % len(_DIGITS)]}{task_id[2:]}"


def clients_for(task_id: str) -> list[Client]:
    """Return the clients of all connections, first those that probably have the call with this id."""
    settings, shard = get_settings(), _shard_in(task_id)
    connections = settings.connections
    if shard == 0 or len(connections) == len(settings.own_connections):
        return [get_client(alias) for alias in connections]
    found = sorted(connections.values(), key=lambda each: each.shard != shard)
    return [get_client(each.alias) for each in found]


def hint_of_shard(task_id: str) -> str:
    """Return the end of an error about an unknown id: the shard that it names, if the settings leave that one out."""
    settings, shard = get_settings(), _shard_in(task_id)
    known = {connection.shard or 0 for connection in settings.connections.values()}
    if len(known) == 1 or shard in known or shard >= MOST_SHARDS:
        return ""
    return (
        f". Its id names shard {shard}, and the settings have the shards 0 to {max(known)}: raise SHARDS if it was "
        "sent when its queue had more"
    )


def _shard_in(task_id: str) -> int:
    """Return the number of the shard that an id names; 0 for an id that cannot name one."""
    first, second = _DIGITS.find(task_id[:1]), _DIGITS.find(task_id[1:2])
    return 0 if min(first, second) < 0 else first * len(_DIGITS) + second
