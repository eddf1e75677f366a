"""Reads of several exchanges, each of which depends on the previous reply, written once for sync and async.

A reading is a generator: it yields calls, receives their results, and returns its own result. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from .call import Call
from .client import Client

T = TypeVar("T")
Reading = Generator[Call[Any], Any, T]


def _go_on() -> None:
    pass


def run_reading(client: Client, reading: Reading[T], check: Callable[[], None] = _go_on) -> T:
    """Run the calls of a reading in order, and return its result; `check` may end it between two calls by raising."""
    try:
        call = next(reading)
        while True:
            call = reading.send(client.run(call))
            check()
    except StopIteration as end:
        result: T = end.value
        return result


async def arun_reading(client: Client, reading: Reading[T], check: Callable[[], None] = _go_on) -> T:
    """See run_reading()."""
    try:
        call = next(reading)
        while True:
            call = reading.send(await client.arun(call))
            check()
    except StopIteration as end:
        result: T = end.value
        return result
