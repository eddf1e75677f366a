"""`python -m benchmarks.features`: what features cost a task that uses them, and one that does not.

For each feature, instructions for each call of a sender and for each task of a worker with one thread, in user space:
of a plain task in a project where the feature is there, and of a task that uses it. The threads take turns, so the
numbers are the same on a busy machine, to a few tenths of a percent.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rsmq_django.core import ids

from . import lockstep
from .instructions import CannotCount, count_parts, part
from .places import ROOT
from .server import Server

#: Few and many tasks. What lies in between costs no more than the tasks: connecting, starting threads and ending are in
#: both. Ids are drawn DRAWN_AT_ONCE at a time, and the difference contains whole draws.
Numbers = tuple[int, int]
#: For comparisons of two versions. A worker fetches some twenty messages at a time then.
SHORT: Numbers = (26, 26 + ids.DRAWN_AT_ONCE)
#: For figures of one version: it fetches as many at a time as it does in a long queue.
LONG: Numbers = (474, 474 + 6 * ids.DRAWN_AT_ONCE)
#: Python rewrites functions while they run for the first hundreds of times: so many tasks before all, and before each.
FIRST_WARM_UP, WARM_UP = 800, 100
#: Each count is the least of this many.
ROUNDS = 2
KEY = "only for these benchmarks, 32 characters"
FERNET_KEY = "b25seSBmb3IgdGhlc2UgYmVuY2htYXJrcywgcmVhbGw="
SEALED, RELIABLE, TOPIC = "sealed", "reliable", "topic"
#: What waits in a queue gets one time: else its latencies, which are counted one by one, depend on the sender's speed.
LEVEL = """
for _, key in ipairs(redis.call("KEYS", "rsmq:[^:]*")) do
  if redis.call("TYPE", key).ok == "zset" then
    local first = redis.call("ZRANGE", key, 0, 0, "WITHSCORES")[2]
    for _, id in ipairs(redis.call("ZRANGE", key, 0, -1)) do redis.call("ZADD", key, first, id) end
  end
end"""

Send = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: what is different in the project, and in the task that uses it."""

    name: str
    #: Beside the settings that all have.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Of the queue `sealed`, which is the one of the task that uses it then.
    queue: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    #: Whether there is a task that does not use it.
    is_optional: bool = True
    #: Whether there is a task that uses it: what only exists is used by nobody in a worker.
    is_used: bool = True
    apps: tuple[str, ...] = ()
    has_schedule: bool = False
    #: Calls that run together. So many times as many are needed until a worker has found out how fast they are.
    batch: int = 1
    #: The function of the task that uses it; None for one that does nothing.
    function: Callable[[Any], object] | None = None
    #: Declares a function and returns how to send a call of it. Default: a task, and its enqueue().
    declare: Callable[[Feature], Send] | None = None


def features() -> list[Feature]:
    """Return the rows."""
    from rsmq_django.tasks import Concurrency, Unique

    return [
        Feature("none of them", is_used=False),
        Feature("result", options={"result_ttl_s": 86_400}),
        Feature("value", function=returning),
        Feature("result with a value", options={"result_ttl_s": 86_400}, function=returning),
        Feature("coroutine", function=awaited, batch=10),
        Feature("coroutine, timeout_s", options={"timeout_s": 60}, function=awaited, batch=10),
        Feature("unique", options={"unique": Unique(by=["number"])}),
        Feature("limit", options={"limits": [Concurrency(1000)]}),
        Feature("expiry", options={"expires_in_s": 3600}),
        Feature("tags", options={"tags": ["tour 7"]}),
        Feature("priority", options={"priority": 5}),
        Feature("fair_by", options={"fair_by": ["number"]}),
        Feature("timeout_s", options={"timeout_s": 60}),
        Feature("batch of 10", options={"batch": 10}, batch=10),
        Feature("signed queue", queue={"SIGNING_KEYS": [KEY]}),
        Feature("encrypted queue", queue={"ENCRYPTION_KEYS": [FERNET_KEY]}),
        Feature("middleware", settings={"MIDDLEWARE": ["benchmarks.features.Middleware"]}, is_optional=False),
        Feature("no events", settings={"EVENTS": "off"}, is_optional=False),
        Feature("all events", settings={"EVENTS": "all"}, is_optional=False),
        Feature("no counters", settings={"STATISTICS": {"ENABLED": False}}, is_optional=False),
        Feature("reliable queue", settings={"RELIABLE": {RELIABLE: {"LEASE_S": 3600}}}, declare=_on_reliable_queue),
        Feature("topic", declare=_on_topic),
        Feature("topic, one by one", options={"max_deliveries": 1}, declare=_on_topic),
        Feature("topic, batch of 10", options={"batch": 10}, batch=10, declare=_on_topic),
        Feature("schedules", is_used=False, has_schedule=True),
        Feature("outbox installed", is_used=False, apps=("rsmq_django.outbox",)),
        Feature("none, once more", is_used=False),
    ]


