"""The history of many queues: outcomes by queue and span, merged histograms, sent messages."""

import time

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import InvalidValue
from rsmq_django.core.stats.counters import report, sample
from rsmq_django.core.stats.past import MAX_QUEUES, Moment, aread_past, past_calls, read_past, window_of
from rsmq_django.core.transport.call import Call

pytestmark = pytest.mark.usefixtures("mid_minute")


def a_report(queue: str, number: int, at_s: float, **grown: int) -> Call:
    fields = {name.replace("__", ":"): by for name, by in grown.items()}
    return report("rsmq", queue, reporter="w1", number=number, at_s=at_s, grown=fields)


def last_hour(client: Client, *names: str) -> list[Moment]:
    return read_past(client, names, span_s=3600, now_s=time.time())


def test_tasks_are_added_up_and_queues_kept_apart(client: Client):
    now = time.time()
    client.run(a_report("mail", 1, now, succeeded__a=3, succeeded__b=2, retried__a=1, dead__b=1, started__a=9))
    client.run(a_report("jobs", 1, now, succeeded__a=7, lost__a=1))

    mail, idle, jobs = last_hour(client, "mail", "idle", "jobs")[-1].queues

    assert (mail.succeeded, mail.retried, mail.dead, mail.failed, mail.handled) == (5, 1, 1, 2, 7)
    assert (jobs.succeeded, jobs.lost, jobs.handled) == (7, 1, 8)
    assert (idle.handled, idle.ready) == (0, None)


def test_histograms_of_all_queues_and_tasks_merge(client: Client):
    now = time.time()
    client.run(a_report("mail", 1, now, **{"run:100:a": 5, "run:100:b": 1, "wait:7:a": 2, "run_us:a": 99}))
    client.run(a_report("jobs", 1, now, **{"run:100:a": 4, "run:200:a": 1}))

    moment = last_hour(client, "mail", "jobs")[-1]

    assert moment.run.counts == {100: 10, 200: 1}
    assert moment.wait.counts == {7: 2}


def test_spans_are_equal_and_without_gaps(client: Client):
    now = time.time()
    client.run(a_report("mail", 1, now - 1800, succeeded__a=1))

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


def test_one_task_is_separated_from_all_others(client: Client, queue: Queue):
    now = time.time()
    client.run(sample("rsmq", "jobs", at_s=now))
    client.run(a_report("jobs", 1, now, **{"succeeded:a.b": 3, "succeeded:a": 2, "run:100:a": 1, "run:100:a.b": 4}))

    calls = past_calls("rsmq", ["jobs"], window_of(3600, now), task="a")
    last = client.run(list(calls.values())[-1])

    assert (last.queues[0].succeeded, last.run.counts, last.queues[0].total_sent) == (2, {100: 1}, None)


async def test_the_async_form_reads_the_same(client: Client):
    now = time.time()
    client.run(a_report("mail", 1, now, succeeded__a=3))

    found = await aread_past(client, ["mail"], span_s=86_400, now_s=now)

    assert found == read_past(client, ["mail"], span_s=86_400, now_s=now)
    assert found[-1].queues[0].succeeded == 3


def test_too_many_queues_are_refused():
    with pytest.raises(InvalidValue, match="up to 300"):
        past_calls("rsmq", ["q"] * (MAX_QUEUES + 1), window_of(3600, time.time()))
