"""The doctor's script calls as data: what to send for each, and how to read the reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..keys import QueueKeys, workflow_keys
from ..limits import MAX_SECONDS
from ..queue.replies import read_message_id
from ..transport.call import Argument, Call
from .finding import ExpectedQueue

#: Maximum time that a client needs between the two steps of a send; data unchanged for longer is incomplete.
GRACE_S = 5.0
#: A sender of a chain or group sends all of it within seconds.
UNSENT_AFTER_S = 5 * 60
#: The sender of a map may wait for an item, or for a member that runs for hours.
STUCK_AFTER_S = 6 * 3600
#: Members may take that long. A delayed member extends the life of its workflow, which is then not idle.
QUIET_AFTER_S = 24 * 3600
#: Messages or fields that one script reads: a few milliseconds during which other clients wait.
LOOKED_AT_A_TIME = 500
#: Messages that one script repairs: it writes several times for each, and copies bodies.
REPAIRED_AT_A_TIME = 100

#: The subject of a finding about several workflows.
ALL_WORKFLOWS = "workflows"
ATTRIBUTES = ("vt", "delay", "maxsize", "created", "modified", "totalrecv", "totalsent")


@dataclass(frozen=True, slots=True)
class Facts:
    """The result of read_facts(): facts about a queue."""

    index_type: str
    hash_type: str
    #: The shorter time to live of the two keys; None when neither expires.
    expires_ms: int | None
    #: Stored text of each attribute that exists.
    attributes: dict[str, str]
    fields: int
    messages: int
    scores_in_seconds: int
    scores_in_microseconds: int
    scores_too_late: int
    phantoms_removed: int
    last_phantom: str
    first_ids: tuple[str, ...]

    @property
    def has_index(self) -> bool:
        """Return whether there are messages."""
        return self.index_type == "zset"

    @property
    def has_hash(self) -> bool:
        """Return whether there are attributes or bodies."""
        return self.hash_type == "hash"

    @property
    def has_right_types(self) -> bool:
        """Return whether no other program uses one of the two keys."""
        return self.index_type in ("none", "zset") and self.hash_type in ("none", "hash")


def read_facts(keys: QueueKeys) -> Call[Facts]:
    """Return the call that reads the facts about a queue that need no walk through its messages."""
    longest_ms = MAX_SECONDS * 1000
    return Call("doctor/facts", (keys.messages, keys.settings, keys.phantoms), (longest_ms,), _read_facts, True)


def _read_facts(reply: list[Any]) -> Facts:
    lives = [life for life in reply[2:4] if life >= 0]
    stored = zip(ATTRIBUTES, reply[4:11], strict=True)
    return Facts(
        index_type=reply[0].decode(),
        hash_type=reply[1].decode(),
        expires_ms=min(lives, default=None),
        attributes={name: read_message_id(value) for name, value in stored if value is not None},
        fields=reply[11],
        messages=reply[12],
        scores_in_seconds=reply[13],
        scores_in_microseconds=reply[14],
        scores_too_late=reply[15],
        phantoms_removed=reply[16],
        last_phantom=read_message_id(reply[17]),
        first_ids=tuple(map(read_message_id, reply[18:])),
    )


@dataclass(frozen=True, slots=True)
class RunningWorkflow:
    """A workflow that has not ended: how many members it has, and how long it has been idle."""

    id: str
    #: False while its sender may still add members.
    is_sealed: bool
    members: int
    idle_ms: int
    #: Whether it is a map: its sender may wait for its next item for a long time, that of a chain or group does not.
    is_map: bool

    @property
    def is_stuck(self) -> bool:
        """Return whether its sender died before it had sent everything."""
        limit_s = STUCK_AFTER_S if self.is_map else UNSENT_AFTER_S
        return not self.is_sealed and self.idle_ms >= limit_s * 1000


def running_workflows(namespace: str, workflow_ids: Sequence[str]) -> Call[list[RunningWorkflow]]:
    """Return the call that finds which of these workflows have not ended."""

    def read(reply: list[int]) -> list[RunningWorkflow]:
        rows = [reply[at : at + 5] for at in range(0, len(reply), 5)]
        return [
            RunningWorkflow(workflow_ids[at], bool(sealed), members, ms, bool(is_map))
            for at, sealed, members, ms, is_map in rows
        ]

    keys = tuple(workflow_keys(namespace, each)[0] for each in workflow_ids)
    return Call("doctor/running_workflows", keys, (), read, repeatable=True)


def cancel_workflow(namespace: str, state_key: str) -> Call[int]:
    """Return the call that cancels a workflow whose sender died, named by the key of its state."""
    workflow_id = state_key.removeprefix(workflow_keys(namespace, "")[0])
    args = (UNSENT_AFTER_S * 1000, STUCK_AFTER_S * 1000)
    return Call("doctor/cancel_workflow", workflow_keys(namespace, workflow_id), args, int, repeatable=True)


# -- Walking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageSlice:
    """Counts and phantoms of a slice of a queue's messages."""

    cursor: str
    looked: int
    foreign: int
    foreign_id: str
    future: int
    future_id: str
    #: Id and score.
    phantoms: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FieldSlice:
    """Orphaned and unknown fields of a slice of a queue's hash."""

    cursor: str
    looked: int
    unknown: int
    unknown_field: str
    bodies: list[str]
    counters: list[str]


