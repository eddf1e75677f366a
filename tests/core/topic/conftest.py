"""Fixtures of the tests of topics, and what they say about time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from rsmq_django.core import Client
from rsmq_django.core.topic import ConsumerGroup, Topic
from tests.core.topic.plain_client import PlainClient
from tests.redis_server import PrivateServer


@pytest.fixture
def topic(client: Client) -> Topic:
    """An empty topic named "orders"."""
    return Topic("orders", client)


@pytest.fixture
def plain(server: PrivateServer, topic: Topic) -> PlainClient:
    """A client without this package on the same topic."""
    return PlainClient(server.redis, topic.name)


@pytest.fixture
def careful(topic: Topic) -> ConsumerGroup:
    """A group that acknowledges: 30 seconds, three deliveries."""
    return topic.group("careful", at_least_once=True, visibility_timeout_s=30, max_deliveries=3)


PassTime = Callable[[ConsumerGroup | Topic, float], None]


@pytest.fixture
def pass_time(server: PrivateServer) -> PassTime:
    """Return the function that lets seconds pass for what a group holds, or for what a topic has noted."""

    def move_back(what: ConsumerGroup | Topic, seconds: float) -> None:
        ms = int(seconds * 1000)
        if isinstance(what, ConsumerGroup):
            _move_scores(server.redis, what.keys.due, -ms)
            _move_scores(server.redis, what.keys.consumers, -ms)
            _move_scores(server.redis, what.keys.groups, -ms)
        else:
            _move_scores(server.redis, what.keys.time, -ms)
            _move_scores(server.redis, what.keys.tombstones, -ms)
            slot = server.redis.hget(what.keys.meta, "slot")
            server.redis.hset(what.keys.meta, "slot", int(slot or 0) - ms)

    return move_back


def _move_scores(server: redis.Redis, key: str, by: int) -> None:
    for member in server.zrange(key, 0, -1):
        server.zincrby(key, by, member)


def bodies(messages: object) -> list[bytes]:
    """Return the bodies of a batch or list of messages."""
    return [message.body for message in messages]  # type: ignore[attr-defined]


def indexes(messages: object) -> list[int]:
    """Return the indexes of a batch or list of messages."""
    return [message.index for message in messages]  # type: ignore[attr-defined]