class Middleware:
    """Does nothing around each task."""

    @contextmanager
    def around(self, run: Any) -> Iterator[None]:
        """Be the context of a run."""
        yield


def plain(number: int) -> None:
    """Do nothing."""


def using(number: Any) -> None:
    """Do nothing."""


def returning(number: Any) -> Any:
    """Return a value."""
    return number


async def awaited(number: Any) -> None:
    """Do nothing."""


# -- In callgrind -----------------------------------------------------------------------------------------------------


def measure(
    url: str, apps: Sequence[str], names: Sequence[str], *, only_used: bool = False, numbers: Numbers = SHORT
) -> None:
    """Measure the features of projects with these apps installed, or those of these names."""
    _set_up(url, apps)
    _warm_up(url)
    for feature in features():
        if feature.apps == tuple(apps) and (not names or feature.name in names):
            print(f"  {feature.name}", file=sys.stderr, flush=True)
            lockstep.limit_time()
            counts_plain = feature.is_optional and not (only_used and feature.is_used)
            _measure(url, feature, numbers, counts_plain=counts_plain)


def _set_up(url: str, apps: Sequence[str]) -> None:
    import importlib.util

    import django
    from django.conf import settings

    backport = [] if importlib.util.find_spec("django.tasks") else ["django_tasks"]
    settings.configure(
        SECRET_KEY="only-for-benchmarks",  # noqa: S106
        USE_TZ=True,
        INSTALLED_APPS=["django.contrib.contenttypes", "rsmq_django", *backport, *apps],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TASKS={"default": {"BACKEND": "rsmq_django.tasks.backend.RSMQBackend", "QUEUES": []}},
        RSMQ={"CONNECTIONS": {"default": {"URL": url}}},
    )
    django.setup()
    gc.disable()  # it runs at moments that depend on all that was done before


def _measure(url: str, feature: Feature, numbers: Numbers, *, counts_plain: bool) -> None:
    from rsmq_django import schedules
    from rsmq_django.tasks import task

    with _project(url, feature):
        plain_task = task(plain)
        if feature.has_schedule:
            schedules.add("nightly", plain_task, cron="0 3 * * *", args=[1])
        if counts_plain:
            _count(f"{feature.name}/plain", plain_task.enqueue, numbers)
        if feature.is_used:
            send = (feature.declare or _on_queue)(feature)
            _count(f"{feature.name}/using", send, [number * feature.batch for number in numbers])


