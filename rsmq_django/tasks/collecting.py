"""Sends the calls of one transaction together at its commit: one round trip per thousand instead of one each.

Django drops the hooks of a savepoint that is rolled back. So calls share a hook only when they were made one after the
other at the same savepoints, with no other hook between them: then all of them happen, or none, and in order.

The transaction is already committed when they are sent, and other hooks may follow. So unsent calls are logged with
their task ids, and no error is raised; Django logs errors of signal receivers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from ..core import Client, RsmqError
from ..core.errors import MessageTooLong, NotConfirmed, OutcomeUnknown, PartlyDone, RedisFailure
from ..core.limits import MAX_BATCH, MAX_TRIP_BYTES
from ..core.log_lines import get_logger
from .outgoing import Outgoing
from .round_trips import Account, Outcome, Sent, joined, parted

logger = get_logger(__name__)

#: Sends batches one after the other, and yields the outcome of each.
Send = Callable[[Sequence[Outgoing]], Iterator[Outcome]]
Then = Callable[[Sent], object]
#: A failure that took this part of TIMEOUT_S is a timeout; clocks and waits are not exact.
ABOUT_TIMEOUT = 0.9
#: Maximum number of ids of lost calls in a log line.
IDS_LOGGED = 20


class AfterCommit:
    """A hook of the commit that logs unsent calls instead of raising, so that the following hooks are called."""

    def __init__(self, do: Callable[[], Any], what: str) -> None:
        self._do, self._what = do, what
        self.__qualname__ = what  # Django uses it in its log line when the hook raises another error

    def __call__(self) -> None:
        """Call the hook, and log an error of Redis."""
        try:
            self._do()
        except RsmqError as error:
            log_lost(self._what, error)


def log_lost(what: str, error: RsmqError) -> None:
    """Log that calls of a committed transaction were not sent, or are not confirmed."""
    if isinstance(error, NotConfirmed):
        sent = f"{what} was sent: "
        text = str(error).rstrip(".").removeprefix(sent)
        logger.error("the transaction is committed, and %s%s", sent, text, exc_info=error)
        return
    is_certain = not isinstance(error, OutcomeUnknown) or (isinstance(error, PartlyDone) and not error.unknown)
    text = str(error)
    logger.error(
        "the transaction is committed, but %s %s: %s It is not sent again. Calls for a queue with OUTBOX are stored "
        "in the transaction itself and cannot be lost like this",
        what,
        "was not sent" if is_certain else "may not have been sent",
        text if text.endswith((".", "?")) else f"{text}.",
        exc_info=error,
    )


class Collected:
    """Calls to send at the commit; Django calls the object then."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.__qualname__ = "enqueue()"
        self._waiting: list[tuple[Sequence[Outgoing], Then]] = []

    def add(self, batches: Sequence[Outgoing], then: Then) -> None:
        """Add calls, and the callback for when they are sent."""
        self._waiting.append((batches, then))

    def __call__(self) -> None:
        """Send the calls, and log those that could not be sent."""
        waiting = [outgoing for batches, _ in self._waiting for outgoing in batches]
        try:
            outcomes = self._send_all(merged(waiting))
        except Exception:  # Django logs it, but knows no ids
            logger.error("the transaction is committed, but %s may not have been sent", _described(waiting))
            raise
        unsent = [outgoing for outgoing in waiting if not isinstance(outcomes.get(id(outgoing)), Sent)]
        if unsent:
            log_lost(_described(unsent), _error_of(waiting, outcomes))
        self._tell(outcomes)

    def _tell(self, outcomes: Mapping[int, Outcome]) -> None:
        """Run the callbacks of sent calls; an error, of a signal's receiver, is raised at the end."""
        errors: list[Exception] = []
        for batches, then in self._waiting:
            sent = [outcome for outgoing in batches if isinstance(outcome := outcomes.get(id(outgoing)), Sent)]
            if len(sent) == len(batches):
                try:
                    then(joined(sent))
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _send_all(self, groups: Sequence[Sequence[Outgoing]]) -> dict[int, Outcome]:
        """Send calls, and return the outcome of each by its identity; unsent calls have none."""
        outcomes: dict[int, Outcome] = {}
        while groups:
            groups = self._send_until_a_server_fails(groups, outcomes)
        return outcomes

    def _send_until_a_server_fails(
        self, groups: Sequence[Sequence[Outgoing]], outcomes: dict[int, Outcome]
    ) -> Sequence[Sequence[Outgoing]]:
        """Send calls and note their outcomes. Returns the remaining calls: those for other servers."""
        began_at = time.monotonic()
        for number, outcome in enumerate(self._send([_joined(group) for group in groups])):
            group, took_s, began_at = groups[number], time.monotonic() - began_at, time.monotonic()
            if isinstance(outcome, MessageTooLong) and len(group) > 1:
                # Nothing was stored; the others must not fail because of a call that is too long.
                own: Sequence[Outcome] = [next(self._send([outgoing])) for outgoing in group]
            else:
                own = parted(outcome, len(group))
            outcomes |= zip(map(id, group), own, strict=True)
            if any(isinstance(each, RedisFailure) and not isinstance(each, NotConfirmed) for each in own):
                # The request has waited long enough for this server.
                return _for_others(group[0].queue.client, groups[number + 1 :], took_s)
        return []


