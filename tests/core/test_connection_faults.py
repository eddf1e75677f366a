"""Lost replies, resets, black holes and cancelled calls: what is repeated, what is not, and that no reply goes astray.

Nothing here measures time: a short time-out of the connection makes a black hole cheap, and the number of requests
that went by tells whether something was repeated.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Message, Queue, alist_queues, list_queues
from rsmq_django.core.errors import ConnectionFailed, OutcomeUnknown, RedisFailure, RsmqError
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

#: A call that hangs fails its test by then.
HANG_S = 10


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def distant(proxy: FaultProxy, queue: Queue) -> Queue:
    """The queue "jobs" by way of the proxy. Its server knows all scripts, and a socket is open."""
    for message in queue.send_many([b"a", b"b", b"c"]):
        queue.change_visibility(message, 0)
    taken = queue.receive()
    assert taken is not None
    queue.delete(taken)
    queue.pop()
    queue.pop()
    queue.set_attributes(visibility_timeout_s=30)
    list_queues(queue.client)
    distant = Queue("jobs", Client(Connection(proxy.url)))
    distant.attributes()
    return distant


@pytest.fixture
def impatient(proxy: FaultProxy, queue: Queue) -> Queue:
    """The same with a time-out that makes a black hole cheap."""
    impatient = Queue("jobs", Client(Connection(proxy.url, timeout_s=0.2)))
    impatient.send(b"warm")
    queue.pop()
    return impatient


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail, instead of hanging for ever, when a call has no time-out of its own."""

    def alarm(*_: object) -> None:
        raise AssertionError(f"still waiting after {HANG_S} s")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(HANG_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def scripts_seen(proxy: FaultProxy) -> int:
    return sum(chunk.count(b"EVALSHA") for chunk in proxy.requests)


# -- One lost reply: what is not repeated --------------------------------------------------------------------------


def test_send_with_a_lost_reply_is_reported_and_never_sent_again(proxy: FaultProxy, distant: Queue, queue: Queue):
    before, sent = scripts_seen(proxy), queue.attributes().total_sent
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.send(b"invoice 7")

    assert scripts_seen(proxy) == before + 1
    assert queue.attributes().messages == 1
    assert queue.attributes().total_sent == sent + 1


def test_batch_with_a_lost_reply_is_stored_once(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.send_many([b"a", b"b", b"c"])

    assert queue.attributes().messages == 3


def test_receive_with_a_lost_reply_hides_one_message_and_no_second(proxy: FaultProxy, distant: Queue, queue: Queue):
    queue.send_many([b"a", b"b", b"c"])
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.receive()

    assert queue.attributes().hidden_messages == 1
    message = distant.receive()
    assert message is not None and message.body == b"b"


def test_pop_with_a_lost_reply_takes_one_message_and_no_second(proxy: FaultProxy, distant: Queue, queue: Queue):
    queue.send_many([b"a", b"b", b"c"])
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.pop()

    assert queue.attributes().messages == 2


@pytest.mark.parametrize("operation", ["asend", "areceive", "apop"])
async def test_async_calls_with_a_lost_reply_are_not_repeated(
    proxy: FaultProxy, distant: Queue, queue: Queue, operation: str
):
    queue.send_many([b"a", b"b", b"c"])
    await distant.aattributes()
    before = scripts_seen(proxy)
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        await getattr(distant, operation)(*([b"d"] if operation == "asend" else []))

    assert scripts_seen(proxy) == before + 1
    attributes = queue.attributes()
    expected = {"asend": (4, 0), "areceive": (3, 1), "apop": (2, 0)}[operation]
    assert (attributes.messages, attributes.hidden_messages) == expected
    await distant.client.connection.aclose()


def test_batch_of_calls_with_one_send_among_them_is_not_repeated(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(OutcomeUnknown):
        distant.client.run_many([distant._attributes(), distant._send([b"x"], None)])

    assert queue.attributes().messages == 1


# -- One lost reply: what is repeated ------------------------------------------------------------------------------


def held(queue: Queue) -> Message:
    queue.send(b"x")
    message = queue.receive()
    assert message is not None
    return message


def test_delete_with_a_lost_reply_is_repeated_silently(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    before = scripts_seen(proxy)
    proxy.lose_reply_to(b"EVALSHA")

    distant.delete(message)

    assert scripts_seen(proxy) == before + 2
    assert queue.attributes().messages == 0


def test_change_of_visibility_with_a_lost_reply_is_repeated_silently(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    proxy.lose_reply_to(b"EVALSHA")

    assert distant.change_visibility(message, 0) is True

    assert queue.attributes().hidden_messages == 0


REPEATED: dict[str, Callable[[Queue], Any]] = {
    "attributes": lambda queue: queue.attributes(),
    "set_attributes": lambda queue: queue.set_attributes(delay_s=3),
    "list_queues": lambda queue: list_queues(queue.client),
}


@pytest.mark.parametrize("operation", REPEATED)
def test_reads_and_settings_with_a_lost_reply_are_repeated_silently(
    proxy: FaultProxy, distant: Queue, queue: Queue, operation: str
):
    proxy.lose_reply_to(b"EVALSHA")

    answer = REPEATED[operation](distant)

    assert (
        answer
        == {
            "attributes": queue.attributes(),
            "set_attributes": queue.attributes(),
            "list_queues": ["jobs"],
        }[operation]
    )


async def test_async_calls_that_are_harmless_twice_are_repeated(proxy: FaultProxy, distant: Queue, queue: Queue):
    message = held(queue)
    await distant.aattributes()

    proxy.lose_reply_to(b"EVALSHA")
    assert (await distant.aattributes()).messages == 1
    proxy.lose_reply_to(b"EVALSHA")
    assert await distant.achange_visibility(message, 60) is True
    proxy.lose_reply_to(b"EVALSHA")
    assert await alist_queues(distant.client) == ["jobs"]
    proxy.lose_reply_to(b"EVALSHA")
    await distant.adelete(message)

    assert queue.attributes().messages == 0
    await distant.client.connection.aclose()


def test_call_is_repeated_once_and_not_for_ever(proxy: FaultProxy, distant: Queue):
    before = scripts_seen(proxy)
    proxy.lose_reply_to(b"EVALSHA", times=100)

    with pytest.raises(RedisFailure):
        distant.attributes()

    assert scripts_seen(proxy) == before + 2


def test_repeated_delete_never_deletes_what_somebody_else_received_meanwhile(
    proxy: FaultProxy, distant: Queue, queue: Queue
):
    first = held(queue)
    queue.change_visibility(first, 0)
    second = queue.receive()
    assert second is not None
    proxy.lose_reply_to(b"EVALSHA")

    with pytest.raises(RsmqError, match=first.id):
        distant.delete(first)

    assert queue.delete(second) is True


# -- Resets --------------------------------------------------------------------------------------------------------


def test_reset_between_calls_goes_unnoticed(proxy: FaultProxy, distant: Queue, queue: Queue):
    for number in range(20):
        proxy.reset_connections()
        distant.send(str(number))

    assert [message.body for message in queue.receive_many(50)] == [str(number).encode() for number in range(20)]


async def test_reset_between_async_calls_goes_unnoticed(proxy: FaultProxy, distant: Queue, queue: Queue):
    for number in range(20):
        await distant.asend(str(number))
        proxy.reset_connections()
        for _ in range(5):  # let the event loop see what happened to its socket, as it does between two calls
            await asyncio.sleep(0)

    assert queue.attributes().messages == 20
    await distant.client.connection.aclose()


def test_server_that_resets_new_connections_is_tried_twice_at_most(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.refuse()
    proxy.reset_connections()
    before = proxy.connections

    with pytest.raises(ConnectionFailed):
        distant.send(b"x")

    assert 1 <= proxy.connections - before <= 4
    proxy.release()
    distant.send(b"y")
    assert queue.attributes().messages == 1


@pytest.mark.parametrize("after_bytes", [0, 1, 2, 5, 20, 37, 38])
def test_reply_that_is_cut_short_is_a_lost_reply(proxy: FaultProxy, distant: Queue, queue: Queue, after_bytes: int):
    # The reply to a send is "*1\r\n$32\r\n" + 32 characters + "\r\n": 43 bytes.
    proxy.cut_next_reply(after_bytes=after_bytes)

    with pytest.raises(OutcomeUnknown):
        distant.send(b"x")

    assert distant.attributes().messages == 1


@pytest.mark.parametrize("after_bytes", [0, 1, 9, 40, 70])
def test_message_that_is_cut_short_is_never_delivered_in_part(
    proxy: FaultProxy, distant: Queue, queue: Queue, after_bytes: int
):
    queue.send_many([b"0123456789" * 3, b"next"])
    proxy.cut_next_reply(after_bytes=after_bytes)

    with pytest.raises(OutcomeUnknown):
        distant.receive()

    message = distant.receive()
    assert message is not None and message.body == b"next"


def test_slow_network_changes_no_answer(proxy: FaultProxy, distant: Queue, queue: Queue):
    proxy.delay_s = 0.02

    ids = [distant.send(str(number)) for number in range(5)]

    assert [message.id for message in distant.receive_many(5)] == ids


# -- Black holes ---------------------------------------------------------------------------------------------------


def test_send_into_a_black_hole_has_an_unknown_outcome_and_is_not_repeated(proxy: FaultProxy, impatient: Queue):
    before, connections = scripts_seen(proxy), proxy.connections
    proxy.black_hole()

    with pytest.raises(OutcomeUnknown, match="127.0.0.1"):
        impatient.send(b"x")

    assert scripts_seen(proxy) == before + 1
    assert proxy.connections == connections


def test_read_from_a_black_hole_waits_once_and_not_twice(proxy: FaultProxy, impatient: Queue):
    impatient.attributes()
    before, connections = scripts_seen(proxy), proxy.connections
    proxy.black_hole()

    with pytest.raises(RedisFailure):
        impatient.attributes()

    assert scripts_seen(proxy) == before + 1
    assert proxy.connections == connections


async def test_async_send_into_a_black_hole_has_an_unknown_outcome(proxy: FaultProxy, impatient: Queue):
    await impatient.asend(b"warm")
    before = scripts_seen(proxy)
    proxy.black_hole()

    with pytest.raises(OutcomeUnknown):
        await impatient.asend(b"x")

    assert scripts_seen(proxy) == before + 1
    await impatient.client.connection.aclose()


def test_server_that_accepts_and_says_nothing_is_a_failed_connection(proxy: FaultProxy, queue: Queue):
    proxy.black_hole()
    stranger = Queue("jobs", Client(Connection(proxy.url.replace("redis://", "redis://:x@"), timeout_s=0.2)))

    with pytest.raises(ConnectionFailed):
        stranger.send(b"x")

    assert proxy.connections <= 2


def test_default_timeout_ends_a_call_into_a_black_hole(proxy: FaultProxy, distant: Queue):
    proxy.black_hole()

    with pytest.raises(OutcomeUnknown):  # the fixture no_hang ends a call that would wait for ever
        distant.receive()


def test_queue_works_again_after_a_black_hole(proxy: FaultProxy, impatient: Queue, queue: Queue):
    queue.send(b"x")
    proxy.black_hole()
    with pytest.raises(OutcomeUnknown):
        impatient.pop()
    proxy.reset_connections()
    proxy.release()

    impatient.send(b"y")

    assert queue.attributes().total_sent == 3


# -- Replies that come too late ------------------------------------------------------------------------------------


def test_reply_that_comes_after_the_timeout_answers_nobody_else(proxy: FaultProxy, impatient: Queue, queue: Queue):
    for number in range(3):
        proxy.hold_replies()
        with pytest.raises(OutcomeUnknown):
            impatient.send(f"late {number}")
        proxy.release()

        assert isinstance(impatient.attributes().messages, int)
        assert len(impatient.send(b"on time")) == 32

    assert queue.attributes().messages == 6


class Interrupted(Exception):
    """What a signal handler raises in the middle of a call."""


def test_call_that_a_signal_interrupts_leaves_no_reply_behind(proxy: FaultProxy, distant: Queue, queue: Queue):
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    proxy.hold_replies()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Interrupted):
        distant.attributes()
    signal.signal(signal.SIGALRM, before)
    signal.alarm(HANG_S)
    proxy.release()

    message_id = distant.send(b"x")

    assert queue.receive_many(1)[0].id == message_id


async def test_cancelled_call_never_answers_the_next_one(proxy: FaultProxy, distant: Queue, server: PrivateServer):
    await distant.aattributes()

    for number in range(100):
        proxy.hold_replies()
        seen = scripts_seen(proxy)
        doomed = asyncio.create_task(distant.aattributes())
        await asyncio.to_thread(wait_until, lambda seen=seen: scripts_seen(proxy) > seen)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        proxy.release()
        body = f"body {number}".encode()
        message_id = await distant.asend(body)
        assert server.redis.hget("rsmq:jobs:Q", message_id) == body

    await distant.client.connection.aclose()


async def test_calls_beside_cancelled_ones_get_their_own_replies(
    proxy: FaultProxy, distant: Queue, server: PrivateServer
):
    proxy.delay_s = 0.001
    kept: dict[bytes, asyncio.Task[str]] = {}

    for number in range(300):
        body = f"body {number}".encode()
        task = asyncio.create_task(distant.asend(body))
        if number % 3:
            kept[body] = task
        else:
            # A different depth for each: before connecting, while writing, while waiting for the reply.
            asyncio.get_running_loop().call_later(number % 10 / 1000, task.cancel)
        if number % 20 == 19:
            await asyncio.wait(kept.values())

    ids = await asyncio.gather(*kept.values())
    assert server.redis.hmget("rsmq:jobs:Q", ids) == list(kept)
    await distant.client.connection.aclose()
