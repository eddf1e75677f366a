"""What waits in reliable queues, in the terms of ordinary queues."""

from __future__ import annotations

from rsmq_django.core import Client
from rsmq_django.core.backlogs import read_backlogs
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.stats.depth import Depth


def test_messages_of_a_reliable_queue_are_those_that_are_ready_delayed_and_in_flight(client: Client):
    queue = ReliableQueue("orders", client, consumer="c1")
    queue.push("ready", "too", "in flight")
    queue.push("later", "much later", delay_s=1000)
    assert len(queue.pop_messages(1, 60_000)) == 1

    (backlog,) = read_backlogs(client)

    assert (backlog.kind, backlog.name) == ("reliable", "orders")
    depth = backlog.now
    assert isinstance(depth, Depth)
    assert (depth.messages, depth.ready, depth.delayed, depth.in_flight) == (5, 2, 2, 1)
