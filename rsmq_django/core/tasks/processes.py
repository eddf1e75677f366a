"""Records of worker processes, and commands to them, for operators.

A supervisor writes a record of each of its processes every five seconds and reads in the same call whether it has a
command. Records are for display: no message is ever moved because of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from ..errors import InvalidValue
from ..keys import order_key, process_key, stack_request_key, worker_key, workers_key
from ..limits import MAX_BATCH
from ..numbers import read_count
from ..queue.replies import read_message_id
from ..transport.call import Argument, Call

T = TypeVar("T")
#: The reply of HSCAN: the next cursor, then fields and values in turn.
Slice = tuple[bytes, list[bytes]]

Order = Literal["quiet", "resume", "restart", "stop"]
#: Receive no more messages; receive messages again; stop and be replaced; stop for good.
ORDERS: tuple[Order, ...] = ("quiet", "resume", "restart", "stop")

#: A worker without a heartbeat for this time counts as dead: other workers recover the messages that it has leased.
SILENT_AFTER_S = 30.0
#: Time to live of a record: its supervisor has ended when it is not written again.
KEEP_RECORD_S = 60
KEEP_ORDER_S = 3600
#: Maximum number of running messages in a record.
MAX_RUNNING = 50
KINDS_OF_SLOTS = ("function", "coroutine")
_WORDS_PER_PROCESS = 12


@dataclass(frozen=True, slots=True)
class Running:
    """A message that a process runs."""

    message_id: str
    run_ms: int


@dataclass(frozen=True, slots=True)
class SlotUse:
    """How many tasks of a kind run in a process, and how many can run at a time."""

    #: "function" or "coroutine".
    kind: str
    busy: int
    total: int


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A supervisor's record of one of its processes."""

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
    #: Age of the record; 0 for one that is being written.
    told_ms_ago: int = 0
    #: Names of the reliable queues that it consumes.
    reliable: tuple[str, ...] = ()
    #: Number and digest of its registered tasks; "" for an older version.
    tasks: str = ""
    #: Empty for an older version, and for a process that has just begun.
    slots: tuple[SlotUse, ...] = ()


class Heard(NamedTuple):
    """The last command and the last request for stacks of a process; "" for none."""

    order: str
    #: Time of the request for its stacks.
    stacks_wanted: str
    #: Whether the server has lost the names of its queues, which were left out: nothing was stored.
    lacks_names: bool = False


def describe(namespace: str, worker_id: str, record: ProcessRecord, *, with_names: bool = True) -> Call[Heard]:
    """Return the call that stores a record, and reads the last command to the process.

    Without names, those of its queues stay as they were stored last: there may be thousands. A command is a word of
    ORDERS and its time: `"stop 1780000000000"`. It is read again until it expires.
    """
    lines = "\n".join(f"{each.message_id} {each.run_ms}" for each in record.running[:MAX_RUNNING])
    fields: dict[str, Argument] = {
        "host": record.host,
        "pid": record.pid,
        "version": record.version,
        "age_ms": record.age_ms,
        "memory_bytes": "" if record.memory_bytes is None else record.memory_bytes,
        "state": record.state,
        "tasks": record.tasks,
        "running": lines,
        "slots": "\n".join(f"{each.kind} {each.busy} {each.total}" for each in record.slots),
    }
    if with_names:
        fields |= {"queues": "\n".join(record.queues), "reliable": "\n".join(record.reliable)}
    args: list[Argument] = [KEEP_RECORD_S, int(with_names)]
    for name, value in fields.items():
        args += (name, value)
    keys = (
        process_key(namespace, worker_id),
        order_key(namespace, worker_id),
        stack_request_key(namespace, worker_id),
    )
    return Call("tasks/worker/describe", keys, tuple(args), _read_heard, repeatable=True)


def give_order(namespace: str, worker_id: str, order: Order) -> Call[bool]:
    """Return the call that sends a command to a process, read within five seconds; False when the process has ended."""
    if order not in ORDERS:
        raise InvalidValue(f"unknown worker command {order!r}; use one of {', '.join(ORDERS)}")
    keys = (workers_key(namespace), order_key(namespace, worker_id))
    return Call("tasks/worker/order", keys, (worker_id, order, KEEP_ORDER_S), bool, repeatable=True)


def read_processes(namespace: str, worker_ids: Sequence[str]) -> Call[dict[str, ProcessRecord]]:
    """Return the call that reads the records of up to 1,000 processes; processes without one are left out."""
    named = list(worker_ids[:MAX_BATCH])
    keys = tuple(process_key(namespace, worker_id) for worker_id in named)

    def read(reply: list[bytes]) -> dict[str, ProcessRecord]:
        now_ms, *words = reply
        rows = [words[at : at + _WORDS_PER_PROCESS] for at in range(0, len(words), _WORDS_PER_PROCESS)]
        return {worker_id: _record(int(now_ms), row) for worker_id, row in zip(named, rows, strict=True) if row[0]}

    return Call("tasks/worker/processes", keys, (), read, repeatable=True)


def with_different_tasks(records: Mapping[str, ProcessRecord]) -> dict[str, dict[str, list[str]]]:
    """Return the queues whose processes have different registered tasks: queue -> digest -> worker ids."""
    found: dict[str, dict[str, list[str]]] = {}
    for worker_id, record in records.items():
        for name in (*record.queues, *record.reliable) if record.tasks else ():
            found.setdefault(name, {}).setdefault(record.tasks, []).append(worker_id)
    return {name: by_tasks for name, by_tasks in found.items() if len(by_tasks) > 1}


def held_in(namespace: str, worker_id: str) -> Call[dict[str, str]]:
    """Return the call that reads the messages in a worker's record of leases, with their queues: id -> queue.

    It reads one page: of a worker with very many messages, it returns some.
    """
    return read_slice(worker_key(namespace, worker_id), b"0", _read_held)


def read_slice(inflight_key: str, cursor: bytes, read: Callable[[Slice], T]) -> Call[T]:
    """Return the call that reads a slice of a worker's record of leases, whose fields are batches."""
    return Call("HSCAN", (inflight_key,), (cursor, "COUNT", 50), read, repeatable=True)


def _read_heard(reply: tuple[bytes, bytes, int]) -> Heard:
    order, request, lacks_names = reply
    return Heard(order.decode(), request.decode(), bool(lacks_names))


def _record(now_ms: int, words: list[bytes]) -> ProcessRecord:
    texts = (word.decode("utf-8", "replace") for word in words)
    told, host, pid, version, age, memory, state, queues, running, reliable, tasks, slots = texts
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
        slots=tuple(_slots(slots)),
    )


def _slots(text: str) -> Iterator[SlotUse]:
    for words in map(str.split, text.split("\n")):
        if len(words) == 3 and words[0] in KINDS_OF_SLOTS:  # any program may have written it
            yield SlotUse(words[0], read_count(words[1]), read_count(words[2]))


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, ms) for name, _, ms in (line.rpartition(" ") for line in text.split("\n")) if name]


def _read_held(reply: Slice) -> dict[str, str]:
    _cursor, words = reply
    held = {}
    for batch, lines in zip(words[::2], words[1::2], strict=True):
        queue = batch.partition(b" ")[2].decode("utf-8", "replace")
        for line in lines.split(b"\n")[1:]:
            held[read_message_id(line.rpartition(b" ")[0])] = queue
    return held
