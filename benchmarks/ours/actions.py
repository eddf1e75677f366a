"""How to start our worker and how to send, for act.py. Starting is what a user types: `django rsmq_worker`."""

from __future__ import annotations

import json
import os

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.ours.settings"
django.setup()

from django.db import connection, transaction  # noqa: E402

from benchmarks import web  # noqa: E402 - needs the line above
from benchmarks.act import ARGUMENTS, become  # noqa: E402
from benchmarks.ours.settings import QUEUE_NAMES, SHARDS_OF_EACH  # noqa: E402
from benchmarks.ours.tasks import measured  # noqa: E402
from rsmq_django.core import Queue  # noqa: E402
from rsmq_django.queues import ensure_queue, get_client  # noqa: E402

#: How the tasks are sent: "enqueue", "transaction" (collected until one commits), "core" (plain messages, no tasks),
#: "silent" (a client that does not publish, as most of other languages).
HOW = os.environ.get("BENCH_HOW", "enqueue")
#: So many tasks are collected in one transaction.
COLLECTED = 1000

for name in QUEUE_NAMES:
    for shard in range(SHARDS_OF_EACH) if SHARDS_OF_EACH > 1 else [None]:
        ensure_queue(name, shard=shard)
connection.ensure_connection()  # as in a web process; without one, enqueue() has no transaction to look at
_core = Queue(QUEUE_NAMES[0], get_client(), realtime=HOW != "silent")


def work() -> None:
    """Become the worker."""
    options = os.environ.get("BENCH_WORKER", "").split()
    become("-m", "django", "rsmq_worker", *options)


def send_one(sent_at: float) -> None:
    """Send one task, or one plain message."""
    if HOW in ("core", "silent"):
        _core.send(json.dumps({"task": measured.module_path, "kwargs": {"sent_at": sent_at, **ARGUMENTS}}))
    else:
        measured.enqueue(sent_at=sent_at, **ARGUMENTS)


def open_site() -> tuple[web.Send, web.Send]:
    """Return requests that send a task and none."""
    return web.open_site(send_one)


def send_bulk(count: int) -> None:
    """Send tasks with the bulk call, the same number to each queue."""
    if HOW == "transaction":
        for first in range(0, count, COLLECTED):
            with transaction.atomic():
                for _ in range(min(COLLECTED, count - first)):
                    measured.enqueue(sent_at=0.0, **ARGUMENTS)
        return
    for name in QUEUE_NAMES:
        task = measured if len(QUEUE_NAMES) == 1 else measured.using(queue_name=name)
        # A number in place of a time: which of the tasks ran can be told.
        task.enqueue_many([{"sent_at": float(number), **ARGUMENTS} for number in range(count // len(QUEUE_NAMES))])
