"""When a worker looks: at once when told, exactly when something is due, and now and then for those who do not tell.

The poll interval is ten minutes here, so a worker that misses its moment fails by the deadline of `wait_until`.
"""

from __future__ import annotations

import datetime as dt
import os
import threading

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import get_client, get_queue
from rsmq_django.tasks import consumer, fixed
from rsmq_django.worker.fetch.wakeup import Wakeup
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, queue_source, send_raw, working

LONG_S = 600.0


def silent_queue(server: PrivateServer) -> Queue:
    """The queue as a program sees it that does not publish."""
    return Queue("default", Client(Connection(server.url, timeout_s=15)))


def test_thread_that_wakes_a_worker_which_has_just_ended_writes_to_no_other_file():
    wakeup = Wakeup()
    wakeup._is_asleep = True  # as the thread has seen it
    wakeup.close()
    others = [os.pipe() for _ in range(3)]  # these may get the numbers of the files that were closed

    wakeup.wake()

    for reader, writer in others:
        os.close(writer)
        assert os.read(reader, 1) == b""
        os.close(reader)


def test_idle_worker_wakes_when_a_message_is_sent(project: Configure):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    with working(poll_interval_s=LONG_S) as worker:
        for number in range(5):
            wait_until(lambda: worker.wakeup._is_asleep and queue_source(worker).is_idle)
            declared.enqueue(number)
            wait_until(lambda: number in seen)  # noqa: B023 - asked in the same round

    assert seen == list(range(5))


def test_busy_worker_with_a_free_thread_wakes_too(project: Configure):
    seen: list[int] = []
    release = threading.Event()
    declare(lambda: release.wait(60)).enqueue()
    with working(poll_interval_s=LONG_S, threads=2) as worker:
        wait_until(lambda: worker.pool.sync_count == 1)

        declare(lambda: seen.append(1)).enqueue()

        wait_until(lambda: seen)
        release.set()


def test_delayed_message_is_taken_when_it_is_due(project: Configure):
    seen: list[int] = []
    with working(poll_interval_s=LONG_S) as worker:
        wait_until(lambda: queue_source(worker).is_empty)

        declare(lambda: seen.append(1)).using(run_after=dt.timedelta(seconds=0.5)).enqueue()

        wait_until(lambda: seen)


def test_message_that_was_delayed_before_the_worker_came_is_taken_when_it_is_due(project: Configure):
    seen: list[int] = []
    declare(lambda: seen.append(1)).using(run_after=dt.timedelta(seconds=0.5)).enqueue()

    with working(poll_interval_s=LONG_S):
        wait_until(lambda: seen)


@pytest.mark.parametrize("is_busy", [False, True])
def test_retry_runs_when_it_is_due(project: Configure, is_busy: bool):
    attempts: list[int] = []
    fail, release = threading.Event(), threading.Event()

    def fail_once() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            fail.wait(60)
            raise OSError

    if is_busy:
        declare(lambda: release.wait(60)).enqueue()
    declare(backoff=fixed(0.3))(fail_once).enqueue()

    with working(poll_interval_s=LONG_S, threads=3) as worker:
        wait_until(
            lambda: attempts and worker.wakeup._is_asleep and not queue_source(worker).leases.has_unnoted_start()
        )
        fail.set()
        wait_until(lambda: len(attempts) == 2)
        release.set()


def test_message_of_a_dead_worker_is_taken_when_its_lease_is_over(project: Configure):
    seen: list[int] = []
    consumer("default")(lambda message: seen.append(message.receive_count))
    send_raw(b"hello")
    get_queue("default").receive(visibility_timeout_s=0.5)

    with working(poll_interval_s=LONG_S):
        wait_until(lambda: seen)

    assert seen == [2]


def test_sender_that_does_not_publish_is_noticed_by_polling(project: Configure, server: PrivateServer):
    seen: list[bytes] = []
    consumer("default")(lambda message: seen.append(message.body))
    with working(poll_interval_s=0.05) as worker:
        wait_until(lambda: queue_source(worker).is_empty)

        silent_queue(server).send(b"hello")

        wait_until(lambda: seen)


def test_message_sent_while_the_wake_up_connection_was_down_is_found_when_it_is_back(
    configure: Configure, server: PrivateServer
):
    seen: list[int] = []
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        declared = declare(lambda number: seen.append(number))
        with working(poll_interval_s=LONG_S) as worker:
            declared.enqueue(0)
            wait_until(lambda: seen == [0])
            wait_until(lambda: queue_source(worker).is_empty)

            proxy.refuse()
            proxy.reset_connections()
            silent_queue(server).send(b'{"task": "nobody.knows"}')  # past the proxy, and without a word
            proxy.release()

            dead = Queue("default-dead", silent_queue(server).client)
            wait_until(lambda: dead.attributes().messages == 1)


def test_fetch_that_the_server_refused_is_repeated(configure: Configure, server: PrivateServer):
    seen: list[int] = []
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        declared = declare(lambda number: seen.append(number))
        with working(poll_interval_s=LONG_S) as worker:
            declared.enqueue(0)
            wait_until(lambda: seen == [0] and worker.wakeup._is_asleep and queue_source(worker).is_empty)

            proxy.answer_instead(load_script("tasks/worker/fetch").sha1.encode(), b"-LOADING Redis is loading\r\n")
            declared.enqueue(1)

            wait_until(lambda: seen == [0, 1])


def test_idle_worker_requests_messages_only_after_a_wake_up(project: Configure, server: PrivateServer):
    def calls() -> int:
        return int(server.redis.info("commandstats")["cmdstat_evalsha"]["calls"])

    with working(poll_interval_s=LONG_S) as worker:
        wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:default") == [(b"rsmq:rt:default", 1)])
        wait_until(lambda: worker.wakeup._is_asleep and queue_source(worker).is_empty)
        before = calls()
        for number in range(20):
            get_client().connection.exchange([("PUBLISH", "rsmq:rt:default", "1")])
            wait_until(lambda: calls() >= before + number + 1)  # noqa: B023 - asked in the same round
            wait_until(lambda: worker.wakeup._is_asleep)
        after = calls()

    assert after <= before + 22  # its first look and the one when it began to listen may have come late


def test_worker_that_has_ended_listens_no_more(project: Configure, server: PrivateServer):
    def listeners() -> int:
        return int(server.redis.pubsub_numsub("rsmq:rt:default")[0][1])

    with working():
        wait_until(listeners)

    wait_until(lambda: not listeners())
