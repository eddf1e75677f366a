"""The values that topics take and return: plain, frozen, and free of I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ..limits import Body

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Entry:
    """A message to be published, where a body alone does not say everything.

    Messages with the same key replace each other when the topic is compacted; an empty body with a key says that
    there is no value any more.
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
    #: How often it was handed out, this time included. Reads at most once do not count.
    deliveries: int = 1
    #: Server time in epoch milliseconds at which its time slot of 100 ms began; None where it was not asked for, or is
    #: not known any more.
    published_ms: int | None = None
    #: What proves that its reader holds this delivery of it; "" for messages that were read at most once.
    receipt: str = ""

    def text(self) -> str:
        """Return the body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Batch:
    """What one read gave. It is as long as its messages, and false without any."""

    messages: list[TopicMessage]
    #: Messages that were dropped before this group came to read them.
    skipped: int
    #: Indexes without a message: compacted, expired, or lost by another client.
    holes: int
    #: Messages that were delivered too often and went to the dead-letter topic.
    dead_lettered: int
    #: How many indexes lie ahead.
    left: int
    #: The last index of the log.
    last: int
    #: Milliseconds until something that is held is handed out again; None when nothing is.
    due_ms: int | None = None

    def __iter__(self) -> Iterator[TopicMessage]:
        """Iterate over the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.messages)


@dataclass(frozen=True, slots=True)
class Range:
    """Messages read by index."""

    messages: list[TopicMessage]
    #: The lowest index that is kept.
    first: int
    #: The last index of the log.
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a topic keeps; None means without limit. Limits hold within some hundred messages: trimming is amortised."""

    max_count: int | None = None
    max_age_s: float | None = None
    max_bytes: int | None = None
    #: Keep what a group has not read yet, whatever the limits say.
    wait_for_groups: bool = False
    #: Forget groups that were idle for so long, when the topic is swept.
    group_ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic at this moment."""

    exists: bool
    #: The lowest index that is kept, and the last index of the log. With no message first is last + 1.
    first: int
    last: int
    #: The last index that was published or noticed by this package; others may have published since.
    noted: int
    #: Server times in epoch milliseconds, within 100 ms; None when they are not known.
    oldest_ms: int | None
    newest_ms: int | None
    groups: int
    now_ms: int
    retention: Retention

    @property
    def length(self) -> int:
        """Return how many indexes are kept; holes count."""
        return max(0, self.last - self.first + 1)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group at this moment."""

    name: str
    exists: bool
    #: The last index that was handed out.
    position: int
    #: How many indexes it has not been given yet.
    lag: int
    #: Messages that were dropped before it came to read them, waiting to be noticed.
    missed: int
    #: Messages that are held and not acknowledged, and those of them that are to be handed out again.
    held: int
    due: int
    #: Totals: messages that the group missed, and those that went to the dead-letter topic.
    skipped: int
    dead_lettered: int
    live_consumers: int
    seen_ms: int | None
    #: Seconds since the next unread message was published; None when there is none or its time is not known.
    age_s: float | None


@dataclass(frozen=True, slots=True)
class SeekResult:
    """What a seek or replay did, or would do."""

    #: The next index before and after.
    before: int
    after: int
    first: int
    last: int
    live_consumers: int
    #: Messages that were held and not acknowledged.
    held: int

    @property
    def ahead(self) -> int:
        """Return how many indexes the group has ahead of it afterwards."""
        return self.last - self.after + 1
