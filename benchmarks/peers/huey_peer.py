"""Huey: one process with one thread, blocking reads, no results. It acknowledges before it runs: at most once."""

import os

from huey import RedisHuey

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS, Send, become

huey = RedisHuey("bench", url=os.environ["BENCH_URL"], results=False)


@huey.task()
def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    options = ["--workers", "1", "--worker-type", "thread", "--quiet"]
    become("-m", "huey.bin.huey_consumer", "benchmarks.peers.huey_peer.huey", *options)


def send_one(sent_at: float) -> None:
    noop(sent_at=sent_at, **ARGUMENTS)


def open_site() -> tuple[Send, Send]:
    from benchmarks import web

    return web.open_site(send_one)
