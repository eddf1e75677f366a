"""A process that sends calls of all kinds until it is told to stop, and notes what each send told it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import django
from django.db import DatabaseError

from tests.faults.checker import MEMBERS
from tests.faults.history import note

PAUSE_S = 0.01
#: Characters of the argument of a large call.
LARGEST = 2_000_000
#: A call that is cancelled is not due before.
DUE_AFTER = timedelta(seconds=2)
#: How many of a hundred calls are of a kind.
SHARES = {"plain": 24, "flaky": 6, "limited": 6, "awaited": 10, "kept": 10, "chain": 4, "foreign": 6, "pushed": 7}
SHARES |= {"single": 8, "cancelled": 4, "expiring": 4, "group": 2, "map": 2}
SHARES["published"] = 100 - sum(SHARES.values())


def _senders() -> dict[str, Callable[[str, random.Random], Any]]:
    from rsmq_django.queues import get_queue
    from rsmq_django.reliable_queues import get_reliable_queue
    from rsmq_django.tasks import call, chain, group, map_tasks
    from rsmq_django.topics import get_topic
    from tests.faults.project import tasks

    return {
        "plain": lambda name, dice: tasks.plain.enqueue(name, dice.choice([0, 0, 0.01, 0.05])),
        "flaky": lambda name, dice: tasks.flaky.enqueue(name),
        "limited": lambda name, dice: tasks.limited.enqueue(name),
        "awaited": lambda name, dice: tasks.awaited.enqueue(name),
        "kept": lambda name, dice: tasks.kept.enqueue(name),
        "chain": lambda name, dice: chain(call(tasks.first_step, name), call(tasks.last_step)).enqueue(),
        "single": lambda name, dice: tasks.single.enqueue(dice.randint(1, 3)),
        "cancelled": lambda name, dice: tasks.cancelled.using(run_after=DUE_AFTER).enqueue(name),
        "expiring": lambda name, dice: tasks.expiring.enqueue(name),
        "group": lambda name, dice: group(
            [call(tasks.member, each) for each in _members(name)], then=call(tasks.together, name).without_result()
        ).enqueue(),
        "map": lambda name, dice: map_tasks(
            tasks.member, _members(name), then=call(tasks.together, name).without_result(), window=2
        ),
        "hungry": lambda name, dice: tasks.hungry.enqueue(name),
        "large": lambda name, dice: tasks.large.enqueue(name, "x" * dice.randint(1, LARGEST)),
        "boxed": lambda name, dice: tasks.boxed.enqueue(name),
        "added": lambda name, dice: tasks.added.enqueue(name),
        "deadly": lambda name, dice: tasks.deadly.enqueue(name),
        "foreign": lambda name, dice: get_queue("raw").send(name.encode()),
        "pushed": lambda name, dice: get_reliable_queue("parcels").push(name.encode()),
        "published": lambda name, dice: get_topic(tasks.TOPIC).publish(name.encode()),
    }


def _members(name: str) -> list[str]:
    return [f"{name}.{number}" for number in range(MEMBERS)]


def send(name: str, kind: str, how: Callable[[str, random.Random], Any], dice: random.Random) -> None:
    """Send one call, and note whether it was stored, may be, or was not.

    An equal call of a unique task has the id of the one that exists, so these have their id as the name.
    """
    from rsmq_django.core.errors import OutcomeUnknown, RsmqError

    try:
        sent = how(name, dice)
    except (OutcomeUnknown, DatabaseError) as error:
        note("unknown", name, kind, error=type(error).__name__)
    except RsmqError as error:
        note("refused", name, kind, error=type(error).__name__)
    else:
        note("sent", sent.id if kind == "single" else name, kind, id=getattr(sent, "id", ""))
        if kind == "cancelled":
            _cancel(name, sent.id)


def _cancel(name: str, task_id: str) -> None:
    from rsmq_django.core.errors import RedisFailure
    from rsmq_django.tasks import cancel
    from rsmq_django.tasks.compat import TaskResultDoesNotExist

    try:
        was_in_time = cancel(task_id)
    except TaskResultDoesNotExist:
        return  # it has run, or is lost
    except RedisFailure as error:
        note("unclear", name, "cancelled", error=type(error).__name__)
    else:
        if was_in_time:
            note("cancelled", name, "cancelled")


def main(number: str, seed: str, more: str) -> None:
    """Send until SIGTERM; one call at a time."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.project.settings")
    django.setup()
    senders, dice, count = _senders(), random.Random(f"{seed}:{number}"), 0
    shares = SHARES | json.loads(more)
    while not over.is_set():
        count += 1
        (kind,) = dice.choices(list(shares), list(shares.values()))
        send(f"{number}-{count}", kind, senders[kind], dice)
        with contextlib.suppress(InterruptedError):
            over.wait(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