def _warm_up(url: str) -> None:
    from rsmq_django.tasks import task

    with _project(url, Feature("warm-up")):
        plain_task = task(plain)
        for _ in range(2):
            _send(plain_task.enqueue, FIRST_WARM_UP // 2)
            _worker().run()


@contextmanager
def _project(url: str, feature: Feature) -> Iterator[None]:
    """Have the settings of a feature, an empty server, and no tasks."""
    from django.test import override_settings

    from rsmq_django.queues import get_client
    from rsmq_django.tasks.task import _tasks
    from rsmq_django.tasks.topic_task import _tasks as topic_tasks

    # Long leases: all takes fifty times longer here.
    queues = {"default": {}, **({SEALED: feature.queue} if feature.queue else {})}
    rsmq = {
        "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 60}},
        "QUEUES": {name: {"VISIBILITY_TIMEOUT_S": 3600, **options} for name, options in queues.items()},
        "TASKS": {"ENQUEUE_ON_COMMIT": False, "RESULT_TTL_S": 0},
        **feature.settings,
    }
    with override_settings(RSMQ=rsmq):
        get_client().connection.exchange([("FLUSHALL",)])
        yield
        _tasks.clear()
        topic_tasks.clear()


def _on_queue(feature: Feature) -> Send:
    from rsmq_django.tasks import task

    declare: Any = task
    options = {"queue_name": SEALED if feature.queue else "default", **feature.options}
    send: Send = declare(**options)(feature.function or using).enqueue
    return send


def _on_reliable_queue(feature: Feature) -> Send:
    from rsmq_django.reliable_queues import get_reliable_queue, task_body
    from rsmq_django.tasks import task

    using_task, queue = task(using), get_reliable_queue(RELIABLE)
    return lambda number: queue.push(task_body(using_task, number))


def _on_topic(feature: Feature) -> Send:
    from rsmq_django.tasks import topic_task
    from rsmq_django.topics import get_topic

    declare: Any = topic_task
    declare(TOPIC, group="benchmark", visibility_timeout_s=3600, **feature.options)(using)
    topic = get_topic(TOPIC)
    return lambda number: topic.publish(str(number))


def _count(name: str, send: Send, numbers: Sequence[int]) -> None:
    _send(send, WARM_UP)
    _worker().run()
    for turn in range(ROUNDS):
        for number in numbers:
            ids._drawn.clear()
            with part(f"{name}/send/{number}/{turn}"):
                _send(send, number)
            _level()
            worker = _worker()
            with part(f"{name}/run/{number}/{turn}"):
                worker.run()


def _send(send: Send, number: int) -> None:
    for each in range(number):
        send(each)


def _level() -> None:
    from rsmq_django.queues import get_client

    get_client().connection.exchange([("EVAL", LEVEL, "0")])


def _worker() -> Any:
    from rsmq_django.conf.settings import get_settings
    from rsmq_django.worker.worker import WorkerOptions, make_worker

    return make_worker([], WorkerOptions.from_settings(get_settings().worker, threads=1, until_drained=True))


# -- The table --------------------------------------------------------------------------------------------------------


def each(parts: dict[str, int], name: str) -> float | None:
    """Return thousands of instructions for each of the many; None when this was not measured."""
    least: dict[int, int] = {}
    for key, count in parts.items():
        if key.startswith(f"{name}/"):
            number = int(key.split("/")[3])
            least[number] = min(count, least.get(number, count))
    if len(least) < 2:
        return None
    few, many = min(least), max(least)
    return (least[many] - least[few]) / (many - few) / 1000


def table(parts: dict[str, int]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| thousand instructions | send, plain | send, using it | work, plain | work, using it |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(key.split("/")[0] for key in parts):
        found = [each(parts, f"{name}/{who}/{what}") for what in ("send", "run") for who in ("plain", "using")]
        lines.append(f"| {name} | " + " | ".join("-" if cost is None else f"{cost:.0f}" for cost in found) + " |")
    return "\n".join(lines)


def count(names: Sequence[str], *, apps: str = "", only_used: bool = False, numbers: Numbers = LONG) -> dict[str, int]:
    """Measure features in a process of their own. Raises CannotCount."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    with Server() as server, tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", f"{__package__}.features", "--in-callgrind", server.url, apps, *names]
        command += ["--numbers", *map(str, numbers), *(["--only-used"] if only_used else [])]
        return count_parts(command, Path(directory), environment=environment)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FEATURE", help="only these; default: all")
    parser.add_argument("--in-callgrind", nargs=2, metavar=("URL", "APPS"), help=argparse.SUPPRESS)
    parser.add_argument("--only-used", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--numbers", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_callgrind:
        lockstep.install()
        url, apps = options.in_callgrind
        chosen, numbers = apps.split(",") if apps else [], tuple(options.numbers)
        measure(url, chosen, options.names, only_used=options.only_used, numbers=numbers)
        os._exit(0)  # threads that wait for a turn are not waited for
    try:
        with ThreadPoolExecutor() as pool:
            found = pool.map(lambda apps: count(options.names, apps=apps), ("", "rsmq_django.outbox"))
        print(table({name: number for parts in found for name, number in parts.items()}))
    except CannotCount as problem:
        sys.exit(f"cannot count: {problem}")


if __name__ == "__main__":
    main()
