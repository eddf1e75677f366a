"""Waiting of pops for messages: timing, and a fair line of waiting clients.

Each queue has a list `wake` that contains one token exactly while messages are ready. A pop without a message waits for
that token with BLPOP: the server serves waiting clients in order, one token wakes one client, and the next pop restores
the token if messages are left. A push between the pop and BLPOP is not missed, because the token stays.

A wait is a single BLPOP, because each new one goes to the end of the line. Meanwhile, on another socket, the waiting
client polls every two seconds without popping: this restores a token that a crashed client has taken, and detects an
unresponsive server. A poll between the wake-up of another client and its pop must not restore the token: it would wake
the next client in line, which might be faster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import OutcomeUnknown, RedisFailure
from ..keys import RELIABLE_PARTS
from ..transport.connection import Connection
from ..transport.packing import Command, Reply
from ..transport.sockets import is_answered

#: Polling interval. A message whose token was lost is popped at the first poll after it is five seconds old: until
#: then the woken client may be about to pop it.
SLICE_S = 2.0
#: Maximum duration of a BLPOP. An endless wait goes to the end of the line after each.
LONGEST_BLOCK_S = 3600.0
#: Servers check the timeouts of blocked clients ten times a second, so a reply may be late by this time. At the end of
#: a wait, the client therefore polls every few milliseconds.
SERVER_TICK_S = 0.1
LOOK_EVERY_S = 0.005
#: Grace time for the reply to a BLPOP, after which the server or the network counts as failed.
MARGIN_S = 5.0

_patient: WeakKeyDictionary[Connection, Connection] = WeakKeyDictionary()
_lasting: WeakKeyDictionary[Connection, Connection] = WeakKeyDictionary()


def patient(connection: Connection) -> Connection:
    """Return a separate connection to the same server whose replies may take as long as a slice."""
    found = _patient.get(connection)
    return found if found is not None else _patient.setdefault(connection, connection.with_timeout(SLICE_S + MARGIN_S))


def _lasting_for(connection: Connection) -> Connection:
    """Return a connection to the same server whose replies may take as long as the longest wait."""
    found = _lasting.get(connection)
    if found is None:
        found = _lasting.setdefault(connection, connection.with_timeout(LONGEST_BLOCK_S + MARGIN_S))
    return found


class Wait:
    """The time that one pop may take: `block_ms` milliseconds, none (0), or without end (negative)."""

    def __init__(self, block_ms: int) -> None:
        self.is_wanted = block_ms != 0
        self._deadline = None if block_ms < 0 else time.monotonic() + block_ms / 1000

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def block_s(self) -> float:
        """Return the timeout for the next BLPOP; 0 when it is time to poll instead."""
        block_s = min(LONGEST_BLOCK_S, self._left_s() - SERVER_TICK_S)
        return block_s if block_s >= LOOK_EVERY_S else 0.0  # for the server, zero means forever

    def nap_s(self) -> float:
        """Return the time to sleep between polls."""
        return max(0.001, min(LOOK_EVERY_S, self._left_s()))

    def _left_s(self) -> float:
        return LONGEST_BLOCK_S + SERVER_TICK_S if self._deadline is None else self._deadline - time.monotonic()


def until_next_poll_s(next_due_ms: int | None) -> float:
    """Return how long to wait before the next poll: until a delayed message is due, or for a slice."""
    return SLICE_S if next_due_ms is None else max(0.001, min(SLICE_S, next_due_ms / 1000))


def wake_keys(keys: Sequence[str]) -> Sequence[str]:
    """Return the keys of a pop that contain tokens."""
    return keys[1 + RELIABLE_PARTS.index("wake") :: len(RELIABLE_PARTS)]


def take_token(keys: Sequence[str], block_s: float) -> Command:
    """Return the command that waits for one of these tokens."""
    return ("BLPOP", *keys, f"{block_s:.3f}")


class Place:
    """A place in the line: a pending BLPOP on its own socket."""

    def __init__(self, connection: Connection, link: Any, overdue_at: float) -> None:
        self._connection, self._link, self._overdue_at = connection, link, overdue_at
        self.is_left = False

    def is_served(self, *, within_s: float) -> bool:
        """Return whether the server replies within a number of seconds. Raises OutcomeUnknown if it is overdue."""
        if is_answered(self._link, within_s=within_s):
            return True
        if time.monotonic() > self._overdue_at:
            raise OutcomeUnknown("the reply to a BLPOP is overdue")
        return False

    def leave(self) -> Reply:
        """Return the server's answer: a token, nothing because the time is over, or an error."""
        self.is_left = True
        return self._connection.answer_of(self._link)


@contextmanager
def place_in_line(connection: Connection, keys: Sequence[str], block_s: float) -> Iterator[Place]:
    """Wait in line for one of these tokens until the end of the block."""
    waiting = patient(connection)
    link = waiting.ask(take_token(keys, block_s))
    place = Place(waiting, link, time.monotonic() + block_s + MARGIN_S)
    try:
        yield place
    finally:
        if not place.is_left:
            link.disconnect()


@asynccontextmanager
async def async_place_in_line(
    connection: Connection, keys: Sequence[str], block_s: float
) -> AsyncIterator[asyncio.Task[list[Reply]]]:
    """Yield the task that waits for the server's reply. See place_in_line()."""
    waiting = asyncio.ensure_future(_lasting_for(connection).aexchange([take_token(keys, block_s)]))
    try:
        yield waiting
    finally:
        if not waiting.done():
            waiting.cancel()  # which closes the socket
        with contextlib.suppress(asyncio.CancelledError, RedisFailure):
            await waiting
