"""django-tasks-db: the database as the queue, here SQLite. It polls, every 50 ms instead of its default of a second."""

import fcntl
import os
from pathlib import Path

import django
from django.conf import settings

DIRECTORY = Path(os.environ["BENCH_DIR"])
WRITE_AHEAD = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"

if not settings.configured:
    settings.configure(
        SECRET_KEY="only-for-benchmarks",  # noqa: S106
        USE_TZ=True,
        INSTALLED_APPS=["django_tasks", "django_tasks_db"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": DIRECTORY / "tasks.sqlite3",
                "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": WRITE_AHEAD},
            }
        },
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    )
    django.setup()

from django.core.management import call_command  # noqa: E402 - needs the settings
from django_tasks import task  # noqa: E402

from benchmarks.accounting import ran  # noqa: E402
from benchmarks.act import ARGUMENTS  # noqa: E402


@task()
def noop(*, sent_at: float, order: int, currency: str) -> None:
    ran(sent_at)


def prepare() -> None:
    """Make the tables; the worker and the sender may try it at the same time."""
    with (DIRECTORY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call_command("migrate", verbosity=0)


def work() -> None:
    prepare()
    call_command("db_worker", interval=0.05, startup_delay=False, verbosity=0)


def send_one(sent_at: float) -> None:
    noop.enqueue(sent_at=sent_at, **ARGUMENTS)
