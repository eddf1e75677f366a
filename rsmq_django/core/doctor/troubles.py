"""Which queues need attention, judged from a few numbers of each.

The doctor makes its findings of it; the admin its first line, the order of its list of queues and the filter beside it.
So all of them say the same. Plain values: `service.py` and the admin read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..bands import by_queue
from ..call import Call
from ..listing import MAX_DEPTHS, QueueDepth, depths
from ..past import MAX_QUEUES, recent_attempts
from .finding import ExpectedQueue

#: A queue is failing when so many attempts have ended lately, and this share of them failed.
FAILING_LEAST, FAILING_SHARE = 10, 0.25
#: Kinds of `catalogue.py`, those that need attention first.
ORDER = ("unserved", "late", "failing", "dead-letters", "paused-backlog")


@dataclass(frozen=True, slots=True)
class Service:
    """What was read of the queues of one connection."""

    #: Of every queue that has messages.
    depths: Mapping[str, QueueDepth]
    #: Queues that live workers take messages from.
    served: Collection[str]
    paused: Collection[str]
    #: Of the last ten to twenty minutes: how many ended, and how many of them failed.
    attempts: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing about one queue."""

    #: A kind of `catalogue.py`.
    id: str
    queue: str
    #: Ready messages, dead letters or failed attempts.
    count: int
    #: Of ready messages, for how long the first has been ready.
    oldest_s: float = 0.0
    #: Of a backlog, how long its messages may be ready at most; of failed attempts, how many have ended.
    limit: float = 0.0

    @property
    def rank(self) -> int:
        """Return 0 for the kind that needs attention first."""
        return ORDER.index(self.id)


def depth_calls(namespace: str, names: Sequence[str]) -> list[Call[dict[str, QueueDepth]]]:
    """Return the calls that read the depths of queues."""
    return [depths(namespace, part) for part in _parts(names, MAX_DEPTHS)]


def attempt_calls(
    namespace: str, expected: Mapping[str, ExpectedQueue], names: Sequence[str], now_s: float
) -> list[Call[dict[str, tuple[int, int]]]]:
    """Return the calls that read the recent attempts of those queues that the caller's workers work on."""
    worked_on = [name for name in names if name in expected and expected[name].is_worked_on]
    return [recent_attempts(namespace, part, now_s) for part in _parts(worked_on, MAX_QUEUES)]


def troubles_of(expected: Mapping[str, ExpectedQueue], service: Service) -> list[Trouble]:
    """Return what is wrong with the queues of the caller, those that need attention first."""
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


def dead_letter_queues(expected: Mapping[str, ExpectedQueue]) -> set[str]:
    """Return the queues whose messages are dead letters: no worker is configured to take them."""
    targets = {queue.dead_letter for queue in expected.values() if queue.dead_letter}
    return {name for name in targets if name not in expected or not expected[name].is_worked_on}


def _about_one(name: str, queue: ExpectedQueue, parts: Sequence[QueueDepth], service: Service) -> Iterator[Trouble]:
    ready = sum(part.ready for part in parts)
    oldest_s = max((part.oldest_ready_s or 0.0 for part in parts), default=0.0)
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
) -> list[QueueDepth]:
    """Return the depths of a queue and of its bands. A queue of the settings may be called like a band of another."""
    names = [part for part in {name, *bands.get(name, ())} if part == name or part not in expected]
    return [service.depths[part] for part in names if part in service.depths]


def _parts(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[at : at + size] for at in range(0, len(names), size))
