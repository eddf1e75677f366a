"""Waiting for messages: none is lost, no client is woken needlessly or waits for longer than requested."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
import redis

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import BrokenQueue, ConnectionFailed, RedisFailure
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.reliable.waiting import LONGEST_BLOCK_S, SERVER_TICK_S, SLICE_S, Wait, until_next_poll_s
from tests.redis_server import PrivateServer
from tests.support import wait_until

from .conftest import MakeQueue

CONSUMERS, QUEUES, PRODUCERS, MESSAGES_EACH = 6, 3, 2, 600


def in_threads(*functions: Callable[[], object]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()


@pytest.mark.slow
def test_six_consumers_on_three_queues_get_what_two_producers_push_each_once(server: PrivateServer):
    names = [f"c{n}" for n in range(QUEUES)]
    seen: Counter[str] = Counter()
    is_over, lock = threading.Event(), threading.Lock()

    def queue(name: str) -> ReliableQueue:
        return ReliableQueue(name, Client(Connection(server.url, timeout_s=15)))

    def consume() -> None:
        queues = {name: queue(name) for name in names}
        while not is_over.is_set():
            for message in queues["c0"].pop_messages(3, 300, "c1", "c2"):
                assert queues[message.queue].ack(message) == [message.id]
                with lock:
                    seen[message.text()] += 1

    def produce(number: int) -> None:
        queues = [queue(name) for name in names]
        for n in range(MESSAGES_EACH):
            queues[n % QUEUES].push(f"{number}-{n}")

    def end() -> None:
        in_threads(*[lambda number=number: produce(number) for number in range(PRODUCERS)])  # type: ignore[misc]
        wait_until(lambda: sum(seen.values()) >= PRODUCERS * MESSAGES_EACH)
        is_over.set()

    in_threads(*[consume] * CONSUMERS, end)

    assert len(seen) == PRODUCERS * MESSAGES_EACH and set(seen.values()) == {1}
    assert all(queue(name).info() == ["undelivered", 0, "delivered", 0] for name in names)


def test_wait_without_messages_ends_in_time(jobs: ReliableQueue, monkeypatch: pytest.MonkeyPatch):
    naps: list[float] = []
    sleep, here = time.sleep, threading.get_ident()
    monkeypatch.setattr(time, "sleep", lambda s: naps.append(s) if threading.get_ident() == here else sleep(s))
    began_at = time.monotonic()

    assert jobs.pop(1, 250) is None

    assert time.monotonic() - began_at >= 0.25
    assert all(nap <= 0.005 for nap in naps), "the end of a wait is looked for every few milliseconds"


@pytest.mark.parametrize("block_ms", [1, 90, 120, 2500, 10**10, -1])
def test_server_is_never_asked_to_wait_beyond_the_end_or_without_one(block_ms: int):
    wait = Wait(block_ms)

    block_s = wait.block_s()

    assert 0 <= block_s <= LONGEST_BLOCK_S
    assert block_ms < 0 or block_s <= max(0, block_ms / 1000 - SERVER_TICK_S)
    assert f"{block_s:.3f}" != "0.000" or block_s == 0, "the server takes a zero for ever"
    assert 0 < wait.nap_s() <= 0.005


def test_waiting_client_polls_when_a_message_is_due_and_every_two_seconds():
    assert until_next_poll_s(None) == until_next_poll_s(60_000) == SLICE_S
    assert until_next_poll_s(600) == 0.6
    assert until_next_poll_s(0) > 0


# -- The order of those who wait ---------------------------------------------------------------------------------------


def blocked(server: PrivateServer) -> int:
    return int(server.redis.info("clients")["blocked_clients"])


def wait_for_looks(server: PrivateServer, count: int) -> None:
    """Wait until waiters have looked so often."""

    def calls() -> int:
        return int(server.redis.info("commandstats")["cmdstat_evalsha"]["calls"])

    before = calls()
    wait_until(lambda: calls() >= before + count)


def test_waiters_are_served_in_the_order_in_which_they_came(
    make: MakeQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.core.reliable.waiting.SLICE_S", 0.03)
    served: list[tuple[int, bytes]] = []

    def wait(number: int) -> None:
        for row in make("jobs").pop(1, 120_000) or []:
            served.append((number, row[2]))

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_until(lambda count=count: blocked(server) == count)  # type: ignore[misc]
    for number in range(5):
        wait_for_looks(server, 20)
        make("jobs").push(f"{number}")
        wait_until(lambda number=number: len(served) == number + 1)  # type: ignore[misc]
    for thread in threads:
        thread.join(timeout=90)

    assert served == [(number, b"%d" % number) for number in range(5)]


def test_poll_of_a_waiting_client_leaves_a_fresh_message_to_the_client_that_was_woken(
    jobs: ReliableQueue, server: PrivateServer
):
    token = "rsmq::reliable:jobs:wake"
    jobs.push("a")
    assert server.redis.lpop(token) == b"1"  # the client that was woken has it

    jobs.client.run(jobs.pop_call(0, is_look=True))
    assert not server.redis.exists(token)

    jobs.client.run(jobs.pop_call(0))  # that client gives it back
    assert server.redis.exists(token)


def test_poll_of_a_waiting_client_announces_a_message_that_was_not_popped_for_long(
    jobs: ReliableQueue, server: PrivateServer
):
    token, undelivered = "rsmq::reliable:jobs:wake", "rsmq::reliable:jobs:undelivered"
    jobs.push("a")
    message_id = server.redis.lpop(undelivered)
    server.redis.rpush(undelivered, b"1000-" + message_id.partition(b"-")[2])
    server.redis.delete(token)

    jobs.client.run(jobs.pop_call(0, is_look=True))

    assert server.redis.exists(token)


async def test_async_waiters_are_served_in_the_order_in_which_they_came(
    jobs: ReliableQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.core.reliable.waiting.SLICE_S", 0.03)
    waiters = []
    for count in range(1, 5):
        waiters.append(asyncio.create_task(jobs.apop(1, 120_000)))
        await asyncio.to_thread(wait_until, lambda count=count: blocked(server) == count)  # type: ignore[misc]
    bodies = []
    for number, waiter in enumerate(waiters):
        await asyncio.to_thread(wait_for_looks, server, 20)
        await jobs.apush(f"{number}")
        bodies += [row[2] for row in await asyncio.wait_for(waiter, 90) or []]

    assert bodies == [b"0", b"1", b"2", b"3"]
    await jobs.client.connection.aclose()


def test_delayed_message_is_taken_when_it_is_due_by_a_waiter_that_stays_in_line(
    jobs: ReliableQueue, make: MakeQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    jobs.push("later", delay_s=0.3)
    monkeypatch.setattr("rsmq_django.core.reliable.waiting.SLICE_S", 60.0)

    assert [row[2] for row in make("jobs").pop(1, 60_000) or []] == [b"later"]


@pytest.mark.slow
def test_message_whose_token_was_lost_is_taken_anyway(jobs: ReliableQueue, server: PrivateServer):
    waiting: list = []
    thread = threading.Thread(target=lambda: waiting.append(jobs.pop(1, 60_000)))
    thread.start()
    wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 1)

    # As if the waiter that took the token had died: the message is there, its token is not.
    server.redis.rpush("rsmq::reliable:jobs:undelivered", "1-1")
    server.redis.hset("rsmq::reliable:jobs:bodies", "1-1", "orphan")
    thread.join(timeout=90)

    assert waiting == [[["jobs", "1-1", b"orphan"]]]


def test_one_push_wakes_only_one_waiting_client(
    make: MakeQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.core.reliable.waiting.SLICE_S", 20.0)  # nobody looks by himself
    replies: list = []
    threads = [threading.Thread(target=lambda: replies.append(make("jobs").pop(1, 60_000))) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 5)
    server.redis.config_resetstat()

    make("jobs").push("only one")
    wait_until(lambda: len(replies) == 1)

    assert server.redis.info("commandstats")["cmdstat_lpop"]["calls"] == 1, "the others did not even look"
    make("jobs").push(*"abcd")
    for thread in threads:
        thread.join(timeout=90)
    assert sorted(reply[0][2] for reply in replies) == [b"a", b"b", b"c", b"d", b"only one"]


def test_second_queue_wakes_a_waiter_too_and_the_first_is_served_first(make: MakeQueue, server: PrivateServer):
    replies: list = []
    thread = threading.Thread(target=lambda: replies.append(make("hi").pop(5, 60_000, "lo")))
    thread.start()
    wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 1)

    make("lo").push("low")
    thread.join(timeout=90)

    assert [row[2] for row in replies[0]] == [b"low"]


def test_dead_server_ends_a_wait_and_nothing_was_taken(jobs: ReliableQueue, server: PrivateServer):
    jobs.push("x", delay_s=60)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            jobs.pop(1, -1)
        except ConnectionFailed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 1)
    server.kill()
    thread.join(timeout=90)
    server.start()

    assert len(errors) == 1
    assert jobs.statistics().depth.delayed == 1


def test_wake_key_that_breaks_during_a_wait_is_reported(jobs: ReliableQueue, server: PrivateServer):
    server.redis.set("rsmq::reliable:jobs:wake", "foreign")

    with pytest.raises(BrokenQueue):
        jobs.pop(1, -1)


def refuse_the_wait(server: PrivateServer) -> None:
    """Let the server answer the client that waits with an error."""
    wait_until(lambda: blocked(server) == 1)
    (waiting,) = [client for client in server.redis.client_list() if "b" in client["flags"]]
    server.redis.client_unblock(int(waiting["id"]), error=True)


def test_refusal_during_a_wait_is_reported(jobs: ReliableQueue, server: PrivateServer):
    errors: list[Exception] = []

    def wait() -> None:
        try:
            jobs.pop(1, 60_000)
        except RedisFailure as error:
            errors.append(error)

    in_threads(wait, lambda: refuse_the_wait(server))

    assert ["UNBLOCKED" in str(error) for error in errors] == [True]


async def test_refusal_during_an_async_wait_is_reported(jobs: ReliableQueue, server: PrivateServer):
    waiting = asyncio.create_task(jobs.apop(1, 60_000))
    await asyncio.to_thread(refuse_the_wait, server)

    with pytest.raises(RedisFailure, match="UNBLOCKED"):
        await waiting
    await jobs.client.connection.aclose()


async def test_async_waiters_share_the_messages(jobs: ReliableQueue, server: PrivateServer):
    waiters = [asyncio.create_task(jobs.apop(1, 60_000)) for _ in range(3)]
    await asyncio.to_thread(wait_until, lambda: server.redis.info("clients")["blocked_clients"] == 3)

    await jobs.apush("a", "b", "c")
    replies = await asyncio.gather(*waiters)

    assert sorted(reply[0][2] for reply in replies) == [b"a", b"b", b"c"]
    await jobs.client.connection.aclose()


async def test_cancelled_wait_takes_nothing_with_it(jobs: ReliableQueue, server: PrivateServer):
    waiter = asyncio.create_task(jobs.apop(1, -1))
    await asyncio.to_thread(wait_until, lambda: server.redis.info("clients")["blocked_clients"] == 1)

    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await jobs.apush("a")

    assert [row[2] for row in await jobs.apop(1, 60_000) or []] == [b"a"]
    await jobs.client.connection.aclose()


def test_waiting_user_needs_no_more_than_the_documented_rights(server: PrivateServer, jobs: ReliableQueue):
    rights = "+eval +evalsha +script|load +hello +blpop +time +exists +del +llen +lpop +lpush +rpush +zcard +zadd +zrem"
    rights += " +zrange +zrangebyscore +zmscore +hlen +hget +hmget +hset +hdel +hincrby +sadd"
    server.redis.execute_command("ACL", "SETUSER", "rq", "reset", "on", ">secret", "~rsmq::reliable*", *rights.split())
    try:
        url = server.url.replace("unix://", "unix://rq:secret@")
        narrow = ReliableQueue("jobs", Client(Connection(url, timeout_s=15)), consumer="narrow")
        narrow.push("a", "b")
        first, second = narrow.pop_messages(2)
        narrow.nack(first, delay_s=0.01)
        assert narrow.ack(second) == [second.id]
        assert narrow.pop(1, 5000)
        assert len(narrow.recover(1, 0) or []) == 1
        assert narrow.pop(1, 150) is None
    finally:
        with redis.Redis.from_url(server.url, socket_timeout=60) as admin:
            admin.execute_command("ACL", "DELUSER", "rq")
