"""Moves messages to another queue, slice by slice, and counts the results: for the admin, rsmqctl and the redrive API.

Each slice is read and then moved by one script that leaves alone messages that were received meanwhile. So stopping at
any moment loses nothing and duplicates nothing; a repeat continues with the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..errors import InvalidName, InvalidValue
from ..keys import checked_name
from ..limits import MAX_BATCH
from ..transport.client import Client
from ..transport.portions import grouped, portions
from .browse import ALL, NO_BODY, START, Page, Position, StoredMessage, page, pick
from .browse import count as count_call
from .dead_letters import Filter
from .moves import MAX_SLICE, MAX_SLICE_BYTES, Verdict, move, redrive

#: Why a message was not moved: GONE and TAKEN are not errors.
GONE, TAKEN, TOO_LONG, DUPLICATE, NO_ORIGIN = "gone", "taken", "too_long", "duplicate", "no_origin"
WORDS = {
    Verdict.MISSING: GONE,
    Verdict.TAKEN: TAKEN,
    Verdict.TOO_LONG: TOO_LONG,
    Verdict.DUPLICATE: DUPLICATE,
}


@dataclass
class Tally:
    """The outcomes of moving messages so far."""

    #: Target -> number of messages moved to it.
    moved: Counter[str] = field(default_factory=Counter)
    #: Reason (one of the words above) -> messages that stayed.
    stayed: Counter[str] = field(default_factory=Counter)
    #: The ids of the moved messages, if a list is given for them.
    moved_ids: list[bytes] | None = None

    @property
    def all(self) -> int:
        """Return the number of messages with an outcome."""
        return self.moved.total() + self.stayed.total()

    def leave(self, reason: str, number: int) -> None:
        """Count messages that stayed. A reason without messages is not listed."""
        if number:
            self.stayed[reason] += number

    def note(self, target: str, messages: Sequence[StoredMessage], verdicts: Sequence[Verdict | str]) -> None:
        """Count the verdicts of one script; a text is the new id of a message that was sent again."""
        for message, verdict in zip(messages, verdicts, strict=True):
            if isinstance(verdict, str) or verdict is Verdict.DONE:
                self.moved[target] += 1
                if self.moved_ids is not None:
                    self.moved_ids.append(message.position.message_id)
            else:
                self.stayed[WORDS[verdict]] += 1


@dataclass
class Transfer:
    """A move or redrive of messages of one queue: filter, rate, and results so far."""

    client: Client
    source: str
    #: Only messages with these ids; () means all that match.
    ids: Sequence[str] = ()
    chosen: Filter = Filter()
    #: Whether delayed messages and messages in flight are included.
    with_hidden: bool = False
    limit: int | None = None
    #: Messages per second; None means as fast as possible.
    rate: float | None = None
    with_failures: bool = False
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidValue(f"limit is {self.limit!r}; it must be a number of messages from 0")
        if self.rate is not None and not self.rate > 0:
            raise InvalidValue(f"rate is {self.rate!r}; it must be a number of messages per second above 0")

    @property
    def moved(self) -> Counter[str]:
        """Return how many messages went to each target."""
        return self.tally.moved

    @property
    def stayed(self) -> Counter[str]:
        """Return how many messages stayed, by reason."""
        return self.tally.stayed

    def expected(self) -> int | None:
        """Return the number of messages to move, for the progress bar; None when each would have to be checked."""
        if not self.chosen.is_empty:
            return self.limit
        counts = self.client.run(count_call(self.client.namespace, self.source))
        there = len(self.ids) or (counts.messages if self.with_hidden else counts.ready)
        return there if self.limit is None else min(there, self.limit)

    def candidates(self) -> Iterator[list[StoredMessage]]:
        """Yield the matching messages, page by page, up to the limit."""
        left = self.limit
        for messages in self._picked() if self.ids else self._scanned():
            fitting = [message for message in messages if self.chosen.fits(message)][:left]
            yield fitting
            left = None if left is None else left - len(fitting)
            if left == 0:
                return

    def _picked(self) -> Iterator[list[StoredMessage]]:
        for at in range(0, len(self.ids), MAX_SLICE):
            part = self.ids[at : at + MAX_SLICE]
            found = self.client.run(pick(self.client.namespace, self.source, part, body_bytes=NO_BODY)).messages
            self.tally.leave(GONE, len(part) - len(found))
            yield found

    def _scanned(self) -> Iterator[list[StoredMessage]]:
        # Later messages are not moved: a queue that fills as fast as it is emptied would never end.
        counts = self.client.run(count_call(self.client.namespace, self.source))
        left = counts.messages if self.with_hidden else counts.ready
        until_ms = ALL if self.with_hidden else counts.now_ms
        for part in pages(self.client, self.source, until_ms=until_ms, with_failures=self.with_failures):
            older = [message for message in part.messages if (message.sent_ms or 0) < counts.now_ms + 1]
            yield older[:left]
            left -= len(older)
            if left <= 0:
                return

    def slices(self) -> Iterator[list[StoredMessage]]:
        """Yield the matching messages in slices for one script each, at the given rate."""
        # With a rate, about ten slices a second, so that consumers get no bursts.
        most = MAX_SLICE if self.rate is None else max(1, min(MAX_SLICE, int(self.rate / 10)))
        began_s, taken = time.monotonic(), 0
        for messages in self.candidates():
            for part in cut(messages, most):
                if self.rate is not None:
                    time.sleep(max(0.0, began_s + taken / self.rate - time.monotonic()))
                yield part
                taken += len(part)


def cut(messages: Sequence[StoredMessage], most: int = MAX_SLICE) -> Iterator[list[StoredMessage]]:
    """Yield slices of up to `most` messages and MAX_SLICE_BYTES."""
    return portions(messages, lambda message: message.size_bytes or 0, count=most, size=MAX_SLICE_BYTES)


def pages(
    client: Client,
    name: str,
    *,
    after: Position = START,
    until_ms: float | None = ALL,
    body_bytes: int = NO_BODY,
    with_failures: bool = False,
    count: int = MAX_BATCH,
) -> Iterator[Page]:
    """Yield the pages of a queue. Only messages that move meanwhile may be missed or returned twice."""
    read = partial(page, client.namespace, name, body_bytes=body_bytes, with_failures=with_failures, count=count)
    while (part := client.run(read(after=after, until_ms=until_ms))).end is not None:
        yield part
        after = part.end


# -- Moving and redriving ---------------------------------------------------------------------------------------------


def move_messages(client: Client, source: str, messages: Sequence[StoredMessage], tally: Tally, *, target: str) -> None:
    """Move messages to `target` as they are."""
    for part in cut(messages):
        tally.note(target, part, client.run(move(client.namespace, source, target, part)))


def redrive_messages(
    client: Client, source: str, messages: Sequence[StoredMessage], tally: Tally, *, target: str | None = None
) -> None:
    """Send dead letters to `target`, or each to its original queue."""
    groups, homeless = by_target(source, messages, target)
    tally.leave(NO_ORIGIN, len(homeless))
    for home, group in groups.items():
        for part in cut(group):
            tally.note(home, part, client.run(redrive(client.namespace, source, home, part)))


def redrive_slice(transfer: Transfer, part: Sequence[StoredMessage], target: str | None) -> None:
    """Send the dead letters of one slice to `target`, or each to its original queue."""
    redrive_messages(transfer.client, transfer.source, part, transfer.tally, target=target)


def preview(transfer: Transfer, *, to: str | None = None) -> Counter[tuple[str, str, str, str]]:
    """Return how many messages a redrive would send, by target, task, reason and exception."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for part in transfer.candidates():
        groups, homeless = by_target(transfer.source, part, to)
        transfer.tally.leave(NO_ORIGIN, len(homeless))
        for home, messages in groups.items():
            found.update((home, *_kind(message)) for message in messages)
    return found


def by_target(
    source: str, messages: Sequence[StoredMessage], target: str | None = None
) -> tuple[dict[str, list[StoredMessage]], list[StoredMessage]]:
    """Return dead letters grouped by target, and the dead letters without a target."""
    groups = grouped(messages, lambda message: target or origin_of(message) or source)
    homeless = groups.pop(source, [])
    return groups, homeless


def origin_of(message: StoredMessage) -> str | None:
    """Return the original queue of a dead letter, if its record has one."""
    failure = message.failure()
    try:
        return checked_name(failure.queue) if failure else None
    except InvalidName:
        return None


def _kind(message: StoredMessage) -> tuple[str, str, str]:
    failure = message.failure()
    return (failure.task, failure.reason, failure.error) if failure else ("", "", "")
