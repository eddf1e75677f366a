"""Calls that wait for the same commit, sent together: one round trip for each thousand instead of one each.

Django forgets the hooks of a savepoint that is rolled back. So calls share a hook only when they were made one after
the other at the same savepoints, with no other hook between them: then all of them happen, or none, and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.errors import MessageTooLong, RedisFailure
from ..core.limits import MAX_BATCH
from .round_trips import Account, Outcome, Sent, joined, parted

if TYPE_CHECKING:
    from .sending import Outgoing

#: Sends batches one after the other, and yields what became of each.
Send = Callable[[Sequence["Outgoing"]], Iterator[Outcome]]
Then = Callable[[Sent], object]


class Collected:
    """Calls that wait for a commit; Django calls it when that has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[tuple[Sequence[Outgoing], Then]] = []

    def add(self, batches: Sequence[Outgoing], then: Then) -> None:
        """Take over calls, and what to do when they are sent."""
        self._waiting.append((batches, then))

    def __call__(self) -> None:
        waiting = [outgoing for batches, _ in self._waiting for outgoing in batches]
        outcomes, account = self._send_all(merged(waiting)), Account()
        for outgoing in waiting:
            account.note(outgoing, outcomes.get(id(outgoing)))
        try:
            for batches, then in self._waiting:
                sent = [outcomes.get(id(outgoing)) for outgoing in batches]
                if all(isinstance(each, Sent) for each in sent):
                    then(joined(sent))
        finally:
            account.result(waiting)

    def _send_all(self, groups: Sequence[Sequence[Outgoing]]) -> dict[int, Outcome]:
        """Send calls, and return what became of each by its identity; nothing is known of one that was not sent."""
        outcomes: dict[int, Outcome] = {}
        for group, outcome in zip(groups, self._send([_joined(group) for group in groups]), strict=True):
            if isinstance(outcome, MessageTooLong) and len(group) > 1:
                # Nothing was stored; the others must not fail with the one that is too long.
                own: Sequence[Outcome] = [next(self._send([outgoing])) for outgoing in group]
            else:
                own = parted(outcome, len(group))
            outcomes |= zip(map(id, group), own, strict=True)
            if any(isinstance(each, RedisFailure) for each in own):
                break  # the others need the same server
        return outcomes


def send_at_commit(connection: BaseDatabaseWrapper, batches: Sequence[Outgoing], then: Then, *, send: Send) -> None:
    """Send calls when the open transaction of this database commits."""
    collected = _latest_hook(connection)
    if collected is None:
        collected = Collected(send)
        transaction.on_commit(collected, using=connection.alias)
    collected.add(batches, then)


def _latest_hook(connection: BaseDatabaseWrapper) -> Collected | None:
    """Return the hook that was registered last, if it is ours and shares the fate of one registered now."""
    if not connection.run_on_commit or not connection.atomic_blocks:
        return None
    savepoints, hook, *_ = connection.run_on_commit[-1]
    # The transaction of a TestCase is never committed; its tests look at the hooks that were added meanwhile.
    is_of_test = getattr(connection.atomic_blocks[0], "_from_testcase", False)
    shares_fate = savepoints == set(connection.savepoint_ids) and not is_of_test
    return hook if shares_fate and isinstance(hook, Collected) else None


def merged(waiting: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Return what can be sent in one call each. The order within a queue stays as it is."""
    groups: list[list[Outgoing]] = []
    latest: dict[str, list[Outgoing]] = {}
    for outgoing in waiting:
        group = latest.get(outgoing.queue.name)
        if group is None or not _fits(group, outgoing):
            group = latest[outgoing.queue.name] = []
            groups.append(group)
        group.append(outgoing)
    return groups


def _fits(group: Sequence[Outgoing], outgoing: Outgoing) -> bool:
    first = group[0]
    return len(group) < MAX_BATCH and first.is_plain and outgoing.is_plain and first.task is outgoing.task


def _joined(parts: Sequence[Outgoing]) -> Outgoing:
    if len(parts) == 1:
        return parts[0]
    ids = [task_id for part in parts for task_id in part.ids]
    bodies = [body for part in parts for body in part.bodies]
    return replace(parts[0], ids=ids, written=bodies, bodies=bodies)
