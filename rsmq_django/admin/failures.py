"""Dead letters by what went wrong: one line for all that failed in the same way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime

from ..core.limits import MAX_BATCH
from ..core.queue.browse import START, FailureRecord, Position, StoredMessage, count
from ..core.queue.listing import digest
from ..core.stats.fingerprint import fingerprint_of, pattern_of
from ..live.messages import scan_limit
from ..live.places import QueueRef
from ..live.times import as_datetime
from .formats import one_line, reason_of, visible
from .message_page import as_safe_text
from .naming import failure_name

#: Time limit of a page; the page tells how many dead letters were not read.
LOOK_S = 0.15
MAX_GROUPS = 200


@dataclass
class DeadLetterGroup:
    """Dead letters with one fingerprint."""

    fingerprint: str
    failure: FailureRecord | None
    number: int = 0
    first_ms: float = field(default=float("inf"))
    last_ms: float = 0

    def add(self, message: StoredMessage) -> None:
        """Count a dead letter. It became visible in the dead-letter queue when it died."""
        self.number += 1
        self.first_ms = min(self.first_ms, message.visible_at_ms)
        self.last_ms = max(self.last_ms, message.visible_at_ms)

    @property
    def task(self) -> str:
        """Return the task, as it is shown."""
        return visible(self.failure.task) if self.failure else ""

    @property
    def error(self) -> str:
        """Return the exception, as it is shown."""
        return visible(self.failure.error) if self.failure else ""

    @property
    def reason(self) -> str:
        """Return the word for why it was given up."""
        return reason_of(self.failure.reason) if self.failure else ""

    @property
    def pattern(self) -> str:
        """Return the exception's text without its data, for users who may see bodies."""
        return one_line(as_safe_text(pattern_of(self.failure.message)), 160) if self.failure else ""

    @property
    def name(self) -> str:
        """Return the task and the class of the exception."""
        return failure_name(self.failure)

    @property
    def first_at(self) -> datetime | None:
        """Return when the first of them died."""
        return as_datetime(self.first_ms)

    @property
    def last_at(self) -> datetime | None:
        """Return when the last of them died."""
        return as_datetime(self.last_ms)


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """The groups of a queue, the largest first, and how much was looked at."""

    groups: list[DeadLetterGroup]
    looked_at: int
    of: int

    def find(self, fingerprint: str) -> DeadLetterGroup | None:
        """Return the group of a fingerprint; None when none of its dead letters was looked at."""
        return next((group for group in self.groups if group.fingerprint == fingerprint), None)

    @property
    def is_complete(self) -> bool:
        """Return whether every dead letter was looked at."""
        return self.looked_at >= self.of


def failure_groups(place: QueueRef) -> FailureGroups:
    """Group the dead letters of a queue, as many as a page may look at."""
    client = place.client
    of = client.run(count(client.namespace, place.name)).messages
    found: dict[str, DeadLetterGroup] = {}
    looked_at, until_s = 0, time.monotonic() + LOOK_S
    after: Position | None = START
    while after is not None and looked_at < scan_limit() and time.monotonic() < until_s:
        page = client.run(digest(client.namespace, place.name, after=after, count=MAX_BATCH))
        for message in page.messages:
            failure = message.failure()
            key = fingerprint_of(failure)
            found.setdefault(key, DeadLetterGroup(key, failure)).add(message)
        looked_at += len(page.messages)
        after = page.end
    groups = sorted(found.values(), key=lambda group: -group.number)[:MAX_GROUPS]
    return FailureGroups(groups, looked_at, max(of, looked_at) if after is not None else looked_at)
