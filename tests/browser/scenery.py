"""A day of invented work: counters and workers for charts and pages."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rsmq_django.core import Queue
from rsmq_django.core.keys import workers_key
from rsmq_django.core.stats.counters import report, sample
from rsmq_django.core.stats.histogram import bucket_of
from rsmq_django.core.tasks.processes import ProcessRecord, Running, describe
from rsmq_django.core.transport.call import Call
from rsmq_django.queues import ensure_queue

PAY, SEND = "shop.tasks.charge_card", "shop.tasks.send_receipt"
DAY_S, STEP_S = 86_400, 300


def run_a_day(queue: Queue, *, also: str, held: Mapping[str, int] = MappingProxyType({})) -> str:
    """Fill the counters of two queues, and have four processes work on them; return the id of one.

    `held` are the messages that this one runs, and for how many milliseconds.
    """
    rng = random.Random(7)
    client, now = queue.client, time.time()
    ensure_queue(also)
    calls: list[Call[bool]] = []
    for number, ago_s in enumerate(_moments()):
        at_s = now - ago_s
        load = _load(at_s) + rng.random() / 2
        minutes = 1 if ago_s <= 3600 else STEP_S / 60
        for name, task, share in ((queue.name, PAY, 1.0), (also, SEND, 0.4)):
            calls.append(_report(rng, name, task, number, at_s, count=max(1, round(40 * load * share * minutes))))
    client.run_many(calls)
    for ago_s in range(3600, -1, -60):
        for name, per_minute in ((queue.name, 40), (also, 16)):
            grown = round(per_minute * (_load(now - ago_s + 180) + 0.3))
            client.connection.exchange([("HINCRBY", f"rsmq:{name}:Q", "totalsent", grown)])
            client.run(sample("rsmq", name, at_s=now - ago_s))
    ids = [f"web-eu-{host}-4{pid}17-a3f9c{pid}-19eec{pid}" for host in (1, 2) for pid in (1, 2)]
    client.run(Call("tasks/worker/beat", (workers_key("rsmq"),), (30_000, *ids), lambda reply: None))
    for number, worker_id in enumerate(ids):
        running = tuple(Running(message_id, ms) for message_id, ms in (held if number == 0 else {}).items())
        record = ProcessRecord(
            host=worker_id[:8],
            pid=411 + number,
            version="0.1.0",
            age_ms=7_300_000 + number,
            memory_bytes=(61 + number) << 20,
            state="quiet" if number == 3 else "working",
            queues=(queue.name, also),
            running=running,
        )
        client.run(describe("rsmq", worker_id, record))
    return ids[0]


def _report(rng: random.Random, queue: str, task: str, number: int, at_s: float, *, count: int) -> Call[bool]:
    grown: dict[str, int] = {f"succeeded:{task}": count}
    grown[f"retried:{task}"] = rng.randrange(count // 12 + 1)
    grown[f"dead:{task}"] = int(rng.random() < 0.08) * rng.randrange(1, 4)
    for kind, median_us, spread in (("run", 90_000, 0.5), ("wait", 12_000, 1.1)):
        for _ in range(min(count, 40)):
            field = f"{kind}:{bucket_of(median_us * math.exp(rng.gauss(0, spread)))}:{task}"
            grown[field] = grown.get(field, 0) + 1
    return report("rsmq", queue, reporter="scenery", number=number + 1, at_s=at_s, grown=grown)


def _load(at_s: float) -> float:
    return 1.7 + math.sin(at_s / 9000) + 0.6 * math.sin(at_s / 700)


def _moments() -> Iterator[int]:
    """Return how many seconds ago something was reported: every minute of the last hour, less often before."""
    yield from range(DAY_S - STEP_S, 3600, -STEP_S)
    yield from range(3600, -1, -60)
