"""Language, time zone and context variables that a task sets are gone when it has ended."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from django.core.cache import caches
from django.utils import timezone, translation

from rsmq_django.core.topic import TopicMessage
from rsmq_django.tasks import topic_task
from rsmq_django.tasks.compat import task_backends, task_started
from rsmq_django.topics import get_topic
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, work

tenant: ContextVar[str] = ContextVar("tenant", default="nobody's")

UNTOUCHED = ("en-us", timezone.get_default_timezone_name(), "nobody's")


def surroundings() -> tuple[str, str, str]:
    return translation.get_language(), timezone.get_current_timezone_name(), tenant.get()


def leave_traces() -> None:
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    tenant.set("acme's")


def test_next_function_on_the_thread_sees_nothing_of_it(project: Configure):
    seen: list[tuple[str, str, str]] = []

    def run(fails: bool) -> None:
        seen.append(surroundings())
        leave_traces()
        if fails:
            raise ValueError

    declared = declare(max_attempts=1)(run)
    for fails in (False, True, False):
        declared.enqueue(fails)

    work(threads=1)

    assert seen == [UNTOUCHED] * 3


def test_next_coroutine_sees_nothing_of_it(project: Configure):
    seen: list[tuple[str, str, str]] = []

    async def run() -> None:
        seen.append(surroundings())
        leave_traces()

    declare(run).enqueue_many([[]] * 10)

    work(async_tasks=1)

    assert seen == [UNTOUCHED] * 10


def test_next_message_of_a_topic_sees_nothing_of_it(project: Configure):
    seen: list[tuple[str, str, str]] = []

    @topic_task("orders", group="billing")
    def run(message: TopicMessage) -> None:
        seen.append(surroundings())
        leave_traces()

    get_topic("orders").publish("a", "b")

    work()

    assert seen == [UNTOUCHED] * 2


def test_function_sees_values_set_by_receivers_of_its_start(project: Configure):
    seen: list[str] = []

    def receive(**_: object) -> None:
        tenant.set(tenant.get() + "!")

    declared = declare(lambda: seen.append(tenant.get()))
    declared.enqueue_many([[], []])
    task_started.connect(receive)
    try:
        work(threads=1)
    finally:
        task_started.disconnect(receive)

    assert seen == ["nobody's!"] * 2


def test_tasks_on_one_thread_share_their_connections_to_caches(
    project: Configure, server: PrivateServer, settings: Any
):
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": server.url}}
    objects: list[object] = []
    connections: list[int] = []

    def run() -> None:
        caches["default"].set("key", "value", 60)
        objects.extend([caches["default"], task_backends["default"]])
        connections.append(server.redis.info("stats")["total_connections_received"])

    declare(run).enqueue_many([[]] * 20)

    work(threads=1)

    assert len(connections) == 20
    assert connections[-1] - connections[0] < 5  # the worker may open one of its own meanwhile
    assert len({id(each) for each in objects}) == 2


def test_coroutines_share_the_objects_of_caches_and_backends(project: Configure):
    objects: list[object] = []

    async def run() -> None:
        objects.extend([caches["default"], task_backends["default"]])

    declare(run).enqueue_many([[]] * 10)

    work(async_tasks=1)

    assert len(objects) == 20
    assert len({id(each) for each in objects}) == 2


def test_cache_that_cannot_be_made_stops_only_the_tasks_that_use_it(project: Configure, settings: Any):
    settings.CACHES = {"default": {"BACKEND": "no.such.Cache"}}
    result = declare(lambda: "done").enqueue()

    work()

    result.refresh()
    assert result.return_value == "done"
