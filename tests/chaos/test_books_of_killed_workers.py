"""Counters and events of real processes: they add up, and a kill -9 takes a second of counters and no event."""

import os
import signal
from itertools import pairwise

import pytest

from rsmq_django.core import Client
from rsmq_django.core.stats.events import Event, following
from rsmq_django.core.stats.history import merged, read_series, read_totals
from rsmq_django.queues import ensure_queue, get_client, get_queue
from tests.redis_server import PrivateServer
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


def test_counters_and_events_of_two_processes_add_up_exactly(
    project: object, server: PrivateServer, start_worker: StartWorker
):
    count = 2_000
    ensure_queue("default")  # the supervisor notes the lengths of queues that are there when it starts
    worker = start_worker("--processes", "2", "--threads", "4", events=ALL_EVENTS)
    wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:default")[0][1] == 2)  # both are there to take part

    toil.using(queue_name="default").enqueue_many([[str(number), 0.005] for number in range(count)])
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    worker.send(signal.SIGTERM)
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


def test_kill_loses_at_most_a_second_of_counters_and_no_event(
    project: object, server: PrivateServer, start_worker: StartWorker
):
    count = 40_000
    toil.using(queue_name="default").enqueue_many([[str(number), 0] for number in range(count)])
    client, queue = get_client(), get_queue("default")
    assert (counted(client), queue.attributes().messages) == (0, count)
    ours = server.connections()

    worker = start_worker("--processes", "1", "--threads", "4", events=ALL_EVENTS)
    wait_until(lambda: counted(client) > 2_000)
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    wait_until(lambda: server.connections() <= ours)

    gone = count - queue.attributes().messages
    events = all_events(client)
    assert 0 < gone < count, "it was killed in the middle"
    assert len(events) == len({event.message_id for event in events}) == gone
    assert 2_000 < counted(client) <= gone
    times = [event.at_ms for event in events[counted(client) :]]
    # The machine may have stood still for a while: pauses are no work that was lost.
    assert sum(min(later - earlier, 100) for earlier, later in pairwise(times)) <= LOST_AT_MOST_MS


def counted(client: Client) -> int:
    return sum(counts.succeeded for counts in read_totals(client, ["default"])["default"].values())
