"""Every address of our admin, also those that are added later: who may not, learns and changes nothing.

What each page does, and for whom, is tested where the page is.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.urls import reverse

from rsmq_django import schedules
from rsmq_django.core import Queue
from rsmq_django.core.keys import workers_key
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import Topic
from rsmq_django.core.transport.call import Call
from rsmq_django.live.row_keys import row_key
from rsmq_django.tasks import call, group
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

OURS = ("rsmq", "rsmq_pipeline")


@pytest.fixture
def things(mail: Queue, dead: Queue, server: PrivateServer, django_capture_on_commit_callbacks: Any) -> dict[str, str]:
    """One of each kind, by the name of its model."""
    message = mail.send(b'{"task": "shop.tasks.pay", "id": "t7", "args": [7], "kwargs": {}}')
    server.redis.hset("rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail", "message": message})
    mail.client.run(Call("tasks/worker/beat", (workers_key("rsmq"),), (30_000, "w1"), lambda reply: None))
    schedules.add("nightly", write, cron="0 4 * * *", args=["x"])
    orders = Topic("orders", mail.client)
    orders.publish("a", "b")
    orders.group("billing").read(1)
    items = ReliableQueue("parcels", mail.client, consumer="shop")
    items.push("p")
    with django_capture_on_commit_callbacks(execute=True):
        letters = group([call(write, "a")], name="letters").enqueue()
    event = "\n".join(["succeeded", "mail", "shop.tasks.pay", "t7", message, "1", *[""] * 7])
    entry_id = server.redis.xadd("rsmq::events", {"v": event}).decode()
    return {
        "run": row_key("default", f"{entry_id}/{message}/shop.tasks.pay"),
        "queue": "mail",
        "message": f"mail/{message}",
        "worker": "default/w1",
        "schedule": "nightly",
        "registeredtask": f"{write.func.__module__}.{write.func.__qualname__}",
        "result": "t7",
        "topic": "orders",
        "reliablequeue": "parcels",
        "workflow": f"default/{letters.id}",
    }


def addresses(things: dict[str, str]) -> Iterator[str]:
    """Return the address of every page that our models have."""
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label in OURS:
            for url in model_admin.get_urls():
                if url.name is not None:
                    yield reverse(f"admin:{url.name}", kwargs=_arguments(url, things.get(model._meta.model_name or "")))


def _arguments(url: Any, key: str | None) -> dict[str, str]:
    known = {"object_id": quote(key or "1"), "group": "billing"}
    return {name: known[name] for name in url.pattern.converters}


def content(server: PrivateServer) -> dict[Any, Any]:
    """Return all that is stored. The dump of a hash names its fields in an order that changes by itself."""
    redis = server.redis
    hashes = {key for key in redis.keys() if redis.type(key) == b"hash"}
    return {key: redis.hgetall(key) if key in hashes else redis.dump(key) for key in redis.keys()}


def test_staff_without_permission_get_nothing_from_any_address(things: dict[str, str], server: PrivateServer):
    browser, before = Browser(), content(server)
    browser.force_login(User.objects.create_user("nobody", is_staff=True))

    statuses = {url: browser.get(url).status_code for url in addresses(things)}
    posted = {url: browser.post(url).status_code for url, status in statuses.items() if status == 405}

    # 405: what only takes POST says so to everybody. 302 and 404: there is no such row, or nothing was asked for.
    assert {status for url, status in statuses.items() if "rsmq_pipeline" not in url} == {403, 405}
    assert set(statuses.values()) <= {403, 405, 302} and len(statuses) > 50, statuses
    assert set(posted.values()) <= {403, 302, 404}, posted
    assert content(server) == before


def test_reading_changes_nothing(browser: Browser, things: dict[str, str], server: PrivateServer):
    before = content(server)

    statuses = {url: browser.get(url).status_code for url in addresses(things)}

    # 302 is Django's answer where there is no such object; 403 where nothing can be added or changed by anybody.
    assert not {url: status for url, status in statuses.items() if status not in (200, 302, 403, 405)}
    assert sum(status == 200 for status in statuses.values()) > 40
    assert content(server) == before


def test_no_address_takes_a_post_without_its_token(things: dict[str, str], server: PrivateServer):
    browser, before = Browser(enforce_csrf_checks=True), content(server)
    browser.force_login(User.objects.create_superuser("root"))

    statuses = {url: browser.post(url, {"action": "purge", "post": "yes"}).status_code for url in addresses(things)}

    assert set(statuses.values()) == {403}
    assert content(server) == before
