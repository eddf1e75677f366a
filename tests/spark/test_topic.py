"""A topic by index: the same range gives the same rows, gaps are left out, trimmed messages are counted."""

import pytest

from rsmq_django.spark.errors import DataLoss, LogReset
from rsmq_django.spark.topic import TopicRows
from tests.redis_server import PrivateServer


@pytest.fixture
def topic(server: PrivateServer, options):
    """A topic of 1000 messages, of which number 500 is missing; ten messages in each slot of time."""
    server.redis.mset({f"orders:messages:{n}": str(n) for n in range(1, 1001) if n != 500} | {"orders:nextIndex": 1000})
    slots = {str(n): 1_795_000_000_000 + n * 100 for n in range(1, 1001, 10)}
    server.redis.zadd("rsmqt:orders:time", slots)

    def make(**given: str) -> TopicRows:
        return TopicRows(options(kind="topic", topic="orders", rowsPerPartition="300", **given))

    return make


def rows(topic: TopicRows, place, column: str = "index") -> list:
    parts = topic.cut(place["first"], place["index"])
    return [value for part in parts for table in topic.read(part) for value in table[column]]


def trim(server: PrivateServer, below: int) -> None:
    server.redis.hset("rsmqt:orders:meta", "first", below)
    server.redis.delete(*(f"orders:messages:{n}" for n in range(1, below)))


def test_batch_has_the_entries_between_two_positions_without_gaps(topic):
    log = topic()
    end = log.advance(log.beginning(), 700)

    assert rows(log, end) == [n for n in range(1, 701) if n != 500]
    assert rows(topic(), end, "payload")[:2] == [b"1", b"2"]
    last = log.advance(end, 700)
    assert (last["first"], last["index"]) == (701, 1000)
    assert log.advance(last, 700) is last


def test_each_message_has_the_time_of_its_slot(topic):
    log = topic(chunkRows="70")

    times = rows(log, {"first": 5, "index": 1000}, "slot_at")

    indexes = [n for n in range(5, 1001) if n != 500]
    assert times == [(1_795_000_000_000 + ((n - 1) // 10 * 10 + 1) * 100) * 1000 for n in indexes]


def test_time_is_unknown_where_the_time_index_was_trimmed(topic, server: PrivateServer):
    server.redis.zremrangebyrank("rsmqt:orders:time", 0, 9)

    times = rows(topic(), {"first": 99, "index": 102}, "slot_at")

    assert [time is None for time in times] == [True, True, False, False]


def test_messages_trimmed_unread_are_refused_or_counted(topic, server: PrivateServer):
    log = topic()
    start = log.beginning()
    end = log.advance(start, 700)
    trim(server, 801)

    with pytest.raises(DataLoss, match="100 messages from 701"):
        log.advance(end, 700)
    with pytest.raises(DataLoss, match="trimmed after they were planned"):
        rows(log, end)
    lenient = topic(failOnDataLoss="false")
    last = lenient.advance(end, 700)
    assert last == {"first": 801, "index": 1000, "lost": 100}
    assert len(rows(lenient, last)) == 200


def test_new_reader_has_not_lost_entries_that_were_trimmed_before_its_start(topic, server: PrivateServer):
    trim(server, 801)

    assert topic().advance(topic().beginning(), 50) == {"first": 801, "index": 850, "lost": 0}


def test_index_that_decreased_is_refused(topic, server: PrivateServer):
    log = topic()
    end = log.advance(log.beginning(), 1000)
    server.redis.set("orders:nextIndex", 10)

    with pytest.raises(LogReset, match="ends at 10, before our position 1000.* with a new checkpointLocation"):
        log.advance(end, 10)


def test_batch_read_keeps_to_the_indexes_that_were_asked_for(topic):
    log = topic(startIndex="10", endIndex="20")

    assert [index for part in log.plan() for table in log.read(part) for index in table["index"]] == [*range(10, 21)]
