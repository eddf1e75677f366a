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

from ..core import RsmqError
from ..core.errors import MessageTooLong
from ..core.limits import MAX_BATCH

if TYPE_CHECKING:
    from .sending import Outgoing

#: Sends batches one after the other, and tells of each the ids of the tasks that stand for its calls, or its error.
Send = Callable[[Sequence["Outgoing"]], Iterator[list[str] | RsmqError]]
Then = Callable[[list[str]], object]


class Collected:
    """Calls that wait for a commit; Django calls it when that has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[tuple[Sequence[Outgoing], Then]] = []

    def add(self, batches: Sequence[Outgoing], then: Then) -> None:
        """Take over calls, and what to do when they are sent."""
        self._waiting.append((batches, then))

    def __call__(self) -> None:
        ids: dict[int, list[str]] = {}
        groups = merged([outgoing for batches, _ in self._waiting for outgoing in batches])
        for group, sent in zip(groups, self._send([_joined(group) for group in groups]), strict=True):
            if isinstance(sent, MessageTooLong) and len(group) > 1:
                # Nothing was stored; those before the one that is too long must not fail with it.
                for outgoing, own in zip(group, self._send_alone(group), strict=True):
                    ids[id(outgoing)] = own
            elif isinstance(sent, RsmqError):
                raise sent
            else:
                ids |= {id(outgoing): outgoing.ids for outgoing in group} if len(group) > 1 else {id(group[0]): sent}
        for batches, then in self._waiting:
            then([task_id for outgoing in batches for task_id in ids[id(outgoing)]])

    def _send_alone(self, group: Sequence[Outgoing]) -> Iterator[list[str]]:
        for outgoing in group:
            (sent,) = self._send([outgoing])
            if isinstance(sent, RsmqError):
                raise sent
            yield sent


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
