"""What a process counts and reports: nothing twice, nothing forgotten, little at a time."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rsmq_django.core import Client
from rsmq_django.core.counters import Counts, read_totals
from rsmq_django.core.errors import BrokenQueue, ConnectionFailed
from rsmq_django.core.histogram import Histogram
from rsmq_django.queues import get_client
from rsmq_django.tasks import Retry, current_task
from rsmq_django.worker.report.statistics import Statistics
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, send_raw, work, working


def new_statistics(reporter: str = "w1") -> Statistics:
    return Statistics("rsmq", reporter, now_ms=lambda: time.time() * 1000)


def exchange(client: Client, statistics: Statistics) -> int:
    """Carry out what is due now; returns how many reports that were."""
    statistics.flush_soon()
    steps = statistics.steps()
    for step in steps:
        step.done(client.run(step.call))
    return len(steps)


def totals(client: Client, queue: str = "mail") -> dict[str, Counts]:
    return read_totals(client, [queue])[queue]


def test_what_was_counted_arrives_with_its_times(client: Client):
    statistics = new_statistics()
    statistics.began("mail", "send")
    statistics.began("mail", "send")
    statistics.ended("mail", "send", "succeeded", wait_us=1_500, run_us=250)
    statistics.ended("mail", "send", "dead", wait_us=2_500, run_us=350)
    statistics.ended("pay", "charge", "released")

    assert exchange(client, statistics) == 2

    sent = totals(client)["send"]
    assert (sent.started, sent.succeeded, sent.dead) == (2, 1, 1)
    assert sent.wait == Histogram.of([1_500, 2_500])
    assert sent.run == Histogram.of([250, 350])
    assert totals(client, "pay") == {"charge": Counts(released=1)}


def test_nothing_counted_is_nothing_reported(client: Client):
    assert exchange(client, new_statistics()) == 0


def test_first_count_after_a_rest_is_reported_at_once():
    statistics = new_statistics()
    assert statistics.steps() == []
    statistics.ended("mail", "send", "succeeded")

    assert len(statistics.steps()) == 1


def test_nothing_is_reported_twice(client: Client):
    statistics = new_statistics()
    statistics.ended("mail", "send", "succeeded")
    exchange(client, statistics)

    assert statistics.is_empty
    assert statistics.next_report_at() is None
    assert exchange(client, statistics) == 0


def test_there_is_one_report_in_a_second_however_much_happens(client: Client, monkeypatch: pytest.MonkeyPatch):
    now_s = [1000.0]
    monkeypatch.setattr("rsmq_django.worker.report.statistics.time.monotonic", lambda: now_s[0])
    statistics = new_statistics()
    statistics.ended("mail", "send", "succeeded")
    first = statistics.steps()
    for step in first:
        step.done(True)
    statistics.ended("mail", "send", "succeeded")

    assert len(first) == 1
    assert statistics.steps() == []
    assert statistics.next_report_at() == 1001.0
    now_s[0] = 1001.0
    assert len(statistics.steps()) == 1


def test_report_whose_reply_was_lost_is_sent_again_and_added_once(client: Client):
    statistics = new_statistics()
    statistics.ended("mail", "send", "succeeded")
    statistics.flush_soon()
    (step,) = statistics.steps()
    client.run(step.call)  # carried out, but nobody heard of it
    step.failed(ConnectionFailed("the reply was lost"))
    statistics.ended("mail", "send", "succeeded")

    exchange(client, statistics)
    exchange(client, statistics)

    assert statistics.is_empty
    assert totals(client)["send"].succeeded == 2


def test_report_that_can_never_arrive_is_dropped_and_told_once(caplog: Any):
    statistics = new_statistics()
    for _ in range(2):
        statistics.ended("mail", "send", "succeeded")
        statistics.flush_soon()
        (step,) = statistics.steps()
        step.failed(BrokenQueue("wrong type"))

    assert statistics.is_empty
    assert caplog.text.count("its statistics have a gap") == 1


def test_more_fields_than_one_report_takes_follow_in_the_next_ones(client: Client):
    statistics = new_statistics()
    durations = [1.02**bucket for bucket in range(10, 900)]
    for run_us in durations:
        statistics.ended("mail", "send", "succeeded", run_us=round(run_us))

    reports = 0
    while not statistics.is_empty:
        reports += exchange(client, statistics)

    assert reports > 1
    assert totals(client)["send"].run == Histogram.of(map(round, durations))
    assert totals(client)["send"].succeeded == len(durations)


def test_every_message_is_counted_once_as_sent_whoever_sent_it(project: Configure):
    def stubborn(number: int) -> None:
        if current_task().attempt == 1:
            raise Retry(after_s=0)

    declared = declare(stubborn)
    declared.enqueue(1)
    declared.enqueue_many([[2], [3]])
    send_raw(json.dumps({"task": declared.module_path, "args": [4]}))
    send_raw("no task")

    work()

    counts = read_totals(get_client(), ["default"])["default"]
    assert {task: (each.sent, each.started) for task, each in counts.items()} == {
        declared.module_path: (4, 8),
        "": (1, 0),
    }


@pytest.mark.slow
@hypothesis_settings(max_examples=200)
@given(st.lists(st.sampled_from(["began", "succeeded", "retried", "report", "lost report"]), max_size=60))
def test_any_history_adds_up(history: list):
    statistics = new_statistics()
    received: list[tuple[Any, Any]] = []
    seen: set[int] = set()

    def arrive(step: Any) -> None:
        number, fields = step.call.args[1], step.call.args[6:]
        if number not in seen:
            seen.add(number)
            received.extend(zip(fields[::2], fields[1::2], strict=True))

    for event in [*history, "report", "report"]:
        if event == "began":
            statistics.began("q", "t")
        elif event in ("report", "lost report"):
            statistics.flush_soon()
            for step in statistics.steps():
                arrive(step)
                step.done(True) if event == "report" else step.failed(ConnectionFailed("lost"))
        else:
            statistics.ended("q", "t", event)

    for name in ("began", "succeeded", "retried"):
        field = f"{'started' if name == 'began' else name}:t"
        assert sum(by for found, by in received if found == field) == history.count(name)
    assert statistics.is_empty


def test_idle_worker_reports_what_its_last_tasks_have_counted(project: Configure):
    client = get_client()
    with working(poll_interval_s=600.0) as worker:
        declare(_named).enqueue()

        wait_until(lambda: sum(counts.succeeded for counts in totals(client, "default").values()))
        assert worker.stop_by is None


def _named() -> None: ...


def test_worker_without_statistics_works_sleeps_and_works_again(project: Configure, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "STATISTICS": {"ENABLED": False}}
    seen: list[int] = []
    task = declare(lambda number: seen.append(number))
    with working(poll_interval_s=600.0) as worker:
        for number in range(2):
            wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)
            task.enqueue(number)
            wait_until(lambda: len(seen) == number + 1)  # noqa: B023 - asked in the same round
    assert totals(get_client(), "default") == {}
