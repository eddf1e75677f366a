"""Dramatiq: one process of eight threads, with a prefetch long enough for short tasks."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS, become

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_URL"]))


@dramatiq.actor
def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    os.environ["dramatiq_queue_prefetch"] = "200"
    become("-m", "dramatiq", "benchmarks.peers.dramatiq_peer", "--processes", "1", "--threads", "8")


def send_one(sent_at: float) -> None:
    noop.send(sent_at=sent_at, **ARGUMENTS)
