"""RQ: no results kept. Cases: the worker that runs jobs in its own process, and the default that forks for each."""

import os

from redis import Redis
from rq import Queue, SimpleWorker, Worker

from benchmarks.accounting import ran
from benchmarks.act import ARGUMENTS

queue = Queue("bench", connection=Redis.from_url(os.environ["BENCH_URL"]))
WORKERS = {"simple": SimpleWorker, "fork": Worker}
CHUNK = 1000


def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def work() -> None:
    WORKERS[os.environ["BENCH_CASE"]]([queue], connection=queue.connection).work(logging_level="ERROR")


def send_one(sent_at: float) -> None:
    queue.enqueue("benchmarks.peers.rq_peer.noop", kwargs={"sent_at": sent_at, **ARGUMENTS}, result_ttl=0)


def send_bulk(count: int) -> None:
    kwargs = {"sent_at": 0.0, **ARGUMENTS}
    jobs = [Queue.prepare_data("benchmarks.peers.rq_peer.noop", kwargs=kwargs, result_ttl=0) for _ in range(count)]
    for first in range(0, count, CHUNK):
        queue.enqueue_many(jobs[first : first + CHUNK])
