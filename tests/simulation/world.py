"""The simulation that runs now, and what replaces time, chance and threads of this whole process.

Import this before the package: some of its classes keep `time.monotonic`. Outside of a simulation all is as usual.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from types import SimpleNamespace
from typing import Any, Self

from tests.faults.history import Entry
from tests.simulation.scheduler import Lock, Process, Scheduler

#: The simulated time of the first moment: a wall clock, and later than any real monotonic time.
STARTS_AT = 1_800_000_000.0

real_monotonic, _real_time, _real_sleep = time.monotonic, time.time, time.sleep
_real_urandom, _real_token_hex = os.urandom, secrets.token_hex


class Current:
    """What runs now."""

    scheduler: Scheduler | None = None
    dice: random.Random
    history: list[Entry]


def scheduler() -> Scheduler:
    """Return the scheduler of the simulation that runs."""
    assert Current.scheduler is not None
    return Current.scheduler


def begin(seed: str) -> Scheduler:
    """Begin a simulation."""
    random.seed(seed)
    Current.dice = random.Random(f"{seed}:secrets")
    Current.history = []
    Current.scheduler = Scheduler(random.Random(f"{seed}:turns"), starts_at=STARTS_AT)
    return Current.scheduler


def end() -> None:
    """Return to real time."""
    Current.scheduler = None


def note(what: str, name: str, kind: str = "", *, pid: int | None = None, **more: Any) -> None:
    """Note what a process did, unless it was killed."""
    now = scheduler()
    process = now.current.process
    if not process.is_dead:
        Current.history.append(Entry(now.now, what, name, kind, process.number if pid is None else pid, more))


def sleep(seconds: float) -> None:
    """Let simulated time pass."""
    scheduler().sleep(seconds)


def current_process() -> Process:
    """Return the simulated process that runs."""
    return scheduler().current.process


class SimulatedDatetime(datetime):
    """A datetime that knows the simulated time as the present one."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)


def _monotonic() -> float:
    return real_monotonic() if Current.scheduler is None else Current.scheduler.now


def _time() -> float:
    now = Current.scheduler
    return _real_time() if now is None else now.now + now.current.process.clock_offset_s


def _sleep(seconds: float) -> None:
    (_real_sleep if Current.scheduler is None else sleep)(seconds)


def _urandom(count: int) -> bytes:
    return _real_urandom(count) if Current.scheduler is None else Current.dice.randbytes(count)


def _token_hex(count: int = 8) -> str:
    return _real_token_hex(count) if Current.scheduler is None else Current.dice.randbytes(count).hex()


def replace_time_and_chance() -> None:
    """Let this process see the time of the simulation while one runs."""
    replacements: list[tuple[Any, str, object]] = [
        (time, "monotonic", _monotonic),
        (time, "time", _time),
        (time, "sleep", _sleep),
        (os, "urandom", _urandom),
        (secrets, "token_hex", _token_hex),
    ]
    for module, name, replacement in replacements:
        setattr(module, name, replacement)


class _SimulatedThread:
    """A thread of the process that creates it."""

    def __init__(self, *, target: Callable[..., object], args: tuple[Any, ...] = (), **_: object) -> None:
        self._run = lambda: target(*args)

    def start(self) -> None:
        scheduler().start(current_process(), self._run)


#: What a module gets as `threading`.
THREADING = SimpleNamespace(
    Thread=_SimulatedThread, Lock=lambda: Lock(scheduler), get_ident=lambda: id(scheduler().current)
)


#: What a module gets as Django's `timezone`.
TIMEZONE = SimpleNamespace(now=lambda: SimulatedDatetime.now(UTC))


class OfEachProcess(dict):  # type: ignore[type-arg]
    """A cache of the package, of which each simulated process has its own."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def _own(self) -> dict[Any, Any]:
        return current_process().caches.setdefault(self._name, {})

    def get(self, key: Any, default: Any = None) -> Any:
        return self._own().get(key, default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return self._own().setdefault(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._own()

    def __getitem__(self, key: Any) -> Any:
        return self._own()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own()[key] = value
