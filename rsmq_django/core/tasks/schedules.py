"""Schedules in Redis: due entries, and firing of each tick exactly once with any number of workers.

An entry is a definition (JSON that this module does not read), an owner and a next planned time. Firing compares that
time and changes it in the step that sends the messages: only one of the workers that see the same tick fires it.
Functions here return calls; nothing does I/O.
"""

from __future__ import annotations

import hashlib
import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ids import SUFFIX_LENGTH
from ..keys import QueueKeys, result_key, schedule_keys, tag_key
from ..numbers import bounded, read_epoch_ms
from ..transport.call import Argument, Call

_ALPHABET = string.digits + string.ascii_letters


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry as it is stored."""

    name: str
    definition: str
    #: The program that declares it; "" for one that was added at run time.
    owner: str
    is_paused: bool
    #: Planned time of the next tick in epoch milliseconds; None while it is paused.
    next_ms: int | None
    #: Planned and actual time of the last tick that fired.
    planned_ms: int | None
    fired_ms: int | None
    #: Id of the task that it sent last.
    task_id: str
    fired: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All entries, and the server's time at which they were read."""

    now_ms: int
    entries: dict[str, StoredEntry]


@dataclass(frozen=True, slots=True)
class DueEntry:
    """An entry whose planned time has come."""

    name: str
    planned_ms: int
    definition: str


@dataclass(frozen=True, slots=True)
class DueEntries:
    """The entries that are due at the server's time, and the time of the next one."""

    now_ms: int
    is_synced: bool
    #: None without a later entry.
    next_ms: int | None
    due: list[DueEntry]


@dataclass(frozen=True, slots=True)
class Firing:
    """The ticks of one entry that fire together, and their messages."""

    entry: DueEntry
    next_ms: int
    skipped: int
    #: Planned times of the ticks, with their task ids and message bodies, in order.
    ticks: Sequence[int]
    task_ids: Sequence[str]
    bodies: Sequence[bytes]
    delay_ms: int
    #: Seconds to keep the records of results until they are finished; 0 for no results.
    unfinished_ttl_s: int
    #: Tags of the task, and the milliseconds to keep the ids in them.
    tags: Sequence[str] = ()
    tags_kept_ms: int = 0


def tick_id(namespace: str, name: str, planned_ms: int, secret: str = "") -> str:
    """Return the task id of a tick: the same in every process, so that a repeat can be recognised.

    With a `secret`, only programs that have it can predict the id.
    """
    words = [namespace, name, str(planned_ms), *([secret] if secret else [])]
    number = int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest())
    letters = []
    for _ in range(SUFFIX_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(letters)


def list_entries(namespace: str) -> Call[Listing]:
    """Return the call that reads all entries."""
    return Call("tasks/schedule/list", schedule_keys(namespace), (), _read_listing, repeatable=True)


def find_due(namespace: str, owner: str) -> Call[DueEntries]:
    """Return the call that reads the due entries."""
    return Call("tasks/schedule/due", schedule_keys(namespace), (owner,), _read_moment, repeatable=True)


def put_entry(
    namespace: str, name: str, definition: str, *, seen: str, owner: str, next_ms: int, earlier_stays: bool = False
) -> Call[int]:
    """Return the call that writes an entry; its result is 1 done, 0 changed meanwhile, -1 too many entries.

    With `earlier_stays`, a stored next time before `next_ms` is kept: a due entry stays due, and fires once.
    """
    args = (name, seen, definition, owner, next_ms, int(earlier_stays))
    return Call("tasks/schedule/put", schedule_keys(namespace), args, int, True, name)


def remove_entry(namespace: str, name: str, *, seen: str) -> Call[int]:
    """Return the call that removes an entry; its result is 1 done or gone, 0 changed meanwhile."""
    return Call("tasks/schedule/remove", schedule_keys(namespace), (name, seen), int, True, name)


def pause_entry(namespace: str, name: str) -> Call[int]:
    """Return the call that pauses an entry; its result is 1 done, 0 no such entry."""
    return Call("tasks/schedule/pause", schedule_keys(namespace), (name,), int, True, name)


def plan_entry(namespace: str, entry: StoredEntry, next_ms: int) -> Call[int]:
    """Return the call that sets an entry's next time and ends its pause; its result is 1 done, 0 changed meanwhile."""
    planned: Argument = "" if entry.next_ms is None else entry.next_ms
    args = (entry.name, entry.definition, planned, next_ms)
    return Call("tasks/schedule/plan", schedule_keys(namespace), args, int, True, entry.name)


def note_synced(namespace: str, owner: str) -> Call[int]:
    """Return the call that records that this owner's entries match its code."""
    # The note is lost together with the schedules, because it is in the hash of their fields.
    return Call("HSET", schedule_keys(namespace)[2:], (f"synced:{owner}", "1"), int, repeatable=True)


def fire(namespace: str, queue: QueueKeys, queue_name: str, firing: Firing, *, channel: str) -> Call[bool]:
    """Return the call that fires ticks; its result is False when another worker has fired them."""
    last_ms = firing.ticks[-1] if firing.ticks else 0
    entry = firing.entry
    args: list[Argument] = [entry.name, entry.definition, entry.planned_ms, firing.next_ms, firing.skipped, last_ms]
    args += (firing.delay_ms, channel, firing.unfinished_ttl_s, queue_name, len(firing.tags), firing.tags_kept_ms)
    for task_id, body in zip(firing.task_ids, firing.bodies, strict=True):
        args += (task_id, body)
    keys = [*schedule_keys(namespace), queue.messages, queue.settings]
    keys += [tag_key(namespace, tag) for tag in firing.tags]
    if firing.unfinished_ttl_s:
        keys += [result_key(namespace, task_id) for task_id in firing.task_ids]
    return Call("tasks/schedule/fire", tuple(keys), tuple(args), bool, True, queue_name)


def _read_listing(reply: list[Any]) -> Listing:
    words = [_text(word) for word in reply]
    entries = {}
    for at in range(1, len(words), 10):
        name, definition, next_ms, owner, paused, planned_ms, fired_ms, task_id, fired, skipped = words[at : at + 10]
        entries[name] = StoredEntry(
            name=name,
            definition=definition,
            owner=owner,
            is_paused=bool(paused),
            next_ms=_number(next_ms),
            planned_ms=_number(planned_ms),
            fired_ms=_number(fired_ms),
            task_id=task_id,
            fired=_number(fired) or 0,
            skipped=_number(skipped) or 0,
        )
    return Listing(int(words[0]), entries)


def _read_moment(reply: list[Any]) -> DueEntries:
    now, synced, next_ms, *rest = [_text(word) for word in reply]
    due = [DueEntry(rest[at], math.floor(bounded(rest[at + 1])), rest[at + 2]) for at in range(0, len(rest), 3)]
    return DueEntries(int(now), bool(synced), _number(next_ms), due)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _number(text: str) -> int | None:
    """Return a time or count as Lua or a sorted set writes it, for example 1.7e+12; None for anything else."""
    number = read_epoch_ms(text)
    return None if number is None else int(number)
