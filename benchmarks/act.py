"""Runs inside a candidate's own interpreter: start a worker, or send tasks and say how long it took.

    python -m benchmarks.act MODULE work
    python -m benchmarks.act MODULE one COUNT            one call per task
    python -m benchmarks.act MODULE bulk COUNT           with the bulk call that the candidate offers
    python -m benchmarks.act MODULE latency COUNT GAP_S  one task now and then, marked with its sending time
    python -m benchmarks.act MODULE request COUNT        what one call adds to a request of a Django site

MODULE has `work()`, `send_one(sent_at)`, perhaps `send_bulk(count)`, perhaps `open_site()`, see web.py, and perhaps
`prepare()`, which is called before anything is sent. All but the first may be coroutine functions, if they are the
same kind. Everything else comes in environment variables (BENCH_URL, BENCH_CASE ...). Only the standard library is
imported here. The last line of the output is one JSON object: count, seconds, cpu_s.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from types import ModuleType
from typing import Any, NoReturn

#: At least so many are not measured: the first sends connect, and load what is loaded late.
WARM_UP = 10
#: One by one is measured in so many parts, of which the median counts: one pause of the machine is as long as a hundred
#: sends.
PARTS = 10

#: The other arguments of each task, by name, as most calls have them. act.js has the same.
ARGUMENTS: dict[str, Any] = {"order": 4711, "currency": "EUR"}

Send = Callable[[Any], Any]


def main() -> None:
    """Parse and do it."""
    module, action = importlib.import_module(sys.argv[1]), sys.argv[2]
    if action == "work":
        module.work()
        return
    count = int(sys.argv[3])
    if action == "bulk":
        cost = measure(module, module.send_bulk, [[count]])
    elif action == "latency":
        cost = measure(module, module.send_one, [now_and_then(count, float(sys.argv[4]))])
    elif action == "request":
        part = [0.0] * max(1, count // PARTS)
        sending, silent = module.open_site()
        cost, count = measure_added(sending, silent, part), len(part) * PARTS
    else:
        part = [0.0] * max(1, (count - WARM_UP) // PARTS)
        rest = [0.0] * (count - len(part) * PARTS)  # not measured, but sent: a drain waits for as many as it asked for
        cost, count = measure(module, module.send_one, [part] * PARTS, warm_up=rest), len(part) * PARTS
    print(json.dumps({"count": count, **cost}))


def become(*arguments: str) -> NoReturn:
    """Go on as another Python program, in the same process."""
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted


def now_and_then(count: int, gap_s: float) -> Iterator[float]:
    """Yield the time at irregular moments, so that nobody can fall into step with them."""
    for _ in range(count):
        time.sleep(random.uniform(0.5, 1.5) * gap_s)
        yield time.monotonic()


class Stopwatch:
    """Real time and processor time of parts of equal size."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._cpu_s: list[float] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Time one part."""
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self._seconds.append(time.perf_counter() - began)
        self._cpu_s.append(time.process_time() - cpu)

    def total(self) -> dict[str, float]:
        """Return what all parts would have taken if each were the median one: what else the machine did is left out."""
        parts = len(self._seconds)
        return {"seconds": median(self._seconds) * parts, "cpu_s": median(self._cpu_s) * parts}


def measure(
    module: ModuleType, send: Send, parts: Iterable[Iterable[Any]], *, warm_up: Iterable[Any] = ()
) -> dict[str, float]:
    """Call `send` with each argument of each part and return what that took."""
    prepare, watch = getattr(module, "prepare", None), Stopwatch()
    if inspect.iscoroutinefunction(send):
        return asyncio.run(_measure_async(prepare, send, parts, warm_up))
    if prepare is not None:
        prepare()
    for argument in warm_up:
        send(argument)
    for arguments in parts:
        with watch.part():
            for argument in arguments:
                send(argument)
    return watch.total()


def measure_added(more: Send, less: Send, part: list[float]) -> dict[str, float]:
    """Return what calls of the one take beyond calls of the other, measured in turns."""
    watches = {more: Stopwatch(), less: Stopwatch()}
    for send in (more, less) * WARM_UP:
        send(0.0)
    for _ in range(PARTS):
        for send, watch in watches.items():
            with watch.part():
                for argument in part:
                    send(argument)
    longer, shorter = watches[more].total(), watches[less].total()
    return {name: longer[name] - shorter[name] for name in longer}


async def _measure_async(
    prepare: Any, send: Send, parts: Iterable[Iterable[Any]], warm_up: Iterable[Any]
) -> dict[str, float]:
    watch = Stopwatch()
    if prepare is not None:
        await prepare()
    for argument in warm_up:
        await send(argument)
    for arguments in parts:
        with watch.part():
            for argument in arguments:
                await send(argument)
    return watch.total()


if __name__ == "__main__":
    main()
