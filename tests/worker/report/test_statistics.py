"""What a process counts and reports: nothing twice, nothing forgotten, little at a time."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rsmq_django.core import Client, RsmqError, SettleResult
from rsmq_django.core.errors import BrokenQueue, ConnectionFailed, OutcomeUnknown, ServerRefused
from rsmq_django.core.stats.counters import MOST_FIELDS
from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.core.stats.history import Counts, read_totals
from rsmq_django.queues import get_client
from rsmq_django.tasks import Retry, current_task
from rsmq_django.worker.outcomes import Outcome, Postponed, Released, Succeeded
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


def test_counts_arrive_with_their_histograms(client: Client):
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


def test_first_count_after_an_idle_time_is_reported_at_once():
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


def test_report_that_can_never_arrive_is_dropped_and_logged_once(caplog: Any):
    statistics = new_statistics()
    for _ in range(2):
        statistics.ended("mail", "send", "succeeded")
        statistics.flush_soon()
        (step,) = statistics.steps()
        step.failed(BrokenQueue("wrong type"))

    assert statistics.is_empty
    assert caplog.text.count("its statistics have a gap") == 1


def test_report_that_is_refused_again_after_a_success_is_logged_again(caplog: Any):
    statistics = new_statistics()
    for error in (BrokenQueue("wrong type"), None, BrokenQueue("wrong type")):
        statistics.ended("mail", "send", "succeeded")
        statistics.flush_soon()
        (step,) = statistics.steps()
        step.failed(error) if error else step.done(True)

    assert caplog.text.count("its statistics have a gap") == 2


@pytest.mark.parametrize("error", [ServerRefused("loading"), OutcomeUnknown("no reply"), ConnectionFailed("gone")])
def test_report_that_may_arrive_later_is_kept(client: Client, error: RsmqError):
    statistics = new_statistics()
    statistics.ended("mail", "send", "succeeded")
    (step,) = statistics.steps()

    step.failed(error)

    assert not statistics.is_empty
    assert exchange(client, statistics) == 1
    assert totals(client)["send"].succeeded == 1


# -- What counts as which end ------------------------------------------------------------------------------------------


def settled(outcome: Outcome, *executions: tuple[str, SettleResult]) -> dict[str, Counts]:
    """Return what is counted of attempts at tasks, of which Redis said this; each waited 1 ms and ran for 2 ms."""
    statistics = new_statistics()
    delivery: Any = SimpleNamespace(work_queue=SimpleNamespace(name="mail"), wait_us=1000)
    settlements: Any = [
        SimpleNamespace(outcome=outcome, execution=SimpleNamespace(path=path, run_us=2000, delivery=delivery))
        for path, _ in executions
    ]
    statistics.settled(settlements, [verdict for _, verdict in executions])
    statistics.report_the_rest(get_client())
    return totals(get_client())


def test_each_task_of_a_call_is_counted_by_the_reply_of_redis(project: Configure):
    done, lost, missing = SettleResult.DONE, SettleResult.LEASE_LOST, SettleResult.MISSING

    counts = settled(Succeeded(), ("a", done), ("b", lost), ("a", done), ("b", missing), ("a", lost))

    assert (counts["a"].succeeded, counts["a"].lost) == (2, 1)
    assert (counts["b"].succeeded, counts["b"].lost) == (1, 1), "a reply was lost: the first try was carried out"
    assert counts["a"].wait == Histogram.of([1000] * 3)
    assert counts["a"].run == Histogram.of([2000] * 3)


def test_message_that_was_released_and_leased_by_another_worker_is_not_counted(project: Configure):
    counts = settled(Released(), ("a", SettleResult.LEASE_LOST), ("b", SettleResult.DONE))

    assert set(counts) == {"b"}
    assert (counts["b"].released, counts["b"].lost) == (1, 0)


@pytest.mark.parametrize("has_run", [True, False])
def test_message_that_only_waits_for_its_limits_is_not_counted(project: Configure, has_run: bool):
    counts = settled(Postponed(1.0, has_run=has_run), ("a", SettleResult.DONE))

    assert set(counts) == ({"a"} if has_run else set())


def test_attempt_that_did_not_run_has_no_times(project: Configure):
    statistics = new_statistics()
    delivery: Any = SimpleNamespace(work_queue=SimpleNamespace(name="mail"), wait_us=1000)
    execution = SimpleNamespace(path="a", run_us=None, delivery=delivery)
    statistics.settled([SimpleNamespace(outcome=Released(), execution=execution)], [SettleResult.DONE])  # type: ignore[list-item]
    statistics.report_the_rest(get_client())

    (counts,) = totals(get_client()).values()
    assert (counts.released, counts.wait, counts.run) == (1, Histogram(), Histogram())


def test_only_first_receives_count_as_sent(project: Configure):
    statistics = new_statistics()
    executions: Any = [
        SimpleNamespace(
            path=path,
            delivery=SimpleNamespace(
                work_queue=SimpleNamespace(name="mail"), message=SimpleNamespace(receive_count=count)
            ),
        )
        for path, count in (("a", 1), ("a", 2), ("b", 1), ("a", 1))
    ]
    statistics.arrived(executions)
    statistics.sent("mail", "b", 5)
    statistics.interrupted("mail", "b")
    statistics.interrupted("mail", "b")
    statistics.report_the_rest(get_client())

    counts = totals(get_client())
    assert (counts["a"].sent, counts["b"].sent, counts["b"].interrupted) == (2, 6, 2)


def test_process_that_ends_reports_more_fields_than_one_report_takes(project: Configure):
    statistics = new_statistics()
    for number in range(3 * MOST_FIELDS):
        statistics.sent("mail", f"task{number}", 1)

    statistics.report_the_rest(get_client())

    assert statistics.is_empty
    assert len(totals(get_client())) == 3 * MOST_FIELDS


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


def test_every_message_of_any_sender_is_counted_once_as_sent(project: Configure):
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


def test_idle_worker_reports_the_counts_of_its_last_tasks(project: Configure):
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
