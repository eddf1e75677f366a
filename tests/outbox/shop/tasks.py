"""Tasks of the project with an outbox. Each writes into the database and notes in the journal that it ran."""

from __future__ import annotations

import os
import signal

from django.contrib.auth.models import Group

from rsmq_django.tasks import fixed, task
from tests.worker.site.journal import note


@task
def write(name: str) -> None:
    note("ran", name)


@task(once=True, backoff=fixed(0), max_attempts=20)
def add_group(name: str) -> int:
    note("ran", name)
    return Group.objects.create(name=name).pk


@task(once=True, backoff=fixed(0))
def add_group_and_die_once(name: str, flag: str) -> None:
    """Die in the middle of the transaction, the first time."""
    Group.objects.create(name=name)
    note("ran", name)
    if not os.path.exists(flag):
        with open(flag, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
