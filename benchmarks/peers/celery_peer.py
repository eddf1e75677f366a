"""Celery: acknowledged late, as ours are; no results. Cases: the solo pool, and one prefork child."""

import os

from celery import Celery

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS, become

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.update(
    task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=100, worker_hijack_root_logger=False
)
POOLS = {"solo": ["--pool=solo"], "prefork": ["--pool=prefork", "--concurrency=1"]}
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]


@app.task
def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    pool = POOLS[os.environ["BENCH_CASE"]]
    become("-m", "celery", "-A", "benchmarks.peers.celery_peer", "worker", *pool, *QUIET)


def send_one(sent_at: float) -> None:
    noop.delay(sent_at=sent_at, **ARGUMENTS)


def send_bulk(count: int) -> None:
    """Celery has no bulk call; one producer for all is what its users do."""
    with app.producer_pool.acquire() as producer:
        for _ in range(count):
            noop.apply_async(kwargs={"sent_at": 0.0, **ARGUMENTS}, producer=producer)
