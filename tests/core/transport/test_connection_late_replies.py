"""Black holes, replies that come too late, and cancelled calls: every call ends, and no reply goes astray.

Nothing here measures time: a short time-out of one call makes a black hole cheap, and the number of requests
that went by the proxy tells whether something was repeated.
"""

import asyncio
import signal
import threading

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import ConnectionFailed, OutcomeUnknown, RedisFailure
from tests.core.conftest import lose_patience
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

# -- Black holes ---------------------------------------------------------------------------------------------------


def test_send_into_a_black_hole_has_an_unknown_outcome_and_is_not_repeated(proxy: FaultProxy, warm: Queue):
    before, connections = proxy.times_seen(b"EVALSHA"), proxy.connections
    proxy.black_hole()
    lose_patience(warm)

    with pytest.raises(OutcomeUnknown, match="127.0.0.1"):
        warm.send(b"x")

    wait_until(lambda: proxy.times_seen(b"EVALSHA") > before)
    assert proxy.times_seen(b"EVALSHA") == before + 1
    assert proxy.connections == connections


def test_read_from_a_black_hole_waits_once_and_not_twice(proxy: FaultProxy, warm: Queue):
    warm.attributes()
    before, connections = proxy.times_seen(b"EVALSHA"), proxy.connections
    proxy.black_hole()
    lose_patience(warm)

    with pytest.raises(RedisFailure):
        warm.attributes()

    wait_until(lambda: proxy.times_seen(b"EVALSHA") > before)
    assert proxy.times_seen(b"EVALSHA") == before + 1
    assert proxy.connections == connections


async def test_async_send_into_a_black_hole_has_an_unknown_outcome(proxy: FaultProxy, warm: Queue):
    await warm.asend(b"warm")
    before = proxy.times_seen(b"EVALSHA")
    proxy.black_hole()
    warm.client.connection.timeout_s = 0.3

    with pytest.raises(OutcomeUnknown):
        await warm.asend(b"x")

    wait_until(lambda: proxy.times_seen(b"EVALSHA") > before)
    assert proxy.times_seen(b"EVALSHA") == before + 1
    await warm.client.connection.aclose()


def test_server_that_accepts_and_never_replies_is_a_failed_connection(proxy: FaultProxy, queue: Queue):
    proxy.black_hole()
    stranger = Queue("jobs", Client(Connection(proxy.url.replace("redis://", "redis://:x@"), timeout_s=0.4)))

    with pytest.raises(ConnectionFailed):
        stranger.send(b"x")

    assert proxy.connections <= 2


def test_default_timeout_ends_a_call_into_a_black_hole(proxy: FaultProxy, queue: Queue):
    by_default = Queue("jobs", Client(Connection(proxy.url)))
    wait_until(lambda: has_received(by_default))
    proxy.black_hole()

    with pytest.raises(OutcomeUnknown):  # the deadline of the test ends a call that would wait for ever
        by_default.receive()


def has_received(queue: Queue) -> bool:
    """Say whether a call came through; on a busy machine the default time-out may be over before it does."""
    try:
        queue.receive()
    except RedisFailure:
        return False
    return True


def test_queue_works_again_after_a_black_hole(proxy: FaultProxy, warm: Queue, queue: Queue):
    queue.send(b"x")
    proxy.black_hole()
    lose_patience(warm)
    with pytest.raises(OutcomeUnknown):
        warm.pop()
    proxy.reset_connections()
    proxy.release()

    warm.send(b"y")

    assert queue.attributes().total_sent == 3


# -- Replies that come too late ------------------------------------------------------------------------------------


def test_reply_after_the_timeout_is_not_read_as_the_reply_to_another_command(
    proxy: FaultProxy, warm: Queue, queue: Queue
):
    for number in range(3):
        proxy.hold_replies()
        lose_patience(warm)
        with pytest.raises(OutcomeUnknown):
            warm.send(f"late {number}")
        proxy.release()

        assert isinstance(warm.attributes().messages, int)
        assert len(warm.send(b"on time")) == 32

    assert queue.attributes().messages == 6


class Interrupted(Exception):
    """What a signal handler raises in the middle of a call."""


def test_exchange_that_is_given_up_closes_its_socket(server: PrivateServer):
    connection = Client(Connection(server.url)).connection
    connection.exchange([("CLIENT", "SETNAME", "given-up")])
    link = connection.begin(b"*1\r\n$4\r\nPING\r\n")

    with pytest.raises(OutcomeUnknown, match="no reply within"):
        connection.give_up(link)

    wait_until(lambda: "given-up" not in [each["name"] for each in server.redis.client_list()])


def test_call_that_a_signal_interrupts_leaves_no_reply_behind(proxy: FaultProxy, distant: Queue, queue: Queue):
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    proxy.hold_replies()
    with pytest.raises(Interrupted):
        threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1)).start()
        distant.attributes()
    signal.signal(signal.SIGUSR1, before)
    proxy.release()

    message_id = distant.send(b"x")

    assert queue.receive_many(1)[0].id == message_id


@pytest.mark.slow
async def test_cancelled_call_never_answers_the_next_one(proxy: FaultProxy, distant: Queue, server: PrivateServer):
    await distant.aattributes()

    for number in range(100):
        proxy.hold_replies()
        seen = proxy.times_seen(b"EVALSHA")
        doomed = asyncio.create_task(distant.aattributes())
        await asyncio.to_thread(wait_until, lambda seen=seen: proxy.times_seen(b"EVALSHA") > seen)
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
