"""Whether the queues are worked on: backlogs without a worker, dead letters, workers without a heartbeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..bands import by_queue
from ..browse import Statistics, statistics
from ..listing import WorkerBeat, workers
from ..pause import paused
from ..processes import SILENT_AFTER_S, ProcessRecord, read_processes, with_different_tasks
from .catalogue import found
from .finding import ExpectedQueue, Finding
from .probe import Probe

ABOUT = "workers and backlogs"


def examine_service(probe: Probe, expected: Mapping[str, ExpectedQueue], names: Sequence[str]) -> Iterator[Finding]:
    """Yield what is wrong with how the caller's queues are worked on; `names` are the queues that exist."""
    beats = probe.run(workers(probe.client.namespace), about=ABOUT) or []
    live = [beat for beat in beats if _silent_s(beat) < SILENT_AFTER_S]
    for beat in beats:
        if beat not in live:
            yield found("stale-worker", beat.worker_id, f"it has sent no heartbeat for {_duration(_silent_s(beat))}")
    records = _records(probe, live)
    served = _served(records)
    for name, by_tasks in sorted(with_different_tasks(records).items()):
        groups = "; ".join(
            f"{tasks.partition(' ')[0]} tasks: {', '.join(sorted(ids)[:3])}" for tasks, ids in sorted(by_tasks.items())
        )
        yield found("mixed-tasks", name, f"live workers on it know different tasks ({groups})")
    counts = _counts(probe, [name for name in names if name in _relevant(expected, names)])
    bands = by_queue(counts)
    on_hold = probe.run(paused(probe.client.namespace), about=ABOUT) or frozenset()
    for name, queue in expected.items():
        if queue.is_worked_on:
            parts = [
                counts[part] for part in {name, *bands.get(name, [])} if part in counts and _is_of(name, part, expected)
            ]
            yield from _check_backlog(name, parts, is_served=name in served, is_paused=name in on_hold)
    for name in sorted({queue.dead_letter for queue in expected.values()} & counts.keys()):
        if counts[name].messages and not _is_worked_on(name, expected):
            yield found("dead-letters", name, f"{_number(counts[name].messages, 'dead letter')}")


def _check_backlog(name: str, parts: Sequence[Statistics], *, is_served: bool, is_paused: bool) -> Iterator[Finding]:
    ready = sum(part.ready for part in parts)
    if not ready:
        return
    oldest_s = max(part.oldest_ready_s or 0.0 for part in parts)
    said = f"{_number(ready, 'message')} {'is' if ready == 1 else 'are'} ready, the oldest for {_duration(oldest_s)}"
    if is_paused:
        yield found("paused-backlog", name, f"{said}, and the queue is paused")
    elif not is_served:
        yield found("unserved", name, f"{said}, and no live worker takes messages from the queue")


def _relevant(expected: Mapping[str, ExpectedQueue], names: Sequence[str]) -> set[str]:
    """Return the names whose lengths matter: queues that are worked on with their bands, and dead-letter queues."""
    bands = by_queue(names)
    worked_on = [name for name, queue in expected.items() if queue.is_worked_on]
    parts = {part for name in worked_on for part in bands.get(name, [])}
    return {*worked_on, *parts, *(queue.dead_letter for queue in expected.values())}


def _is_of(name: str, part: str, expected: Mapping[str, ExpectedQueue]) -> bool:
    # A queue of the settings may be called like a band of another one.
    return part == name or part not in expected


def _is_worked_on(name: str, expected: Mapping[str, ExpectedQueue]) -> bool:
    return name in expected and expected[name].is_worked_on


def _records(probe: Probe, live: Sequence[WorkerBeat]) -> Mapping[str, ProcessRecord]:
    if not live:
        return {}
    call = read_processes(probe.client.namespace, [beat.worker_id for beat in live])
    return probe.run(call, about=ABOUT) or {}


def _served(records: Mapping[str, ProcessRecord]) -> set[str]:
    return {name for record in records.values() if record.state == "working" for name in record.queues}


def _counts(probe: Probe, names: Sequence[str]) -> dict[str, Statistics]:
    calls = [statistics(probe.client.namespace, name) for name in names]
    replies = probe.run_many(calls, about=ABOUT)
    return {name: reply for name, reply in zip(names, replies, strict=True) if reply is not None}


def _silent_s(beat: WorkerBeat) -> float:
    return (beat.now_ms - beat.beat_ms) / 1000


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
