"""The contents and counters of the queues of the settings' connections, as shown by `rsmq_stats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..conf.settings import aliases_of, get_settings
from ..core import Client, RsmqError, list_queues
from ..core.errors import BrokenQueue
from ..core.queue.pause import paused
from ..core.stats.depth import Depth, together
from ..core.stats.depths import NamedDepth, read_depths, read_other_depths
from ..core.stats.history import SeriesSums, Slot, Window, read_sums
from ..queues import get_client
from .processes import records_at_work, worker_counts
from .tasks import known_names

#: A message that has been ready for longer is late.
LATE_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueActivity:
    """The numbers of one queue, reliable queue or group of a topic."""

    connection: str
    name: str
    now: Depth | RsmqError
    sums: SeriesSums
    kind: str = "queue"
    #: How many live worker processes consume it; None when that is not known.
    workers: int | None = None
    #: Its problems, in a few words each.
    trouble: tuple[str, ...] = ()
    #: The shards that this sums up; none for a queue without shards.
    shards: Sequence[QueueActivity] = ()

    @property
    def activity(self) -> tuple[int, int]:
        """Return how many attempts ended, and how many messages are ready: the larger, the busier."""
        ready = self.now.ready if isinstance(self.now, Depth) else 0
        return sum(self.sums.ended), ready


def with_shards_together(views: Sequence[QueueActivity]) -> list[QueueActivity]:
    """Return one view of each queue with shards, in the place of its first shard, and the others as they are."""
    settings = get_settings()
    groups: dict[tuple[str, str, str], list[QueueActivity]] = {}
    for view in views:
        found = settings.queue(view.name) if view.kind == "queue" and settings.knows_queue(view.name) else None
        is_shard = found is not None and view.connection in aliases_of(found)
        alias = found.connection if found is not None and is_shard else view.connection
        groups.setdefault((alias, view.kind, view.name), []).append(view)
    return [group[0] if len(group) == 1 else _together(alias, group) for (alias, *_), group in groups.items()]


def _together(alias: str, shards: Sequence[QueueActivity]) -> QueueActivity:
    broken = next((each.now for each in shards if isinstance(each.now, RsmqError)), None)
    workers = [each.workers for each in shards if each.workers is not None]
    return QueueActivity(
        alias,
        shards[0].name,
        broken or together([each.now for each in shards if isinstance(each.now, Depth)]),
        _sums_of([each.sums for each in shards]),
        workers=max(workers, default=None),  # each process consumes all shards
        trouble=tuple(dict.fromkeys(trouble for each in shards for trouble in each.trouble)),
        shards=shards,
    )


def _sums_of(shards: Sequence[SeriesSums]) -> SeriesSums:
    total = Slot(shards[0].total.begins_s, shards[0].total.span_s)
    by_task: dict[str, list[list[int]]] = {}
    for each in shards:
        total.add_beside(each.total)
        for task, ended in each.ended_by_task.items():
            by_task.setdefault(task, []).append(ended)
    ended_by_task = {task: _added(ended) for task, ended in by_task.items()}
    return SeriesSums(total, _added([each.ended for each in shards]), ended_by_task)


def _added(numbers: Sequence[Sequence[int]]) -> list[int]:
    return [sum(step) for step in zip(*numbers, strict=True)]


def look_at(alias: str, names: Sequence[str], window: Window) -> list[QueueActivity]:
    """Read the queues, reliable queues and topic groups of one connection: those with these names, or all."""
    client = get_client(alias)
    found = read_depths(client, [name for name in list_queues(client) if not names or name in names])
    missing = set(names) - {each.name for each in found}
    if (missing or not names) and alias in get_settings().own_connections:  # shards are queues only
        found += [each for each in read_other_depths(client) if not names or each.name in missing]
    sums = read_sums(client, [each.name for each in found], window, known=known_names())
    serving, on_hold = _serving(client), client.run(paused(client.namespace))
    base_name = get_settings().base_name
    views = []
    for each in found:
        base, workers = base_name(each.name) if each.kind == "queue" else each.name, each.consumers
        if each.kind != "topic":
            workers = None if serving is None else serving.get(base, 0)
        is_paused = each.kind == "queue" and base in on_hold
        trouble = tuple(_trouble(each, workers=workers, is_paused=is_paused))
        views.append(QueueActivity(alias, each.name, each.depth, sums[each.name], each.kind, workers, trouble))
    return views


def _serving(client: Client) -> Mapping[str, int] | None:
    """Return the number of workers per queue; None when another program has overwritten the list of workers."""
    try:
        return worker_counts(records_at_work(client))
    except BrokenQueue:
        return None


def _trouble(found: NamedDepth, *, workers: int | None, is_paused: bool) -> Iterator[str]:
    """Yield the problems of a queue, a reliable queue or a group."""
    if isinstance(found.depth, RsmqError):
        yield "broken"
    elif found.kind == "queue":
        yield from _trouble_of_queue(found.name, found.depth, workers=workers, is_paused=is_paused)
    else:
        is_ours = found.kind == "topic" or found.name in get_settings().reliable
        if found.depth.ready and workers == 0 and is_ours:
            yield "no worker"
        if (found.depth.oldest_ready_s or 0.0) > LATE_AFTER_S and workers:
            yield "late"
        if found.kind == "reliable" and found.depth.dead:
            yield "dead letters"


def _trouble_of_queue(name: str, seen: Depth, *, workers: int | None, is_paused: bool) -> Iterator[str]:
    settings = get_settings()
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
