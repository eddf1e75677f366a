"""Counters: reports that are added once, series without gaps, totals, samples of queues."""

import time

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import InvalidValue
from rsmq_django.core.stats.counters import (
    MOST_FIELDS,
    RESOLUTIONS,
    Counts,
    aread_series,
    aread_totals,
    merged,
    read_series,
    read_totals,
    report,
    sample,
    side_by_side,
)
from rsmq_django.core.transport.call import Call
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("mid_minute")

HOUR_S = 3600


def a_report(
    number: int, *, at_s: float | None = None, queue: str = "jobs", reporter: str = "w1", **grown: int
) -> Call:
    fields = {name.replace("__", ":"): by for name, by in grown.items()}
    return report("rsmq", queue, reporter=reporter, number=number, at_s=at_s or time.time(), grown=fields)


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


def test_series_has_every_step_once_whatever_was_counted(client: Client):
    now = time.time()
    client.run(a_report(1, at_s=now - 600, succeeded__mail=1))
    client.run(a_report(2, at_s=now, succeeded__mail=2))

    slots = read_series(client, ["jobs"], since_s=now - HOUR_S, until_s=now)["jobs"]

    assert [slot.begins_s for slot in slots] == [slots[0].begins_s + 60 * n for n in range(61)]
    assert slots[-1].begins_s <= now < slots[-1].begins_s + 60
    assert [slot.counts.succeeded for slot in slots if slot.tasks] == [1, 2]
    assert [slot.counts.succeeded for slot in slots][-11] == 1


@pytest.mark.parametrize(
    ("hours", "span_s"), [(1, 60), (2.9, 60), (24, 600), (7 * 24, 3600)], ids=["hour", "three hours", "day", "week"]
)
def test_resolution_follows_from_how_far_back_a_series_goes(client: Client, hours: float, span_s: int):
    now = time.time()
    client.run(a_report(1, at_s=now - hours * HOUR_S, succeeded__mail=1))
    client.run(a_report(2, at_s=now, succeeded__mail=2))

    slots = read_series(client, ["jobs"], since_s=now - hours * HOUR_S, until_s=now)["jobs"]

    assert {slot.span_s for slot in slots} == {span_s}
    assert merged(slots).counts.succeeded == 3


def test_longer_steps_put_spans_together(client: Client):
    now = time.time()
    for minute in range(30):
        client.run(a_report(minute + 1, at_s=now - minute * 60, run__100__mail=1, run_us__mail=7, succeeded__mail=1))

    slots = read_series(client, ["jobs"], since_s=now - 3600, until_s=now, step_s=300)["jobs"]

    assert {slot.span_s for slot in slots} == {300}
    assert sum(slot.counts.run.count for slot in slots) == 30
    assert merged(slots).counts.run.sum_us == 210
    assert merged(slots).counts.run.counts == {100: 30}


@pytest.mark.parametrize("step_s", [0, -60, 59, 61])
def test_step_with_an_unknown_number_is_refused(client: Client, step_s: int):
    with pytest.raises(InvalidValue, match="multiple of 60 s"):
        read_series(client, ["jobs"], since_s=time.time() - 60, step_s=step_s)


def test_series_that_ends_before_it_begins_is_refused(client: Client):
    with pytest.raises(InvalidValue, match="cannot end"):
        read_series(client, ["jobs"], since_s=time.time(), until_s=time.time() - 60)


def test_series_of_a_year_is_refused_with_what_to_do(client: Client):
    with pytest.raises(InvalidValue, match="longer step"):
        read_series(client, ["jobs"], since_s=time.time() - 365 * 86_400)


def test_one_task_can_be_read_by_itself(client: Client):
    client.run(a_report(1, succeeded__mail=3, succeeded__pay=1, wait__5__pay=2, wait_us__pay=9))

    slot = merged(read_series(client, ["jobs"], since_s=time.time() - 60, task="pay")["jobs"])

    assert list(slot.tasks) == ["pay"]
    assert slot.tasks["pay"].wait.counts == {5: 2}
    assert slot.tasks["pay"].wait.sum_us == 9


def test_several_queues_are_read_at_once_and_put_side_by_side(client: Client):
    for name in ("jobs", "mail"):
        queue = Queue(name, client)
        queue.create()
        queue.send_many([b"x"] * 3)
        client.run(a_report(1, queue=name, succeeded__t=2))
        client.run(sample("rsmq", name, at_s=time.time()))

    series = read_series(client, ["jobs", "mail", "nobody"], since_s=time.time() - 60)

    total = merged(side_by_side(series.values()))
    assert total.counts.succeeded == 4
    assert total.depth is not None and total.depth.ready == 6


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
    assert (int(fields[b"=messages"]), int(fields[b"=ready"])) == (ready + 2, ready)
    assert 5000 <= int(fields[b"=oldest_ms"]) < 65_000 if ready else fields[b"=oldest_ms"] == b"0"


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
    client.run(a_report(1, succeeded__mail=1))
    client.run(sample("rsmq", "jobs", at_s=time.time()))
    server.redis.config_set("maxmemory", 1)
    try:
        client.run(a_report(2, succeeded__mail=1))
        client.run(sample("rsmq", "jobs", at_s=time.time()))
    finally:
        server.redis.config_set("maxmemory", 0)

    assert read_totals(client, ["jobs"])["jobs"]["mail"].succeeded == 2


def test_fields_of_others_in_a_hash_do_no_harm(client: Client, server: PrivateServer):
    client.run(a_report(1, succeeded__mail=1))
    server.redis.hset("rsmq::stats:jobs:total", mapping={"succeeded:pay": "many", "unheard": 1, b"\xff": 1, "x:y": 2})

    assert read_totals(client, ["jobs"])["jobs"] == {"mail": Counts(succeeded=1)}


async def test_async_twins_read_the_same(client: Client):
    client.run(a_report(1, succeeded__mail=3))
    since_s = time.time() - 60

    assert await aread_totals(client, ["jobs"]) == read_totals(client, ["jobs"])
    series = await aread_series(client, ["jobs"], since_s=since_s)
    assert merged(series["jobs"]).counts.succeeded == 3
    await client.connection.aclose()


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
