"""The depths of reliable queues and of topic groups, in the terms of ordinary queues."""

from __future__ import annotations

from rsmq_django.core import Client
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.stats.depth import Depth
from rsmq_django.core.stats.depths import read_other_depths
from rsmq_django.core.topic import Topic


def test_messages_of_a_reliable_queue_include_ready_delayed_and_in_flight_ones(client: Client):
    queue = ReliableQueue("orders", client, consumer="c1")
    queue.push("ready", "too", "in flight")
    queue.push("later", "much later", delay_s=1000)
    assert len(queue.pop_messages(1, 60_000)) == 1

    (found,) = read_other_depths(client)

    assert (found.kind, found.name) == ("reliable", "orders")
    depth = found.depth
    assert isinstance(depth, Depth)
    assert (depth.messages, depth.ready, depth.delayed, depth.in_flight) == (5, 2, 2, 1)


def test_messages_of_a_topic_group_are_those_it_has_not_read_and_those_it_has_not_acknowledged(client: Client):
    topic = Topic("orders", client)
    group = topic.group("billing", at_least_once=True, visibility_timeout_s=30)
    topic.publish(*"abcde")
    group.retry(group.read(3).messages[:1], after_s=0)

    (found,) = read_other_depths(client)

    assert (found.kind, found.name, found.consumers) == ("topic", "orders:billing", 1)
    depth = found.depth
    assert isinstance(depth, Depth)
    assert (depth.messages, depth.ready, depth.delayed, depth.in_flight, depth.dead) == (5, 3, 0, 2, 0)
    assert (depth.total_sent, depth.total_received, depth.oldest_ready_s is not None) == (5, 3, True)
