"""Finds the queues that need attention, from a few numbers of each.

The doctor uses it for its findings; the admin for its first line, the order of its list of queues and the filter
beside it. So all of them agree. Plain values: `service.py` and the admin read them from Redis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..queue.bands import by_queue
from ..queue.listing import MAX_DEPTHS, depths
from ..stats.depth import Depth, together
from ..stats.moments import MAX_QUEUES, recent_attempts
from ..transport.call import Call
from .finding import DEFAULT_TARGET_S, ExpectedQueue

#: A queue is failing when at least this number of attempts ended lately, and at least this share of them failed.
FAILING_LEAST, FAILING_SHARE = 10, 0.25
#: Kinds of `catalogue.py`, the most urgent first.
ORDER = ("unserved", "late", "failing", "dead-letters", "paused-backlog")


@dataclass(frozen=True, slots=True)
class Service:
    """State of the queues of one connection."""

    #: Of each queue that has messages.
    depths: Mapping[str, Depth]
    #: Queues that live workers consume.
    served: Collection[str]
    paused: Collection[str]
    #: Of the last ten to twenty minutes: how many attempts ended, and how many of them failed.
    attempts: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One problem of one queue."""

    #: A kind of `catalogue.py`.
    id: str
    queue: str
    #: Ready messages, dead letters or failed attempts.
    count: int
    #: Of ready messages: how long the first has been ready.
    oldest_s: float = 0.0
    #: Of a backlog: how long its messages may be ready; of failed attempts: how many attempts have ended.
    limit: float = 0.0

    @property
    def rank(self) -> int:
        """Return the position of its kind in ORDER; 0 is the most urgent."""
        return ORDER.index(self.id)


def depth_calls(namespace: str, names: Sequence[str]) -> list[Call[dict[str, Depth]]]:
    """Return the calls that read the depths of queues."""
    return [depths(namespace, part) for part in _parts(names, MAX_DEPTHS)]


def attempt_calls(
    namespace: str, expected: Mapping[str, ExpectedQueue], names: Sequence[str], now_s: float
) -> list[Call[dict[str, tuple[int, int]]]]:
    """Return the calls that read the recent attempts of the queues that the caller's workers consume."""
    worked_on = [name for name in names if name in expected and expected[name].is_worked_on]
    return [recent_attempts(namespace, part, now_s) for part in _parts(worked_on, MAX_QUEUES)]


def troubles_of(expected: Mapping[str, ExpectedQueue], service: Service) -> list[Trouble]:
    """Return the problems of the caller's queues, the most urgent first."""
    bands = by_queue(service.depths)
    found = [
        each
        for name, queue in expected.items()
        if queue.is_worked_on
        for each in _about_one(name, queue, _depths_of(name, bands, service, expected), service)
    ]
    for name in sorted(dead_letter_queues(expected) & service.depths.keys()):
        if service.depths[name].messages > 0:
            found.append(Trouble("dead-letters", name, service.depths[name].messages))
    return sorted(found, key=lambda each: (each.rank, each.queue))


def backlogs_outside(expected: Mapping[str, ExpectedQueue], service: Service) -> list[Trouble]:
    """Return the late backlogs of queues outside the caller's settings that no live worker consumes."""
    known = {*expected, *dead_letter_queues(expected), *service.served}
    found = []
    for name, parts in sorted(by_queue(service.depths.keys() - known).items()):
        depth = together([service.depths[part] for part in parts])
        oldest_s = depth.oldest_ready_s or 0.0
        if name not in known and depth.ready and oldest_s > DEFAULT_TARGET_S:
            found.append(Trouble("not-in-settings", name, depth.ready, oldest_s))
    return found


def dead_letter_queues(expected: Mapping[str, ExpectedQueue]) -> set[str]:
    """Return the queues whose messages are dead letters: no worker is configured to consume them."""
    targets = {queue.dead_letter for queue in expected.values() if queue.dead_letter}
    return {name for name in targets if name not in expected or not expected[name].is_worked_on}


def _about_one(name: str, queue: ExpectedQueue, parts: Sequence[Depth], service: Service) -> Iterator[Trouble]:
    depth = together(parts)
    ready, oldest_s = depth.ready, depth.oldest_ready_s or 0.0
    if ready and name in service.paused:
        yield Trouble("paused-backlog", name, ready, oldest_s)
    elif ready:
        if name not in service.served:
            yield Trouble("unserved", name, ready, oldest_s)
        if oldest_s > queue.target_s:
            yield Trouble("late", name, ready, oldest_s, queue.target_s)
    ended, failed = service.attempts.get(name, (0, 0))
    if ended >= FAILING_LEAST and failed >= FAILING_SHARE * ended:
        yield Trouble("failing", name, failed, limit=ended)


def _depths_of(
    name: str, bands: Mapping[str, Sequence[str]], service: Service, expected: Mapping[str, ExpectedQueue]
) -> list[Depth]:
    """Return the depths of a queue and of its bands. A queue of the settings may have the name of a band."""
    names = [part for part in {name, *bands.get(name, ())} if part == name or part not in expected]
    return [service.depths[part] for part in names if part in service.depths]


def _parts(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[at : at + size] for at in range(0, len(names), size))
