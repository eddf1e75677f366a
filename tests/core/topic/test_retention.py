"""Retention of a topic: count, age, bytes, unread messages, the newest of each key; idle groups."""

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import GroupLive, InvalidValue
from rsmq_django.core.topic import NewMessage, Retention, Topic
from rsmq_django.core.transport.call import load_script
from tests.core.topic.conftest import PassTime, bodies, indexes
from tests.core.topic.plain_client import PlainClient
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer


def kept(server: PrivateServer) -> list[int]:
    """Return the indexes whose messages exist."""
    return sorted(int(key.rpartition(b":")[2]) for key in server.redis.keys("orders:messages:*"))


def test_count_is_kept_within_a_hundred_by_publishing_and_exactly_by_trimming(topic: Topic, server: PrivateServer):
    topic.set_retention(Retention(max_count=50))
    longest = 0
    for _ in range(60):
        topic.publish(*map(str, range(10)))
        longest = max(longest, topic.status().length)

    assert 50 <= longest < 50 + 100 + 10
    topic.trim()
    assert kept(server) == list(range(551, 601))
    assert topic.status().first == 551


def test_topic_does_not_grow_beyond_its_limit_with_the_largest_batches(topic: Topic):
    topic.set_retention(Retention(max_count=1000))

    for _ in range(5):
        topic.publish(*["x"] * 1000)

    assert topic.status().length == 1000


def test_reader_that_fell_behind_skips_messages_and_gets_their_number(topic: Topic):
    topic.publish(*map(str, range(1, 11)))
    slow, new = topic.group("slow"), topic.group("new")
    slow.read(2)

    topic.trim(keep=3)

    assert (slow.status().missed, slow.lag()) == (5, 3)
    batch = slow.read(1)
    assert (indexes(batch), batch.skipped) == ([8], 5)
    assert slow.read(1).skipped == 0 and slow.status().skipped == 5
    assert (indexes(new.read(10)), new.read(10).skipped) == ([8, 9, 10], 0)


def test_trimmed_messages_in_flight_are_not_redelivered_and_count_as_skipped(
    topic: Topic, careful, pass_time: PassTime
):
    topic.publish(*"abcd")
    careful.read(3)

    topic.trim(before=3)
    pass_time(careful, 31)
    batch = careful.read(10)

    assert (indexes(batch), batch.skipped, batch.holes) == ([3, 4], 2, 0)
    assert careful.status().skipped == 2
    assert careful.ack(batch) == 2 and careful.status().held == 0


def test_age_lets_whole_slots_go(topic: Topic, pass_time: PassTime, server: PrivateServer):
    topic.set_retention(Retention(max_age_s=60))
    topic.publish(*"ab")
    pass_time(topic, 50)
    topic.publish(*"cd")
    pass_time(topic, 20)

    assert topic.trim() == 2
    assert kept(server) == [3, 4]
    pass_time(topic, 60)
    assert topic.trim() == 2 and kept(server) == []
    assert topic.publish("e") == range(5, 6)


def test_a_limit_that_is_not_exceeded_releases_no_messages(topic: Topic, server: PrivateServer):
    topic.publish(*"ab")
    for retention in (Retention(max_age_s=60), Retention(max_count=2), Retention(max_bytes=2)):
        topic.set_retention(retention)

        assert topic.trim() == 0, retention

    assert kept(server) == [1, 2]


def test_bytes_count_messages_of_plain_clients_too(topic: Topic, plain: PlainClient, server: PrivateServer):
    for _ in range(5):
        plain.send(b"x" * 100)
        topic.publish(b"y" * 100)

    topic.set_retention(Retention(max_bytes=350))
    topic.trim()

    assert kept(server) == [8, 9, 10]
    topic.publish(b"z" * 50)
    assert topic.trim() == 0, "350 bytes are allowed"
    topic.publish(b"z")
    assert topic.trim() == 1


def test_topic_can_wait_for_all_of_its_groups(topic: Topic, server: PrivateServer):
    topic.set_retention(Retention(max_count=2, wait_for_groups=True))
    fast, slow = topic.group("fast"), topic.group("slow")
    fast.read(), slow.read()
    topic.publish(*map(str, range(1, 11)))
    fast.read(10), slow.read(4)

    topic.trim()
    assert kept(server) == [5, 6, 7, 8, 9, 10]
    slow.read(10)
    topic.trim()
    assert kept(server) == [9, 10]


