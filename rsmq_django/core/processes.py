"""Worker processes as people see them: what each is and does, and the orders that they can be given.

A supervisor writes a record of each of its processes every five seconds and reads in the same call whether it has a
command. Records and orders are for people: no message is ever moved because of what they say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .call import Argument, Call
from .errors import InvalidValue
from .keys import order_key, process_key, stack_request_key, worker_key, workers_key
from .limits import MAX_BATCH
from .numbers import read_count
from .replies import read_message_id

Order = Literal["quiet", "resume", "restart", "stop"]
#: Take no more messages; take messages again; end and be replaced; end for good.
ORDERS: tuple[Order, ...] = ("quiet", "resume", "restart", "stop")

#: A worker without a heartbeat for this time counts as dead: other workers recover the messages that it had leased.
SILENT_AFTER_S = 30.0
#: A supervisor that writes no record for this time is gone.
KEEP_RECORD_S = 60
KEEP_ORDER_S = 3600
#: Of the messages that a process runs, so many are named.
MAX_RUNNING = 50
_WORDS_PER_PROCESS = 11


@dataclass(frozen=True, slots=True)
class Running:
    """A message that a process runs."""

    message_id: str
    run_ms: int


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What a supervisor tells about one of its processes."""

    host: str
    pid: int
    version: str
    age_ms: int
    memory_bytes: int | None
    #: "working", "quiet" or "stopping".
    state: str
    queues: tuple[str, ...]
    #: The longest first.
    running: tuple[Running, ...]
    #: How long ago that was told; 0 for one that is being written.
    told_ms_ago: int = 0
    #: Names of the reliable queues that it works on.
    reliable: tuple[str, ...] = ()
    #: Number and digest of the tasks that it knows; "" when it does not say.
    tasks: str = ""


class Heard(NamedTuple):
    """What people have asked of a process; "" for nothing."""

    order: str
    #: When its stacks were asked for.
    stacks_wanted: str


def describe(namespace: str, worker_id: str, record: ProcessRecord) -> Call[Heard]:
    """Return the call that writes a record down and reads what was asked of the process.

    An order is a word of ORDERS and the time it was given: `"stop 1780000000000"`. It is read again and again.
    """
    lines = "\n".join(f"{each.message_id} {each.run_ms}" for each in record.running[:MAX_RUNNING])
    fields: Mapping[str, Argument] = {
        "host": record.host,
        "pid": record.pid,
        "version": record.version,
        "age_ms": record.age_ms,
        "memory_bytes": "" if record.memory_bytes is None else record.memory_bytes,
        "state": record.state,
        "queues": "\n".join(record.queues),
        "reliable": "\n".join(record.reliable),
        "tasks": record.tasks,
        "running": lines,
    }
    args: list[Argument] = [KEEP_RECORD_S]
    for name, value in fields.items():
        args += (name, value)
    keys = (
        process_key(namespace, worker_id),
        order_key(namespace, worker_id),
        stack_request_key(namespace, worker_id),
    )
    return Call("worker/describe", keys, tuple(args), lambda reply: Heard(*map(bytes.decode, reply)), repeatable=True)


def give_order(namespace: str, worker_id: str, order: Order) -> Call[bool]:
    """Return the call that orders a process to do something; False when it is gone. Heard within five seconds."""
    if order not in ORDERS:
        raise InvalidValue(f"unknown worker command {order!r}; use one of {', '.join(ORDERS)}")
    keys = (workers_key(namespace), order_key(namespace, worker_id))
    return Call("worker/order", keys, (worker_id, order, KEEP_ORDER_S), bool, repeatable=True)


def read_processes(namespace: str, worker_ids: Sequence[str]) -> Call[dict[str, ProcessRecord]]:
    """Return the call that reads the records of up to 1,000 processes; those that have none are left out."""
    named = list(worker_ids[:MAX_BATCH])
    keys = tuple(process_key(namespace, worker_id) for worker_id in named)

    def read(reply: list[bytes]) -> dict[str, ProcessRecord]:
        now_ms, *words = reply
        rows = [words[at : at + _WORDS_PER_PROCESS] for at in range(0, len(words), _WORDS_PER_PROCESS)]
        return {worker_id: _record(int(now_ms), row) for worker_id, row in zip(named, rows, strict=True) if row[0]}

    return Call("browse/processes", keys, (), read, repeatable=True)


def with_different_tasks(records: Mapping[str, ProcessRecord]) -> dict[str, dict[str, list[str]]]:
    """Return the queues that processes take from which know different tasks: worker ids by what they know."""
    found: dict[str, dict[str, list[str]]] = {}
    for worker_id, record in records.items():
        for name in (*record.queues, *record.reliable) if record.tasks else ():
            found.setdefault(name, {}).setdefault(record.tasks, []).append(worker_id)
    return {name: by_tasks for name, by_tasks in found.items() if len(by_tasks) > 1}


def held_in(namespace: str, worker_id: str) -> Call[dict[str, str]]:
    """Return the call that reads from which queues the messages are that a worker notes to hold: id -> queue.

    It reads a page of the note: of a worker that holds very many messages, some.
    """
    return Call("worker/read_holds", (worker_key(namespace, worker_id),), ("0",), _read_held, repeatable=True)


def _record(now_ms: int, words: list[bytes]) -> ProcessRecord:
    texts = (word.decode("utf-8", "replace") for word in words)
    told, host, pid, version, age, memory, state, queues, running, reliable, tasks = texts
    ago_ms = max(0, now_ms - read_count(told))
    return ProcessRecord(
        host=host,
        pid=read_count(pid),
        version=version,
        age_ms=read_count(age) + ago_ms,
        memory_bytes=read_count(memory) if memory else None,
        state=state,
        queues=tuple(queues.split("\n")) if queues else (),
        running=tuple(Running(name, read_count(ms) + ago_ms) for name, ms in _pairs(running)),
        told_ms_ago=ago_ms,
        reliable=tuple(reliable.split("\n")) if reliable else (),
        tasks=tasks,
    )


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, ms) for name, _, ms in (line.rpartition(" ") for line in text.split("\n")) if name]


def _read_held(reply: list[bytes]) -> dict[str, str]:
    _cursor, *words = reply
    held = {}
    for batch, lines in zip(words[::2], words[1::2], strict=True):
        queue = batch.partition(b" ")[2].decode("utf-8", "replace")
        for line in lines.split(b"\n")[1:]:
            held[read_message_id(line.rpartition(b" ")[0])] = queue
    return held
