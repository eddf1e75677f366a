"""The lag of groups: the largest of each span, for all groups, and None without samples."""

import time

import pytest

from rsmq_django.core.stats.history import RESOLUTIONS, Window, lag_calls, lags_of
from rsmq_django.core.topic import Topic
from rsmq_django.core.topic.lag import MOST_GROUPS, group_statuses, note_lag_call
from tests.redis_server import PrivateServer

HOUR_S = 3600


def read(topic: Topic, group: str, *, now_s: float, span_s: int = HOUR_S) -> list[int | None]:
    calls = lag_calls(topic.name, Window.of(now_s - span_s, now_s))
    return lags_of(group, topic.client.run_many(calls))


def test_the_largest_lag_of_each_span_is_kept(topic: Topic):
    now_s = time.time()
    for ago_s, lag in ((60, 5), (60, 9), (60, 7), (180, 4)):
        topic.client.run(note_lag_call(topic, {"billing": lag, "idle": 0}, at_s=now_s - ago_s))

    *earlier, four, unseen, nine, present = read(topic, "billing", now_s=now_s)

    assert (four, unseen, nine, present) == (4, None, 9, None)
    assert set(earlier) == {None} and len(earlier) >= 56
    assert [lag for lag in read(topic, "idle", now_s=now_s) if lag is not None] == [0, 0]


@pytest.mark.parametrize("span_s", [24 * HOUR_S, 7 * 24 * HOUR_S])
def test_days_and_weeks_have_coarser_spans(topic: Topic, span_s: int):
    now_s = time.time()
    topic.client.run(note_lag_call(topic, {"billing": 7}, at_s=now_s))

    assert read(topic, "billing", now_s=now_s, span_s=span_s)[-1] == 7


def test_stored_ids_expire(topic: Topic, server: PrivateServer):
    topic.client.run(note_lag_call(topic, {"billing": 7}, at_s=time.time()))

    keys = server.redis.keys("rsmqt:orders:lag:*")
    assert len(keys) == len(RESOLUTIONS)
    assert all(0 < server.redis.ttl(key) <= RESOLUTIONS[-1].keep_s + HOUR_S for key in keys)


def test_the_lag_of_all_groups_is_recorded_including_groups_without_consumers(topic: Topic):
    topic.publish(*map(str, range(30)))
    topic.group("billing").read(10)
    topic.group("shipping").read(30)
    topic.group("shipping").leave()

    assert {group.name: group.lag for group in group_statuses(topic)} == {"billing": 20, "shipping": 0}
    assert MOST_GROUPS <= 1000
    assert group_statuses(Topic("empty", topic.client)) == []


def test_value_of_another_program_is_not_a_lag(topic: Topic, server: PrivateServer):
    now_s = time.time()
    topic.client.run(note_lag_call(topic, {"billing": 7}, at_s=now_s))
    (key,) = server.redis.keys("rsmqt:orders:lag:60:*")
    server.redis.hset(key, mapping={"shipping": "many", b"\xff": "3"})

    assert read(topic, "shipping", now_s=now_s)[-1] is None
    assert read(topic, "billing", now_s=now_s)[-1] == 7


def test_where_another_program_left_something_else_nothing_is_known(topic: Topic, server: PrivateServer):
    now_s = time.time()
    topic.client.run(note_lag_call(topic, {"billing": 7}, at_s=now_s))
    (key,) = server.redis.keys("rsmqt:orders:lag:60:*")
    server.redis.set(key, "not a hash")

    assert set(read(topic, "billing", now_s=now_s)) == {None}


def test_lag_is_noted_at_the_memory_limit(topic: Topic, server: PrivateServer):
    server.redis.config_set("maxmemory", 1)
    try:
        assert topic.client.run(note_lag_call(topic, {"billing": 7}, at_s=time.time())) == 1
    finally:
        server.redis.config_set("maxmemory", 0)
