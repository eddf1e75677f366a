"""The contents and counters of the queues of the settings' connections, as shown by `rsmq_stats`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..conf.settings import get_settings
from ..core import Client, RsmqError, list_queues
from ..core.errors import BrokenQueue
from ..core.queue.browse import depth_call
from ..core.queue.pause import paused
from ..core.stats.backlogs import Backlog, read_backlogs
from ..core.stats.counters import Slot, merged, read_series
from ..core.stats.depth import Depth
from ..queues import get_client
from .processes import worker_counts
from .tasks import known_names

#: A message that has been ready for longer is late.
LATE_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueActivity:
    """The numbers of one queue, reliable queue or group of a topic."""

    connection: str
    name: str
    now: Depth | RsmqError
    slots: list[Slot]
    kind: str = "queue"
    #: How many live worker processes consume it; None when that is not known.
    workers: int | None = None
    #: Its problems, in a few words each.
    trouble: tuple[str, ...] = ()

    @property
    def activity(self) -> tuple[int, int]:
        """Return how many attempts ended, and how many messages are ready: the larger, the busier."""
        ready = self.now.ready if isinstance(self.now, Depth) else 0
        return merged(self.slots).counts.ended, ready


def look_at(alias: str, names: Sequence[str], since_s: float) -> list[QueueActivity]:
    """Read the queues of one connection: the queues with these names, or all."""
    client = get_client(alias)
    found = [name for name in list_queues(client) if not names or name in names]
    now = client.run_many([depth_call(client.namespace, name) for name in found]) if found else []
    series = read_series(client, found, since_s=time.time() - since_s, known=known_names())
    serving, on_hold = _serving(client), client.run(paused(client.namespace))
    base_name = get_settings().base_name
    views = []
    for name, seen in zip(found, now, strict=True):
        base = base_name(name)
        count = None if serving is None else serving.get(base, 0)
        trouble = tuple(_trouble(name, seen, workers=count, is_paused=base in on_hold))
        views.append(QueueActivity(alias, name, seen, series[name], workers=count, trouble=trouble))
    wanted = [name for name in names if name not in found] if names else None
    return views + _backlogs_at(alias, wanted, since_s, serving)


def _backlogs_at(
    alias: str, names: Sequence[str] | None, since_s: float, serving: Mapping[str, int] | None
) -> list[QueueActivity]:
    """Read the reliable queues and the groups of topics of one connection: those with these names, or all."""
    client = get_client(alias)
    if names is not None and not names:
        return []
    found = [backlog for backlog in read_backlogs(client) if names is None or backlog.name in names]
    series = read_series(
        client, [backlog.name for backlog in found], since_s=time.time() - since_s, known=known_names()
    )
    return [_view_of(alias, backlog, series[backlog.name], serving) for backlog in found]


def _view_of(alias: str, backlog: Backlog, slots: list[Slot], serving: Mapping[str, int] | None) -> QueueActivity:
    workers = backlog.consumers
    if backlog.kind == "reliable":
        workers = None if serving is None else serving.get(backlog.name, 0)
    trouble = []
    if isinstance(backlog.now, RsmqError):
        trouble.append("broken")
    else:
        is_ours = backlog.kind == "topic" or backlog.name in get_settings().reliable
        if backlog.now.ready and workers == 0 and is_ours:
            trouble.append("no worker")
        if (backlog.now.oldest_ready_s or 0.0) > LATE_AFTER_S and workers:
            trouble.append("late")
        if backlog.kind == "reliable" and backlog.now.dead:
            trouble.append("dead letters")
    return QueueActivity(alias, backlog.name, backlog.now, slots, backlog.kind, workers, tuple(trouble))


def _serving(client: Client) -> Mapping[str, int] | None:
    """Return the number of workers per queue; None when another program has overwritten the list of workers."""
    try:
        return worker_counts(client)
    except BrokenQueue:
        return None


def _trouble(name: str, seen: Depth | RsmqError, *, workers: int | None, is_paused: bool) -> Iterator[str]:
    """Yield the problems of a queue."""
    settings = get_settings()
    if isinstance(seen, RsmqError):
        yield "broken"
        return
    configured = settings.queues.get(settings.base_name(name))
    holds_dead_letters = name in settings.dead_letters
    if holds_dead_letters and seen.messages:
        yield "dead letters"
    if not seen.ready or configured is None:
        return
    if is_paused:
        yield "paused"
    elif workers == 0 and not configured.for_others:
        yield "no worker"
    elif (seen.oldest_ready_s or 0.0) > LATE_AFTER_S:
        yield "late"
