"""Counters: reports that are added once, samples of queues, how long they are kept."""

import time

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.stats.counters import MOST_FIELDS, report, sample
from rsmq_django.core.stats.history import RESOLUTIONS, read_series, read_totals
from tests.core.stats.reports import a_report
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("mid_minute")

HOUR_S = 3600


def test_reports_of_several_workers_add_up_by_task(client: Client):
    client.run(a_report(1, succeeded__mail=3, dead__mail=1))
    client.run(a_report(2, succeeded__mail=2, retried__mail=4))
    client.run(a_report(1, reporter="w2", succeeded__mail=10, succeeded__pay=1))

    (slot,) = [s for s in read_series(client, ["jobs"], since_s=time.time() - 120)["jobs"] if s.tasks]

    assert slot.tasks["mail"].succeeded == 15
    assert slot.tasks["mail"].failed == 5
    assert slot.counts.succeeded == 16
    assert slot.counts.ended == 21


def test_report_whose_reply_was_lost_is_not_added_again(client: Client):
    first, second = a_report(1, succeeded__mail=3), a_report(2, succeeded__mail=5)

    assert [client.run(call) for call in (first, first, second, first, second)] == [True, False, True, False, False]

    assert read_totals(client, ["jobs"])["jobs"]["mail"].succeeded == 8


def test_samples_of_a_queue_record_peaks_totals_and_sent_messages(client: Client, queue: Queue):
    now = time.time()
    queue.send_many([b"x"] * 3)
    client.run(sample("rsmq", "jobs", at_s=now - 120))
    queue.send_many([b"x"] * 4)
    client.run(sample("rsmq", "jobs", at_s=now))
    for _ in range(7):
        queue.pop()
    client.run(sample("rsmq", "jobs", at_s=now))

    slots = read_series(client, ["jobs"], since_s=now - 120, until_s=now)["jobs"]

    before, middle, after = slots[-3:]
    assert (before.depth.ready, middle.depth, after.depth.ready, after.depth.messages) == (3, None, 7, 7)
    assert (after.depth.total_sent, after.depth.total_received) == (7, 7)
    assert (before.sent, middle.sent, after.sent) == (None, None, 4), "nobody knows what was sent before the first look"


def test_recreated_queue_starts_its_counts_again(client: Client, queue: Queue):
    now = time.time()
    queue.send_many([b"x"] * 5)
    client.run(sample("rsmq", "jobs", at_s=now - 60))
    queue.delete_queue()
    queue.create()
    queue.send_many([b"x"] * 2)
    client.run(sample("rsmq", "jobs", at_s=now))

    slots = read_series(client, ["jobs"], since_s=now - 60, until_s=now)["jobs"]

    assert slots[-1].sent == 2


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_age_of_a_queue_is_that_of_its_first_ready_message(
    client: Client, queue: Queue, server: PrivateServer, ready: int
):
    queue.send_many([b"x"] * 2, delay_s=60)
    for message_id in queue.send_many([b"x"] * ready):
        server.redis.zincrby("rsmq:jobs", -5000, message_id)

    client.run(sample("rsmq", "jobs", at_s=time.time()))

    fields = server.redis.hgetall(next(iter(server.redis.keys("rsmq::stats:*"))))
    depth = read_series(client, ["jobs"], since_s=time.time() - 60)["jobs"][-1].depth
    assert (int(fields[b"=messages"]), int(fields[b"=ready"])) == (ready + 2, ready)
    assert depth is not None and depth.oldest_ready_s == (int(fields[b"=oldest_ms"]) / 1000 if ready else None)
    assert 5000 <= int(fields[b"=oldest_ms"]) < 65_000 if ready else fields[b"=oldest_ms"] == b"0"


@pytest.mark.parametrize("letters", [0, 3])
def test_queue_that_stays_as_it_is_takes_one_small_key(
    client: Client, queue: Queue, server: PrivateServer, letters: int
):
    queue.send_many([b"x"] * letters)
    now = time.time()
    for at_s in range(int(now) - 5 * 3600, int(now), 15):
        client.run(sample("rsmq", "jobs", at_s=at_s))

    begins = {int(key.rpartition(b":")[2]) for key in server.redis.keys("rsmq::stats:jobs:60:*")}
    assert max(begins) - min(begins) < 3600, "only the first hour has samples"
    assert server.redis.zcard("rsmq::stats:jobs:unchanged") == 1
    assert server.redis.memory_usage("rsmq::stats:jobs:unchanged") < 300
    assert 8 * 86_400 < server.redis.ttl("rsmq::stats:jobs:unchanged") < 9 * 86_400


