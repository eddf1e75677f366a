"""Counters of many queues for overviews: a few numbers of each queue, and the quantiles of all together.

`counters.read_series()` reads everything of a few queues. Here a script for each span of time adds up the tasks of a
queue and merges the histograms of all queues, so a page about a hundred queues reads a few hundred numbers per span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidValue, RsmqError
from ..keys import counters_key
from ..numbers import read_count
from ..transport.call import Call
from ..transport.client import Client
from .counters import Window
from .histogram import Histogram, read_bucket

#: Each is a hash of some dozen fields; this number keeps a script within a few milliseconds.
MAX_QUEUES = 300
#: Whether a queue is failing is decided from the current span of this length and the one before it.
RECENT_SPAN_S = 600
_WORDS_PER_QUEUE = 8


@dataclass(slots=True)
class Ends:
    """Outcomes of the attempts of one queue in one span of time, and samples of its depth."""

    succeeded: int = 0
    retried: int = 0
    #: Messages that failed for good: in a dead-letter queue, or discarded.
    dead: int = 0
    released: int = 0
    lost: int = 0
    cancelled: int = 0
    #: The largest number of ready messages in a sample; None without samples.
    ready: int | None = None
    #: Total of messages that any client ever sent, in the last sample.
    total_sent: int | None = None

    @property
    def failed(self) -> int:
        """Return the number of failed attempts."""
        return self.retried + self.dead + self.lost

    @property
    def handled(self) -> int:
        """Return the number of attempts that succeeded or failed."""
        return self.succeeded + self.failed


@dataclass(slots=True)
class Moment:
    """The counters of many queues in one span of time."""

    begins_s: int
    #: In the order of the requested queues.
    queues: list[Ends]
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)
    #: By queue, the number of messages that any client sent; None when it is unknown.
    sent: list[int | None] = field(default_factory=list)


def window_of(span_s: int, now_s: float) -> Window:
    """Return the window of the last `span_s` seconds, including the current, incomplete span."""
    return Window.of(now_s - span_s, now_s)


def past_calls(
    namespace: str, names: Sequence[str], window: Window, *, task: str | None = None
) -> dict[int, Call[Moment]]:
    """Return a call for each span of a window and for the span before it, by begin, for up to 300 queues.

    With a task, only its attempts are counted.
    """
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues side by side; up to {MAX_QUEUES} can be read")
    step_s = window.resolution.span_s
    begins = range(window.begins_s - step_s, window.ends_s, step_s)
    return {begins_s: _call(namespace, names, step_s, begins_s, task) for begins_s in begins}


def moments(replies: Sequence[Moment | RsmqError]) -> list[Moment]:
    """Return the results of the calls without the span before the window, with the messages sent in each span."""
    read = [_or_raise(reply) for reply in replies]
    before = [ends.total_sent for ends in read[0].queues] if read else []
    for moment in read[1:]:
        moment.sent = [_growth(seen, ends.total_sent) for seen, ends in zip(before, moment.queues, strict=True)]
        before = [
            seen if ends.total_sent is None else ends.total_sent
            for seen, ends in zip(before, moment.queues, strict=True)
        ]
    return read[1:]


def read_past(client: Client, names: Sequence[str], *, span_s: int, now_s: float) -> list[Moment]:
    """Return the counters of up to 300 queues in the last `span_s` seconds, in one round trip."""
    calls = past_calls(client.namespace, names, window_of(span_s, now_s))
    return moments(client.run_many(list(calls.values())))


def together_call(namespace: str, names: Sequence[str], window: Window, begins_s: int) -> Call[Moment]:
    """Return the call that reads the sums of up to 300 queues in one span of a window, as counters of one queue."""
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues together; up to {MAX_QUEUES} can be read")
    step_s = window.resolution.span_s
    keys = [counters_key(namespace, name, step_s, at_s) for at_s in (begins_s, begins_s - step_s) for name in names]

    def read(reply: list[Any]) -> Moment:
        moment = _read_moment(begins_s, 1, reply)
        moment.sent, moment.queues[0].total_sent = [moment.queues[0].total_sent], None
        return moment

    return Call("stats/counters/together", tuple(keys), (), read, repeatable=True)


def recent_attempts(namespace: str, names: Sequence[str], now_s: float) -> Call[dict[str, tuple[int, int]]]:
    """Return the call that reads the numbers of recent attempts of up to 300 queues: ended ones, and failed ones.

    Recent means the current span of ten minutes and the one before it. Queues without attempts are left out.
    """
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues side by side; up to {MAX_QUEUES} can be read")
    begins_s = int(now_s // RECENT_SPAN_S) * RECENT_SPAN_S
    spans = (begins_s - RECENT_SPAN_S, begins_s)
    keys = [counters_key(namespace, name, RECENT_SPAN_S, at_s) for at_s in spans for name in names]

    def read(reply: list[int]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for at, succeeded, failed in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
            name = names[(at - 1) % len(names)]
            before = found.get(name, (0, 0))
            found[name] = (before[0] + succeeded + failed, before[1] + failed)
        return found

    return Call("stats/counters/attempts", tuple(keys), (), read, repeatable=True)


async def aread_past(client: Client, names: Sequence[str], *, span_s: int, now_s: float) -> list[Moment]:
    """See read_past()."""
    calls = past_calls(client.namespace, names, window_of(span_s, now_s))
    return moments(await client.arun_many(list(calls.values())))


def _call(namespace: str, names: Sequence[str], span_s: int, begins_s: int, task: str | None) -> Call[Moment]:
    keys = tuple(counters_key(namespace, name, span_s, begins_s) for name in names)

    def read(reply: list[Any]) -> Moment:
        return _read_moment(begins_s, len(names), reply)

    return Call("stats/counters/beside", keys, () if task is None else (task,), read, repeatable=True)


def _read_moment(begins_s: int, count: int, reply: list[Any]) -> Moment:
    end = count * _WORDS_PER_QUEUE
    moment = Moment(begins_s, [_read_ends(reply[at : at + _WORDS_PER_QUEUE]) for at in range(0, end, _WORDS_PER_QUEUE)])
    for at in range(end, len(reply), 3):
        histogram = moment.wait if reply[at] == b"wait" else moment.run
        if (bucket := read_bucket(reply[at + 1])) is not None:
            histogram.counts[bucket] = read_count(reply[at + 2])
    return moment


def _read_ends(words: list[int]) -> Ends:
    succeeded, retried, dead, released, lost, cancelled = map(read_count, words[:6])
    ready, sent = words[6:]
    return Ends(
        succeeded=succeeded,
        retried=retried,
        dead=dead,
        released=released,
        lost=lost,
        cancelled=cancelled,
        ready=ready if ready >= 0 else None,
        total_sent=sent if sent >= 0 else None,
    )


def _growth(before: int | None, now: int | None) -> int | None:
    if before is None or now is None:
        return None
    # The totals of a queue that was deleted and created again start from 0.
    return now - before if now >= before else now


def _or_raise(reply: Moment | RsmqError) -> Moment:
    if isinstance(reply, RsmqError):
        raise reply
    return reply
