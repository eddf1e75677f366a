"""Workflows in Redis: members, and the calls that are sent when members have ended.

Each function returns a `Call`. The state of a workflow is described in tasks/lua/workflow/parts/state.lua. Independent
of tasks: the sender provides complete bodies; values and failures are JSON that this module does not parse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from ..keys import queue_keys, result_key, workflow_keys, workflows_key
from ..transport.call import Argument, Call

T = TypeVar("T")

#: Maximum number of listed workflows; an id takes about a hundred bytes.
MAX_LISTED = 1000
#: The maximum number of members of a workflow; a larger number in Redis is not that of a workflow.
MAX_MEMBERS = 10_000_000

Role = Literal["next", "then", "on_failure"]


@dataclass(frozen=True, slots=True)
class Target:
    """A message that is sent when a member has ended: its next step, or a callback."""

    role: Role
    #: Its field in the hash of steps.
    field: str
    task_id: str
    queue_name: str
    #: Channel for the wake-up: that of the queue, also for a priority band.
    channel: str
    #: "@" and the queue, if its task may be settled from that queue only.
    owner: str = ""


def target_keys(namespace: str, targets: Sequence[Target]) -> tuple[str, ...]:
    """Return the keys that tasks/workflow/parts/sending.lua reads."""
    keys: list[str] = []
    for target in targets:
        queue = queue_keys(namespace, target.queue_name)
        keys += (queue.messages, queue.settings, result_key(namespace, target.task_id))
    return tuple(keys)


def target_words(targets: Sequence[Target]) -> tuple[Argument, ...]:
    """Return the arguments that tasks/workflow/parts/sending.lua reads."""
    words: list[Argument] = [len(targets)]
    for each in targets:
        words += (each.role, each.field, each.task_id, each.queue_name, each.channel, each.owner)
    return tuple(words)


def create(
    namespace: str, workflow_id: str, *, keep_ms: int, fields: Mapping[str, str], queue_names: Sequence[str]
) -> Call[list[str]]:
    """Return the call that creates a workflow; its result are the names of its queues that do not exist.

    `fields` are further fields of its state.
    """
    keys = [workflow_keys(namespace, workflow_id)[0], workflows_key(namespace)]
    keys += [queue_keys(namespace, name).settings for name in queue_names]
    words = [word for field in fields.items() for word in field]

    def read(missing: list[int]) -> list[str]:
        return [queue_names[position] for position in missing]

    return script_call("create", keys, (workflow_id, MAX_LISTED, keep_ms, *words), read)


@dataclass(frozen=True, slots=True)
class MemberBatch:
    """First calls of members that go to one queue."""

    queue_name: str
    channel: str
    #: Milliseconds, or the unit of the queue's own delay.
    delay: Argument
    #: How long an unfinished record is kept; 0 for none.
    record_ttl_s: int
    #: Number of the member, id of the task, body.
    calls: Sequence[tuple[int, str, bytes]]
    #: "@" and the queue, if members may be settled from that queue only: an unsigned call must not end a signed one.
    owner: str = ""


def start(
    namespace: str,
    workflow_id: str,
    *,
    keep_ms: int,
    calls: int,
    fields: Mapping[str, str],
    steps: Sequence[tuple[str, bytes]],
    later_queues: Sequence[str],
    batches: Sequence[MemberBatch],
) -> Call[list[str]]:
    """Return the call that creates, sends and seals a workflow; or does nothing when queues do not exist.

    See create() and prepare(). `calls` is the number of calls of all members.
    """
    keys = [*workflow_keys(namespace, workflow_id), workflows_key(namespace)]
    keys += [queue_keys(namespace, name).settings for name in later_queues]
    words: list[Argument] = [workflow_id, MAX_LISTED, keep_ms, calls]
    words += (len(fields), *(word for field in fields.items() for word in field))
    words += (len(steps), *(word for step in steps for word in step))
    words += (len(later_queues), *later_queues)
    for batch in batches:
        queue = queue_keys(namespace, batch.queue_name)
        keys += (queue.messages, queue.settings)
        if batch.record_ttl_s:
            keys += [result_key(namespace, task_id) for _, task_id, _ in batch.calls]
        words += (batch.queue_name, batch.channel, batch.delay, batch.record_ttl_s, len(batch.calls), batch.owner)
        words += [word for each in batch.calls for word in each]

    def read(missing: list[bytes]) -> list[str]:
        return [text_of(name) for name in missing]

    return script_call("start", keys, words, read)


def prepare(namespace: str, workflow_id: str, steps: Sequence[tuple[str, bytes]]) -> Call[bool]:
    """Return the call that stores messages to be sent later, in the format of parts/state.lua."""
    return script_call("prepare", workflow_keys(namespace, workflow_id), tuple(w for step in steps for w in step), bool)


def expect(namespace: str, workflow_id: str, *, first: int, calls: int, task_ids: Sequence[str]) -> Call[int]:
    """Return the call that registers members before a send; its result is the number of unfinished ones, or -1."""
    return script_call("expect", workflow_keys(namespace, workflow_id), (first, calls, *task_ids), int)


def skip(
    namespace: str, workflow_id: str, member: int, task_id: str, targets: Sequence[Target], value: str = "null"
) -> Call[bool]:
    """Return the call that makes a member succeed without being sent."""
    keys = (*workflow_keys(namespace, workflow_id), *target_keys(namespace, targets))
    return script_call("skip", keys, (member, task_id, *target_words(targets), value), bool)


def seal(
    namespace: str, workflow_id: str, *, members: int, targets: Sequence[Target], fields: Mapping[str, str]
) -> Call[bool]:
    """Return the call that seals a workflow: no members can be added. `fields` are further fields of its state."""
    keys = (*workflow_keys(namespace, workflow_id), *target_keys(namespace, targets))
    words = [word for field in fields.items() for word in field]
    return script_call("seal", keys, (members, *target_words(targets), *words), bool)


def stop(namespace: str, workflow_id: str) -> Call[bool]:
    """Return the call that stops a workflow: it sends nothing more; its result is False when it had ended."""
    return script_call("stop", workflow_keys(namespace, workflow_id), (), bool)


def await_room(namespace: str, workflow_id: str, *, low: int) -> Call[int]:
    """Return the call that requests a token for when `low` members are left; its result is how many are, or -1."""
    return script_call("await_room", workflow_keys(namespace, workflow_id), (low,), int)


def room_key(namespace: str, workflow_id: str) -> str:
    """Return the key of the list with that token."""
    return workflow_keys(namespace, workflow_id)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a member: its number, its task, the value or failure record (JSON), and the next messages to send."""

    namespace: str
    workflow_id: str
    member: int
    task_id: str
    said: str
    targets: Sequence[Target]


def advancing(call: Call[T], end: End) -> Call[T]:
    """Return `call`, which ends a message, with what its script needs to advance the workflow, too."""
    keys = (*workflow_keys(end.namespace, end.workflow_id), *target_keys(end.namespace, end.targets))
    words = ("", len(call.keys), end.said, end.member, end.task_id, *target_words(end.targets))
    return replace(call, keys=(*call.keys, *keys), args=(*words, *call.args))


def script_call(script: str, keys: Sequence[str], args: Sequence[Argument], read: Any) -> Call[Any]:
    """Return the call of a script about a workflow, which may be repeated."""
    return Call(f"tasks/workflow/{script}", tuple(keys), tuple(args), read, repeatable=True)


def text_of(word: bytes) -> str:
    """Return a text of any program."""
    return word.decode("utf-8", "backslashreplace")
