"""The state of workflows and of their members, read from Redis.

Each function returns a `Call`. Any program may have written the values: readers accept all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..keys import workflow_keys, workflows_key
from ..limits import MAX_BATCH
from ..numbers import read_count
from ..transport.call import Call
from .workflows import MAX_LISTED, MAX_MEMBERS, script_call, text_of

#: The maximum length of a field of a workflow's state. The longest is the shape: 144 paths of 200 characters.
MAX_FIELD_BYTES = 262_144
State = Literal["running", "succeeded", "failed", "cancelled"]
#: Fields of the state, by the role of the callback.
MEMBER_PROOFS = {"then_members": "then", "on_failure_members": "on_failure"}
NUMBERS = ("calls", "calls_done", "failed", "succeeded", "sent", "created_ms", "finished_ms")
#: The fields of the state that are read.
FIELDS = ("status", "kind", "name", "sealed", "then", "on_failure", "keeps", "shape", *NUMBERS)


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


def without_proofs(word: bytes) -> bytes:
    """Return the JSON of a value or failure record. The proofs for sealed queues, one per line, are removed."""
    return word.partition(b"\n")[0]


def proofs_of(word: bytes) -> list[str]:
    """Return the proofs that follow the JSON of a value or failure record."""
    return [text_of(proof) for proof in word.split(b"\n")[1:]]


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

    return script_call("slice", workflow_keys(namespace, workflow_id)[1:4], (first, last, value_bytes), read)


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
    return script_call("unfinished", (keys[1], keys[3], keys[4]), (most,), read)


def read_later(namespace: str, workflow_id: str, fields: Sequence[str], *, body_bytes: int) -> Call[list[bytes]]:
    """Return the call that reads the beginnings of bodies that are sent later; b"" for a body that was sent."""
    assert len(fields) <= MAX_BATCH
    return script_call("later", (workflow_keys(namespace, workflow_id)[4],), (body_bytes, *fields), list)


def _failure_of(word: bytes) -> tuple[str, bytes]:
    task_id, _, record = word.partition(b" ")
    return _task_id(task_id), without_proofs(record)


def _task_id(word: bytes) -> str:
    """Return the id of a member's current task, without the queue that it must be settled from."""
    return text_of(word.partition(b"@")[0])


def read_statuses(namespace: str, workflow_ids: Sequence[str]) -> Call[list[WorkflowStatus | None]]:
    """Return the call that reads the states of workflows; None for a workflow that does not exist any more."""

    def read(reply: list[list[bytes]]) -> list[WorkflowStatus | None]:
        return [_status(each, words) for each, words in zip(workflow_ids, reply, strict=True)]

    keys = [workflow_keys(namespace, each)[0] for each in workflow_ids]
    return script_call("read", keys, (MAX_FIELD_BYTES, *FIELDS), read)


def newest(namespace: str, count: int) -> Call[list[str]]:
    """Return the call that reads the ids of the latest workflows, newest first."""
    keys, args = (workflows_key(namespace),), (0, min(count, MAX_LISTED) - 1)
    return Call("ZREVRANGE", keys, args, lambda ids: [text_of(each) for each in ids], repeatable=True)


def _status(workflow_id: str, words: list[bytes]) -> WorkflowStatus | None:
    fields = {text_of(name): text_of(value) for name, value in zip(words[::2], words[1::2], strict=True)}
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
