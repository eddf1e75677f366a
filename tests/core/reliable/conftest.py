"""Fixtures of the tests of reliable queues."""

from collections.abc import Callable

import pytest

from rsmq_django.core import Client
from rsmq_django.core.reliable import ReliableQueue

MakeQueue = Callable[..., ReliableQueue]


@pytest.fixture
def make(client: Client) -> MakeQueue:
    """Make queues by name."""

    def make_queue(name: str, *, consumer: str = "") -> ReliableQueue:
        return ReliableQueue(name, client, consumer=consumer)

    return make_queue


@pytest.fixture
def jobs(make: MakeQueue) -> ReliableQueue:
    """The queue "jobs", which does not exist yet."""
    return make("jobs")
