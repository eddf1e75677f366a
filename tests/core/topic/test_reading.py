"""Reading: fan-out to groups, sharing within one, at most once and at least once, dead letters."""

from typing import Any

import pytest

from rsmq_django.core import Client
from rsmq_django.core.errors import GroupNotFound, InvalidValue, TooManyGroups
from rsmq_django.core.topic import NewMessage, Topic
from rsmq_django.core.topic.group import ConsumerGroup
from tests.core.topic.conftest import PassTime, bodies, indexes
from tests.redis_server import PrivateServer


def test_every_group_gets_every_message(topic: Topic):
    topic.publish(*"abc")

    assert bodies(topic.group("one").read(10)) == bodies(topic.group("two").read(10)) == [b"a", b"b", b"c"]


def test_consumers_of_one_group_share_its_messages(topic: Topic, client: Client):
    topic.publish(*map(str, range(10)))
    first, second = topic.group("g"), Topic("orders", client).group("g")

    got = [indexes(first.read(3)), indexes(second.read(3)), indexes(first.read(10)), indexes(second.read(10))]

    assert got == [[1, 2, 3], [4, 5, 6], [7, 8, 9, 10], []]


def test_batch_has_the_lag(topic: Topic):
    topic.publish(*"abcde")

    batch = topic.group("g").read(2)

    assert (len(batch), batch.left, batch.last, batch.skipped, batch.holes) == (2, 3, 5, 0, 0)


def test_group_that_has_just_begun_has_skipped_and_buried_nothing(topic: Topic):
    topic.publish("a")
    group = topic.group("g")
    group.read()

    assert (group.status().skipped, group.status().depth.dead) == (0, 0)


def test_new_group_starts_at_the_configured_position(topic: Topic):
    topic.publish("before")
    latest, strict = topic.group("latest", start="latest"), topic.group("strict", start="error")
    assert not latest.read()

    topic.publish("after")

    assert bodies(latest.read(10)) == [b"after"]
    assert bodies(topic.group("earliest").read(10)) == [b"before", b"after"]
    with pytest.raises(GroupNotFound, match="no group 'strict'"):
        strict.read()


def test_new_group_misses_nothing_that_is_published_after_its_first_read(topic: Topic):
    group = topic.group("g", start="latest")
    assert not group.read()

    topic.publish("first of all")

    assert bodies(group.read()) == [b"first of all"]


@pytest.mark.parametrize("count", [0, -1, 1001, 10**30, True, 1.5, "3", None])
def test_impossible_counts_are_refused(topic: Topic, count: object):
    with pytest.raises(InvalidValue, match="count"):
        topic.group("g").read(count)


@pytest.mark.parametrize(
    "options",
    [{"start": "now"}, {"on_reset": ""}, {"visibility_timeout_s": -1}, {"max_deliveries": -1}, {"max_deliveries": 1.5}],
)
def test_impossible_options_are_refused_where_the_group_is_made(topic: Topic, options: dict):
    with pytest.raises(InvalidValue):
        topic.group("g", **options)


# -- At least once -----------------------------------------------------------------------------------------------------


def test_message_is_delivered_again_until_it_is_acknowledged(topic: Topic, careful: ConsumerGroup, pass_time: PassTime):
    topic.publish(*"ab")
    careful.read(2)

    assert not careful.read(2), "it is held"
    pass_time(careful, 31)
    again = careful.read(2)

    assert [(message.body, message.deliveries) for message in again] == [(b"a", 2), (b"b", 2)]
    assert careful.ack(again) == 2
    pass_time(careful, 31)
    assert not careful.read(2)


def test_cursor_is_before_the_lowest_message_that_is_not_acknowledged(
    topic: Topic, careful: ConsumerGroup, server: PrivateServer
):
    topic.publish(*"abcde")
    careful.read(4)
    cursors = [server.redis.get(careful.keys.cursor)]

    for index in (2, 1, 4, 3):
        careful.ack(index)
        cursors.append(server.redis.get(careful.keys.cursor))

    assert cursors == [b"0", b"0", b"2", b"2", b"4"]
    assert not server.redis.exists(careful.keys.pending, careful.keys.due, careful.keys.counts)


def test_late_acknowledgement_is_refused_and_leaves_the_message_to_its_new_reader(
    topic: Topic, careful: ConsumerGroup, pass_time: PassTime
):
    topic.publish(*"ab")
    late = careful.read(2)
    pass_time(careful, 31)
    again = careful.read(1)

    assert careful.ack(late) == 1, "nobody has taken the second one since"

    pass_time(careful, 31)
    third = careful.read(2)
    assert [(message.index, message.deliveries) for message in third] == [(1, 3)]
    assert (careful.ack(again), careful.ack(third)) == (0, 1)


