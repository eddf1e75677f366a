"""`python -m benchmarks.admin_pages`: every page of the admin over a million messages and a thousand queues.

Fills a private server, asks for each page as a browser would, and tells how long the site took for it (the best of
several), how much processor time of the site and of Redis that was, and how many bytes went out. Exits with 1 when a
page needs more than LIMIT_MS of processor time, which is what it takes on a machine that has nothing else to do, or
more than LIMIT_BYTES. See docs/how-to/admin.md.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import django
from django.conf import settings

from .server import Server, describe

LIMIT_MS, LIMIT_BYTES = 300, 1024 * 1024
TIMES = 5
QUEUES, MESSAGES, TOPICS = "/admin/rsmq/queue/", "/admin/rsmq/message/", "/admin/rsmq/topic/"
RELIABLE, WORKFLOWS, WORKERS = "/admin/rsmq/reliablequeue/", "/admin/rsmq/workflow/", "/admin/rsmq/worker/"
TASKS, SCHEDULES, RESULTS = "/admin/rsmq/registeredtask/", "/admin/rsmq/schedule/", "/admin/rsmq/result/"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one page cost."""

    name: str
    status: int
    ms: float
    cpu_ms: float
    redis_ms: float
    size: int

    @property
    def is_fine(self) -> bool:
        """Return whether it keeps to the limits."""
        return self.status in (200, 304) and self.cpu_ms + self.redis_ms <= LIMIT_MS and self.size <= LIMIT_BYTES

    def line(self) -> str:
        """Return a line of the table."""
        sign = "" if self.is_fine else "  <- over the limit"
        numbers = f"{self.ms:8.0f} {self.cpu_ms:8.0f} {self.redis_ms:8.1f} {self.size / 1024:8.0f}"
        return f"{self.name:<58} {self.status:>3} {numbers}{sign}"


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    parser.add_argument("--profile", action="store_true", help="where the time of the site goes, page by page")
    options = parser.parse_args()
    # Ended from outside, end in an orderly way: the server must not stay.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with Server() as server:
        set_up(server.url)
        found = fill(options.messages, options.queues)
        print(f"{describe()}, {options.messages:,} messages in one queue, {options.queues:,} queues")
        print(f"{'page':<58} {'':>3} {'ms':>8} {'cpu ms':>8} {'redis ms':>8} {'KiB':>8}")
        browser = log_in()
        measured = []
        for name, url in pages(found):
            if options.only in name:
                measured.append(measure(server, browser, name, url))
                print(measured[-1].line(), flush=True)
                if options.profile:
                    profile(browser, url)
        for name, url in refreshes(found):
            if options.only in name:
                measured.append(measure(server, browser, name, url))
                print(measured[-1].line(), flush=True)
                unchanged = measure(server, browser, f"{name}, nothing has changed", url, is_changed=False)
                print(unchanged.line(), flush=True)
        if options.only in "select all":
            operate_on_all(browser)
    sys.exit(0 if all(each.is_fine for each in measured) else 1)


