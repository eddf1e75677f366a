"""The other end of accounting.py: a file of ticks, and what they say about a stretch of time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .accounting import RECORD


@dataclass(frozen=True, slots=True)
class Tick:
    """One counted run (or the last of `every` runs) of a task."""

    pid: int
    sent_at: float
    started_at: float

    @property
    def latency_s(self) -> float:
        """Return how long the task waited between its sending and its start."""
        return self.started_at - self.sent_at


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which every process was at work, and how many tasks began in it."""

    begin: float
    end: float
    tasks: int

    @property
    def rate(self) -> float:
        """Return tasks a second."""
        return self.tasks / (self.end - self.begin)


class TickFile:
    """Ticks that tasks append while they run; each stands for `every` runs."""

    def __init__(self, path: Path, *, every: int = 1) -> None:
        self.every = every
        self._path = path
        self._path.touch()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that tell accounting.py of this file."""
        return {"BENCH_TICKS": str(self._path), "BENCH_TICK_EVERY": str(self.every)}

    def __len__(self) -> int:
        return self._path.stat().st_size // RECORD.size

    def read(self) -> list[Tick]:
        """Return all ticks in the order of their starts."""
        whole = self._path.read_bytes()[: len(self) * RECORD.size]
        return sorted((Tick(*fields) for fields in RECORD.iter_unpack(whole)), key=lambda tick: tick.started_at)

    def window(self, *, processes: int = 1) -> Window:
        """Return the time from the first tick to the last one.

        With several processes, from the first tick of the one that began last to the last tick of the one that ended
        first: the time in which all were at work.
        """
        ticks = self.read()
        begin, end = ticks[0].started_at, ticks[-1].started_at
        if processes > 1:
            by_process: dict[int, list[float]] = {}
            for tick in ticks:
                by_process.setdefault(tick.pid, []).append(tick.started_at)
            begin = max(min(times) for times in by_process.values())
            end = min(max(times) for times in by_process.values())
        inside = sum(begin < tick.started_at <= end for tick in ticks)
        return Window(begin, end, inside * self.every)


@contextmanager
def tick_file(*, every: int = 1) -> Iterator[TickFile]:
    """Make a tick file for one measurement, in memory where the system has a place for that."""
    in_memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a directory of our own there
    where = in_memory if in_memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="rsmq-bench-", dir=where) as directory:
        yield TickFile(Path(directory) / "ticks", every=every)