@pytest.mark.parametrize("read", [(4, 8, 6), (8, 4, 6), (6, 8, 4)])
def test_topic_waits_for_the_slowest_of_its_groups_with_any_name(
    topic: Topic, server: PrivateServer, read: tuple[int, ...]
):
    topic.set_retention(Retention(max_count=2, wait_for_groups=True))
    groups = [topic.group(name) for name in ("a", "b", "c")]
    for group in groups:
        group.read()
    topic.publish(*map(str, range(1, 11)))
    for group, count in zip(groups, read, strict=True):
        group.read(count)

    topic.trim()

    assert kept(server) == [5, 6, 7, 8, 9, 10]


def test_limits_can_be_read_and_lifted(topic: Topic):
    limits = Retention(max_count=5, max_age_s=1.5, max_bytes=1000, wait_for_groups=True, group_ttl_s=60)

    topic.set_retention(limits)
    assert topic.status().retention == limits
    topic.set_retention(Retention())
    assert topic.status().retention == Retention()


@pytest.mark.parametrize(
    "retention",
    [Retention(max_count=0), Retention(max_count=-1), Retention(max_bytes=10**20), Retention(max_age_s=-1)],
)
def test_impossible_limits_are_refused(topic: Topic, retention: Retention):
    with pytest.raises(InvalidValue, match="must be"):
        topic.set_retention(retention)


@pytest.mark.parametrize("arguments", [{"before": -1}, {"keep": -1}, {"keep": 1, "before": 1}, {"before": 10**20}])
def test_impossible_trims_are_refused(topic: Topic, arguments: dict):
    with pytest.raises(InvalidValue):
        topic.trim(**arguments)


def test_trim_beyond_the_end_empties_the_topic_and_its_index_continues(topic: Topic, server: PrivateServer):
    topic.publish(*map(str, range(1000)))
    topic.publish(*map(str, range(500)))

    assert topic.trim(before=10**9) == 1500
    assert kept(server) == [] and server.redis.zcard(topic.keys.time) <= 1
    assert topic.publish("next") == range(1501, 1502)


def test_slots_without_a_message_are_forgotten(topic: Topic, pass_time: PassTime, server: PrivateServer):
    for body in "abcd":
        topic.publish(body, body)
        pass_time(topic, 1)

    topic.trim(before=6)

    assert server.redis.zrange(topic.keys.time, 0, -1) == [b"5", b"7"], "message 6 is in the slot that begins with 5"


# -- Compaction --------------------------------------------------------------------------------------------------------


def test_compaction_goes_on_until_only_the_newest_messages_are_left(topic: Topic, server: PrivateServer):
    for first in range(0, 1200, 400):
        topic.publish(*(NewMessage(f"{number}", key="k") for number in range(first, first + 400)))

    assert topic.compact() == 1199
    assert kept(server) == [1200]


