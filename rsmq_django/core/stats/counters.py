"""Counters of attempt outcomes per queue, task and span of time: writing, and reading for charts and totals.

Workers count in memory and report once a second; there is never a call per task. A queue has one hash per span of
time in three resolutions, and one of all time:

    {ns}::stats:{queue}:{span_s}:{begins_s}    {ns}::stats:{queue}:total

Fields: `succeeded:{task}` and the other COUNTERS; `wait:{bucket}:{task}` and `run:{bucket}:{task}` as histogram.py has
them, with their sums in `wait_us:{task}` and `run_us:{task}`; `=ready` and similar fields are samples of the queue's
depth; `@{worker}` is the number of the last report of a worker.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from ..errors import InvalidValue, RedisFailure, RsmqError
from ..keys import counters_key, queue_keys, totals_key
from ..numbers import read_whole
from ..transport.call import Argument, Call
from ..transport.client import Client
from .cardinality import OTHER, parts_of, shown_tasks
from .counts import COUNTERS, HISTOGRAMS, Counts, Slot, merged, side_by_side
from .depth import Depth

__all__ = [
    "COUNTERS",
    "HISTOGRAMS",
    "MOST_FIELDS",
    "RESOLUTIONS",
    "Counts",
    "Resolution",
    "Slot",
    "Window",
    "aread_series",
    "aread_totals",
    "merged",
    "read_counts",
    "read_series",
    "read_totals",
    "report",
    "sample",
    "side_by_side",
    "ttls",
]


@dataclass(frozen=True, slots=True)
class Resolution:
    """Spans of one length, and how long each is kept."""

    span_s: int
    keep_s: int


#: A chart of an hour, a day or a week has 60, 144 or 168 points, and each is one small hash.
RESOLUTIONS = (Resolution(60, 3 * 3600), Resolution(600, 26 * 3600), Resolution(3600, 8 * 86_400))
#: How long totals of a queue without a worker are kept.
KEEP_TOTALS_S = 32 * 86_400
#: The most points that one series may have.
MOST_SLOTS = 1000
#: Maximum number of counters in one report: each is raised in four hashes.
MOST_FIELDS = 250

# -- Reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """Which spans a series consists of."""

    resolution: Resolution
    step_s: int
    #: Multiples of the step. The end is the first second that does not belong to it.
    begins_s: int
    ends_s: int

    @classmethod
    def of(cls, since_s: float, until_s: float | None = None, step_s: int | None = None) -> Window:
        """Choose the finest resolution that is kept as far back as `since_s`, or the one that divides `step_s`.

        The span that contains `until_s` (default: now) is included. Raises InvalidValue for times without counters.
        """
        now_s = time.time()
        last_s = now_s if until_s is None else until_s
        if last_s < since_s:
            raise InvalidValue(f"a series from {since_s:.0f} cannot end before it begins, at {last_s:.0f}")
        resolution = _resolution(now_s - since_s, last_s - since_s, step_s)
        step = step_s or resolution.span_s
        window = cls(resolution, step, int(since_s // step) * step, (int(last_s // step) + 1) * step)
        if (window.ends_s - window.begins_s) // step > MOST_SLOTS:
            raise InvalidValue(f"a series has at most {MOST_SLOTS} points; choose a longer step than {step} s")
        return window

    def calls(self, namespace: str, queue: str) -> list[Call[dict[str, int]]]:
        """Return the calls that read its spans, and the span before the first one, from which growth is calculated."""
        span_s = self.resolution.span_s
        return [
            _read_hash(queue, counters_key(namespace, queue, span_s, begins_s))
            for begins_s in range(self.begins_s - span_s, self.ends_s, span_s)
        ]

    def slots(
        self, hashes: Sequence[Mapping[str, int]], *, task: str | None = None, shown: Container[str] | None = None
    ) -> list[Slot]:
        """Return the slots for the results of calls(): equal steps without a gap, some are empty. See read_counts()."""
        slots = [Slot(begins_s, self.step_s) for begins_s in range(self.begins_s, self.ends_s, self.step_s)]
        sent_before = _depth_of(hashes[0]).total_sent if _was_seen(hashes[0]) else None
        for number, fields in enumerate(hashes[1:]):
            begins_s = self.begins_s + number * self.resolution.span_s
            part = Slot(begins_s, self.resolution.span_s, read_counts(fields, task=task, shown=shown))
            if _was_seen(fields):
                part.depth = _depth_of(fields)
                if sent_before is not None:
                    # The totals of a queue that was deleted and created again start from 0.
                    grown = part.depth.total_sent - sent_before
                    part.sent = grown if grown >= 0 else part.depth.total_sent
                sent_before = part.depth.total_sent
            slots[(begins_s - self.begins_s) // self.step_s].add(part)
        return slots


def read_series(
    client: Client,
    queues: Sequence[str],
    *,
    since_s: float,
    until_s: float | None = None,
    step_s: int | None = None,
    task: str | None = None,
    known: Container[str] = (),
) -> dict[str, list[Slot]]:
    """Return the history of queues in one round trip: for each, slots of `step_s` seconds (chosen when left out).

    Times are epoch seconds. Everything is kept by the minute for three hours, by ten minutes for 26 hours, by the hour
    for eight days; the last slot is still growing. With a `task`, only its attempts are counted. Up to MOST_TASKS pairs
    of queue and task are separate, those in `known` first; OTHER is the rest. Raises InvalidValue for a step that is
    finer than the stored one, and the errors of `Client.run()`.
    """
    window = Window.of(since_s, until_s, step_s)
    calls = [call for queue in queues for call in window.calls(client.namespace, queue)]
    return _series(window, queues, client.run_many(calls) if calls else [], task, known)


async def aread_series(
    client: Client,
    queues: Sequence[str],
    *,
    since_s: float,
    until_s: float | None = None,
    step_s: int | None = None,
    task: str | None = None,
    known: Container[str] = (),
) -> dict[str, list[Slot]]:
    """See read_series()."""
    window = Window.of(since_s, until_s, step_s)
    calls = [call for queue in queues for call in window.calls(client.namespace, queue)]
    return _series(window, queues, await client.arun_many(calls) if calls else [], task, known)


def read_totals(client: Client, queues: Sequence[str], *, known: Container[str] = ()) -> dict[str, dict[str, Counts]]:
    """Return the totals of queues by task: numbers that only grow. One round trip.

    Up to MOST_TASKS pairs of queue and task are separate, those in `known` first; OTHER is the rest.
    """
    calls = [_read_hash(queue, totals_key(client.namespace, queue)) for queue in queues]
    return _totals(queues, client.run_many(calls) if calls else [], known)


async def aread_totals(
    client: Client, queues: Sequence[str], *, known: Container[str] = ()
) -> dict[str, dict[str, Counts]]:
    """See read_totals()."""
    calls = [_read_hash(queue, totals_key(client.namespace, queue)) for queue in queues]
    return _totals(queues, await client.arun_many(calls) if calls else [], known)


def read_counts(
    fields: Mapping[str, int], *, task: str | None = None, shown: Container[str] | None = None
) -> dict[str, Counts]:
    """Read the fields of a hash, by task. Fields of other kinds are left out; tasks not in `shown` are OTHER."""
    tasks: dict[str, Counts] = {}
    for field, number in fields.items():
        parts = parts_of(field)
        if parts is None or (task is not None and parts[2] != task):
            continue
        kind, bucket, name = parts
        counts = tasks.setdefault(name if shown is None or name in shown else OTHER, Counts())
        if bucket is not None:
            buckets = getattr(counts, kind).counts
            buckets[bucket] = buckets.get(bucket, 0) + number
        elif kind in COUNTERS:
            setattr(counts, kind, getattr(counts, kind) + number)
        else:
            getattr(counts, kind.removesuffix("_us")).sum_us += number
    return tasks


def _resolution(age_s: float, length_s: float, step_s: int | None) -> Resolution:
    if step_s is not None:
        fitting = [each for each in RESOLUTIONS if step_s % each.span_s == 0]
        if not fitting or step_s <= 0:
            raise InvalidValue(f"step must be a multiple of 60 s, got {step_s}; counters are kept by the minute")
    else:
        fitting = list(RESOLUTIONS)
    kept = [each for each in fitting if each.keep_s >= age_s and length_s / each.span_s <= MOST_SLOTS]
    if not kept:
        longest = max(each.keep_s for each in fitting)
        # Spans before it are empty; the others are still worth showing.
        return next(each for each in reversed(fitting) if each.keep_s == longest)
    # Of the resolutions that divide the step, the coarsest needs the fewest reads.
    return kept[-1] if step_s is not None else kept[0]


def _series(
    window: Window,
    queues: Sequence[str],
    replies: Sequence[dict[str, int] | RsmqError],
    task: str | None,
    known: Container[str],
) -> dict[str, list[Slot]]:
    hashes = [_fields_of(reply) for reply in replies]
    each = len(hashes) // len(queues) if queues else 0
    parts = {queue: hashes[number * each : (number + 1) * each] for number, queue in enumerate(queues)}
    shown = shown_tasks(parts, known) if task is None else None
    return {queue: window.slots(part, task=task, shown=shown and shown[queue]) for queue, part in parts.items()}


def _totals(
    queues: Sequence[str], replies: Sequence[dict[str, int] | RsmqError], known: Container[str]
) -> dict[str, dict[str, Counts]]:
    totals = {queue: _fields_of(reply) for queue, reply in zip(queues, replies, strict=True)}
    shown = shown_tasks({queue: [fields] for queue, fields in totals.items()}, known)
    return {queue: read_counts(fields, shown=shown and shown[queue]) for queue, fields in totals.items()}


def _fields_of(reply: dict[str, int] | RsmqError) -> dict[str, int]:
    """Return the fields of a hash; empty if another program uses its key for another type."""
    if isinstance(reply, RedisFailure):
        raise reply
    return {} if isinstance(reply, RsmqError) else reply


def _was_seen(fields: Mapping[str, int]) -> bool:
    return "=sent" in fields


def _depth_of(fields: Mapping[str, int]) -> Depth:
    ready, messages, oldest_ms, sent, received = (
        fields.get(name, 0) for name in ("=ready", "=messages", "=oldest_ms", "=sent", "=received")
    )
    return Depth(
        ready=ready,
        hidden=max(messages - ready, 0),
        oldest_ready_s=oldest_ms / 1000 if ready else None,
        total_sent=sent,
        total_received=received,
    )


def _read_hash(queue: str, key: str) -> Call[dict[str, int]]:
    return Call("stats/counters/read", (key,), (), _read_numbers, True, queue)


def _read_numbers(reply: list[bytes]) -> dict[str, int]:
    found = {}
    for name, value in zip(reply[::2], reply[1::2], strict=True):
        number = read_whole(value)
        if number is not None and number >= 0:  # anything else was written by another program
            found[name.decode("utf-8", "replace")] = number
    return found


# -- Writing ----------------------------------------------------------------------------------------------------------


def report(
    namespace: str, queue: str, *, reporter: str, number: int, at_s: float, grown: Mapping[str, int]
) -> Call[bool]:
    """Return the call that adds at most 250 counters, by field, to those of the spans that contain `at_s`.

    `number` has to grow from report to report of the same reporter: one that arrives a second time is not added again.
    """
    keys = [_key_at(namespace, queue, resolution, at_s) for resolution in RESOLUTIONS]
    args: list[Argument] = [f"@{reporter}", number, *ttls(), KEEP_TOTALS_S]
    for name, by in grown.items():
        args += (name, by)
    return Call("stats/counters/add", (*keys, totals_key(namespace, queue)), tuple(args), bool, True, queue)


def sample(namespace: str, queue: str, *, at_s: float) -> Call[bool]:
    """Return the call that records the current depth of a queue."""
    own = queue_keys(namespace, queue)
    keys = [_key_at(namespace, queue, resolution, at_s) for resolution in RESOLUTIONS]
    return Call("stats/counters/sample", (own.messages, own.settings, *keys), tuple(ttls()), bool, True, queue)


def _key_at(namespace: str, queue: str, resolution: Resolution, at_s: float) -> str:
    return counters_key(namespace, queue, resolution.span_s, int(at_s // resolution.span_s) * resolution.span_s)


def ttls() -> list[int]:
    """Return the time to live in seconds of a span of each resolution."""
    # A span is complete at its end, and is kept for `keep_s` from then on.
    return [resolution.keep_s + resolution.span_s for resolution in RESOLUTIONS]
