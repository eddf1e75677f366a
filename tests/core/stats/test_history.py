"""The history of counters: series without gaps, totals, numbers of many queues, sent messages."""

import time

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import InvalidValue
from rsmq_django.core.stats.counters import sample
from rsmq_django.core.stats.history import (
    Counts,
    Window,
    aread_series,
    aread_totals,
    merged,
    read_series,
    read_sums,
    read_totals,
    side_by_side,
)
from rsmq_django.core.stats.moments import MAX_QUEUES, Moment, moment_calls, moments, together_call
from tests.core.stats.reports import a_report
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("mid_minute")

HOUR_S = 3600


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


def last_hour(client: Client, *names: str) -> list[Moment]:
    calls = moment_calls(client.namespace, names, Window.of(time.time() - HOUR_S))
    return moments(client.run_many(list(calls.values())))


def test_tasks_are_added_up_and_queues_kept_apart(client: Client):
    now = time.time()
    client.run(
        a_report(1, at_s=now, queue="mail", succeeded__a=3, succeeded__b=2, retried__a=1, dead__b=1, started__a=9)
    )
    client.run(a_report(1, at_s=now, queue="jobs", succeeded__a=7, lost__a=1))

    moment = last_hour(client, "mail", "idle", "jobs")[-1]
    mail, idle, jobs = moment.queues

    assert (mail.succeeded, mail.retried, mail.dead, mail.failed, mail.handled) == (5, 1, 1, 2, 7)
    assert (jobs.succeeded, jobs.lost, jobs.handled) == (7, 1, 8)
    assert (idle.handled, moment.total_sent) == (0, [None] * 3)


def test_histograms_of_all_queues_and_tasks_merge(client: Client):
    now = time.time()
    client.run(a_report(1, at_s=now, queue="mail", **{"run:100:a": 5, "run:100:b": 1, "wait:7:a": 2, "run_us:a": 99}))
    client.run(a_report(1, at_s=now, queue="jobs", **{"run:100:a": 4, "run:200:a": 1}))

    moment = last_hour(client, "mail", "jobs")[-1]

    assert moment.run.counts == {100: 10, 200: 1}
    assert moment.wait.counts == {7: 2}


