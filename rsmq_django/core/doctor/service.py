"""Findings about workers and backlogs: backlogs without a worker, dead letters, workers without a heartbeat."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ..queue.listing import WorkerBeat, workers
from ..queue.pause import paused
from ..tasks.processes import SILENT_AFTER_S, ProcessRecord, read_processes, with_different_tasks
from ..transport.call import Call
from .catalogue import found
from .finding import ExpectedQueue, Finding
from .probe import Probe
from .troubles import Service, Trouble, attempt_calls, backlogs_outside, depth_calls, troubles_of

T = TypeVar("T")
ABOUT = "workers and backlogs"


def examine_service(probe: Probe, expected: Mapping[str, ExpectedQueue], names: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings about backlogs and workers of the caller's queues; `names` are the queues that exist."""
    beats = probe.run(workers(probe.client.namespace), about=ABOUT) or []
    live = [beat for beat in beats if _silent_s(beat) < SILENT_AFTER_S]
    for beat in beats:
        if beat not in live:
            yield found("stale-worker", beat.worker_id, f"it has sent no heartbeat for {duration(_silent_s(beat))}")
    records = _records(probe, live)
    for name, by_tasks in sorted(with_different_tasks(records).items()):
        groups = "; ".join(
            f"{tasks.partition(' ')[0]} tasks: {', '.join(sorted(ids)[:3])}" for tasks, ids in sorted(by_tasks.items())
        )
        yield found("mixed-tasks", name, f"its live workers know different tasks ({groups})")
    namespace = probe.client.namespace
    service = Service(
        depths=_joined(probe, depth_calls(namespace, names)),
        served=served_queues(records.values()),
        paused=probe.run(paused(namespace), about=ABOUT) or frozenset(),
        attempts=_joined(probe, attempt_calls(namespace, expected, names, time.time())),
    )
    for trouble in troubles_of(expected, service):
        yield found(trouble.id, trouble.queue, _sentence(trouble))
    for trouble in backlogs_outside(expected, service):
        yield found(trouble.id, trouble.queue, _sentence(trouble))


def served_queues(records: Iterable[ProcessRecord]) -> set[str]:
    """Return the queues that working processes consume."""
    return {name for record in records if record.state == "working" for name in record.queues}


def _sentence(trouble: Trouble) -> str:
    if trouble.id == "dead-letters":
        return _number(trouble.count, "dead letter")
    if trouble.id == "failing":
        return f"{trouble.count} of {trouble.limit:.0f} attempts of the last ten to twenty minutes failed"
    are = "is" if trouble.count == 1 else "are"
    said = f"{_number(trouble.count, 'message')} {are} ready, the oldest for {duration(trouble.oldest_s)}"
    return {
        "paused-backlog": f"{said}, and the queue is paused",
        "unserved": f"{said}, and no live worker consumes the queue",
        "not-in-settings": f"{said}, and no live worker consumes the queue, which is not in the settings",
        "late": f"{said}; its target is {duration(trouble.limit)}",
    }[trouble.id]


def _records(probe: Probe, live: Sequence[WorkerBeat]) -> Mapping[str, ProcessRecord]:
    if not live:
        return {}
    call = read_processes(probe.client.namespace, [beat.worker_id for beat in live])
    return probe.run(call, about=ABOUT) or {}


def _joined(probe: Probe, calls: Sequence[Call[dict[str, T]]]) -> dict[str, T]:
    replies = probe.run_many(calls, about=ABOUT)
    return {name: value for reply in replies if reply for name, value in reply.items()}


def _silent_s(beat: WorkerBeat) -> float:
    return (beat.now_ms - beat.beat_ms) / 1000


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in its largest unit, for example "36 min"."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
