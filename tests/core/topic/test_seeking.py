"""Replay and seek: the new position of a group, refusals, and dry runs."""

from datetime import UTC, datetime, timedelta

import pytest

from rsmq_django.core.errors import GroupLive, GroupMoved, InvalidValue
from rsmq_django.core.topic import ConsumerGroup, Topic
from tests.core.topic.conftest import PassTime, bodies, indexes
from tests.redis_server import PrivateServer


@pytest.fixture
def group(topic: Topic) -> ConsumerGroup:
    """A group that has read 5 of 10 messages and left."""
    topic.publish(*map(str, range(1, 11)))
    group = topic.group("g")
    group.read(5)
    group.leave()
    return group


def test_replay_hands_out_everything_again(group: ConsumerGroup):
    result = group.replay()

    assert (result.before, result.after, result.ahead) == (6, 1, 10)
    assert indexes(group.read(100)) == list(range(1, 11))


@pytest.mark.parametrize(
    ("target", "next_index"),
    [("earliest", 1), ("latest", 11), (3, 3), (0, 1), (10**12, 11), ("+2", 8), ("-3", 3), ("-100", 1), ("+100", 11)],
)
def test_seek_sets_the_next_index_and_stays_inside_the_log(group: ConsumerGroup, target: int | str, next_index: int):
    planned = group.seek(target, dry_run=True)
    done = group.seek(target)

    assert (planned.before, planned.after) == (done.before, done.after) == (6, next_index)
    assert group.status().position == next_index - 1


def test_dry_run_changes_nothing(group: ConsumerGroup, server: PrivateServer):
    before = server.redis.get(group.keys.cursor)

    group.replay(dry_run=True)
    group.seek("latest", dry_run=True)

    assert server.redis.get(group.keys.cursor) == before


@pytest.mark.parametrize("move", ["latest", "replay"])
def test_group_that_has_moved_since_it_was_read_stays(group: ConsumerGroup, move: str):
    seek = group.replay if move == "replay" else lambda **options: group.seek(move, **options)
    seen = seek(dry_run=True)
    group.read(1)
    group.leave()

    with pytest.raises(GroupMoved, match="index 7 next and no longer 6"):
        seek(seen=seen)
    assert group.status().position == 6

    assert seek(seen=seek(dry_run=True)).before == 7


def test_live_consumers_are_not_moved_unless_forced(topic: Topic, group: ConsumerGroup, pass_time: PassTime):
    group.read(1)

    with pytest.raises(GroupLive, match="1 live consumers of group 'g'"):
        group.replay()
    with pytest.raises(GroupLive):
        group.seek("latest")
    assert group.status().position == 6

    assert group.seek(9, force=True).live_consumers == 1
    assert indexes(group.read(10)) == [9, 10]
    pass_time(group, 16)
    assert group.replay().live_consumers == 0, "one that was not seen for 15 seconds is not live"


def test_other_groups_stay_where_they_are(topic: Topic, group: ConsumerGroup):
    other = topic.group("other")
    other.read(7)

    group.replay()

    assert indexes(other.read(10)) == [8, 9, 10]


def test_group_can_be_placed_before_the_first_read(topic: Topic):
    topic.publish(*"abc")
    group = topic.group("new", start="error")

    group.seek("latest")
    topic.publish("d")

    assert bodies(group.read(10)) == [b"d"]


def test_seek_drops_messages_in_flight_and_late_acknowledgements_do_no_harm(topic: Topic, careful: ConsumerGroup):
    topic.publish(*"abc")
    held = careful.read(3)

    result = careful.replay(force=True)

    assert result.held == 3
    assert careful.ack(held) == 0
    assert indexes(careful.read(10)) == [1, 2, 3]


def test_seek_by_time_is_never_too_late_and_at_most_a_slot_early(topic: Topic, pass_time: PassTime):
    for body in "abcde":
        topic.publish(body)
        pass_time(topic, 60)  # so each lies in a slot of its own, a minute apart
    group = topic.group("g")
    times = [message.published_ms for message in topic.read_range(1, 10).messages]

    found = {index: group.seek(datetime.fromtimestamp(ms / 1000, UTC)).after for index, ms in enumerate(times, 1)}
    between = group.seek(datetime.fromtimestamp(times[2] / 1000 + 5, UTC)).after

    assert found == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    assert between == 4, "the first message since then"
    assert group.seek(timedelta(seconds=150)).after == 4
    assert group.seek(timedelta(0)).after == 6, "nothing was published since"
    assert group.seek(timedelta(days=30)).after == 1


@pytest.mark.parametrize("target", ["now", "", "++1", None, -1, 1.5, True, 10**15, timedelta(seconds=-1), b"1"])
def test_impossible_targets_are_refused_with_the_possible_ones(group: ConsumerGroup, target: object):
    with pytest.raises(InvalidValue, match="cannot seek to .* 'earliest', 'latest'"):
        group.seek(target)
