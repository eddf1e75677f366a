"""Workers that end by themselves: when nothing is ready, when nothing is left, after so many messages."""

from __future__ import annotations

import datetime as dt
import threading

import pytest

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import fixed
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, send_raw, work, working


def messages_left() -> int:
    return get_queue("default").attributes().messages


def test_until_drained_a_worker_leaves_messages_that_are_not_ready(project: Configure):
    seen: list[str] = []
    declared = declare(lambda name: seen.append(name))
    declared.using(run_after=dt.timedelta(hours=1)).enqueue("later")
    declared.enqueue("now")
    send_raw(b"held by somebody else")
    get_queue("default").receive_many(2)
    declared.enqueue("now, too")

    assert new_worker(until_drained=True).run()

    assert seen == ["now, too"]
    assert messages_left() == 3


def test_until_drained_a_worker_runs_calls_enqueued_by_its_tasks(project: Configure):
    seen: list[int] = []

    def count_down(number: int) -> None:
        seen.append(number)
        if number:
            declared.enqueue(number - 1)

    declared = declare(count_down)
    declared.enqueue(3)

    new_worker(until_drained=True).run()

    assert seen == [3, 2, 1, 0]


def test_until_drained_a_worker_fetches_again_after_its_last_task(project: Configure):
    seen: list[str] = []
    child = declare(lambda: seen.append("child"))

    def parent() -> None:
        wait_until(lambda: worker.sources[0].is_drained)
        silent = Queue("default", get_client())  # publishes nothing, so that only looking finds it
        seen.append("parent")
        silent.send(f'{{"task": "{child.module_path}"}}')

    declare(parent).enqueue()
    worker = new_worker(until_drained=True)

    worker.run()

    assert seen == ["parent", "child"]


def test_until_empty_a_worker_waits_for_delayed_messages_and_retries(project: Configure):
    seen: list[str] = []

    def fail_once(name: str) -> None:
        seen.append(name)
        if seen.count(name) == 1:
            raise OSError

    declare(lambda name: seen.append(name)).using(run_after=dt.timedelta(seconds=0.3)).enqueue("later")
    declare(backoff=fixed(0.1))(fail_once).enqueue("twice")

    work()

    assert sorted(seen) == ["later", "twice", "twice"]
    assert messages_left() == 0


def test_until_empty_a_worker_waits_for_messages_of_other_workers(project: Configure):
    release = threading.Event()
    declare(lambda: release.wait(60)).enqueue()
    other = threading.Thread(target=new_worker(max_tasks=1).run)
    other.start()
    wait_until(lambda: get_queue("default").attributes().hidden_messages == 1)
    burst = threading.Thread(target=work)
    burst.start()

    release.set()

    burst.join(90)
    other.join(90)
    assert not burst.is_alive() and not other.is_alive()
    assert messages_left() == 0


def test_worker_on_empty_queues_ends_at_once(project: Configure):
    assert work()
    assert new_worker(until_drained=True).run()


def test_worker_takes_no_more_messages_than_its_limit(project: Configure):
    seen: list[int] = []
    declare(lambda number: seen.append(number)).enqueue_many([[number] for number in range(10)])

    assert new_worker(max_tasks=3).run()

    assert sorted(seen) == [0, 1, 2]
    attributes = get_queue("default").attributes()
    assert (attributes.messages, attributes.total_received) == (7, 3)


def test_each_delivery_counts_as_one_message(project: Configure):
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(1)
        raise OSError

    declare(backoff=fixed(0))(fail).enqueue()

    new_worker(max_tasks=3).run()

    assert len(attempts) == 3
    assert messages_left() == 1


def test_only_a_burst_worker_reports_its_remaining_work(project: Configure, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "rsmq_django.worker")
    said = "nothing is ready; waiting for delayed messages"
    queue = ensure_queue("default")
    queue.send("delayed", delay_s=1000)
    with working() as worker:
        wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_drained)
    assert said not in caplog.text

    with working(until_empty=True):
        wait_until(lambda: said in caplog.text)