def test_spans_are_equal_and_without_gaps(client: Client):
    now = time.time()
    client.run(a_report(1, at_s=now - 1800, queue="mail", succeeded__a=1))

    found = last_hour(client, "mail")

    assert [b.begins_s - a.begins_s for a, b in zip(found, found[1:], strict=False)] == [60] * (len(found) - 1)
    assert [m.begins_s for m in found if m.queues[0].succeeded] == [int((now - 1800) // 60) * 60]


def test_sent_is_by_how_much_the_total_of_any_client_grew(queue: Queue):
    client, now = queue.client, time.time()
    queue.send_many([b"x"] * 3)
    client.run(sample("rsmq", queue.name, at_s=now - 180))
    queue.send_many([b"x"] * 4)
    client.run(sample("rsmq", queue.name, at_s=now))

    sent = [moment.sent[0] for moment in last_hour(client, queue.name)]

    assert sent[-1] == 4, "also over spans in which nobody looked"
    assert set(sent[:-1]) == {None}, "nobody looked before the first time"


def sampled(queue: Queue, since_s: float, until_s: float) -> None:
    """Sample a queue each minute."""
    for at_s in range(int(since_s), int(until_s) + 1, 60):
        queue.client.run(sample("rsmq", queue.name, at_s=at_s))


@pytest.mark.parametrize(("hours", "span_s"), [(2.5, 60), (4, 600), (4, 3600)])
def test_queue_that_stayed_empty_has_a_depth_and_a_number_of_sent_messages(queue: Queue, hours: float, span_s: int):
    client, now = queue.client, time.time()
    window = Window.of(now - hours * HOUR_S, now, span_s)
    queue.send_many([b"x"] * 3)
    for _ in range(3):
        queue.pop()
    sampled(queue, now - 6 * HOUR_S, now)
    queue.send_many([b"x"] * 2)
    client.run(sample("rsmq", queue.name, at_s=now))

    slots = read_series(client, [queue.name], since_s=window.begins_s, until_s=now, step_s=span_s)[queue.name]
    calls = moment_calls("rsmq", [queue.name], window)
    by_queue = moments(client.run_many(list(calls.values())))
    all_queues = [client.run(together_call("rsmq", [queue.name], window, begins_s)) for begins_s in window.steps]

    numbers = [0] * (len(window.steps) - 1) + [2]
    assert [slot.sent for slot in slots] == numbers
    assert [moment.sent[0] for moment in by_queue] == numbers
    assert [moment.sent[0] for moment in all_queues] == numbers
    assert [slot.depth and slot.depth.ready for slot in slots] == numbers
    assert {slot.depth and slot.depth.total_sent for slot in slots[:-1]} == {3}


@pytest.mark.parametrize(("hours", "span_s"), [(2.5, 60), (4, 600), (4, 3600)])
def test_messages_that_stayed_in_a_queue_are_in_every_slot_and_grow_older(
    queue: Queue, server: PrivateServer, hours: float, span_s: int
):
    now = time.time()
    server.redis.zadd("rsmq:jobs", dict.fromkeys(queue.send_many([b"x"] * 3), int(now - 5 * HOUR_S) * 1000))
    sampled(queue, now - 6 * HOUR_S, now)

    since_s = now - hours * HOUR_S
    slots = read_series(queue.client, [queue.name], since_s=since_s, until_s=now, step_s=span_s)[queue.name]

    depths = [slot.depth for slot in slots if slot.depth is not None]
    assert [(depth.ready, depth.hidden) for depth in depths] == [(3, 0)] * len(slots)
    ends_s = [min(slot.begins_s + span_s, now) for slot in slots]
    ages_s = [depth.oldest_ready_s or 0 for depth in depths]
    assert ages_s == pytest.approx([end_s - (now - 5 * HOUR_S) for end_s in ends_s], abs=61)


def test_time_in_which_nobody_looked_is_not_taken_for_empty(queue: Queue):
    client, now = queue.client, time.time()
    sampled(queue, now - 4 * HOUR_S, now - HOUR_S)
    queue.send_many([b"x"] * 2)
    client.run(sample("rsmq", queue.name, at_s=now))

    slots = read_series(client, [queue.name], since_s=now - 1.5 * HOUR_S, until_s=now)[queue.name]

    assert [slot.depth is None for slot in slots[-45:]] == [True] * 44 + [False]
    assert slots[0].depth is not None
    assert slots[-1].sent == 2


def test_one_task_is_separated_from_all_others(client: Client, queue: Queue):
    now = time.time()
    client.run(sample("rsmq", "jobs", at_s=now))
    client.run(
        a_report(1, at_s=now, queue="jobs", **{"succeeded:a.b": 3, "succeeded:a": 2, "run:100:a": 1, "run:100:a.b": 4})
    )

    calls = moment_calls("rsmq", ["jobs"], Window.of(now - 3600, now), task="a")
    last = client.run(list(calls.values())[-1])

    assert (last.queues[0].succeeded, last.run.counts, last.total_sent[0]) == (2, {100: 1}, None)


def test_sums_are_those_of_the_series(client: Client):
    now = time.time()
    window = Window.of(now - HOUR_S, now)
    names = ("never-sampled", "long-idle", "just-idle", "refilled", "with-letters", "busy")
    queues = {name: Queue(name, client) for name in names}
    for queue in queues.values():
        queue.create()
        queue.send(b"x")
        queue.pop()
    queues["with-letters"].send(b"x")
    sampled(queues["with-letters"], now - 4 * HOUR_S, now)
    sampled(queues["long-idle"], now - 4 * HOUR_S, now)
    sampled(queues["just-idle"], now - HOUR_S / 2, now)
    sampled(queues["refilled"], now - 4 * HOUR_S, now - HOUR_S / 2)
    queues["refilled"].send(b"x")
    queues["refilled"].pop()
    sampled(queues["refilled"], now - HOUR_S / 2 + 60, now)
    client.run(a_report(1, at_s=now - 600, queue="busy", succeeded__mail=2, retried__news=1))
    client.run(a_report(2, at_s=now, queue="busy", succeeded__mail=3))

    sums = read_sums(client, list(queues), window)

    series = read_series(client, list(queues), since_s=window.begins_s, until_s=now, step_s=60)
    for name, slots in series.items():
        total = merged(slots)
        assert (sums[name].total.sent, sums[name].total.depth) == (total.sent, total.depth)
        assert sums[name].total.tasks == total.tasks
        assert sums[name].ended == [slot.counts.ended for slot in slots]
        assert sums[name].ended_by_task == {
            task: [slot.tasks.get(task, Counts()).ended for slot in slots] for task in total.tasks
        }
    assert [sums[name].total.sent for name in queues] == [None, 0, 0, 1, 0, None]
    assert sum(sums["busy"].ended) == 6


def test_too_many_queues_are_refused():
    with pytest.raises(InvalidValue, match="up to 300"):
        moment_calls("rsmq", ["q"] * (MAX_QUEUES + 1), Window.of(time.time() - 3600))


def test_history_of_very_many_queues_is_read_in_portions(client: Client, round_trips: list[int]):
    names, since_s = [f"jobs{number}" for number in range(1500)], time.time() - 60

    assert read_series(client, names, since_s=since_s).keys() == {*names}
    assert read_totals(client, names).keys() == {*names}

    assert sum(round_trips) >= 2 * len(names) and max(round_trips) <= 1000
