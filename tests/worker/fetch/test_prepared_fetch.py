"""A worker at rest asks as soon as something is published, before it does anything else: nothing gets lost by that."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import OutcomeUnknown
from rsmq_django.core.keys import cancellations_channel
from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import get_client, get_queue
from rsmq_django.tasks import consumer
from rsmq_django.worker.fetch.wakeup import Subscription
from rsmq_django.worker.sources.queues import QueueSource
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, send_raw, working


def source_at_rest(room: int = 2) -> QueueSource:
    """Return the source of a worker that has found nothing and is about to sleep."""
    source = new_worker().sources[0]
    assert isinstance(source, QueueSource)
    wait_until(lambda: source.exchange(room) == [] and source.is_drained)
    source.prepare_fetch(room)
    return source


def is_waiting(messages: int = 1) -> bool:
    attributes = get_queue("default").attributes()
    return (attributes.messages, attributes.hidden_messages) == (messages, 0)


# -- What it asks ----------------------------------------------------------------------------------------------------


def test_the_next_exchange_brings_the_answer(project: Configure):
    source = source_at_rest()
    message_id = send_raw(b"hello")

    assert source.send_prepared_fetch()
    assert not source.is_idle
    (delivery,) = source.exchange(0)

    assert (delivery.message.id, delivery.attempt) == (message_id, 1)
    assert not source.send_prepared_fetch(), "what was ready is used up"


def test_script_is_loaded_again_when_the_server_does_not_have_it(project: Configure, server: PrivateServer):
    source = source_at_rest()
    send_raw(b"hello")
    server.redis.script_flush()

    assert source.send_prepared_fetch()

    assert len(source.exchange(0)) == 1


def test_worker_without_room_does_not_fetch(project: Configure):
    source = source_at_rest()
    source.prepare_fetch(0)

    assert not source.send_prepared_fetch()


def test_worker_with_messages_fetches_in_its_turn(project: Configure):
    send_raw(b"hello")
    source = new_worker().sources[0]
    assert isinstance(source, QueueSource)
    assert len(source.exchange(1)) == 1

    source.prepare_fetch(1)

    assert not source.send_prepared_fetch()


# -- When something happens meanwhile --------------------------------------------------------------------------------


def test_lost_answer_costs_no_message_and_no_attempt(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        source = source_at_rest()
        message_id = send_raw(b"hello")
        proxy.lose_reply_to(load_script("tasks/worker/fetch").sha1.encode())

        assert source.send_prepared_fetch()
        assert source.exchange(2) == []

        (delivery,) = wait_until(lambda: source.exchange(2))
        assert (delivery.message.id, delivery.attempt) == (message_id, 1)


def test_broken_connection_is_made_again_by_the_exchange(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        source = source_at_rest()
        send_raw(b"hello")
        proxy.reset_connections()

        source.send_prepared_fetch()
        source.fetch_now()

        assert len(wait_until(lambda: source.exchange(2))) == 1


@pytest.mark.parametrize("within_s", [0, 10])
def test_messages_that_arrive_in_a_stopping_worker_are_released(project: Configure, within_s: float):
    consumer("default")(lambda message: None)
    worker = new_worker()
    source = worker.sources[0]
    assert isinstance(source, QueueSource)
    wait_until(lambda: source.exchange(2) == [] and source.is_drained)
    source.prepare_fetch(2)
    send_raw(b"hello")
    assert source.send_prepared_fetch()

    worker.stop(within_s=within_s)
    worker.run()

    assert is_waiting()


def test_no_more_tasks_are_taken_than_the_worker_may(project: Configure):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    with working(poll_interval_s=60, threads=4, max_tasks=3) as worker:
        for number in range(5):
            wait_until(lambda: worker.wakeup._is_asleep or worker.taken == 3)
            declared.enqueue(number)
        wait_until(lambda: len(seen) == 3)

    assert is_waiting(2)


# -- What was published meanwhile ------------------------------------------------------------------------------------


def test_no_hint_is_lost_in_a_stream_of_messages(project: Configure):
    seen: list[int] = []
    pause = threading.Event()
    declared = declare(lambda number: seen.append(number))
    with working(poll_interval_s=60):
        for number in range(300):
            declared.enqueue(number)
            pause.wait(0.001 * (number % 3))
        wait_until(lambda: len(seen) == 300)


@pytest.mark.parametrize(("published", "told"), [(1, 0), (2, 1)])
def test_a_fetch_answers_only_earlier_publishes(project: Configure, server: PrivateServer, published: int, told: int):
    heard: list[int] = []
    subscription = subscribed(server, heard)
    subscription.read()
    heard.clear()

    publish(published)
    _wait_for(subscription)
    subscription.read_and_fetch()

    assert len(heard) == told
    subscription.stop()


def test_publish_right_after_the_confirmation_is_counted(project: Configure, server: PrivateServer):
    heard: list[int] = []
    subscription = subscribed(server, heard)

    publish(1)
    server.redis.ping()
    subscription.read_and_fetch()

    assert len(heard) == 1
    subscription.stop()


def test_a_cancellation_is_distinguished_from_a_message(project: Configure, server: PrivateServer):
    heard, cancelled = list[int](), list[int]()
    subscription = subscribed(server, heard, cancelled)
    subscription.read()
    assert cancelled == [1], "something may have been cancelled before anybody listened"

    publish(1)
    _wait_for(subscription)
    subscription.read()
    assert (len(heard), len(cancelled)) == (2, 1)

    publish(1, cancellations_channel("rsmq"))
    _wait_for(subscription)
    subscription.read()
    assert len(cancelled) == 2
    subscription.stop()


def test_publishes_are_not_read_while_the_next_fetch_is_certain(project: Configure, server: PrivateServer):
    is_told = [False]
    subscription = subscribed(server, [], is_told=lambda: is_told[0])
    assert subscription.descriptor is not None
    assert subscription.reconnect_if_due() is None

    is_told[0] = True

    assert not subscription.descriptor
    assert subscription.reconnect_if_due() is not None, "it is read now and then, so that a cancellation is heard"
    subscription.stop()
    assert subscription.descriptor is None


def test_open_subscription_is_read_although_the_server_does_not_answer_commands(
    project: Configure, server: PrivateServer
):
    heard: list[int] = []
    subscription = subscribed(server, heard)
    subscription.is_reachable = lambda: False
    publish(1)

    wait_until(lambda: subscription.reconnect_if_due() is None and heard)

    subscription.stop()
    assert subscription.reconnect_if_due() is None and subscription.descriptor is None, "its source reaches it first"


def subscribed(
    server: PrivateServer,
    heard: list[int],
    cancelled: list[int] | None = None,
    is_told: Callable[[], bool] = lambda: False,
) -> Subscription:
    """Return a subscription whose confirmation has been written and not read; its questions are always sent."""
    subscription = Subscription(
        get_client(),
        ["rsmq:rt:default"],
        own_channel="rsmq::wake:me",
        fetch=lambda: True,
        on_publish=lambda: heard.append(1),
        on_chosen=lambda: heard.append(1),
        on_cancellation=lambda: None if cancelled is None else cancelled.append(1),
        has_wakeup=is_told,
    )
    subscription.reconnect_if_due()
    wait_until(lambda: server.redis.pubsub_numsub(cancellations_channel("rsmq"))[0][1] == 1)
    server.redis.ping()  # what the server does next it does after it has written its confirmation
    return subscription


def publish(times: int, channel: str = "rsmq:rt:default") -> None:
    get_client().connection.exchange([("MULTI",), *[("PUBLISH", channel, "1")] * times, ("EXEC",)])


def _wait_for(subscription: Subscription) -> None:
    assert subscription.descriptor is not None
    poll = select.poll()
    poll.register(subscription.descriptor, select.POLLIN)
    assert poll.poll(30_000)


def test_other_users_of_the_connection_are_not_disturbed(project: Configure):
    source = source_at_rest()
    send_raw(b"hello")
    source.send_prepared_fetch()

    assert get_queue("default").attributes().messages == 1
    assert len(source.exchange(0)) == 1


def test_nothing_is_sent_without_an_open_socket(server: PrivateServer):
    assert Client(Connection(server.url)).connection.begin(b"*1\r\n$4\r\nPING\r\n") is None


def test_socket_that_the_server_has_closed_is_kept_to_be_connected_again(server: PrivateServer):
    connection = Client(Connection(server.url)).connection
    connection.exchange([("PING",)])
    (link,) = connection._idle
    link.disconnect()

    assert connection.begin(b"*1\r\n$4\r\nPING\r\n") is None

    assert list(connection._idle) == [link]
    assert connection.exchange([("PING",)]) == [b"PONG"]


def test_worker_without_room_sleeps_although_messages_wait(project: Configure):
    source = source_at_rest()
    send_raw(b"hello")
    source.note_publish()

    assert source.next_exchange_at(1) == 0.0
    assert source.next_exchange_at(0) is None


def test_idle_worker_wakes_up_to_report_its_counts(project: Configure):
    source = source_at_rest()
    assert source.next_exchange_at(0) is None

    assert source.statistics is not None
    source.statistics.ended("default", "shop.send", "succeeded")

    assert source.next_exchange_at(0) is not None


def test_messages_of_an_early_fetch_with_a_lost_reply_are_released_without_an_attempt(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    source = source_at_rest()
    message_id = send_raw(b"hello")
    send = source._prepared_fetch.send

    def send_and_lose() -> None:
        pending_exchange = send()
        assert pending_exchange is not None
        wait_until(lambda: get_queue("default").attributes().hidden_messages == 1)
        raise OutcomeUnknown("the socket broke while it was written to")

    monkeypatch.setattr(source._prepared_fetch, "send", send_and_lose)
    assert source.send_prepared_fetch()
    assert not source.holds_nothing

    (delivery,) = wait_until(lambda: source.exchange(2))
    assert (delivery.message.id, delivery.attempt) == (message_id, 1)