@pytest.mark.parametrize("after_s", [0, 3600])
def test_late_retry_or_extension_is_refused_and_does_not_change_the_new_lease(
    topic: Topic, careful: ConsumerGroup, pass_time: PassTime, after_s: float
):
    topic.publish("a")
    late = careful.read(1)
    pass_time(careful, 31)
    careful.read(1)

    assert careful.retry(late, after_s=after_s) == 0

    assert not careful.read(1)
    pass_time(careful, 31)
    assert [message.deliveries for message in careful.read(1)] == [3]


@pytest.mark.parametrize("set_back", ["by us", "by a plain client"])
def test_acknowledgement_from_before_a_replay_does_not_fit_the_same_message_after_it(
    topic: Topic, careful: ConsumerGroup, server: PrivateServer, set_back: str
):
    topic.publish("a")
    before = careful.read(1)
    if set_back == "by us":
        careful.replay(force=True)
    else:
        server.redis.delete(careful.keys.cursor)
    after = careful.read(1)

    assert [message.deliveries for message in (*before, *after)] == [1, 1]
    assert (careful.ack(before), careful.ack(after)) == (0, 1)


def test_acknowledgement_from_before_the_group_was_deleted_does_not_fit_the_same_message_after_it(
    topic: Topic, careful: ConsumerGroup
):
    topic.publish("a")
    (late,) = careful.read()
    careful.leave()
    careful.drop()
    (again,) = careful.read()

    assert (careful.ack(late), careful.retry(late)) == (0, 0)
    assert careful.ack(again) == 1


def test_redelivered_messages_come_before_new_ones(topic: Topic, careful: ConsumerGroup, pass_time: PassTime):
    topic.publish(*"abcd")
    careful.ack(careful.read(2).messages[1])
    pass_time(careful, 31)

    assert indexes(careful.read(2)) == [1, 3]


def test_message_can_be_released_and_its_lease_extended(topic: Topic, careful: ConsumerGroup, pass_time: PassTime):
    topic.publish(*"ab")
    first, second = careful.read(2)

    assert careful.retry(first) == 1
    assert careful.retry(second, after_s=300) == 1
    assert indexes(careful.read(10)) == [1]
    pass_time(careful, 31)
    assert indexes(careful.read(10)) == [1], "the other one has 300 seconds"


def test_message_that_was_delivered_too_often_goes_to_the_dead_letter_topic(
    topic: Topic, careful: ConsumerGroup, pass_time: PassTime, client: Client
):
    topic.publish("poison", key="k", headers={"type": "order"})
    topic.publish("good")
    for _ in range(3):
        careful.read(1)
        pass_time(careful, 31)

    batch = careful.read(10)

    assert (bodies(batch), batch.dead_lettered) == ([b"good"], 1)
    (dead,) = Topic("orders.dlt", client).group("look").read(10)
    assert (dead.body, dead.key) == (b"poison", "k")
    facts = {"topic": "orders", "group": "careful", "index": "1", "deliveries": "3"}
    assert dead.headers == facts | {"type": "order"}
    assert careful.status().depth.dead == 1
    assert careful.ack(batch) == 1 and careful.lag() == 0


@pytest.mark.parametrize("is_async", [False, True])
async def test_messages_read_beside_a_dead_letter_reach_their_reader_although_the_server_is_full(
    topic: Topic, server: PrivateServer, is_async: bool
):
    topic.publish("poison", "good")
    group = topic.group("g", at_least_once=True, max_deliveries=1)
    group.retry(group.read(1).messages)

    server.redis.config_set("maxmemory", 1)
    try:
        batch = await group.aread(10) if is_async else group.read(10)
    finally:
        server.redis.config_set("maxmemory", 0)

    assert (bodies(batch), batch.dead_lettered) == ([b"good"], 1)


def test_without_a_limit_a_message_is_retried_forever(topic: Topic, pass_time: PassTime):
    topic.publish("again")
    group = topic.group("g", at_least_once=True, max_deliveries=0)

    deliveries = []
    for _ in range(12):
        (message,) = group.read()
        deliveries.append(message.deliveries)
        pass_time(group, 31)

    assert deliveries == list(range(1, 13))


