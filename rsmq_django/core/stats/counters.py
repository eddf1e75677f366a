"""Counters of attempt outcomes per queue, task and span of time: writing. `history.py` reads them.

Workers count in memory and report once a second; there is never a call per task. A queue has one hash per span of
time in three resolutions, and one of all time:

    {ns}::stats:{queue}:{span_s}:{begins_s}    {ns}::stats:{queue}:total

Fields: `succeeded:{task}` and the other COUNTERS; `wait:{bucket}:{task}` and `run:{bucket}:{task}` as histogram.py has
them, with their sums in `wait_us:{task}` and `run_us:{task}`; `=ready` and similar fields are samples of the queue's
depth; `@{worker}` is the number of the last report of a worker.

A queue that stays empty has no samples, as there may be thousands of them, nor has one whose messages stay ready, such
as dead letters. These times are in `{ns}::stats:{queue}:unchanged`: "begin sent received" -> end, with the totals of
that time; with messages "begin sent received messages first" -> end, with the time when the first one became visible
(ms).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from ..keys import counters_key, queue_keys, sampling_key, totals_key, unchanged_times_key
from ..transport.call import Argument, Call
from .spans import RESOLUTIONS, ttls

__all__ = ["MOST_FIELDS", "claim_samples", "report", "sample"]

#: How long totals of a queue without a worker are kept.
KEEP_TOTALS_S = 32 * 86_400
#: Maximum number of counters in one report: each is raised in four hashes.
MOST_FIELDS = 250


def report(
    namespace: str, queue: str, *, reporter: str, number: int, at_s: float, grown: Mapping[str, int]
) -> Call[bool]:
    """Return the call that adds at most 250 counters, by field, to those of the spans that contain `at_s`.

    `number` has to grow from report to report of the same reporter: a repeated report is not added again.
    """
    args: list[Argument] = [f"@{reporter}", number, *ttls(), KEEP_TOTALS_S]
    for name, by in grown.items():
        args += (name, by)
    keys = (*_keys_at(namespace, queue, at_s), totals_key(namespace, queue))
    return Call("stats/counters/add", keys, tuple(args), bool, True, queue)


def sample(namespace: str, queue: str, *, at_s: float) -> Call[bool]:
    """Return the call that records the current depth of a queue."""
    own, hour = queue_keys(namespace, queue), RESOLUTIONS[-1]
    hour_s = hour.begin_of(at_s)
    before = counters_key(namespace, queue, hour.span_s, hour_s - hour.span_s)
    times = unchanged_times_key(namespace, queue)
    keys = (own.messages, own.settings, times, before, *_keys_at(namespace, queue, at_s))
    return Call("stats/counters/sample", keys, (int(at_s), hour_s, *ttls()), bool, True, queue)


def claim_samples(namespace: str, queues: Sequence[str], *, for_ms: int) -> Call[bool]:
    """Return the call by which one of several supervisors of the same queues samples them for that time."""
    digest = hashlib.sha256("\n".join(queues).encode()).hexdigest()[:16]
    return Call("SET", (sampling_key(namespace, digest),), (1, "NX", "PX", for_ms), bool, True)


def _keys_at(namespace: str, queue: str, at_s: float) -> list[str]:
    return [counters_key(namespace, queue, each.span_s, each.begin_of(at_s)) for each in RESOLUTIONS]
