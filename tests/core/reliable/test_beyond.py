"""Operations beyond RedisRQ: receipts, nack, extend, delays, dead messages, names, statistics."""

import pytest
import redis

from rsmq_django.core import Client
from rsmq_django.core.errors import QueueNotFound
from rsmq_django.core.reliable import ReliableMessage, ReliableQueue, alist_reliable_queues, list_reliable_queues
from tests.redis_server import PrivateServer

from .conftest import MakeQueue


def pop_one(queue: ReliableQueue) -> ReliableMessage:
    [message] = queue.pop_messages()
    return message


def bodies(messages: list) -> list[bytes]:
    return [message.body for message in messages]


# -- Receipts ---------------------------------------------------------------------------------------------------------


def test_late_consumer_can_settle_nothing_once_the_message_was_recovered(jobs: ReliableQueue):
    jobs.push("invoice 7")
    late = pop_one(jobs)
    [again] = jobs.recover_messages(1, 0)

    assert jobs.ack(late) == jobs.nack(late) == jobs.extend(late, seconds=9) == []
    assert (again.id, again.deliveries) == (late.id, 2)
    assert jobs.ack(again.receipt) == [again.id]


def test_bare_id_is_good_for_any_delivery(jobs: ReliableQueue):
    jobs.push("x")
    late = pop_one(jobs)
    jobs.recover(1, 0)

    assert jobs.ack(late.id) == [late.id]


def test_acknowledging_twice_removes_once(jobs: ReliableQueue):
    jobs.push("a", "b")
    first, second = jobs.pop_messages(2)

    assert jobs.ack(first, first.id, "zzz", first.receipt) == [first.id]
    assert jobs.ack(first) == []
    assert jobs.ack(second) == [second.id]
    assert jobs.info() == ["undelivered", 0, "delivered", 0]


def test_stale_receipt_does_not_hide_a_good_one_of_the_same_message(jobs: ReliableQueue):
    jobs.push("a")
    late = pop_one(jobs)
    [again] = jobs.recover_messages(1, 0)

    assert jobs.ack(late, again) == [again.id]


def test_thousands_are_acknowledged_in_one_call(jobs: ReliableQueue):
    for _ in range(3):
        jobs.push(*["x"] * 1000)
    taken = [message for _ in range(3) for message in jobs.pop_messages(1000)]

    assert jobs.ack(*taken) == [message.id for message in taken]


# -- Nack, delays, extend ---------------------------------------------------------------------------------------------


def test_released_messages_are_next_in_their_old_order(jobs: ReliableQueue):
    jobs.push("a", "b", "c")
    taken = jobs.pop_messages(2)

    jobs.nack(*taken)

    again = jobs.pop_messages(3)
    assert bodies(again) == [b"a", b"b", b"c"]
    assert [message.deliveries for message in again] == [2, 2, 1]


def test_unused_delivery_that_was_released_is_not_counted(jobs: ReliableQueue):
    jobs.configure(max_deliveries=1)
    jobs.push("a")

    for _ in range(3):
        assert jobs.nack(pop_one(jobs), is_unused=True)

    message = pop_one(jobs)
    assert (message.deliveries, message.attempt) == (4, 1)
    assert jobs.nack(message.receipt) and jobs.messages("dead")


def test_receipt_of_a_released_delivery_is_invalid(jobs: ReliableQueue):
    jobs.push("a")
    unused = pop_one(jobs)
    jobs.nack(unused, is_unused=True)
    again = pop_one(jobs)

    assert jobs.nack(unused, is_unused=True) == jobs.ack(unused) == []
    assert jobs.ack(again) == [again.id]


def test_beginnings_of_bodies_are_read_with_their_sizes(jobs: ReliableQueue, server: PrivateServer):
    lost, *_ = jobs.push("lost", "hello", "", b"x" * 2_000_000)
    server.redis.hdel("rsmq::reliable:jobs:bodies", lost)

    def read(body_bytes: int | None) -> list[tuple[bytes, int]]:
        return [(each.body, each.size_bytes) for each in jobs.messages("undelivered", body_bytes=body_bytes)]

    assert read(3) == [(b"", 0), (b"hel", 5), (b"", 0), (b"", 2_000_000)], "over a megabyte it is left out"
    assert read(0) == [(b"", 0), (b"", 5), (b"", 0), (b"", 2_000_000)]
    assert read(3_000_000) == read(None) == [(b"", 0), (b"hello", 5), (b"", 0), (b"x" * 2_000_000, 2_000_000)]


def test_delayed_message_joins_the_end_when_its_time_has_come(jobs: ReliableQueue, server: PrivateServer):
    jobs.push("first")
    jobs.nack(pop_one(jobs), delay_s=60)
    jobs.push("pushed with a delay", delay_s=30)
    jobs.push("second")
    assert [message.body for message in jobs.messages("delayed")] == [b"pushed with a delay", b"first"]

    for message_id, _ in server.redis.zscan_iter("rsmq::reliable:jobs:delayed"):
        server.redis.zincrby("rsmq::reliable:jobs:delayed", -60_000, message_id)

    assert bodies(jobs.pop_messages(5)) == [b"second", b"pushed with a delay", b"first"]


