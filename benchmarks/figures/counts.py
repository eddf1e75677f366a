"""Instructions of a task with each feature and beside it (callgrind): counted once a run, because they do not vary."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from ..features import count, each
from ..instructions import CannotCount
from ..run import Run

#: Of project and worker: without the outbox, and with it.
APPS = ("", "rsmq_django.outbox")


def instructions(run: Run) -> None:
    """Count, in the first round, sending and work of a plain task beside each feature, and of one that uses it."""
    if run.round > 1:
        return
    try:
        with ThreadPoolExecutor() as pool:
            counted = pool.map(lambda apps: count(run.sizes.features, apps=apps), APPS)
            parts = {name: number for each_apps in counted for name, number in each_apps.items()}
    except CannotCount as problem:
        print(f"no instructions: {problem}", file=sys.stderr)
        return
    for feature in dict.fromkeys(name.split("/")[0] for name in parts):
        figures = {
            "plain_send": each(parts, f"{feature}/plain/send"),
            "plain_work": each(parts, f"{feature}/plain/run"),
            "send": each(parts, f"{feature}/using/send"),
            "work": each(parts, f"{feature}/using/run"),
        }
        run.add("instructions", feature, figures)
