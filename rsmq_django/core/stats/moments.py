"""The history of many queues side by side, for overviews.

A script for each span of time adds up the tasks of a queue and merges the histograms of all queues, so a page about a
hundred queues reads a few hundred numbers per span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..errors import InvalidValue, RsmqError
from ..keys import counters_key, unchanged_times_key
from ..numbers import read_count
from ..transport.call import Call
from .counts import Counts
from .depth import sent_between
from .histogram import Histogram, read_bucket
from .spans import Window

#: Most queues side by side. Each is a hash of some dozen fields: a script takes a few milliseconds.
MAX_QUEUES = 300
#: Whether a queue is failing is decided from the current span of this length and the one before it.
RECENT_SPAN_S = 600
_WORDS_PER_QUEUE = 7
#: Overviews have no histogram for a single queue. Never added to.
_NO_DURATIONS = Histogram()


@dataclass(slots=True)
class Moment:
    """The counters of many queues in one span of time."""

    begins_s: int
    #: In the order of the requested queues, without durations; `dead` includes discarded messages.
    queues: list[Counts]
    #: By queue, the number of messages that any client ever sent, in the last sample; None without samples.
    total_sent: list[int | None]
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)
    #: By queue, the number of messages that any client sent; None when it is unknown.
    sent: list[int | None] = field(default_factory=list)


def moment_calls(
    namespace: str, names: Sequence[str], window: Window, *, task: str | None = None
) -> dict[int, Call[Moment]]:
    """Return a call for each span of a window and for the span before it, by begin, for up to 300 queues.

    With a task, only its attempts are counted.
    """
    _check_number(names, "side by side")
    span_s, calls = window.resolution.span_s, {}
    unchanged_times = [unchanged_times_key(namespace, name) for name in names]
    for begins_s in window.spans:
        keys = (*(counters_key(namespace, name, span_s, begins_s) for name in names), *unchanged_times)
        args = (begins_s, begins_s + span_s, *(() if task is None else (task,)))
        read = partial(_read_moment, begins_s, len(names))
        calls[begins_s] = Call("stats/counters/beside", keys, args, read, repeatable=True)
    return calls


def moments(replies: Sequence[Moment | RsmqError]) -> list[Moment]:
    """Return the results of the calls without the span before the window, with the messages sent in each span."""
    read: list[Moment] = []
    for reply in replies:
        if isinstance(reply, RsmqError):
            raise reply
        read.append(reply)
    before = read[0].total_sent if read else []
    for moment in read[1:]:
        pairs = list(zip(before, moment.total_sent, strict=True))
        moment.sent = [sent_between(seen, total) for seen, total in pairs]
        before = [seen if total is None else total for seen, total in pairs]
    return read[1:]


def together_call(namespace: str, names: Sequence[str], window: Window, begins_s: int) -> Call[Moment]:
    """Return the call that reads the sums of up to 300 queues in one span of a window, as counters of one queue."""
    _check_number(names, "together")
    step_s = window.resolution.span_s
    keys = [counters_key(namespace, name, step_s, at_s) for at_s in (begins_s, begins_s - step_s) for name in names]
    keys += [unchanged_times_key(namespace, name) for name in names]

    def read(reply: list[Any]) -> Moment:
        moment = _read_moment(begins_s, 1, reply)
        moment.sent, moment.total_sent = moment.total_sent, [None]
        return moment

    return Call("stats/counters/together", tuple(keys), (begins_s, step_s), read, repeatable=True)


def recent_attempts(namespace: str, names: Sequence[str], now_s: float) -> Call[dict[str, tuple[int, int]]]:
    """Return the call that reads the numbers of recent attempts of up to 300 queues: ended ones, and failed ones.

    Recent means the current span of ten minutes and the one before it. Queues without attempts are left out.
    """
    _check_number(names, "side by side")
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


def _check_number(names: Sequence[str], how: str) -> None:
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues {how}; up to {MAX_QUEUES} can be read")


def _read_moment(begins_s: int, count: int, reply: list[Any]) -> Moment:
    end = count * _WORDS_PER_QUEUE
    totals = reply[_WORDS_PER_QUEUE - 1 : end : _WORDS_PER_QUEUE]
    queues = [_read_outcomes(reply[at : at + 6]) for at in range(0, end, _WORDS_PER_QUEUE)]
    moment = Moment(begins_s, queues, [total if total >= 0 else None for total in totals])
    for at in range(end, len(reply), 3):
        histogram = moment.wait if reply[at] == b"wait" else moment.run
        if (bucket := read_bucket(reply[at + 1])) is not None:
            histogram.counts[bucket] = read_count(reply[at + 2])
    return moment


def _read_outcomes(words: list[int]) -> Counts:
    succeeded, retried, dead, released, lost, cancelled = map(read_count, words)
    return Counts(
        succeeded=succeeded,
        retried=retried,
        dead=dead,
        released=released,
        lost=lost,
        cancelled=cancelled,
        wait=_NO_DURATIONS,
        run=_NO_DURATIONS,
    )