def test_delayed_messages_that_are_too_many_for_one_step_are_due_at_once(jobs: ReliableQueue, server: PrivateServer):
    jobs.push("later", delay_s=60)
    server.redis.zadd("rsmq::reliable:jobs:delayed", {f"{n}-1": n for n in range(1, 1002)})

    popped = jobs.client.run(jobs.pop_call(0))

    assert (popped.next_due_ms, jobs.statistics().depth.delayed) == (0, 2)


def test_blocked_pop_wakes_when_a_delay_ends(jobs: ReliableQueue):
    jobs.push("soon", delay_s=0.3)

    assert bodies(jobs.pop_messages(1, 60_000)) == [b"soon"]


def test_extended_message_is_not_recovered(jobs: ReliableQueue, server: PrivateServer):
    jobs.push("slow", "dead")
    slow, dead = jobs.pop_messages(2)
    for message in (slow, dead):  # two minutes pass
        server.redis.zincrby("rsmq::reliable:jobs:delivered", -120_000 * 4096, message.id)

    jobs.extend(slow)

    assert jobs.recover(5, 60_000) == [[dead.id, b"dead"]]
    jobs.extend(slow, seconds=60)
    assert [row[0] for row in jobs.recover(5, 0)] == [dead.id]
    assert jobs.inspect(-1, 1, pending=True)[0][3] < 0, "its last delivery is still to come"


def test_extending_does_not_age_the_messages_that_follow(jobs: ReliableQueue):
    jobs.push("a", "b")
    jobs.extend(pop_one(jobs), seconds=3600)

    second = pop_one(jobs)

    assert [row[0] for row in jobs.recover(5, 0)] == [second.id]


# -- Dead messages ----------------------------------------------------------------------------------------------------


def test_message_that_kills_its_consumers_is_dead_after_its_maximum_of_deliveries(jobs: ReliableQueue):
    jobs.configure(max_deliveries=2)
    jobs.push("poison", "good")
    poison = pop_one(jobs)
    jobs.recover(1, 0)

    assert jobs.recover(1, 0) == []

    [dead] = jobs.messages("dead")
    assert (dead.id, dead.body, dead.deliveries) == (poison.id, b"poison", 2)
    assert bodies(jobs.pop_messages(5)) == [b"good"]


def test_messages_that_die_at_a_recovery_are_replaced_with_further_ones(jobs: ReliableQueue):
    jobs.configure(max_deliveries=2)
    jobs.push("a", "b", "c", "d")
    jobs.pop(2)
    jobs.recover(2, 0)
    jobs.pop(2)

    assert [body for _, body in jobs.recover(1, 0)] == [b"c"]

    assert bodies(jobs.messages("dead")) == [b"a", b"b"]
    assert [body for _, body in jobs.recover(5, 0)] == [b"d"], "the third delivery of c would be one too many"


def test_failure_of_the_last_delivery_is_the_end(jobs: ReliableQueue):
    jobs.configure(max_deliveries=2)
    jobs.push("a")
    jobs.nack(pop_one(jobs))

    jobs.nack(pop_one(jobs), delay_s=5)

    assert jobs.pop() == []
    assert jobs.statistics().depth.dead == jobs.statistics().total_buried == 1


def test_message_that_cannot_succeed_is_buried_with_the_reason(jobs: ReliableQueue):
    jobs.push("no JSON", "good")
    hopeless = pop_one(jobs)

    assert jobs.bury("zzz", hopeless, reason="undecodable: line 1") == [hopeless.id]

    [dead] = jobs.messages("dead")
    assert (dead.body, dead.consumer, dead.deliveries) == (b"no JSON", "undecodable: line 1", 1)
    assert jobs.bury(hopeless) == []
    assert jobs.redrive(count=1) == [hopeless.id]
    assert jobs.statistics().total_buried == 1


def test_lowered_limit_is_applied_at_a_pop_and_other_messages_are_returned(jobs: ReliableQueue):
    jobs.push("old", "new")
    jobs.nack(pop_one(jobs))
    jobs.configure(max_deliveries=1)

    assert bodies(jobs.pop_messages(1)) == [b"new"]
    assert bodies(jobs.messages("dead")) == [b"old"]


def test_dead_messages_get_another_chance_or_are_removed(jobs: ReliableQueue):
    jobs.configure(max_deliveries=1)
    jobs.push("a", "b", "c")
    jobs.nack(*jobs.pop_messages(3))
    a, b, c = [message.id for message in jobs.messages("dead")]

    assert jobs.redrive(b, "zzz", b) == [b]
    assert jobs.discard(c, c) == [c]
    assert jobs.redrive(count=10) == [a]

    assert [(m.body, m.deliveries, m.attempt) for m in jobs.pop_messages(5)] == [(b"b", 2, 1), (b"a", 2, 1)]
    assert jobs.messages("dead") == []


