"""Backends by which Django's own tests of its Tasks framework meet RSMQBackend."""

from __future__ import annotations

from typing import Any

import redis
from asgiref.sync import sync_to_async

from rsmq_django.queues import get_client
from rsmq_django.tasks.backend import RSMQBackend
from rsmq_django.tasks.compat import TaskResult
from tests.worker.workshop import work


class RecordingBackend(RSMQBackend):
    """An RSMQBackend with what the tests of Django's dummy backend ask of that one: `results` and `clear()`."""

    def __init__(self, alias: str, params: Any) -> None:
        super().__init__(alias, params)
        self._sent: list[str] = []

    @property
    def results(self) -> list[TaskResult[Any, Any]]:
        """Return the results of all calls since `clear()`, from Redis."""
        return [self.get_result(result_id) for result_id in self._sent]

    def clear(self) -> None:
        """Empty the server, which belongs to the test."""
        self._sent.clear()
        client = get_client()
        redis.Redis.from_url(client.connection.url).flushall()

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Send a call and note its id."""
        result = super().enqueue(task, args, kwargs)
        self._sent.append(result.id)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Send a call and note its id."""
        result = await super().aenqueue(task, args, kwargs)
        self._sent.append(result.id)
        return result


class WorkingBackend(RecordingBackend):
    """An RSMQBackend whose calls a worker has run when `enqueue()` returns, as with Django's immediate backend."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Send a call, run it and return its result."""
        result = super().enqueue(task, args, kwargs)
        work(task.queue_name)
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Send a call, run it and return its result."""
        result = await super().aenqueue(task, args, kwargs)
        await sync_to_async(work)(task.queue_name)
        await result.arefresh()
        return result
