"""streaq: one process of coroutines on Redis streams."""

import os

from streaq import Worker

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS

worker = Worker(redis_url=os.environ["BENCH_URL"], concurrency=100)
CHUNK = 1000


@worker.task(ttl=0)
async def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    worker.run_sync()


async def prepare() -> None:
    await worker.__aenter__()  # for as long as this process lives


async def send_one(sent_at: float) -> None:
    await noop.enqueue(sent_at=sent_at, **ARGUMENTS)


async def send_bulk(count: int) -> None:
    for first in range(0, count, CHUNK):
        await worker.enqueue_many([noop.enqueue(sent_at=0.0, **ARGUMENTS) for _ in range(min(CHUNK, count - first))])
