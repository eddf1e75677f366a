"""Workflows in Redis: members, and the calls that are sent when members have ended.

Each function returns a `Call`. The state of a workflow is described in tasks/lua/workflow/parts/state.lua. Independent
of tasks: the sender provides complete bodies; values and failures are JSON that this module does not parse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from ..keys import queue_keys, result_key, workflow_keys, workflows_key
from ..limits import MAX_BATCH
from ..numbers import read_count
from ..transport.call import Argument, Call

T = TypeVar("T")

#: Maximum number of listed workflows; an id takes about a hundred bytes.
MAX_LISTED = 1000
#: The maximum number of members of a workflow; a larger number in Redis is not that of a workflow.
MAX_MEMBERS = 10_000_000
#: The maximum length of a field of a workflow's state. The longest is the shape: 144 paths of 200 characters.
MAX_FIELD_BYTES = 262_144

State = Literal["running", "succeeded", "failed", "cancelled"]
Role = Literal["next", "then", "on_failure"]


@dataclass(frozen=True, slots=True)
class WorkflowStatus:
    """The state and progress of a workflow."""

    id: str
    #: "chain", "group" or "map".
    kind: str
    name: str
    #: "running" even before its first member starts; "failed" when all have ended and some have failed.
    state: State
    #: Number of calls so far: the steps of a chain, the members of a group, and the steps of chains in it.
    total: int
    #: Number of these calls that have succeeded.
    done: int
    #: Number of members that have failed for good.
    failed: int
    #: Number of members: one for a chain.
    members: int
    #: Number of members that have neither succeeded nor failed.
    waiting: int
    #: False while its sender may still add members.
    is_sealed: bool
    created_ms: int
    finished_ms: int | None
    #: Task ids of the callbacks; "" without a callback.
    then_id: str
    on_failure_id: str
    keeps_results: bool
    #: Its tasks (JSON), as its sender wrote them; "" for an older version.
    shape: str = ""

    @property
    def is_over(self) -> bool:
        """Return whether the workflow has ended; a redrive of a failed member starts it again."""
        return self.state != "running"


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The state of one member, for display."""

    number: int
    #: Id of its current task; "" when it has ended.
    task_id: str
    #: Its result (JSON), or the beginning of it; b"" without a result, or when results are not kept.
    value: bytes
    value_bytes: int
    #: The id of its failed task, and the failure record (JSON); "" and b"" when it has not failed.
    failed_task_id: str
    failure: bytes


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


def without_proofs(word: bytes) -> bytes:
    """Return the JSON of a value or failure record. The proofs for sealed queues, one per line, are removed."""
    return word.partition(b"\n")[0]


def proofs_of(word: bytes) -> list[str]:
    """Return the proofs that follow the JSON of a value or failure record."""
    return [_text(proof) for proof in word.split(b"\n")[1:]]


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

    return _call("create", keys, (workflow_id, MAX_LISTED, keep_ms, *words), read)


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
        return [_text(name) for name in missing]

    return _call("start", keys, words, read)


def prepare(namespace: str, workflow_id: str, steps: Sequence[tuple[str, bytes]]) -> Call[bool]:
    """Return the call that stores messages to be sent later, in the format of parts/state.lua."""
    return _call("prepare", workflow_keys(namespace, workflow_id), tuple(w for step in steps for w in step), bool)


def expect(namespace: str, workflow_id: str, *, first: int, calls: int, task_ids: Sequence[str]) -> Call[int]:
    """Return the call that registers members before a send; its result is the number of unfinished ones, or -1."""
    return _call("expect", workflow_keys(namespace, workflow_id), (first, calls, *task_ids), int)


def skip(
    namespace: str, workflow_id: str, member: int, task_id: str, targets: Sequence[Target], value: str = "null"
) -> Call[bool]:
    """Return the call that makes a member succeed without being sent."""
    keys = (*workflow_keys(namespace, workflow_id), *target_keys(namespace, targets))
    return _call("skip", keys, (member, task_id, *target_words(targets), value), bool)


def seal(
    namespace: str, workflow_id: str, *, members: int, targets: Sequence[Target], fields: Mapping[str, str]
) -> Call[bool]:
    """Return the call that seals a workflow: no members can be added. `fields` are further fields of its state."""
    keys = (*workflow_keys(namespace, workflow_id), *target_keys(namespace, targets))
    words = [word for field in fields.items() for word in field]
    return _call("seal", keys, (members, *target_words(targets), *words), bool)


def stop(namespace: str, workflow_id: str) -> Call[bool]:
    """Return the call that stops a workflow: it sends nothing more; its result is False when it had ended."""
    return _call("stop", workflow_keys(namespace, workflow_id), (), bool)


def await_room(namespace: str, workflow_id: str, *, low: int) -> Call[int]:
    """Return the call that requests a token for when `low` members are left; its result is how many are, or -1."""
    return _call("await_room", workflow_keys(namespace, workflow_id), (low,), int)


def room_key(namespace: str, workflow_id: str) -> str:
    """Return the key of the list with that token."""
    return workflow_keys(namespace, workflow_id)[-1]


