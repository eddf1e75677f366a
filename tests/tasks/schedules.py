"""Helpers for tests of schedules: moving the time of an entry, and a project with declared schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core.keys import schedule_keys
from rsmq_django.queues import get_client
from rsmq_django.tasks import schedule
from rsmq_django.worker.supervise.scheduler import Scheduler
from tests.redis_server import PrivateServer

DUE, ENTRIES, STATE = schedule_keys("rsmq")


@pytest.fixture(autouse=True)
def own_declarations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the schedules that other tests declared."""
    monkeypatch.setattr(schedule, "_declared", {})
    yield


def new_scheduler() -> Scheduler:
    """Return what a supervisor that has just started has."""
    return Scheduler(get_client(), "default")


def planned_ms(server: PrivateServer, name: str) -> int | None:
    """Return the next planned time of an entry."""
    score: Any = server.redis.zscore(DUE, name)
    return None if score is None else int(score)


def let_pass(server: PrivateServer, name: str, *, seconds: int) -> int:
    """Let an entry's next time lie so much earlier, as if nobody had looked since; returns it."""
    earlier = (planned_ms(server, name) or 0) - seconds * 1000
    server.redis.zadd(DUE, {name: earlier})
    return earlier


def sent_ids(server: PrivateServer, queue_name: str = "default") -> list[str]:
    """Return the task ids in a queue, in the order in which they were sent."""
    return [message_id.decode()[-22:] for message_id in sorted(server.redis.zrange(f"rsmq:{queue_name}", 0, -1))]
