"""The values that topics accept and return: plain, frozen, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ..limits import Body
from ..stats.depth import Depth

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to publish, with optional key and headers.

    Compaction keeps the newest message of each key; an empty body with a key is a tombstone, which marks the value as
    deleted.
    """

    body: Body
    key: str | None = None
    headers: Mapping[str, str] | None = None


class TopicMessage(NamedTuple):
    """One message of a topic. A tuple, because a batch makes a hundred thousand of them in a second."""

    index: int  # type: ignore[assignment]  # hides tuple.index(), which has no use here
    body: bytes
    key: str | None = None
    headers: Mapping[str, str] = NO_HEADERS
    #: Number of deliveries, including this one. At-most-once reads are not counted.
    deliveries: int = 1
    #: Server time in epoch milliseconds of the start of its time slot of 100 ms; None if not requested or no longer
    #: known.
    published_ms: int | None = None
    #: Receipt of this delivery; "" for messages read at most once.
    receipt: str = ""
    #: Number of deliveries that were released unused, which do not count towards the most deliveries.
    released: int = 0

    @property
    def attempt(self) -> int:
        """Return the number of this attempt: deliveries that were released unused do not count."""
        return self.deliveries - self.released

    def text(self) -> str:
        """Return the body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """The result of a read. Its length is the number of messages; it is false without messages."""

    messages: list[TopicMessage]
    #: Messages that were dropped before this group read them, or acknowledged them.
    skipped: int
    #: Indexes without a message: compacted, expired, or lost by another client.
    holes: int
    #: Messages that exceeded the maximum number of deliveries and moved to the dead-letter topic.
    dead_lettered: int
    #: Lag: number of unread indexes.
    left: int
    #: The last index of the log.
    last: int
    #: Milliseconds until the next redelivery of a message in flight; None without one.
    due_ms: int | None = None

    def __iter__(self) -> Iterator[TopicMessage]:
        """Iterate over the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.messages)


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Messages read by index."""

    messages: list[TopicMessage]
    #: The lowest stored index.
    first: int
    #: The last index of the log.
    last: int
    #: The size of each whole body in bytes; only of a read with `body_bytes`.
    sizes: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention of a topic; None means no limit. A topic may exceed the limits by some hundred messages."""

    max_count: int | None = None
    max_age_s: float | None = None
    max_bytes: int | None = None
    #: Keep messages that a group has not read yet, regardless of the limits.
    wait_for_groups: bool = False
    #: Idle time after which a sweep of the topic deletes groups.
    group_ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic at this moment."""

    exists: bool
    #: The lowest stored index, and the last index of the log. Without messages, first is last + 1.
    first: int
    last: int
    #: The last index published or observed by this package; other clients may have published since.
    noted: int
    #: Server times in epoch milliseconds, within 100 ms; None if unknown.
    oldest_ms: int | None
    newest_ms: int | None
    groups: int
    now_ms: int
    retention: Retention

    @property
    def length(self) -> int:
        """Return the number of stored indexes, including gaps."""
        return max(0, self.last - self.first + 1)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group at this moment."""

    name: str
    exists: bool
    #: The last delivered index.
    position: int
    #: Lag: number of unread indexes.
    lag: int
    #: Messages that were dropped unread, which the next read reports.
    missed: int
    #: Unacknowledged messages that are due for redelivery.
    due: int
    #: Ready are unread messages and those that are due; dead are all that were moved to the dead-letter topic. The age
    #: is that of the next unread message.
    depth: Depth
    #: Total of messages that the group skipped.
    skipped: int
    live_consumers: int
    seen_ms: int | None

    @property
    def held(self) -> int:
        """Return the number of unacknowledged messages."""
        return self.depth.hidden + self.due


@dataclass(frozen=True, slots=True)
class SeekResult:
    """The result of a seek or replay, or of its dry run."""

    #: The next index before and after.
    before: int
    after: int
    first: int
    last: int
    live_consumers: int
    #: Messages in flight.
    held: int

    @property
    def ahead(self) -> int:
        """Return the lag of the group afterwards."""
        return self.last - self.after + 1
