"""A sender wakes one process that waits; when that one cannot take the message, the others are woken."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from rsmq_django.core.keys import waiting_key, wake_channel
from rsmq_django.queues import get_queue
from rsmq_django.worker.sources.queues import QueueSource
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker, hold_still
from tests.worker.script_calls import ScriptCalls
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare, new_worker, queue_source, working

WAITING, COMMON = waiting_key("rsmq", "default"), "rsmq:rt:default"
A, B = wake_channel("rsmq", "a"), wake_channel("rsmq", "b")


def waiting_source(worker_id: str = "a") -> QueueSource:
    """Return the source of a worker that has found nothing and waits."""
    source = queue_source(new_worker(worker_id=worker_id))
    source.waiting.is_wanted = True
    wait_until(lambda: source.exchange(2) == [] and source.is_drained)
    return source


def notes(server: PrivateServer) -> dict[str, float]:
    """Return who waits, and how many messages each holds."""
    return {channel.decode(): float(held) for channel, held in server.redis.zrange(WAITING, 0, -1, withscores=True)}


@contextmanager
def listening(server: PrivateServer, *channels: str) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns on which of these channels something was published since its last call."""
    with redis.Redis.from_url(server.url) as own, own.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(*channels, "end")
        wait_until(lambda: server.redis.pubsub_numsub("end")[0][1] == 1)

        def published() -> list[str]:
            server.redis.publish("end", "")
            names = list[str]()
            while True:
                message = subscription.get_message(timeout=30)
                if message is not None and message["channel"] == b"end":
                    return names
                if message is not None:
                    names.append(message["channel"].decode())

        yield published


# -- Whom a sender wakes -----------------------------------------------------------------------------------------------