def test_compaction_whose_reply_was_lost_goes_on(server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        topic = Topic("orders", Client(Connection(proxy.url)))
        topic.publish(*[NewMessage(body, key="k") for body in "abc"])
        assert topic.compact() == 2
        topic.publish(NewMessage("d", key="k"))
        proxy.lose_reply_to(load_script("topic/compact").sha1.encode())

        topic.compact()

    assert kept(server) == [4]


def test_compaction_keeps_the_newest_message_of_each_key_and_messages_without_a_key(
    topic: Topic, server: PrivateServer
):
    topic.publish(
        NewMessage("1", key="a"), NewMessage("2", key="b"), "3", NewMessage("4", key="a"), NewMessage("5", key="a")
    )
    group = topic.group("g")

    assert topic.compact() == 2
    assert kept(server) == [2, 3, 5]
    batch = group.read(10)
    assert (bodies(batch), batch.holes, batch.skipped) == ([b"2", b"3", b"5"], 2, 0)
    assert topic.compact() == 0


def test_tombstone_with_a_newer_message_counts_once(topic: Topic, server: PrivateServer, pass_time: PassTime):
    topic.publish(NewMessage(b"", key="a"), NewMessage("new", key="a"))
    pass_time(topic, 61)

    assert topic.compact(tombstone_ttl_s=60) == 1
    assert kept(server) == [2]


def test_bytes_of_compacted_messages_do_not_count(topic: Topic, server: PrivateServer):
    topic.set_retention(Retention(max_bytes=1000))
    for _ in range(3):
        topic.publish(*[NewMessage(b"x" * 100, key="k")] * 5)
        topic.trim()
        topic.compact()

    topic.publish(*[b"y" * 100] * 9)

    assert topic.trim() == 0, "1,000 bytes are allowed"
    assert kept(server) == list(range(15, 25))
    topic.publish(b"z")
    assert topic.trim() == 15, "14 were compacted before"
    assert kept(server) == list(range(16, 26))


def test_message_of_another_type_has_no_bytes(topic: Topic, server: PrivateServer):
    topic.set_retention(Retention(max_bytes=2))
    topic.publish("a")
    server.redis.rpush("orders:messages:2", "foreign")
    server.redis.set("orders:nextIndex", 2)

    assert topic.publish("b") == range(3, 4)

    assert topic.trim() == 0
    topic.publish("c")
    assert topic.trim() == 1 and kept(server) == [2, 3, 4]


def test_tombstone_removes_its_key_after_a_while(topic: Topic, server: PrivateServer, pass_time: PassTime):
    topic.publish(NewMessage("1", key="a"), NewMessage("2", key="b"), NewMessage(b"", key="a"))

    topic.compact(tombstone_ttl_s=60)
    assert kept(server) == [2, 3], "readers have to see that the key is gone"
    pass_time(topic, 61)
    topic.compact(tombstone_ttl_s=60)

    assert kept(server) == [2]
    topic.publish(NewMessage("new", key="a"))
    assert topic.compact() == 0


def test_trimming_leaves_no_data_of_a_message_behind(topic: Topic, server: PrivateServer):
    topic.publish(*[NewMessage(str(n), key=f"k{n % 3}", headers={"n": str(n)}) for n in range(9)])

    topic.trim(before=10)

    left = {key for key in server.redis.keys() if key.startswith(b"rsmqt:orders")}
    assert left == {b"rsmqt:orders:meta", b"rsmqt:orders:time", b"rsmqt:orders:wake"}


# -- Groups ------------------------------------------------------------------------------------------------------------


def test_idle_groups_are_forgotten(topic: Topic, pass_time: PassTime, server: PrivateServer):
    topic.publish("a")
    old, young = topic.group("old"), topic.group("young")
    old.read()
    pass_time(old, 100)
    young.read()

    assert topic.prune(idle_s=50) == ["old"]
    assert [name for name, _ in topic.groups()] == ["young"]
    assert not [key for key in server.redis.keys() if b"old" in key]


@pytest.mark.parametrize("is_async", [False, True])
async def test_idle_groups_are_forgotten_after_the_time_of_the_topic_unless_another_is_given(
    topic: Topic, pass_time: PassTime, is_async: bool
):
    async def prune(**options: float) -> list[str]:
        return await topic.aprune(**options) if is_async else topic.prune(**options)

    group = topic.group("g")
    group.read()
    pass_time(group, 100)

    assert await prune() == [], "the topic keeps its groups"
    topic.set_retention(Retention(group_ttl_s=200))
    assert await prune() == []
    topic.set_retention(Retention(group_ttl_s=50))
    assert await prune(idle_s=200) == []
    assert await prune() == ["g"]


def test_topic_with_a_group_limit_deletes_idle_groups_when_it_is_trimmed(topic: Topic, pass_time: PassTime):
    topic.set_retention(Retention(group_ttl_s=50))
    group = topic.group("g")
    group.read()
    topic.trim()
    assert len(topic.groups()) == 1

    pass_time(group, 51)
    topic.trim()

    assert topic.groups() == []


def test_group_without_live_consumers_is_dropped(topic: Topic):
    group = topic.group("g")
    group.read()

    with pytest.raises(GroupLive):
        group.drop()
    group.leave()

    assert group.drop() and not group.drop()
    assert not group.status().exists
