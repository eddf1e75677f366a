"""The measured tasks. They count themselves and do nothing, so that what is measured is everything around them."""

import os
import time
from typing import Any

from benchmarks.accounting import ran
from rsmq_django.tasks import task
from rsmq_django.tasks.task import Task

from .settings import QUEUE_NAMES

PAUSE_S = 0.010
#: `using()` copies a task; the functions stay the same, so messages need not say which queue they came from.
_on_first_queue = task(queue_name=QUEUE_NAMES[0], ack="each" if os.environ.get("BENCH_ACK") == "each" else "batch")


@_on_first_queue
def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


@_on_first_queue
async def anoop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


@_on_first_queue
def pause(*, sent_at: float, order: int, currency: str) -> None:
    """Work for ten milliseconds: wait, as most tasks do."""
    ran(sent_at)
    time.sleep(PAUSE_S)


_tasks: dict[str, Task[..., Any]] = {"noop": noop, "anoop": anoop, "pause": pause}
#: The task of this measurement.
measured = _tasks[os.environ.get("BENCH_TASK", "noop")]
