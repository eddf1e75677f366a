"""A process that sends calls of all kinds until it is told to stop, and notes what each send told it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import django

from tests.faults.history import note

PAUSE_S = 0.01
#: How many of a hundred calls are of a kind.
SHARES = {"plain": 44, "flaky": 6, "limited": 6, "awaited": 10, "kept": 10, "chain": 4, "foreign": 6, "pushed": 7}
SHARES["published"] = 100 - sum(SHARES.values())


def _senders() -> dict[str, Callable[[str, random.Random], Any]]:
    from rsmq_django.queues import get_queue
    from rsmq_django.reliable_queues import get_reliable_queue
    from rsmq_django.tasks import call, chain
    from rsmq_django.topics import get_topic
    from tests.faults.project import tasks

    return {
        "plain": lambda name, dice: tasks.plain.enqueue(name, dice.choice([0, 0, 0.01, 0.05])),
        "flaky": lambda name, dice: tasks.flaky.enqueue(name),
        "limited": lambda name, dice: tasks.limited.enqueue(name),
        "awaited": lambda name, dice: tasks.awaited.enqueue(name),
        "kept": lambda name, dice: tasks.kept.enqueue(name),
        "chain": lambda name, dice: chain(call(tasks.first_step, name), call(tasks.last_step)).enqueue(),
        "deadly": lambda name, dice: tasks.deadly.enqueue(name),
        "foreign": lambda name, dice: get_queue("raw").send(name.encode()),
        "pushed": lambda name, dice: get_reliable_queue("parcels").push(name.encode()),
        "published": lambda name, dice: get_topic(tasks.TOPIC).publish(name.encode()),
    }


def send(name: str, kind: str, how: Callable[[str, random.Random], Any], dice: random.Random) -> None:
    """Send one call, and note whether it was stored, may be, or was not."""
    from rsmq_django.core.errors import OutcomeUnknown, RedisFailure

    try:
        sent = how(name, dice)
    except OutcomeUnknown as error:
        note("unknown", name, kind, error=type(error).__name__)
    except RedisFailure as error:
        note("refused", name, kind, error=type(error).__name__)
    else:
        note("sent", name, kind, id=getattr(sent, "id", ""))


def main(number: str, seed: str, deadly: str) -> None:
    """Send until SIGTERM; one call at a time."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.project.settings")
    django.setup()
    senders, dice, count = _senders(), random.Random(f"{seed}:{number}"), 0
    kinds = list(SHARES) + ["deadly"]
    weights = [*SHARES.values(), int(deadly)]
    while not over.is_set():
        count += 1
        (kind,) = dice.choices(kinds, weights)
        send(f"{number}-{count}", kind, senders[kind], dice)
        with contextlib.suppress(InterruptedError):
            over.wait(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
