"""The state of the whole installation in a few numbers: backlog, dead letters, workers, queues with problems.

The admin shows it on its index and above the list of queues, `rsmq_doctor` prints it.
Two or three numbers are read for each queue, none for an empty queue. `read_installation()` reads now. `current()` is
for pages that must not wait for Redis: it reads in a thread, one reading at a time for the whole process, waits a
moment for it, and otherwise shows the last one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from ..conf.settings import Settings, get_settings
from ..core import Client
from ..core.doctor.service import served_queues
from ..core.doctor.troubles import Service, Trouble, attempt_calls, dead_letter_queues, depth_calls, troubles_of
from ..core.errors import PermissionDenied, RsmqError, SentinelDenied
from ..core.limits import MAX_BATCH
from ..core.log_lines import get_logger
from ..core.queue.listing import MAX_QUEUES, digest, workers
from ..core.queue.pause import paused
from ..core.queue.queue import list_call
from ..core.stats.depth import Depth
from ..core.stats.fingerprint import fingerprint_of
from ..core.tasks.processes import read_processes
from ..core.transport.call import Call
from ..core.transport.portions import portions
from ..queues import get_client
from .expected import expected_queues
from .places import QueueRef
from .processes import is_alive
from .remembered import LruCache
from .servers import answers_of, answers_that_came

logger = get_logger(__name__)

#: How long pages wait; numbers that arrive later are shown as unknown.
WAIT_S = 0.5
#: A reading that took one second is shown for ten: a process spends at most a tenth of its time on it.
KEEP_FACTOR, KEEP_AT_MOST_S = 10.0, 10.0
#: The number of dead letters per queue whose kind is read, once a minute unless their number changes.
MAX_LOOKED_AT, KEEP_KINDS_S = MAX_BATCH, 60.0
MAX_KINDS_REMEMBERED = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Installation:
    """The totals of all connections of the settings that replied."""

    read_at_s: float
    #: Dead letters are left out.
    ready: int
    #: The queue with the oldest ready message, and the age of that message.
    oldest: QueueRef | None
    oldest_s: float
    dead: int
    #: Dead letters of one task with one error are one kind; True: not all of them were read.
    kinds: int
    are_more_kinds: bool
    #: Live worker processes.
    workers: int
    #: The most urgent problems first.
    troubles: tuple[tuple[QueueRef, Trouble], ...]
    #: Connections that did not reply, or refused.
    unknown: tuple[str, ...]
    #: Those of them that refused the user, or one of the commands.
    denied: tuple[str, ...] = ()
    #: Connections whose sentinels refused.
    denied_by_sentinels: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Return whether any connection replied."""
        return len(self.unknown) < len(get_settings().connections)

    def queues_with(self, *ids: str) -> list[QueueRef]:
        """Return the queues with one of these kinds of trouble; for dead letters, the queues that contain them."""
        return [place for place, trouble in self.troubles if trouble.id in ids]


@dataclass(slots=True)
class _Part:
    """The totals of one connection."""

    depths: dict[QueueRef, Depth] = field(default_factory=dict)
    dead: dict[QueueRef, int] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    are_more_kinds: bool = False
    workers: set[str] = field(default_factory=set)
    troubles: list[tuple[QueueRef, Trouble]] = field(default_factory=list)


# -- Reading ----------------------------------------------------------------------------------------------------------


def read_installation() -> Installation:
    """Read all connections of the settings. Connections that do not reply are listed in the result."""
    parts, failures = [], dict[str, RsmqError]()
    for alias in get_settings().connections:
        try:
            parts.append(_read(alias, get_client(alias)))
        except RsmqError as error:
            logger.info("the state of connection %s is unknown: %r", alias, error)
            failures[alias] = error
    depths = {place: depth for part in parts for place, depth in part.depths.items()}
    oldest = max(depths, key=lambda place: depths[place].oldest_ready_s or 0.0, default=None)
    troubles = [each for part in parts for each in part.troubles]
    return Installation(
        read_at_s=time.time(),
        ready=sum(depth.ready for depth in depths.values()),
        oldest=oldest if oldest is not None and depths[oldest].ready else None,
        oldest_s=depths[oldest].oldest_ready_s or 0.0 if oldest is not None else 0.0,
        dead=sum(chain.from_iterable(part.dead.values() for part in parts)),
        kinds=len(set().union(*(part.kinds for part in parts))),
        are_more_kinds=any(part.are_more_kinds for part in parts),
        workers=len(set().union(*(part.workers for part in parts))),
        troubles=tuple(sorted(troubles, key=lambda each: (each[1].rank, each[1].queue))),
        unknown=tuple(failures),
        denied=tuple(alias for alias, error in failures.items() if isinstance(error, PermissionDenied)),
        denied_by_sentinels=tuple(alias for alias, error in failures.items() if isinstance(error, SentinelDenied)),
    )