def test_acknowledging_twice_or_without_a_delivery_changes_nothing(
    topic: Topic, careful: ConsumerGroup, server: PrivateServer
):
    topic.publish(*"abc")
    careful.ack(careful.read(2))

    assert [careful.ack([1, 2]), careful.ack(3), careful.ack([]), careful.ack(10**9)] == [0, 0, 0, 0]
    assert server.redis.get(careful.keys.cursor) == b"2"
    impossible: list[Any] = [0, -1, "1", None, True]
    for wrong in impossible:
        with pytest.raises((InvalidValue, TypeError)):
            careful.ack([wrong])


def test_reading_at_most_once_continues_after_messages_in_flight(
    topic: Topic, careful: ConsumerGroup, pass_time: PassTime
):
    topic.publish(*"abcd")
    careful.read(2)

    quick = topic.group("careful").read(1)

    assert indexes(quick) == [3]
    pass_time(careful, 31)
    assert indexes(careful.read(10)) == [1, 2, 4]


def test_a_thousand_messages_can_be_leased_and_acknowledged(topic: Topic, careful: ConsumerGroup):
    topic.publish(*map(str, range(1000)))

    assert careful.ack(careful.read(1000)) == 1000
    assert careful.status().position == 1000


# -- Status ------------------------------------------------------------------------------------------------------------


def test_status_has_lag_age_and_messages_in_flight(topic: Topic, careful: ConsumerGroup, pass_time: PassTime):
    topic.publish(*"abcde")
    careful.ack(careful.read(3).messages[:1])
    pass_time(topic, 60)

    status = careful.status()

    assert (status.position, status.lag, status.held, status.due, status.live_consumers) == (3, 2, 2, 0, 1)
    assert 59 < status.depth.oldest_ready_s < 120
    pass_time(careful, 31)
    assert (careful.status().due, careful.status().live_consumers) == (2, 0)


def test_group_without_reads_is_reported_as_missing(topic: Topic):
    topic.publish("a")

    status = topic.group("nobody").status()

    assert (status.exists, status.lag, topic.groups()) == (False, 1, [])


def test_idle_read_writes_nothing(topic: Topic, server: PrivateServer):
    topic.publish("a")
    group = topic.group("g")
    group.read(10)
    before = server.redis.info("persistence")["rdb_changes_since_last_save"]

    for _ in range(5):
        assert not group.read(10)

    assert server.redis.info("persistence")["rdb_changes_since_last_save"] == before


def test_each_message_has_the_time_of_its_slot_among_many_slots(topic: Topic, server: PrivateServer):
    topic.publish(*"abcdefghij")
    server.redis.delete(topic.keys.time)
    server.redis.zadd(topic.keys.time, {"1": 1000, "3": 2000, "5": 3000, "7": 4000, "9": 5000})

    times = [message.published_ms for at in range(1, 11) for message in topic.read_range(at, 1).messages]

    assert times == [1000, 1000, 2000, 2000, 3000, 3000, 4000, 4000, 5000, 5000]


def test_a_range_of_beginnings_has_their_sizes(topic: Topic, server: PrivateServer):
    topic.publish("hello", "", "gone", "another type", NewMessage(b"\xff" * 9, key="k", headers={"a": "b"}))
    server.redis.delete(f"{topic.keys.prefix}3", f"{topic.keys.prefix}4")
    server.redis.rpush(f"{topic.keys.prefix}4", "another type")

    found = topic.read_range(1, 10, body_bytes=3)

    assert [(each.index, each.body) for each in found.messages] == [(1, b"hel"), (2, b""), (5, b"\xff\xff\xff")]
    assert found.sizes == [5, 0, 9]
    assert (found.messages[2].key, found.messages[2].headers) == ("k", {"a": "b"})
    assert [each.body for each in topic.read_range(1, 10, body_bytes=0).messages] == [b"", b"", b""]
    assert [each.body for each in topic.read_range(1, 10).messages] == [b"hello", b"", b"\xff" * 9]
    assert topic.read_range(9, 9, body_bytes=3).messages == []


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "x"])
def test_a_wrong_length_of_beginnings_is_refused(topic: Topic, wrong: Any):
    with pytest.raises(InvalidValue, match="body_bytes"):
        topic.read_range(1, 1, body_bytes=wrong)


def test_status_has_the_times_of_the_oldest_and_the_newest_message(topic: Topic, server: PrivateServer):
    topic.publish(*"abc")
    server.redis.delete(topic.keys.time)
    server.redis.zadd(topic.keys.time, {"1": 1000, "2": 2000, "3": 3000})

    assert (topic.status().oldest_ms, topic.status().newest_ms) == (1000, 3000)