@dataclass(frozen=True, slots=True)
class SideSlice:
    """Stale entries of a slice of our side data."""

    cursor: str
    looked: int
    stale: list[str]


def scan_messages(keys: QueueKeys, cursor: str, *, grace_s: float) -> Call[MessageSlice]:
    """Return the call that reads a slice of the messages."""
    args = (cursor, LOOKED_AT_A_TIME, round(grace_s * 1000))
    return Call("doctor/scan_messages", (keys.messages, keys.settings), args, _read_message_slice, True)


def _read_message_slice(reply: list[Any]) -> MessageSlice:
    words = list(map(read_message_id, reply[6:]))
    return MessageSlice(
        reply[0].decode(),
        reply[1],
        reply[2],
        read_message_id(reply[3]),
        reply[4],
        read_message_id(reply[5]),
        list(zip(words[::2], words[1::2], strict=True)),
    )


def scan_fields(keys: QueueKeys, cursor: str, *, grace_s: float) -> Call[FieldSlice]:
    """Return the call that reads a slice of the hash."""
    args = (cursor, LOOKED_AT_A_TIME, round(grace_s * 1000))
    return Call("doctor/scan_fields", (keys.messages, keys.settings), args, _read_field_slice, True)


def _read_field_slice(reply: list[Any]) -> FieldSlice:
    words = list(map(read_message_id, reply[4:]))
    orphans = list(zip(words[::2], words[1::2], strict=True))
    return FieldSlice(
        reply[0].decode(),
        reply[1],
        reply[2],
        read_message_id(reply[3]),
        [name for kind, name in orphans if kind == "body"],
        [name for kind, name in orphans if kind == "counter"],
    )


def scan_side(keys: QueueKeys, side: str, cursor: str) -> Call[SideSlice]:
    """Return the call that reads a slice of side data whose fields are message ids."""
    return Call("doctor/scan_side", (keys.messages, side), (cursor, LOOKED_AT_A_TIME), _read_side_slice, True)


def _read_side_slice(reply: list[Any]) -> SideSlice:
    return SideSlice(reply[0].decode(), reply[1], list(map(read_message_id, reply[2:])))


# -- Repairs: each script checks again, in the same step, that the repair is still needed -----------------------------


def remove_phantoms(keys: QueueKeys, phantoms: Sequence[tuple[str, str]]) -> Call[int]:
    """Return the call that removes ids without a body."""
    args = tuple(word for phantom in phantoms for word in phantom)
    return _repair("remove_phantoms", (keys.messages, keys.settings, keys.phantoms), args)


def move_orphans(keys: QueueKeys, target: QueueKeys, name: str, ids: Sequence[str]) -> Call[int]:
    """Return the call that moves bodies without an id to the queue `name`, which accepts bodies of any size."""
    all_keys = (keys.messages, keys.settings, target.messages, target.settings, keys.queues)
    return _repair("move_orphans", all_keys, (name, 30, 0, -1, *ids))


def remove_counters(keys: QueueKeys, ids: Sequence[str]) -> Call[int]:
    """Return the call that removes counters that belong to no message."""
    return _repair("remove_counters", (keys.messages, keys.settings), tuple(ids))


def complete(keys: QueueKeys, name: str, expected: ExpectedQueue) -> Call[int]:
    """Return the call that adds missing attributes and lists the queue."""
    return _repair("complete", (keys.messages, keys.settings, keys.queues), (name, *expected.stored.values()))


def unlist(keys: QueueKeys, name: str) -> Call[int]:
    """Return the call that removes the name of a missing queue from the list."""
    return _repair("unlist", (keys.messages, keys.settings, keys.queues), (name,))


def remove_reserved(keys: QueueKeys, name: str) -> Call[int]:
    """Return the call that removes a queue whose messages could never be received."""
    return _repair("remove_reserved", (keys.settings, keys.queues), (name,))


def stop_expiry(keys: QueueKeys) -> Call[int]:
    """Return the call that removes the expiry from the keys of a queue."""
    return _repair("stop_expiry", (keys.messages, keys.settings), ())


def repair_attribute(keys: QueueKeys, field: str, broken: str, value: int) -> Call[int]:
    """Return the call that replaces an attribute."""
    return _repair("repair_attribute", (keys.settings,), (field, broken, value))


def remove_side_data(keys: QueueKeys) -> Call[int]:
    """Return the call that removes our side data of a queue that no longer exists."""
    all_keys = (keys.messages, keys.settings, keys.failures, keys.releases, keys.phantoms)
    return _repair("remove_side_data", all_keys, ())


def remove_side_entries(keys: QueueKeys, side: str, ids: Sequence[str]) -> Call[int]:
    """Return the call that removes our side data of messages that no longer exist."""
    return _repair("remove_side_entries", (keys.messages, side), tuple(ids))


def _repair(script: str, keys: tuple[str, ...], args: tuple[Argument, ...]) -> Call[int]:
    return Call(f"doctor/{script}", keys, args, _read_number, True)


_read_number: Callable[[Any], int] = int
