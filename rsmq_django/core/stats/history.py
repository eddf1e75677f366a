"""The history of counters and of lags: series of queues, their sums, totals, topic groups.

`counters.py` and `topic/lag.py` write it. A series holds everything of a queue, by task; for overviews of many queues,
`moments.py` reads less.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from ..errors import RedisFailure, RsmqError
from ..keys import counters_key, totals_key, unchanged_times_key
from ..limits import batches
from ..numbers import read_whole
from ..topic.keys import lag_key
from ..transport.call import Call
from ..transport.client import Client
from .cardinality import OTHER, parts_of, shown_tasks
from .counts import COUNTERS, HISTOGRAMS, Counts, Slot, merged, side_by_side
from .depth import Depth, sent_between
from .spans import RESOLUTIONS, Resolution, Window

__all__ = [
    "COUNTERS",
    "HISTOGRAMS",
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
    "side_by_side",
]

#: Queues whose series are in memory at a time: an hour of one takes up to a few hundred kilobytes.
SUMMED_AT_A_TIME = 250

Hash = dict[str, int]

# -- Series and totals of a few queues, by task -----------------------------------------------------------------------


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
    """Return the history of queues: for each, slots of `step_s` seconds (chosen when left out).

    Times are epoch seconds. Everything is kept by the minute for three hours, by ten minutes for 26 hours, by the hour
    for eight days; the last slot is still growing. With a `task`, only its attempts are counted. Up to MOST_TASKS pairs
    of queue and task are separate, those in `known` first; OTHER is the rest. One round trip for each thousand spans.
    Raises InvalidValue for a step that is finer than the stored one, and the errors of `Client.run()`.
    """
    window = Window.of(since_s, until_s, step_s)
    return _series(window, queues, _run(client, _series_calls(client, queues, window)), task, known)


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
    calls = _series_calls(client, queues, window)
    replies = [reply for part in batches(calls) for reply in await client.arun_many(part)]
    return _series(window, queues, replies, task, known)


def read_totals(client: Client, queues: Sequence[str], *, known: Container[str] = ()) -> dict[str, dict[str, Counts]]:
    """Return the totals of queues by task: numbers that only grow. One round trip for each thousand queues.

    Up to MOST_TASKS pairs of queue and task are separate, those in `known` first; OTHER is the rest.
    """
    calls = [_read_hash(queue, totals_key(client.namespace, queue)) for queue in queues]
    return _totals(queues, [reply for part in batches(calls) for reply in client.run_many(part)], known)


async def aread_totals(
    client: Client, queues: Sequence[str], *, known: Container[str] = ()
) -> dict[str, dict[str, Counts]]:
    """See read_totals()."""
    calls = [_read_hash(queue, totals_key(client.namespace, queue)) for queue in queues]
    return _totals(queues, [reply for part in batches(calls) for reply in await client.arun_many(part)], known)


def read_counts(
    fields: Mapping[str, int], *, task: str | None = None, shown: Container[str] | None = None
) -> dict[str, Counts]:
    """Read the fields of a hash, by task. Fields of other kinds are left out; tasks not in `shown` are OTHER."""
    tasks: dict[str, Counts] = {}
    for name, number in fields.items():
        parts = parts_of(name)
        if parts is None or (task is not None and parts[2] != task):
            continue
        kind, bucket, path = parts
        counts = tasks.setdefault(path if shown is None or path in shown else OTHER, Counts())
        if bucket is not None:
            buckets = getattr(counts, kind).counts
            buckets[bucket] = buckets.get(bucket, 0) + number
        elif kind in COUNTERS:
            setattr(counts, kind, getattr(counts, kind) + number)
        else:
            getattr(counts, kind.removesuffix("_us")).sum_us += number
    return tasks


def _run(client: Client, calls: Iterable[Call[Any]]) -> list[Any]:
    return [reply for part in batches(calls) for reply in client.run_many(part)]


def _series_calls(client: Client, queues: Sequence[str], window: Window) -> Iterator[Call[Any]]:
    for queue in queues:
        for key in _keys_of(client.namespace, queue, window):
            yield _read_hash(queue, key)
    for queue in queues:
        yield _read_unchanged_times(client.namespace, queue, window)


def _keys_of(namespace: str, queue: str, window: Window) -> list[str]:
    return [counters_key(namespace, queue, window.resolution.span_s, begins_s) for begins_s in window.spans]


def _series(
    window: Window,
    queues: Sequence[str],
    replies: Sequence[Any],
    task: str | None,
    known: Container[str],
) -> dict[str, list[Slot]]:
    each = len(window.spans)
    hashes, times = map(_fields_of, replies[: len(queues) * each]), replies[len(queues) * each :]
    parts = {queue: list(islice(hashes, each)) for queue in queues}
    shown = shown_tasks(parts, known) if task is None else None
    for queue, unchanged_times in zip(queues, times, strict=True):
        _fill_in(window, parts[queue], _or_nothing(unchanged_times))
    return {queue: _slots(window, part, task, shown and shown[queue]) for queue, part in parts.items()}


def _fill_in(window: Window, hashes: Sequence[Hash], unchanged_times: Sequence[UnchangedTime]) -> None:
    """Add the samples of a queue that did not change to its spans without a sample."""
    for begins_s, fields in zip(window.spans, hashes, strict=True):
        ends_s = begins_s + window.resolution.span_s
        found = next((each for each in unchanged_times if each.begins_s < ends_s and begins_s <= each.ends_s), None)
        if found is not None and "=sent" not in fields:
            fields |= found.sample(ends_s)


def _slots(window: Window, hashes: Sequence[Hash], task: str | None, shown: Container[str] | None) -> list[Slot]:
    """Return the slots of a queue: equal steps without a gap, some are empty. See read_counts()."""
    slots = [Slot(begins_s, window.step_s) for begins_s in window.steps]
    sent_before: int | None = None
    for begins_s, fields in zip(window.spans, hashes, strict=True):
        depth = _depth_of(fields)
        if begins_s >= window.begins_s:
            part = Slot(begins_s, window.resolution.span_s, read_counts(fields, task=task, shown=shown), depth)
            part.sent = None if depth is None else sent_between(sent_before, depth.total_sent)
            slots[(begins_s - window.begins_s) // window.step_s].add(part)
        sent_before = sent_before if depth is None else depth.total_sent
    return slots


def _totals(
    queues: Sequence[str], replies: Sequence[Hash | RsmqError], known: Container[str]
) -> dict[str, dict[str, Counts]]:
    totals = {queue: _fields_of(reply) for queue, reply in zip(queues, replies, strict=True)}
    shown = shown_tasks({queue: [fields] for queue, fields in totals.items()}, known)
    return {queue: read_counts(fields, shown=shown and shown[queue]) for queue, fields in totals.items()}


def _depth_of(fields: Hash) -> Depth | None:
    """Return the depth in the sample of a span; None without a sample."""
    if "=sent" not in fields:
        return None
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


# -- Sums of the series of many queues, by task ------------------------------------------------------------------------


@dataclass(slots=True)
class SeriesSums:
    """What is left of the series of a queue when only its sums are needed."""

    #: The whole time; its depth has the totals of the last sample.
    total: Slot
    #: How many attempts ended in each step, of all tasks and by task.
    ended: list[int]
    ended_by_task: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> SeriesSums:
        """Return the sums of a series."""
        total = merged(slots)
        by_task = {
            task: [each.tasks[task].ended if task in each.tasks else 0 for each in slots] for task in total.tasks
        }
        return cls(total, [sum(ended) for ended in zip(*by_task.values(), strict=True)] or [0] * len(slots), by_task)


def read_sums(
    client: Client, queues: Sequence[str], window: Window, *, known: Container[str] = ()
) -> dict[str, SeriesSums]:
    """Return the sums of the series of any number of queues.

    Most of many queues are idle, and need two commands each. The series of others are in memory only in portions; up to
    MOST_TASKS pairs of queue and task of a portion are separate, see read_series().
    """
    found: dict[str, SeriesSums] = {}
    for at in range(0, len(queues), SUMMED_AT_A_TIME):
        portion = queues[at : at + SUMMED_AT_A_TIME]
        exist = _run(client, (_count_hashes(client.namespace, queue, window) for queue in portion))
        times = _run(client, (_read_unchanged_times(client.namespace, queue, window) for queue in portion))
        idle = {
            queue: total
            for queue, number, unchanged in zip(portion, exist, times, strict=True)
            if not _or_nothing(number) and (total := _total_of_idle(window, _or_nothing(unchanged))) is not None
        }
        found |= {queue: SeriesSums(total, [0] * len(window.steps)) for queue, total in idle.items()}
        active = [queue for queue in portion if queue not in idle]
        series = _series(window, active, _run(client, _series_calls(client, active, window)), None, known)
        found |= {queue: SeriesSums.of(slots) for queue, slots in series.items()}
    return found


def _count_hashes(namespace: str, queue: str, window: Window) -> Call[int]:
    return Call("EXISTS", tuple(_keys_of(namespace, queue, window)), (), int, True, queue)


def _total_of_idle(window: Window, unchanged_times: Sequence[UnchangedTime]) -> Slot | None:
    """Return the sum of a series without counters; None if it needs the series: its totals have changed."""
    total = Slot(window.begins_s, window.ends_s - window.begins_s)
    if not unchanged_times:
        return total
    first = unchanged_times[0]
    if len(unchanged_times) > 1 or not first.begins_s < window.begins_s <= first.ends_s:
        return None
    total.sent, total.depth = 0, _depth_of(first.sample(window.ends_s))
    return total


# -- The lag of topic groups ------------------------------------------------------------------------------------------


def lag_calls(topic: str, window: Window) -> list[Call[Hash]]:
    """Return the calls that read the spans of a window, the first one first. See lags_of()."""
    return [_read_hash(topic, lag_key(topic, window.resolution.span_s, begins_s)) for begins_s in window.spans[1:]]


def lags_of(group: str, spans: Sequence[Hash | RsmqError]) -> list[int | None]:
    """Return the lag of a group in each span; None if not recorded. Raises RedisFailure."""
    return [_fields_of(span).get(group) for span in spans]


# -- Replies ----------------------------------------------------------------------------------------------------------


def _read_hash(subject: str, key: str) -> Call[Hash]:
    return Call("HGETALL", (key,), (), _read_numbers, True, subject)


class UnchangedTime(NamedTuple):
    """A time in which a queue did not change: its totals, its ready messages, and since when the first one is ready."""

    begins_s: int
    sent: int
    received: int
    messages: int
    first_ms: int
    ends_s: float

    def sample(self, at_s: float) -> Hash:
        """Return the fields of a sample at the end of a span."""
        fields = {"=sent": self.sent, "=received": self.received}
        if self.messages:
            oldest_ms = max(0, int(min(at_s, self.ends_s) * 1000) - self.first_ms)
            fields |= {"=messages": self.messages, "=ready": self.messages, "=oldest_ms": oldest_ms}
        return fields


def _read_unchanged_times(namespace: str, queue: str, window: Window) -> Call[list[UnchangedTime]]:
    args = (window.spans[0], "+inf", "WITHSCORES")
    return Call("ZRANGEBYSCORE", (unchanged_times_key(namespace, queue),), args, _read_times, True, queue)


def _read_times(reply: list[bytes]) -> list[UnchangedTime]:
    times = []
    for member, ends_s in zip(reply[::2], reply[1::2], strict=True):
        # Anything else was written by another program.
        if re.fullmatch(rb"\d{1,15} \d{1,15} \d{1,15}( \d{1,15} \d{1,15})?", member):
            begins_s, sent, received, messages, first_ms = [*map(int, member.split()), 0, 0][:5]
            times.append(UnchangedTime(begins_s, sent, received, messages, first_ms, float(ends_s)))
    return times


def _read_numbers(reply: list[bytes]) -> Hash:
    found = {}
    for name, value in zip(reply[::2], reply[1::2], strict=True):
        number = read_whole(value)
        if number is not None and number >= 0:  # anything else was written by another program
            found[name.decode("utf-8", "replace")] = number
    return found


def _fields_of(reply: Hash | RsmqError) -> Hash:
    """Return the fields of a hash; empty if another program uses its key for another type."""
    return _or_nothing(reply) or {}


def _or_nothing(reply: Any) -> Any:
    if isinstance(reply, RedisFailure):
        raise reply
    return () if isinstance(reply, RsmqError) else reply