def _for_others(failed: Client, groups: Sequence[Sequence[Outgoing]], took_s: float) -> list[Sequence[Outgoing]]:
    """Return the calls for other clients than a failed one; after a timeout for other servers, which shards share."""
    connection = failed.connection
    if took_s < connection.timeout_s * ABOUT_TIMEOUT:
        return [each for each in groups if each[0].queue.client is not failed]
    return [each for each in groups if not connection.shares_server_with(each[0].queue.client.connection)]


def _error_of(waiting: Sequence[Outgoing], outcomes: Mapping[int, Outcome]) -> RsmqError:
    """Return the error for all calls of which some were not sent."""
    account = Account()
    for outgoing in waiting:
        account.note(outgoing, outcomes.get(id(outgoing)))
    return account.error_of(waiting)


def _described(outgoings: Sequence[Outgoing]) -> str:
    """Return a description of calls for a log line: their number, their tasks, and the ids of the first ones."""
    paths = sorted({outgoing.route.path for outgoing in outgoings})
    ids = [task_id for outgoing in outgoings for task_id in outgoing.ids]
    more = f" and {len(ids) - IDS_LOGGED} more" if len(ids) > IDS_LOGGED else ""
    count = "a call" if len(ids) == 1 else f"each of {len(ids)} calls"
    return f"{count} of {', '.join(paths)} ({', '.join(ids[:IDS_LOGGED])}{more})"


def send_at_commit(connection: BaseDatabaseWrapper, batches: Sequence[Outgoing], then: Then, *, send: Send) -> None:
    """Send calls when the open transaction of this database commits."""
    collected = _latest_hook(connection)
    if collected is None:
        collected = Collected(send)
        connection.on_commit(collected, robust=True)
    collected.add(batches, then)


def _latest_hook(connection: BaseDatabaseWrapper) -> Collected | None:
    """Return the last registered hook if it is ours, and is rolled back exactly when a new one would be."""
    if not connection.run_on_commit or not connection.atomic_blocks:
        return None
    savepoints, hook, *_ = connection.run_on_commit[-1]
    # The transaction of a TestCase is never committed; its tests look at the hooks that were added meanwhile.
    is_of_test = getattr(connection.atomic_blocks[0], "_from_testcase", False)
    shares_fate = savepoints == set(connection.savepoint_ids) and not is_of_test
    return hook if shares_fate and isinstance(hook, Collected) else None


def merged(waiting: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Return calls merged into as few batches as possible. The order within a queue stays as it is."""
    groups: list[list[Outgoing]] = []
    latest: dict[int, list[Outgoing]] = {}
    sizes: dict[int, int] = {}
    for outgoing in waiting:
        queue, size = id(outgoing.route.queue), outgoing.size_bytes  # shards of a queue have the same name
        group = latest.get(queue)
        if group is None or not _fits(group, outgoing) or sizes[queue] + size > MAX_TRIP_BYTES:
            group, sizes[queue] = [], 0
            latest[queue] = group
            groups.append(group)
        group.append(outgoing)
        sizes[queue] += size
    return groups


def _fits(group: Sequence[Outgoing], outgoing: Outgoing) -> bool:
    first = group[0]
    is_alike = outgoing.route is first.route and outgoing.is_plain
    return is_alike and len(group) < MAX_BATCH and (len(group) > 1 or first.is_plain)


def _joined(parts: Sequence[Outgoing]) -> Outgoing:
    if len(parts) == 1:
        return parts[0]
    ids = [task_id for part in parts for task_id in part.ids]
    bodies = [body for part in parts for body in part.bodies]
    return replace(parts[0], ids=ids, written=bodies, bodies=bodies)