def set_up(url: str) -> None:
    """Make a site with the admin and nothing else."""
    settings.configure(
        SECRET_KEY="for-a-benchmark",  # noqa: S106
        ALLOWED_HOSTS=["*"],
        USE_TZ=True,
        ROOT_URLCONF="tests.urls",
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")),
            "django.contrib.staticfiles",
            "rsmq_django",
            *(["django_tasks"] if django.VERSION < (6, 0) else []),
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        STATIC_URL="/static/",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        RSMQ={
            "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 60}},
            "QUEUES": {"big": {}, **{f"queue-{n:04}": {} for n in range(100)}},
        },
        TASKS={"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}},
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def log_in() -> Any:
    """Return a client of somebody who may do everything."""
    from django.contrib.auth.models import User
    from django.test import Client

    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    return browser


# -- What there is ----------------------------------------------------------------------------------------------------


def fill(messages: int, queues: int) -> dict[str, str]:
    """Fill the server; return the ids of some things for addresses."""
    from rsmq_django.core import Queue
    from rsmq_django.queues import get_client

    client = get_client()
    found: dict[str, str] = {}
    big, dead, bulk = Queue("big", client), Queue("big-dead", client), Queue("bulk", client)
    for queue in (big, dead, bulk):
        queue.create()
    bodies = [
        b'{"task": "shop.tasks.pay", "id": "t%d", "args": [%d], "kwargs": {"currency": "EUR"}}' % (n, n)
        for n in range(1000)
    ]
    for at in range(0, messages, 1000):
        part = min(1000, messages - at)
        found["message"] = big.send_many(bodies[:part], delay_s=0 if at % 3000 else 36_000)[0]
    for _ in range(0, messages // 10, 1000):
        bulk.send_many(bodies)
    big.receive_many(1000, visibility_timeout_s=3600)
    for at in range(0, messages // 20, 1000):
        ids = dead.send_many(bodies)
        records = {
            name: json.dumps(
                {"reason": "gave_up", "queue": "big", "task": f"shop.tasks.pay_{n % 30}", "task_id": f"t{n}",
                 "error": f"shop.errors.Error{n % 10}", "message": f"order {at + n} failed", "traceback": "T" * 2000}
            )
            for n, name in enumerate(ids)
        }  # fmt: skip
        client.connection.exchange([("HSET", "rsmq::dead:big-dead", *(w for pair in records.items() for w in pair))])
    many_queues(client, queues)
    other_kinds(client, found)
    return found


def many_queues(client: Any, queues: int) -> None:
    """Make queues with a few messages each, and an hour of counters for the first three hundred."""
    from rsmq_django.core import Queue
    from rsmq_django.core.stats.counters import report, sample

    now = time.time()
    for n in range(queues):
        queue = Queue(f"queue-{n:04}", client)
        queue.create()
        queue.send_many([b"x"] * 5, delay_s=60 * (n % 2))
    names = ["big", *(f"queue-{n:04}" for n in range(min(queues, 300)))]
    for ago_s in range(3600, -1, -60):
        grown = {"succeeded:shop.tasks.pay": 40, "retried:shop.tasks.pay": 2, "started:shop.tasks.pay": 42}
        grown |= {f"{kind}:{400 + n}:shop.tasks.pay": 2 for kind in ("wait", "run") for n in range(20)}
        calls = [
            report("rsmq", name, reporter="w", number=4000 - ago_s, at_s=now - ago_s, grown=grown) for name in names
        ]
        client.run_many([*calls, *(sample("rsmq", name, at_s=now - ago_s) for name in names)])


def other_kinds(client: Any, found: dict[str, str]) -> None:
    """Make workers, a topic, a reliable queue, workflows, a result."""
    from rsmq_django.core.keys import workers_key
    from rsmq_django.core.reliable import ReliableQueue
    from rsmq_django.core.tasks.processes import ProcessRecord
    from rsmq_django.core.tasks.processes import describe as describe_process
    from rsmq_django.core.tasks.workflows import create, expect, seal
    from rsmq_django.core.topic import Topic
    from rsmq_django.core.transport.call import Call

    ids = [f"web-{n}" for n in range(200)]
    client.run(Call("tasks/worker/beat", (workers_key("rsmq"),), (30_000, *ids), lambda reply: None))
    record = ProcessRecord("web", 42, "1.0", 5000, 1 << 20, "working", tuple(f"queue-{n:04}" for n in range(100)), ())
    client.run_many([describe_process("rsmq", worker_id, record) for worker_id in ids])
    topic, orders = Topic("orders", client), ReliableQueue("orders", client, consumer="shop")
    for at in range(100):
        topic.publish(*[f'{{"order": {at}}}'] * 1000)
        orders.push(*[f'{{"order": {at}}}'] * 1000)
        ReliableQueue(f"reliable-{at}", client).push("x")
        Topic(f"topic-{at}", client).publish("x")
    for n in range(50):
        topic.group(f"group-{n}").read(1)
    orders.bury(*orders.pop_messages(1000)[:500], reason="no address")
    ReliableQueue("returns", client).push("x")
    for n in range(1000):
        fields = {"kind": "group", "name": f"letters {n}"}
        client.run(create("rsmq", f"w{n}", keep_ms=10**9, fields=fields, queue_names=[]))
    for first in range(0, 100_000, 1000):
        names = [f"t{first + n}" for n in range(1000)]
        client.run(expect("rsmq", "w999", first=first, calls=1000, task_ids=names))
    client.run(seal("rsmq", "w999", members=100_000, targets=[], fields={}))
    client.connection.exchange([("HSET", "rsmq::result:t1", "status", "SUCCESSFUL", "value", "7", "queue", "big")])
    found["worker"] = "default/web-7"
    found["workflow"] = "default/w999"


# -- What is asked for ------------------------------------------------------------------------------------------------


def pages(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return names and addresses of all pages."""
    from django.contrib.admin.utils import quote

    message = f"{MESSAGES}{quote('big/' + found['message'])}/"
    yield "index", "/admin/"
    yield "overview, and its refresh", QUEUES
    yield "overview, 24 hours", f"{QUEUES}?span=24h"
    yield "overview, 7 days", f"{QUEUES}?span=7d"
    yield "overview, last page", f"{QUEUES}?p=20"
    yield "overview by ready messages (reads all queues)", f"{QUEUES}?o=-3"
    yield "overview, search", f"{QUEUES}?q=queue-00"
    yield "overview, filter", f"{QUEUES}?holds_dead_letters__exact=1"
    for name in ("change", "send", "enqueue", "purge", "delete", "history"):
        yield f"queue: {name}", f"{QUEUES}big/{name}/"
    yield "dead letters by failure", f"{QUEUES}big-dead/failures/"
    yield "redrive form", f"{QUEUES}big-dead/redrive/"
    yield "messages of all queues", MESSAGES
    yield "messages of all queues, a late page", f"{MESSAGES}?p=20000"
    yield "messages of a queue", f"{MESSAGES}?queue=big"
    yield "messages of a queue, last page", f"{MESSAGES}?queue=big&p=20000"
    yield "messages of a queue, the other way round", f"{MESSAGES}?queue=big&o=-4"
    yield "messages: ready", f"{MESSAGES}?queue=big&state__exact=ready&p=10000"
    yield "messages: delayed (bounded)", f"{MESSAGES}?queue=big&state__exact=delayed"
    yield "messages: in flight (bounded)", f"{MESSAGES}?queue=big&state__exact=in_flight"
    yield "messages: dead", f"{MESSAGES}?queue=big-dead&state__exact=dead"
    yield "messages: dead, of all queues", f"{MESSAGES}?state__exact=dead"
    yield "messages: ready, of all queues", f"{MESSAGES}?state__exact=ready"
    yield "messages: search in bodies (bounded)", f"{MESSAGES}?queue=big&q=currency"
    yield "messages: search for nothing (bounded)", f"{MESSAGES}?queue=big&q=nowhere"
    yield "messages: search in all queues (bounded)", f"{MESSAGES}?q=nowhere+else"
    yield "messages: of a task (bounded)", f"{MESSAGES}?queue=big&task=pay"
    yield "messages: of a task that is nowhere (bounded)", f"{MESSAGES}?task=nowhere"
    yield "messages: of an error (bounded)", f"{MESSAGES}?queue=big-dead&error=Error7"
    yield "messages: of a tag (bounded)", f"{MESSAGES}?queue=big&tag=customer-7"
    yield "messages: older than an hour (bounded)", f"{MESSAGES}?queue=big&age=gt1h"
    yield "messages: an id in a queue", f"{MESSAGES}?queue=big&q={found['message']}"
    yield "messages: an id in all queues", f"{MESSAGES}?q={found['message']}"
    for name in ("change", "body", "delete", "history"):
        yield f"message: {name}", f"{message}{name}/"
    yield "workers", WORKERS
    yield "worker", f"{WORKERS}{quote(found['worker'])}/change/"
    yield "schedules", SCHEDULES
    yield "tasks", TASKS
    yield "task", f"{TASKS}{quote('shop.tasks.pay')}/change/"
    yield "results", f"{RESULTS}?q=t1"
    yield "result", f"{RESULTS}t1/change/"
    yield "topics", TOPICS
    yield "topic", f"{TOPICS}orders/change/"
    yield "topic, somewhere in its log", f"{TOPICS}orders/change/?from=50000"
    yield "topic: set a group", f"{TOPICS}orders/groups/group-7/seek/"
    yield "reliable queues", RELIABLE
    yield "reliable queue", f"{RELIABLE}orders/change/"
    yield "reliable queue, far behind", f"{RELIABLE}orders/change/?undelivered=90000"
    yield "workflows", WORKFLOWS
    yield "workflow", f"{WORKFLOWS}{quote(found['workflow'])}/change/"


def refreshes(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return names and addresses of pages that are open and refresh themselves."""
    for name, url in pages(found):
        is_list_or_page = url.partition("?")[0].endswith(
            ("/change/", QUEUES, MESSAGES, WORKERS, TASKS, SCHEDULES, WORKFLOWS)
        )
        if is_list_or_page and "?" not in url:
            yield f"refresh: {name}", url


def measure(server: Server, browser: Any, name: str, url: str, *, is_changed: bool = True) -> Measured:
    """Ask for a page several times and return the best of each figure; for a refresh as an open page does."""
    headers = {"Rsmq-Fragment": "1"} if name.startswith("refresh") else {}
    answer = browser.get(url, headers=headers)
    if not is_changed:
        headers["If-None-Match"] = answer.headers["ETag"]
    times, cpus, redis = [], [], []
    for _ in range(TIMES):
        redis_s, cpu_s, begun = server.cpu_s(), time.process_time(), time.perf_counter()
        answer = browser.get(url, headers=headers)
        size = len(answer.content)
        times.append(time.perf_counter() - begun)
        cpus.append(time.process_time() - cpu_s)
        redis.append(server.cpu_s() - redis_s)
    best = (1000 * min(times), 1000 * min(cpus), 1000 * min(redis))
    return Measured(name, answer.status_code, *best, size)


def profile(browser: Any, url: str) -> None:
    """Print which functions take the time of a page."""
    profiler = cProfile.Profile()
    profiler.runcall(browser.get, url)
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)


def operate_on_all(browser: Any) -> None:
    """Delay all messages of a queue through the admin, as a browser with JavaScript does, and tell how that went."""
    query = f"{MESSAGES}?queue=bulk"
    first = re.search(rb'name="_selected_action" value="([^"]+)"', browser.get(query).content)
    assert first is not None, "the queue has messages"
    page = browser.post(query, {"action": "delay", "select_across": "1", "_selected_action": [first[1].decode()]})
    begun, longest, requests = time.perf_counter(), 0.0, 0
    data: dict[str, Any] = {"seconds": 36_000}
    while page.status_code == 200:
        token = re.search(rb'name="token" value="([^"]+)"', page.content)
        assert token is not None, "every page of a job carries it on"
        request_begun = time.perf_counter()
        page = browser.post(f"{MESSAGES}bulk/", {"token": token[1].decode(), "live": "live", **data})
        longest, requests, data = max(longest, time.perf_counter() - request_begun), requests + 1, {}
    took_s = time.perf_counter() - begun
    told = re.search(rb'<li class="(?:success|warning)">([^<]+)', browser.get(query).content)
    text = told[1].decode() if told else "nothing was told"
    print(f"select all: {text}, in {took_s:.1f} s and {requests} requests, the longest {1000 * longest:.0f} ms")


if __name__ == "__main__":
    main()
