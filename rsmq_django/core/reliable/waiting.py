"""How a pop waits for messages: decisions about time, and a place in the line of those who wait.

Each queue has a list `wake` that holds one token exactly while messages are undelivered. A pop that finds nothing takes
that token by BLPOP: the server serves waiting clients in the order in which they came, one token wakes one of them, and
the next pop puts it back when something is left. A push between the two is no problem, for the token stays.

A wait is one BLPOP from its beginning to its end, because each new one goes to the end of the line. Beside it, on
another socket, a waiter looks every two seconds without taking anything: that puts a token back which a dead client
took with it, and notices a server that does not answer. A look between a client's waking and its pop must not put the
token back: it would wake the next in line, who might be faster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from ..connection import Command, Connection, Reply, is_answered
from ..errors import OutcomeUnknown, RedisFailure
from ..keys import RELIABLE_PARTS

#: How often a waiter looks. A message whose token was lost is taken at the first look when it is five seconds old:
#: until then the client that was woken may be on its way to it.
SLICE_S = 2.0
#: The longest single BLPOP. One that waits without end goes to the end of the line that often.
LONGEST_BLOCK_S = 3600.0
#: A server looks at the time-outs of blocked clients ten times a second, so that its answer may be late by so much. The
#: end of a wait is therefore spent looking, every few milliseconds.
SERVER_TICK_S = 0.1
LOOK_EVERY_S = 0.005
#: The server's answer to a BLPOP is overdue after this: its process hangs, or the network is cut.
MARGIN_S = 5.0

_patient: WeakKeyDictionary[Connection, Connection] = WeakKeyDictionary()
_lasting: WeakKeyDictionary[Connection, Connection] = WeakKeyDictionary()


def patient(connection: Connection) -> Connection:
    """Return a connection to the same server, with sockets of its own, whose replies may take as long as a slice."""
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
        """Say whether the time is over."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def block_s(self) -> float:
        """Return for how long the server may be asked to wait now; 0 when it is time for short naps instead."""
        block_s = min(LONGEST_BLOCK_S, self._left_s() - SERVER_TICK_S)
        return block_s if block_s >= LOOK_EVERY_S else 0.0  # the server takes a zero for "without end"

    def nap_s(self) -> float:
        """Return how long a nap is."""
        return max(0.001, min(LOOK_EVERY_S, self._left_s()))

    def _left_s(self) -> float:
        return LONGEST_BLOCK_S + SERVER_TICK_S if self._deadline is None else self._deadline - time.monotonic()


def until_next_look_s(next_due_ms: int | None) -> float:
    """Return how long a waiter stays in line before it looks: until a delayed message is due, or for a slice."""
    return SLICE_S if next_due_ms is None else max(0.001, min(SLICE_S, next_due_ms / 1000))


def wake_keys(keys: Sequence[str]) -> Sequence[str]:
    """Return those keys of a pop that hold tokens."""
    return keys[1 + RELIABLE_PARTS.index("wake") :: len(RELIABLE_PARTS)]


def take_token(keys: Sequence[str], block_s: float) -> Command:
    """Return the command that waits for one of these tokens."""
    return ("BLPOP", *keys, f"{block_s:.3f}")


class Place:
    """A place in the line: one BLPOP that is under way on a socket of its own."""

    def __init__(self, connection: Connection, link: Any, overdue_at: float) -> None:
        self._connection, self._link, self._overdue_at = connection, link, overdue_at
        self.is_left = False

    def is_served(self, *, within_s: float) -> bool:
        """Say whether the server answers within so many seconds. Raises OutcomeUnknown when its answer is overdue."""
        if is_answered(self._link, within_s=within_s):
            return True
        if time.monotonic() > self._overdue_at:
            raise OutcomeUnknown("the answer to a BLPOP is overdue")
        return False

    def leave(self) -> Reply:
        """Return the server's answer: a token, nothing because the time is over, or an error."""
        self.is_left = True
        return self._connection.answer_of(self._link)


@contextmanager
def place_in_line(connection: Connection, keys: Sequence[str], block_s: float) -> Iterator[Place]:
    """Stand in line for one of these tokens; a place that was not left by then is given up at the end of the block."""
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
    """See place_in_line(). Yields the task that waits for the server's answer."""
    waiting = asyncio.ensure_future(_lasting_for(connection).aexchange([take_token(keys, block_s)]))
    try:
        yield waiting
    finally:
        if not waiting.done():
            waiting.cancel()  # which closes the socket
        with contextlib.suppress(asyncio.CancelledError, RedisFailure):
            await waiting