def _read(alias: str, client: Client) -> _Part:
    namespace, expected = client.namespace, expected_queues(alias)
    asked: list[Call[Any]] = [list_call(namespace), paused(namespace), workers(namespace)]
    names, on_hold, beats = answers_of(client, asked)
    alive = [beat.worker_id for beat in beats if is_alive(beat)]
    records = client.run(read_processes(namespace, alive)) if alive else {}
    depths = _joined(client, depth_calls(namespace, names))
    attempts = _joined(client, attempt_calls(namespace, expected, names, time.time()))
    troubles = troubles_of(expected, Service(depths, served_queues(records.values()), on_hold, attempts))
    dead_names = dead_letter_queues(expected)
    dead = {QueueRef(alias, name): depth.messages for name, depth in depths.items() if name in dead_names}
    part = _Part(
        depths={QueueRef(alias, name): depth for name, depth in depths.items() if name not in dead_names},
        dead=dead,
        workers=set(alive),
        troubles=[(QueueRef(alias, trouble.queue), trouble) for trouble in troubles],
    )
    _read_kinds(client, part)
    return part


def _joined(client: Client, calls: Sequence[Call[dict[str, T]]]) -> dict[str, T]:
    return {name: value for answer in answers_of(client, calls) for name, value in answer.items()}


# -- Kinds of dead letters --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kinds:
    """The fingerprints of a queue with this number of dead letters, and until when they are valid (monotonic time)."""

    messages: int
    until_s: float
    fingerprints: frozenset[str]


_known_kinds: LruCache[_Kinds] = LruCache(MAX_KINDS_REMEMBERED)


def _read_kinds(client: Client, part: _Part) -> None:
    now_s, changed = time.monotonic(), list[tuple[QueueRef, int]]()
    for place, messages in part.dead.items():
        known = _known_kinds.recall((client, place))
        if known is None or known.messages != messages or known.until_s < now_s:
            changed.append((place, messages))
        else:
            part.kinds |= known.fingerprints
            part.are_more_kinds |= messages > MAX_LOOKED_AT
    # Together the scripts of one round trip read no more than that of one long queue.
    for group in portions(changed, lambda each: each[1], count=MAX_QUEUES, size=MAX_LOOKED_AT):
        calls = [digest(client.namespace, place.name, count=MAX_LOOKED_AT) for place, _ in group]
        for (place, messages), page in zip(group, answers_that_came(client, calls), strict=True):
            if page is None:  # deleted meanwhile, or broken: the other queues are still shown
                continue
            kinds = frozenset(fingerprint_of(message.failure()) for message in page.messages)
            _known_kinds.keep((client, place), _Kinds(messages, now_s + KEEP_KINDS_S, kinds))
            part.kinds |= kinds
            part.are_more_kinds |= messages > MAX_LOOKED_AT


# -- For pages that do not wait ---------------------------------------------------------------------------------------


class _StateReading:
    """One reading by a thread."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.is_over = threading.Event()
        self.took_s = 0.0

    def run(self, board: _Board) -> None:
        try:
            found = read_installation()
        except Exception:
            logger.exception("the state of the installation could not be read")
            found = None
        self.took_s = time.monotonic() - self.began_s
        board.put(self, found)
        self.is_over.set()


class _Board:
    """The last reading of the connections of some settings, and the current one."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.pid = settings, os.getpid()
        self._lock = threading.Lock()
        self._latest: Installation | None = None
        self._read_next_s = 0.0
        self._reading: _StateReading | None = None

    def put(self, reading: _StateReading, found: Installation | None) -> None:
        """Store the result of a reading. A reading without any reply does not replace known numbers."""
        with self._lock:
            self._latest = found or self._latest
            self._reading = None
            self._read_next_s = time.monotonic() + min(KEEP_FACTOR * reading.took_s, KEEP_AT_MOST_S)

    def get(self, wait_s: float) -> Installation | None:
        """Return the last reading; start another one when it is old, and wait up to `wait_s` from its start."""
        with self._lock:
            reading = self._reading
            if reading is None and time.monotonic() >= self._read_next_s:
                reading = self._reading = _StateReading()
                threading.Thread(target=reading.run, args=(self,), name="rsmq-installation", daemon=True).start()
        if reading is not None:
            reading.is_over.wait(max(0.0, reading.began_s + wait_s - time.monotonic()))
        with self._lock:
            return self._latest


_board: _Board | None = None


def current(wait_s: float | None = None) -> Installation | None:
    """Return a reading of the last seconds; the last one while Redis is slow, and None when there is none yet."""
    global _board
    settings = get_settings()
    board = _board
    if board is None or board.settings is not settings or board.pid != os.getpid():
        board = _board = _Board(settings)
    return board.get(WAIT_S if wait_s is None else wait_s)
