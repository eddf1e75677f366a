"""Counters and events of real processes: they add up, and a kill -9 takes a second of counters and no event."""

import os
import signal

import pytest

from rsmq_django.core import Client
from rsmq_django.core.counters import merged, read_series, read_totals
from rsmq_django.core.events import Event, following
from rsmq_django.queues import get_client, get_queue
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.tasks import toil

pytestmark = pytest.mark.slow

#: Two reports: the one that was due when the process died, and the span that it would have covered.
LOST_AT_MOST_MS = 2000
ALL_EVENTS = '{"RECORD": "all"}'


def all_events(client: Client) -> list[Event]:
    events: list[Event] = []
    while part := client.run(following("rsmq", after=events[-1].entry_id if events else "-")):
        events += part
    return events


def test_counters_and_events_of_two_processes_add_up_exactly(project: object, start_worker: StartWorker):
    count = 2_000
    toil.using(queue_name="default").enqueue_many([[str(number), 0.005] for number in range(count)])

    worker = start_worker("--batch", "--processes", "2", "--threads", "4", events=ALL_EVENTS)
    assert worker.wait() == 0, worker.output

    client = get_client()
    (counts,) = read_totals(client, ["default"])["default"].values()
    events = all_events(client)
    assert (counts.started, counts.succeeded, counts.ended) == (count, count, count)
    assert counts.run.count == counts.wait.count == count
    assert len(events) == len({event.task_id for event in events}) == count
    assert len({event.worker for event in events}) == 2, "both processes took part"
    assert counts.run.sum_us == sum(event.run_us or 0 for event in events)
    assert counts.wait.sum_us == sum(event.wait_us or 0 for event in events)
    series = read_series(client, ["default"], since_s=events[0].at_ms / 1000 - 60)["default"]
    assert merged(series).counts == counts
    assert merged(series).depth is not None, "the supervisor looked at the queue"


def test_kill_loses_at_most_a_second_of_counters_and_no_event(project: object, start_worker: StartWorker):
    count = 40_000
    toil.using(queue_name="default").enqueue_many([[str(number), 0] for number in range(count)])
    client, queue = get_client(), get_queue("default")

    worker = start_worker("--processes", "1", "--threads", "4", events=ALL_EVENTS)
    wait_until(lambda: read_totals(client, ["default"])["default"])
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()

    gone = count - queue.attributes().messages
    events = all_events(client)
    assert 0 < gone < count, "it was killed in the middle"
    assert len(events) == len({event.message_id for event in events}) == gone
    counted = sum(counts.succeeded for counts in read_totals(client, ["default"])["default"].values())
    late = [event for event in events if event.at_ms > events[-1].at_ms - LOST_AT_MOST_MS]
    assert gone - len(late) <= counted <= gone
