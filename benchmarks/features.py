"""`python -m benchmarks.features`: what features cost a task that uses them, and one that does not.

For each feature, instructions for each call of a sender and for each task of a worker with one thread, in user space:
of a plain task in a project where the feature is there, and of a task that uses it. Takes a few minutes, more on a busy
machine; the numbers are the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .instructions import SLOWER, CannotCount, count_parts, part
from .places import ROOT
from .server import Server

#: What lies in between costs no more than the tasks: connecting, starting threads and ending are in both.
FEW, MANY = 50, 250
WARM_UP = 20
KEY = "only for these benchmarks, 32 characters"
FERNET_KEY = "b25seSBmb3IgdGhlc2UgYmVuY2htYXJrcywgcmVhbGw="
SEALED = "sealed"


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


def features() -> list[Feature]:
    """Return the rows."""
    from rsmq_django.tasks import Concurrency, Unique

    return [
        Feature("none of them", is_used=False),
        Feature("result", options={"result_ttl_s": 86_400}),
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


# -- In callgrind -----------------------------------------------------------------------------------------------------


def measure(url: str, apps: Sequence[str], names: Sequence[str]) -> None:
    """Measure the features of projects with these apps installed, or those of these names."""
    _set_up(url, apps)
    for feature in features():
        if feature.apps == tuple(apps) and (not names or feature.name in names):
            print(f"  {feature.name}", file=sys.stderr, flush=True)
            _measure(url, feature)


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
    from rsmq_django.worker import worker
    from rsmq_django.worker.execute import pool
    from rsmq_django.worker.execute import pool as pace
    from rsmq_django.worker.lease import pending as starts
    from rsmq_django.worker.report import event_log as recent_successes
    from rsmq_django.worker.report import statistics

    # All takes longer here: what is done every so many milliseconds shall be done for as many tasks as elsewhere.
    sys.setswitchinterval(sys.getswitchinterval() * SLOWER)
    worker.SETTLE_WITHIN_S *= SLOWER
    starts.NOTE_START_AFTER_S *= SLOWER
    pace.PREFETCH_S *= SLOWER
    pool.STUCK_AFTER_S *= SLOWER
    statistics.REPORT_EVERY_S *= SLOWER
    recent_successes.SECOND_S *= SLOWER


def _measure(url: str, feature: Feature) -> None:
    from django.test import override_settings

    from rsmq_django import schedules
    from rsmq_django.queues import get_client
    from rsmq_django.tasks import task
    from rsmq_django.tasks.task import _tasks

    rsmq = {
        "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 60}},
        "QUEUES": {"default": {}, **({SEALED: feature.queue} if feature.queue else {})},
        "TASKS": {"ENQUEUE_ON_COMMIT": False, "RESULT_TTL_S": 0},
        **feature.settings,
    }
    with override_settings(RSMQ=rsmq):
        get_client().connection.exchange([("FLUSHALL",)])
        declare: Any = task
        plain_task = declare(plain)
        if feature.is_used:
            queue_name = SEALED if feature.queue else "default"
            using_task = declare(queue_name=queue_name, **feature.options)(using)
            _drain_after(using_task, WARM_UP)  # so that its bands and lanes are there
        if feature.has_schedule:
            schedules.add("nightly", plain_task, cron="0 3 * * *", args=[1])
        if feature.is_optional:
            _count(f"{feature.name}/plain", plain_task)
        if feature.is_used:
            _count(f"{feature.name}/using", using_task, batch=feature.batch)
        _tasks.clear()


def _count(name: str, task: Any, *, batch: int = 1) -> None:
    _drain_after(task, WARM_UP)
    for number in (FEW * batch, MANY * batch):
        with part(f"{name}/send/{number}"):
            _send(task, number)
        worker = _worker()
        with part(f"{name}/run/{number}"):
            worker.run()


def _drain_after(task: Any, number: int) -> None:
    _send(task, number)
    _worker().run()


def _send(task: Any, number: int) -> None:
    for each in range(number):
        task.enqueue(each)


def _worker() -> Any:
    from rsmq_django.conf.settings import get_settings
    from rsmq_django.worker.worker import WorkerOptions, make_worker

    return make_worker([], WorkerOptions.from_settings(get_settings().worker, threads=1, until_drained=True))


# -- The table --------------------------------------------------------------------------------------------------------


def each(parts: dict[str, int], name: str) -> float | None:
    """Return thousands of instructions for each of the many; None when this was not measured."""
    found = sorted((int(key.rpartition("/")[2]), count) for key, count in parts.items() if key.startswith(f"{name}/"))
    if len(found) < 2:
        return None
    (few, less), (many, more) = found
    return (more - less) / (many - few) / 1000


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


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FEATURE", help="only these; default: all")
    parser.add_argument("--in-callgrind", nargs=2, metavar=("URL", "APPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_callgrind:
        url, apps = options.in_callgrind
        measure(url, apps.split(",") if apps else [], options.names)
        return
    parts: dict[str, int] = {}
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    for apps in ("", "rsmq_django.outbox"):
        with Server() as server, tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, "-m", __spec__.name, "--in-callgrind", server.url, apps, *options.names]
            try:
                parts |= count_parts(command, Path(directory), environment=environment)
            except CannotCount as problem:
                sys.exit(f"cannot count: {problem}")
    print(table(parts))


if __name__ == "__main__":
    main()
