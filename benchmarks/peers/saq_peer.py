"""SAQ: one process of coroutines, nothing kept of finished jobs."""

import asyncio
import os

from saq import Queue, Worker

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS

queue = Queue.from_url(os.environ["BENCH_URL"])


async def noop(context: object, *, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    asyncio.run(Worker(queue, functions=[noop], concurrency=100).start())


async def send_one(sent_at: float) -> None:
    await queue.enqueue("noop", sent_at=sent_at, ttl=-1, **ARGUMENTS)