# -- Who holds what ---------------------------------------------------------------------------------------------------


def test_consumers_are_on_record_and_counted(make: MakeQueue):
    anna, ben = make("jobs", consumer="anna"), make("jobs", consumer="ben")
    anna.push(*"abcd")
    anna.pop(2)
    ben.pop(1)
    ben.recover(1, 0)

    assert [(m.body, m.consumer, m.deliveries) for m in anna.messages("delivered")] == [
        (b"b", "anna", 1),
        (b"c", "ben", 1),
        (b"a", "ben", 2),
    ]
    statistics = anna.statistics()
    assert statistics.consumers == {"anna": 1, "ben": 2}
    assert statistics.deliveries == {1: 2, 2: 1}
    assert (statistics.depth.ready, statistics.depth.in_flight, statistics.total_popped) == (1, 3, 3)
    assert statistics.oldest_delivery_ms >= 0


async def test_list_of_queues_has_all_existing_queues(make: MakeQueue, client: Client):
    for name in ("b", "a"):
        make(name).push("x")
    make("c").configure(max_deliveries=3)
    make("b").delete_queue()

    assert list_reliable_queues(client) == await alist_reliable_queues(client) == ["a", "c"]
    with pytest.raises(QueueNotFound):
        make("b").info()
    await client.connection.aclose()


def test_nothing_is_left_of_messages_that_are_done(make: MakeQueue, server: PrivateServer):
    queue = make("jobs", consumer="anna")
    queue.configure(max_deliveries=2)
    queue.push("a", "b")
    queue.pop(2)
    first, second = queue.recover_messages(2, 0)

    queue.ack(first)
    queue.nack(second)
    queue.discard(second.id)

    assert sorted(server.redis.keys("rsmq::reliable*")) == [b"rsmq::reliable", b"rsmq::reliable:jobs:state"]


def test_ids_grow_although_the_clock_steps_back(jobs: ReliableQueue, server: PrivateServer):
    jobs.push("x")
    server.redis.hset("rsmq::reliable:jobs:state", mapping={"ms": 9_999_999_999_999, "seq": 7})

    assert jobs.push("y", "z") == ["9999999999999-8", "9999999999999-9"]


def test_deliveries_keep_their_order_although_the_clock_steps_back(jobs: ReliableQueue, server: PrivateServer):
    jobs.push("a", "b")
    jobs.pop()
    clock = float(server.redis.hget("rsmq::reliable:jobs:state", "clock")) + 4096 * 60_000
    server.redis.hset("rsmq::reliable:jobs:state", "clock", f"{clock:.0f}")

    jobs.pop()

    assert [row[1] for row in jobs.inspect(0, 5, pending=True)] == [b"a", b"b"]


def test_token_of_a_queue_that_was_not_reached_stays(make: MakeQueue, server: PrivateServer):
    first, second = make("first"), make("second")
    first.push("1")
    second.push("2")
    assert server.redis.lpop("rsmq::reliable:second:wake") == b"1", "somebody was woken by the second queue"

    first.pop(1, 0, second)

    assert server.redis.llen("rsmq::reliable:second:wake") == 1


def test_scripts_forgotten_in_the_middle_of_a_wait_are_loaded_again(jobs: ReliableQueue, server: PrivateServer):
    with redis.Redis.from_url(server.url, socket_timeout=60) as other:
        other.script_flush()
        jobs.push("x")
        other.script_flush()
        assert jobs.pop(1, 1000)


# -- Async ------------------------------------------------------------------------------------------------------------


async def test_every_method_has_a_twin_that_does_the_same(jobs: ReliableQueue):
    await jobs.aconfigure(max_deliveries=3)
    a, b, c = await jobs.apush("a", "b", "c")
    assert await jobs.apop(1, 10) == [["jobs", a, b"a"]]
    [second] = await jobs.apop_messages(1)
    assert await jobs.aextend(second, seconds=0) == [b]
    assert await jobs.anack(second, delay_s=0) == [b]
    assert await jobs.arecover(1, 0) == [[a, b"a"]]
    assert [m.deliveries for m in await jobs.arecover_messages(1, 0)] == [3]
    assert await jobs.arecover(1, 0) == [], "that was its last delivery"
    assert await jobs.aredrive(count=5) == [a]
    assert await jobs.adiscard(a) == []
    assert await jobs.abury("zzz") == []
    assert await jobs.ainspect(0, 5) == [[b, b"b"], [c, b"c"], [a, b"a"]]
    assert bodies(await jobs.amessages("undelivered", -1, 1)) == [b"a"]
    assert await jobs.ainfo() == ["undelivered", 3, "delivered", 0]
    assert (await jobs.astatistics()).depth.ready == 3
    assert len(await jobs.aack(*[row[1] for row in await jobs.apop(3) or []]) or []) == 3
    assert await jobs.apop(1, 40) is None
    assert await jobs.apop_messages(1, 40) == []
    await jobs.adelete_queue()
    await jobs.client.connection.aclose()
