"""Runs inside a candidate's own interpreter: start a worker, or send tasks and say how long it took.

    python -m benchmarks.act MODULE work
    python -m benchmarks.act MODULE one COUNT            one call per task
    python -m benchmarks.act MODULE bulk COUNT           with the bulk call that the candidate offers
    python -m benchmarks.act MODULE latency COUNT GAP_S  one task now and then, marked with its sending time

MODULE has `work()`, `send_one(sent_at)`, perhaps `send_bulk(count)`, and perhaps `prepare()`, which is called before
anything is sent. All but the first may be coroutine functions, if they are the same kind. Everything else comes in
environment variables (BENCH_URL, BENCH_CASE ...). Only the standard library is imported here. The last line of the
output is one JSON object: count, seconds, cpu_s.
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
from types import ModuleType
from typing import Any, NoReturn

#: Not measured: the first sends connect, and load what is loaded late.
WARM_UP = 10

Send = Callable[[Any], Any]


def main() -> None:
    """Parse and do it."""
    module, action = importlib.import_module(sys.argv[1]), sys.argv[2]
    if action == "work":
        module.work()
        return
    count = int(sys.argv[3])
    if action == "bulk":
        cost = measure(module, module.send_bulk, [count])
    elif action == "latency":
        cost = measure(module, module.send_one, now_and_then(count, float(sys.argv[4])))
    else:
        count -= WARM_UP
        cost = measure(module, module.send_one, [0.0] * count, warm_up=[0.0] * WARM_UP)
    print(json.dumps({"count": count, **cost}))


def become(*arguments: str) -> NoReturn:
    """Go on as another Python program, in the same process."""
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted


def now_and_then(count: int, gap_s: float) -> Iterator[float]:
    """Yield the time at irregular moments, so that nobody can fall into step with them."""
    for _ in range(count):
        time.sleep(random.uniform(0.5, 1.5) * gap_s)
        yield time.monotonic()


def measure(
    module: ModuleType, send: Send, arguments: Iterable[Any], *, warm_up: Iterable[Any] = ()
) -> dict[str, float]:
    """Call `send` with each argument and return what that took."""
    prepare = getattr(module, "prepare", None)
    if inspect.iscoroutinefunction(send):
        return asyncio.run(_measure_async(prepare, send, arguments, warm_up))
    if prepare is not None:
        prepare()
    for argument in warm_up:
        send(argument)
    began, cpu = time.perf_counter(), time.process_time()
    for argument in arguments:
        send(argument)
    return {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}


async def _measure_async(
    prepare: Any, send: Send, arguments: Iterable[Any], warm_up: Iterable[Any]
) -> dict[str, float]:
    if prepare is not None:
        await prepare()
    for argument in warm_up:
        await send(argument)
    began, cpu = time.perf_counter(), time.process_time()
    for argument in arguments:
        await send(argument)
    return {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}


if __name__ == "__main__":
    main()