def test_a_process_that_found_nothing_is_woken_alone_and_once(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    waiting_source()
    assert notes(server) == {A: 0}
    assert server.redis.pttl(WAITING) > 0

    with listening(server, A, COMMON) as published:
        task.enqueue()
        assert (published(), notes(server)) == ([A], {})

        task.enqueue()
        assert published() == [COMMON], "no process has noted that it waits"


def test_the_process_that_holds_the_fewest_messages_is_woken(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    first = waiting_source("a")
    task.enqueue()
    first.fetch_now()
    assert len(first.exchange(2)) == 1
    waiting_source("b")
    assert notes(server) == {A: 1, B: 0}

    with listening(server, A, B) as published:
        task.enqueue()
        task.enqueue()

        assert published() == [B, A]


def test_a_process_that_has_ended_is_passed_over(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    waiting_source("a")
    waiting_source("b")

    with listening(server, B, COMMON) as published:  # a has no subscription
        task.enqueue()
        assert (published(), notes(server)) == ([B], {})

    waiting_source("a")
    with listening(server, COMMON) as published:
        task.enqueue()
        assert (published(), notes(server)) == ([COMMON], {})


def test_several_messages_wake_all_processes(project: Configure, server: PrivateServer):
    task = declare(lambda number: None)
    waiting_source()

    with listening(server, A, COMMON) as published:
        task.enqueue_many([[1], [2]])

        assert published() == [COMMON]


def test_a_plain_message_is_published_on_the_channel_of_rsmq(project: Configure, server: PrivateServer):
    waiting_source()

    with listening(server, A, COMMON) as published:
        get_queue("default").send(b"from any program")

        assert published() == [COMMON]


def test_a_damaged_key_costs_only_the_way_to_be_woken_alone(project: Configure, server: PrivateServer):
    server.redis.set(WAITING, "text")
    runs: list[int] = []
    task = declare(lambda: runs.append(1))
    with working(poll_interval_s=60):
        task.enqueue()
        wait_until(lambda: runs == [1])

    assert server.redis.get(WAITING) == b"text"


# -- When it cannot take the message -----------------------------------------------------------------------------------


def test_a_process_whose_room_is_used_up_is_removed(project: Configure, server: PrivateServer):
    task = declare(lambda number: None)
    source = waiting_source()
    task.enqueue_many([[1], [2]])
    source.fetch_now()

    assert len(source.exchange(2)) == 2
    assert notes(server) == {}


def test_a_chosen_process_that_leaves_a_message_wakes_the_next_one(project: Configure, server: PrivateServer):
    project(default={}, mail={})

    @declare
    def report() -> None: ...

    @declare(queue_name="mail")
    def letter() -> None: ...

    source = waiting_source("a")
    waiting_source("b")
    with listening(server, A, B, COMMON, "rsmq:rt:mail") as published:
        letter.enqueue()
        report.enqueue()
        assert published() == [A, A], "the first of each queue"

        source.fetch_now()
        assert [delivery.work_queue.name for delivery in source.exchange(1)] == ["default"]
        assert published() == [B], "nothing else tells b of the letter"


def test_a_process_that_takes_all_wakes_nothing(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    source = waiting_source("a")
    with listening(server, A, COMMON) as published:
        task.enqueue()
        assert published() == [A]

        source.fetch_now()
        assert len(source.exchange(1)) == 1
        assert published() == []


def test_a_message_that_is_due_later_wakes_all_processes(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    waiting_source()

    with listening(server, A, COMMON) as published:
        task.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()

        assert (published(), notes(server)) == ([COMMON], {A: 0})


def test_a_chosen_process_without_room_wakes_the_others(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    source = waiting_source()
    with listening(server, A, COMMON) as published:
        task.enqueue()
        assert published() == [A]
        source._note_chosen(False)
        assert source.next_exchange_at(0) == 0

        source.exchange(0)
        assert published() == [COMMON]

        source.exchange(0)
        assert published() == [], "once"


def test_a_worker_that_stops_wakes_the_others_if_it_was_chosen(project: Configure, server: PrivateServer):
    task = declare(lambda: None)
    chosen, other = waiting_source("a"), waiting_source("b")
    with listening(server, A, B, COMMON) as published:
        task.enqueue()
        assert published() == [A]
        other.flush()
        assert (published(), notes(server)) == ([], {})

        chosen.flush()
        assert published() == [COMMON]


def test_a_stopped_worker_leaves_no_note(project: Configure, server: PrivateServer):
    with working(poll_interval_s=60):
        wait_until(lambda: notes(server))

    assert notes(server) == {}


def test_a_worker_that_ends_by_itself_does_not_wait(project: Configure, server: PrivateServer):
    worker = new_worker(until_drained=True)
    worker.run()

    assert not queue_source(worker).waiting.is_wanted
    assert not server.redis.exists(WAITING)


@pytest.mark.parametrize("loss", ["note", "connection"])
def test_a_worker_is_woken_although_its_note_was_lost(project: Configure, server: PrivateServer, loss: str):
    runs: list[int] = []
    task = declare(lambda: runs.append(1))
    with working(poll_interval_s=60):
        wait_until(lambda: notes(server))
        if loss == "note":
            server.redis.delete(WAITING)
        else:
            server.redis.client_kill_filter(_type="pubsub")
        task.enqueue()

        wait_until(lambda: runs == [1])


# -- With real processes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_message_wakes_one_process_of_two_workers(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal
):
    for _ in range(2):
        start_worker("--processes", "2", "--poll-interval", "600")
    wait_until(lambda: len(notes(server)) == 4)
    tasks.write.enqueue("first")
    wait_until(lambda: journal.names("end") == ["first"] and len(notes(server)) == 4)

    with ScriptCalls(server, "tasks/worker/fetch") as fetches:
        for number in range(20):
            tasks.write.enqueue(f"m{number}")
            wait_until(lambda: len(journal.names("end")) == number + 2 and len(notes(server)) == 4)  # noqa: B023

    assert fetches.count < 20 * 2


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "still"])
def test_a_message_of_a_chosen_process_that_hangs_or_dies_is_run_by_another(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal, end: str
):
    tasks.wait_at_gate.enqueue_many([[f"warm-{number}"] for number in range(4)])
    start_worker("--processes", "2", "--threads", "2", "--poll-interval", "600" if end == "killed" else "1")
    wait_until(lambda: len(journal.names("start")) == 4)  # so each of them has two
    journal.open_gate()
    wait_until(lambda: len(journal.names("end")) == 4 and len(notes(server)) == 2)
    pids = {int(line[2]) for line in journal.lines("start")}
    assert len(pids) == 2

    first = min(pids)
    hold_still(first)
    server.redis.ping()  # after its answer, the server has carried out what the process sent before it stood still
    for number in range(2):  # one of these chooses the process that stands still
        tasks.write.enqueue(f"m{number}")
    if end == "killed":
        os.kill(first, signal.SIGKILL)

    wait_until(lambda: len(journal.names("end")) == 6)
    if end == "still":
        os.kill(first, signal.SIGCONT)
