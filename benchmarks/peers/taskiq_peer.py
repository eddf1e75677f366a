"""taskiq on a Redis stream, which it acknowledges: one worker process of coroutines."""

import os

from taskiq_redis import RedisStreamBroker

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS, become

broker = RedisStreamBroker(os.environ["BENCH_URL"])


@broker.task
async def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    options = ["--workers", "1", "--max-async-tasks", "100", "--log-level", "ERROR"]
    become("-m", "taskiq", "worker", "benchmarks.peers.taskiq_peer:broker", *options)


async def prepare() -> None:
    await broker.startup()


async def send_one(sent_at: float) -> None:
    await noop.kiq(sent_at=sent_at, **ARGUMENTS)