@pytest.mark.parametrize("change", ["sent", "received", "deleted", "delayed"])
def test_each_change_of_a_queue_with_messages_is_sampled(
    client: Client, queue: Queue, server: PrivateServer, change: str
):
    first, *_ = queue.send_many([b"x"] * 3)
    now = time.time()
    for at_s in range(int(now) - 3 * 3600, int(now) - 60, 60):
        client.run(sample("rsmq", "jobs", at_s=at_s))
    if change == "sent":
        queue.send(b"x")
    elif change == "received":
        queue.receive(visibility_timeout_s=0)
    elif change == "deleted":
        queue.delete(first)
    else:
        server.redis.zincrby("rsmq:jobs", 10**9, first)

    client.run(sample("rsmq", "jobs", at_s=now))

    slots = read_series(client, ["jobs"], since_s=now - 120, until_s=now)["jobs"]
    depth = slots[-1].depth
    assert depth is not None and slots[0].depth is not None
    assert slots[0].depth.ready == 3
    expected = {"sent": (4, 0), "received": (3, 0), "deleted": (2, 0), "delayed": (2, 1)}[change]
    assert (depth.ready, depth.hidden) == expected


def test_times_in_which_a_queue_stayed_empty_are_kept_for_eight_days(
    client: Client, queue: Queue, server: PrivateServer
):
    now = time.time()
    for days in (20, 9, 3, 1):
        for hours in range(3):
            client.run(sample("rsmq", "jobs", at_s=now - days * 86_400 + hours * 3600))
        queue.send(b"x")
        queue.pop()

    ends = [end for _, end in server.redis.zrange("rsmq::stats:jobs:unchanged", 0, -1, withscores=True)]
    assert [round((now - end) / 86_400) for end in ends] == [9, 3, 1]


def test_sample_of_a_missing_queue_records_nothing(client: Client, server: PrivateServer):
    assert client.run(sample("rsmq", "nobody", at_s=time.time())) is False
    assert server.redis.keys() == []


def test_every_key_expires(client: Client, queue: Queue, server: PrivateServer):
    now = time.time()
    client.run(a_report(1, at_s=now, succeeded__mail=1))
    client.run(sample("rsmq", "jobs", at_s=now))

    keys = server.redis.keys("rsmq::stats:*")

    assert len(keys) == 4
    ttls = sorted(server.redis.ttl(key) for key in keys)
    assert all(resolution.keep_s < ttl for resolution, ttl in zip(RESOLUTIONS, ttls, strict=False))
    assert ttls[-1] <= 32 * 86_400


def test_full_report_goes_through_in_one_call(client: Client):
    grown = {f"run:{bucket}:mail": 1 for bucket in range(MOST_FIELDS)}

    client.run(report("rsmq", "jobs", reporter="w", number=1, at_s=time.time(), grown=grown))

    assert read_totals(client, ["jobs"])["jobs"]["mail"].run.count == MOST_FIELDS


def test_reports_and_samples_work_at_the_memory_limit(client: Client, queue: Queue, server: PrivateServer):
    Queue("idle", client).create()
    client.run(a_report(1, succeeded__mail=1))
    client.run(sample("rsmq", "jobs", at_s=time.time()))
    for hours in (2, 1):  # it has stayed empty
        client.run(sample("rsmq", "idle", at_s=time.time() - hours * 3600))
    server.redis.config_set("maxmemory", 1)
    try:
        client.run(a_report(2, succeeded__mail=1))
        client.run(sample("rsmq", "idle", at_s=time.time()))
        client.run(sample("rsmq", "jobs", at_s=time.time()))
    finally:
        server.redis.config_set("maxmemory", 0)

    assert read_totals(client, ["jobs"])["jobs"]["mail"].succeeded == 2


@pytest.mark.parametrize("poison", ["many", "1.5", str(2**63 - 1), "", "9" * 400])
def test_counter_that_is_not_a_number_starts_again_and_the_others_grow(
    client: Client, server: PrivateServer, poison: str
):
    client.run(a_report(1, succeeded__mail=1, dead__mail=1))
    for key in server.redis.keys("rsmq::stats:*"):
        server.redis.hset(key, "succeeded:mail", poison)

    client.run(a_report(2, succeeded__mail=2, dead__mail=3))

    counts = read_totals(client, ["jobs"])["jobs"]["mail"]
    assert (counts.succeeded, counts.dead) == (2, 4)
    (slot,) = [slot for slot in read_series(client, ["jobs"], since_s=time.time() - HOUR_S)["jobs"] if slot.tasks]
    assert (slot.counts.succeeded, slot.counts.dead) == (2, 4)