def test_age_of_a_message_is_unknown_when_its_time_was_lost(topic: Topic, server: PrivateServer, pass_time: PassTime):
    group = topic.group("g")
    topic.publish(*"ab")
    server.redis.delete(topic.keys.time)
    pass_time(topic, 60)
    topic.publish("c")

    assert group.status().depth.oldest_ready_s is None
    group.read(2)
    assert group.status().depth.oldest_ready_s is not None


def test_status_of_a_group_is_read_again_when_its_reply_is_lost(topic: Topic):
    assert topic.group("g").status_call().repeatable


def test_topic_has_a_thousand_groups_at_most(topic: Topic, server: PrivateServer):
    topic.publish(b"x")
    names = {f"group-{number}": 1_000 for number in range(999)}
    server.redis.zadd(topic.keys.groups, names)

    assert bodies(topic.group("last").read()) == [b"x"]
    with pytest.raises(TooManyGroups, match="topic 'orders' has 1000 groups"):
        topic.group("one-more").read()
    assert server.redis.zscore(topic.keys.groups, "one-more") is None


def test_message_read_at_most_once_has_no_receipt_and_can_be_shown(topic: Topic):
    topic.publish("a")

    (message,) = topic.group("g").read()

    assert (message.receipt, message.released, message.attempt) == ("", 0, 1)
    assert "body=b'a'" in repr(message)


def test_released_delivery_is_not_counted(topic: Topic, pass_time: PassTime):
    group = topic.group("g", at_least_once=True, max_deliveries=2)
    topic.publish("a")
    for number in range(1, 6):
        (message,) = group.read()
        assert (message.deliveries, message.attempt) == (number, 1)
        assert group.client.run(group.release_call([message])) == [True]

    for attempt in (1, 2):
        (message,) = group.read()
        assert (message.deliveries, message.attempt) == (5 + attempt, attempt)
        group.retry(message)

    assert group.read().dead_lettered == 1


@pytest.mark.parametrize("lost", [(), (2,), (1, 3), (1, 2, 3)])
@pytest.mark.parametrize("is_delivered_again", [False, True])
def test_reply_tells_which_messages_were_in_flight(topic: Topic, lost: tuple[int, ...], is_delivered_again: bool):
    group = topic.group("g", at_least_once=True)
    topic.publish("a", "b", "c")
    messages = group.read(3).messages
    if is_delivered_again:  # and acknowledged by its new consumer, which leaves nothing to compare a receipt with
        group.retry(lost)
        group.read(len(lost) or 1)
    group.ack(lost)
    were_held = [message.index not in lost for message in messages]

    (retry,), (ack,) = group.retry_calls(messages, after_s=60), group.ack_calls(messages)

    assert group.client.run(retry) == were_held
    assert group.status().held == sum(were_held)
    assert group.client.run(ack) == were_held
    assert group.status().held == 0


def test_reply_about_all_messages_or_none_is_their_number(topic: Topic):
    group = topic.group("g", at_least_once=True)
    topic.publish("a", "b", "c")
    group.read(3)
    (both,), (last_two,) = group.ack_calls([1, 2]), group.ack_calls([2, 3])
    for call in (both, last_two):
        call.read = lambda reply: reply

    assert [group.client.run(call) for call in (both, both, last_two)] == [2, 0, [0, 1]]


def test_message_that_is_given_twice_counts_once(topic: Topic):
    group = topic.group("g", at_least_once=True)
    topic.publish("a")
    (message,) = group.read()

    assert group.ack([message, message]) == 1


def test_release_that_is_repeated_counts_once_and_not_after_another_delivery(topic: Topic):
    group = topic.group("g", at_least_once=True)
    topic.publish("a")
    (message,) = group.read()
    release = group.release_call([message])

    assert (group.client.run(release), group.client.run(release)) == ([True], [True])
    (again,) = group.read()
    assert (again.deliveries, again.attempt) == (2, 1)
    assert group.client.run(release) == [False], "another consumer has it now"

    assert group.ack(message) == 0
    assert group.ack(again) == 1


def test_release_after_a_time_delays_the_message(topic: Topic, pass_time: PassTime):
    group = topic.group("g", at_least_once=True)
    topic.publish("a")
    (message,) = group.read()
    group.client.run(group.release_call([message], after_s=60))

    assert not group.read()
    pass_time(group, 60)
    assert bodies(group.read()) == [b"a"]