def live_tasks(namespace: str, workflow_id: str, cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the call that reads a slice of the unfinished tasks, and the next cursor (b"0" at the end)."""

    def read(reply: tuple[bytes, list[bytes]]) -> tuple[bytes, list[str]]:
        following, members = reply
        return following, [_task_id(task_id) for task_id in members[1::2]]

    keys = workflow_keys(namespace, workflow_id)[1:2]
    return Call("HSCAN", keys, (cursor, "COUNT", 500), read, repeatable=True)


def read_members(
    namespace: str, workflow_id: str, first: int, last: int, *, value_bytes: int
) -> Call[list[MemberRecord]]:
    """Return the call that reads the states of members, with the beginnings of their results."""
    assert 0 <= last - first < MAX_BATCH

    def read(reply: list[Any]) -> list[MemberRecord]:
        rows = [reply[at : at + 4] for at in range(0, len(reply), 4)]
        return [
            MemberRecord(first + n, _task_id(task_id), without_proofs(value), size, *_failure_of(failure))
            for n, (task_id, value, size, failure) in enumerate(rows)
        ]

    return _call("slice", workflow_keys(namespace, workflow_id)[1:4], (first, last, value_bytes), read)


def read_failed(namespace: str, workflow_id: str, cursor: bytes) -> Call[tuple[bytes, list[MemberRecord]]]:
    """Return the call that reads a slice of the failed members, and the next cursor (b"0" at the end)."""

    def read(reply: tuple[bytes, list[bytes]]) -> tuple[bytes, list[MemberRecord]]:
        following, words = reply
        pairs = zip(words[::2], words[1::2], strict=True)
        return following, [
            MemberRecord(read_count(number), "", b"", 0, *_failure_of(failure)) for number, failure in pairs
        ]

    keys = workflow_keys(namespace, workflow_id)[3:4]
    return Call("HSCAN", keys, (cursor, "COUNT", 100), read, repeatable=True)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The members and steps of a workflow that have not succeeded. The lists are None when one of them is too long."""

    members: list[int] | None
    failed: list[int] | None
    #: Member and step of each message that was not sent yet.
    steps: list[tuple[int, int]] | None


def read_unfinished(namespace: str, workflow_id: str, *, most: int) -> Call[Unfinished]:
    """Return the call that reads the numbers of members and steps that have not succeeded, up to `most` of each."""

    def read(reply: list[list[bytes]]) -> Unfinished:
        if not reply:
            return Unfinished(None, None, None)
        members, failed, steps = reply
        places = [field.split(b".") for field in steps if field.count(b".") == 1]
        return Unfinished(
            [read_count(each) for each in members],
            [read_count(each) for each in failed],
            [(read_count(member), read_count(step)) for member, step in places],
        )

    keys = workflow_keys(namespace, workflow_id)
    return _call("unfinished", (keys[1], keys[3], keys[4]), (most,), read)


def read_later(namespace: str, workflow_id: str, fields: Sequence[str], *, body_bytes: int) -> Call[list[bytes]]:
    """Return the call that reads the beginnings of bodies that are sent later; b"" for a body that was sent."""
    assert len(fields) <= MAX_BATCH
    return _call("later", (workflow_keys(namespace, workflow_id)[4],), (body_bytes, *fields), list)


def _failure_of(word: bytes) -> tuple[str, bytes]:
    task_id, _, record = word.partition(b" ")
    return _task_id(task_id), without_proofs(record)


def _task_id(word: bytes) -> str:
    """Return the id of a member's current task, without the queue that it must be settled from."""
    return _text(word.partition(b"@")[0])


def read_statuses(namespace: str, workflow_ids: Sequence[str]) -> Call[list[WorkflowStatus | None]]:
    """Return the call that reads the states of workflows; None for a workflow that does not exist any more."""

    def read(reply: list[list[bytes]]) -> list[WorkflowStatus | None]:
        return [_status(each, words) for each, words in zip(workflow_ids, reply, strict=True)]

    keys = [workflow_keys(namespace, each)[0] for each in workflow_ids]
    return _call("read", keys, (MAX_FIELD_BYTES, *FIELDS), read)


def newest(namespace: str, count: int) -> Call[list[str]]:
    """Return the call that reads the ids of the latest workflows, newest first."""
    keys, args = (workflows_key(namespace),), (0, min(count, MAX_LISTED) - 1)
    return Call("ZREVRANGE", keys, args, lambda ids: [_text(each) for each in ids], repeatable=True)


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


def _call(script: str, keys: Sequence[str], args: Sequence[Argument], read: Any) -> Call[Any]:
    return Call(f"tasks/workflow/{script}", tuple(keys), tuple(args), read, repeatable=True)


def _text(word: bytes) -> str:
    return word.decode("utf-8", "backslashreplace")


def _status(workflow_id: str, words: list[bytes]) -> WorkflowStatus | None:
    fields = {_text(name): _text(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    if "status" not in fields:
        return None
    number = {name: read_count(fields.get(name)) for name in NUMBERS}
    state: Any = fields["status"]
    members = number["sent"] if number["sent"] <= MAX_MEMBERS else 0
    return WorkflowStatus(
        id=workflow_id,
        kind=fields.get("kind", ""),
        name=fields.get("name", ""),
        state=state,
        total=number["calls"],
        done=number["calls_done"],
        failed=number["failed"],
        members=members,
        waiting=max(0, members - number["succeeded"] - number["failed"]),
        is_sealed=fields.get("sealed") == "1",
        created_ms=number["created_ms"],
        finished_ms=number["finished_ms"] or None,
        then_id=fields.get("then", ""),
        on_failure_id=fields.get("on_failure", ""),
        keeps_results=fields.get("keeps") == "1",
        shape=fields.get("shape", ""),
    )


#: Fields of the state, by the role of the callback.
MEMBER_PROOFS = {"then_members": "then", "on_failure_members": "on_failure"}
NUMBERS = ("calls", "calls_done", "failed", "succeeded", "sent", "created_ms", "finished_ms")
#: The fields of the state that are read.
FIELDS = ("status", "kind", "name", "sealed", "then", "on_failure", "keeps", "shape", *NUMBERS)
