"""A worker on very many queues asks which of them have something before it fetches."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import get_queue
from rsmq_django.tasks import consumer
from rsmq_django.worker.fetch.queue_selector import MANY, scan_call
from rsmq_django.worker.fetch.queues import queue_settings, work_queues_by_client
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.script_calls import ScriptCalls
from tests.worker.workshop import Configure, declare, new_worker, queue_source, send_raw, work, working

NAMES = [f"q{number:03}" for number in range(MANY + 30)]
WORKER_SCRIPTS = ("tasks/worker/fetch", "tasks/worker/scan", "tasks/worker/provision")


@pytest.fixture
def seen(configure: Configure) -> list[str]:
    """A project with many queues, and what its consumers got, in order."""
    configure(**{name: {} for name in NAMES})
    got: list[str] = []
    for name in NAMES:
        consumer(name)(lambda message: got.append(message.text()))
    return got


def send_to(names: Sequence[str]) -> None:
    for name in names:
        send_raw(name, name)


def test_messages_of_all_queues_are_worked_off_in_the_order_of_the_queues(seen: list[str]):
    send_to(reversed(NAMES))

    assert work(threads=1)

    assert seen == NAMES


def test_queue_with_more_than_there_is_room_for_is_worked_off_before_the_next(seen: list[str]):
    send_to([NAMES[3]] * 20 + [NAMES[60]] * 2 + [NAMES[70]])

    assert work(threads=2)

    # Two threads: the last one of a queue may end after the first one of the next.
    assert sorted(seen) == [NAMES[3]] * 20 + [NAMES[60]] * 2 + [NAMES[70]]
    assert seen[:19] == [NAMES[3]] * 19


def test_idle_worker_is_woken_by_any_of_the_queues(seen: list[str]):
    with working(poll_interval_s=600.0) as worker:
        for name in (NAMES[0], NAMES[-1]):
            wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)
            send_raw(name, name)
            wait_until(lambda: name in seen)  # noqa: B023 - asked in the same round


def test_delayed_message_is_taken_when_it_is_due(project: Configure, configure: Configure):
    configure(**{name: {} for name in NAMES})
    seen: list[int] = []
    with working(poll_interval_s=600.0) as worker:
        wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)
        task = declare(queue_name=NAMES[-1])(lambda: seen.append(1))
        task.using(run_after=dt.timedelta(seconds=0.3)).enqueue()

        wait_until(lambda: seen)


def test_paused_queue_is_left_alone_and_the_others_are_not(seen: list[str], server: PrivateServer):
    send_to(NAMES[:3])
    server.redis.sadd("rsmq::paused", NAMES[1])

    with working(poll_interval_s=600.0) as worker:
        wait_until(lambda: len(seen) == 2 and worker.wakeup._is_asleep)

        assert sorted(seen) == [NAMES[0], NAMES[2]]
        assert get_queue(NAMES[1]).attributes().ready_messages == 1


def test_pauses_that_cannot_be_read_stop_no_fetch(seen: list[str], server: PrivateServer):
    send_to(NAMES[:3])
    server.redis.set("rsmq::paused", "of another program")

    assert work(threads=1)

    assert seen == NAMES[:3]


def test_damaged_queue_does_not_keep_the_others_from_being_worked_on(seen: list[str], server: PrivateServer):
    send_to(NAMES[:3])
    server.redis.delete(f"rsmq:{NAMES[1]}")
    server.redis.set(f"rsmq:{NAMES[1]}", "not a sorted set")

    with working(poll_interval_s=600.0):
        wait_until(lambda: sorted(seen) == [NAMES[0], NAMES[2]])


@contextmanager
def scripts_noted(server: PrivateServer) -> Iterator[list[tuple[str, int]]]:
    """Yield a list that has, after the block, the name and the number of keys of each script call in it."""
    names = {load_script(name).sha1: name for name in WORKER_SCRIPTS}
    calls: list[tuple[str, int]] = []
    server.redis.config_set("slowlog-max-len", 10_000)
    server.redis.config_set("slowlog-log-slower-than", 0)
    server.redis.slowlog_reset()
    try:
        yield calls
    finally:
        words = [entry["command"].decode().split(" ", 3) for entry in server.redis.slowlog_get(10_000)]
        server.redis.config_set("slowlog-log-slower-than", 10_000)
        server.redis.config_set("slowlog-max-len", 128)
    calls += [(names[word[1]], int(word[2])) for word in words if word[0] == "EVALSHA" and word[1] in names]


@pytest.mark.parametrize("key", [f"rsmq:{NAMES[1]}", f"rsmq:{NAMES[1]}:Q"])
def test_damaged_queue_among_very_many_is_read_twice_until_the_next_check(
    seen: list[str], server: PrivateServer, key: str
):
    source = queue_source(new_worker())
    wait_until(lambda: source.exchange(1) == [] and source.is_drained)
    send_to(NAMES[:3])
    server.redis.delete(key)
    server.redis.set(key, "of another program")

    with scripts_noted(server) as calls:
        for _ in range(20):
            source.fetch_now()
            source.poll_schedule.fetch_soon()
            source.exchange(1)

    named = Counter(calls)
    assert named["tasks/worker/provision", 1 + 2 * len(NAMES)] == 0, "the others are not provisioned again"
    assert named["tasks/worker/provision", 1 + 2] <= 4
    assert not source.is_drained
    assert {each.message.text() for each in source.leases.held()} == {NAMES[0], NAMES[2]}


def test_fetch_names_only_queues_that_have_something(seen: list[str], server: PrivateServer):
    with working(poll_interval_s=600.0) as worker:
        wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)
        with scripts_noted(server) as calls:
            send_raw("x", NAMES[7])
            wait_until(lambda: seen)

    assert ("tasks/worker/fetch", 3 + 4) in calls
    assert max(keys for _, keys in calls) == 2 + len(NAMES)


def test_no_fetch_names_very_many_queues(seen: list[str], server: PrivateServer):
    send_to(NAMES)

    with scripts_noted(server) as calls, working(poll_interval_s=600.0):
        wait_until(lambda: len(seen) == len(NAMES))

    assert max(keys for name, keys in calls if name == "tasks/worker/fetch") <= 3 + 4 * MANY


@pytest.mark.parametrize("options", [{}, {"WEIGHT": 2}])
def test_process_notes_in_none_of_very_many_queues_that_it_waits(
    options: dict[str, int], configure: Configure, server: PrivateServer
):
    configure(**dict.fromkeys(NAMES, options))
    with working(poll_interval_s=600.0) as worker:
        wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)

        assert server.redis.keys("rsmq::waiting:*") == []


def test_process_on_very_many_queues_removes_no_notes_when_something_is_published_on_its_channel(
    seen: list[str], server: PrivateServer
):
    source = queue_source(new_worker())
    wait_until(lambda: source.exchange(1) == [] and source.is_drained)

    with ScriptCalls(server, "tasks/worker/stop_waiting") as calls:
        source._note_chosen(False)  # a confirmation of ten thousand channels contains its name, too
        source.exchange(0)
        source.flush()

    assert calls.count == 0


def test_deleted_queue_among_very_many_is_created_again(seen: list[str], server: PrivateServer):
    with working(poll_interval_s=600.0) as worker:
        wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)
        get_queue(NAMES[9]).delete_queue()
        scan = queue_source(worker).selector.scan
        assert scan is not None
        scan.check_at = 0.0  # the time of the next check has come
        queue_source(worker).fetch_now()

        wait_until(lambda: server.redis.exists(f"rsmq:{NAMES[9]}:Q"))


def test_scan_of_very_many_queues_leaves_out_those_that_are_paused(project: Configure, server: PrivateServer):
    project(first={}, second={}, third={})
    send_to(["first", "second", "third"])
    ((client, queues),) = work_queues_by_client(queue_settings(["first", "second", "third"]), "w1")
    scan = scan_call("rsmq", queues, finds_deleted=True)
    assert client.run(scan).positions == [1, 2, 3]

    server.redis.sadd("rsmq::paused", "second")
    assert client.run(scan).positions == [1, 3]

    server.redis.sadd("rsmq::paused", "first", "third")
    found = client.run(scan)
    assert (found.positions, found.next_ms) == ([], -1)

    get_queue("second").delete_queue()
    get_queue("first").delete_queue()
    server.redis.sadd("rsmq::paused", "first")
    assert client.run(scan).positions == [2], "the first is paused"
    assert client.run(scan_call("rsmq", queues)).positions == []


@pytest.mark.parametrize(("ends_by_itself", "most_keys"), [(False, 2 + 2 * 30), (True, 2 + 2 * len(NAMES))])
def test_portions_of_a_scan_find_the_messages_of_all_queues(
    seen: list[str], server: PrivateServer, monkeypatch: pytest.MonkeyPatch, ends_by_itself: bool, most_keys: int
):
    monkeypatch.setattr("rsmq_django.worker.fetch.queue_selector.SCANNED_AT_A_TIME", 30)
    send_to([NAMES[-1], NAMES[0], NAMES[31]])

    with scripts_noted(server) as calls:
        if ends_by_itself:
            assert work(threads=1)
        else:
            with working(threads=1, poll_interval_s=600.0):
                wait_until(lambda: len(seen) == 3)

    assert seen == [NAMES[0], NAMES[31], NAMES[-1]]
    assert max(keys for name, keys in calls if name == "tasks/worker/scan") == most_keys
