"""Which attempts of the event log are wanted: the filter of a search, and the comparison with an event."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ..queue.bands import split_band
from .events import Event, EventKind
from .fingerprint import fingerprint

SUCCEEDED = EventKind.SUCCEEDED.value
FAILED = frozenset({EventKind.RETRIED.value, EventKind.DEAD.value, EventKind.DISCARDED.value, EventKind.LOST.value})

#: The event of a function that returned after its lease was lost is in the stream of successes.
_AMONG_SUCCESSES = frozenset({SUCCEEDED, EventKind.LOST.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter of attempts. Fields that are None or empty are not compared."""

    task: str | None = None
    queue: str | None = None
    #: Values of `EventKind`.
    kinds: frozenset[str] = frozenset()
    worker: str | None = None
    #: A fingerprint of core/stats/fingerprint.py: the error group.
    group: str | None = None
    tag: str | None = None
    task_id: str | None = None
    message_id: str | None = None
    #: Settled from this time on and before that one, in epoch milliseconds of the server.
    since_ms: int | None = None
    until_ms: int | None = None
    #: Each must be in an id, the error or, with `in_arguments`, the body, if that is still stored.
    words: tuple[str, ...] = ()
    in_arguments: bool = True
    in_errors: bool = True

    @property
    def is_open(self) -> bool:
        """Return whether every entry matches, so that a page needs no further entries."""
        return self == RunFilter(task=self.task, since_ms=self.since_ms, until_ms=self.until_ms)

    @property
    def may_have_succeeded(self) -> bool:
        """Return whether successes can match."""
        return not self.kinds or bool(self.kinds & _AMONG_SUCCESSES)


EVERY_RUN = RunFilter()


def fits(event: Event, wanted: RunFilter) -> bool:
    """Return whether an event matches, apart from the words of the filter."""
    at_ms = event.at_ms
    return (
        (not wanted.kinds or event.kind in wanted.kinds)
        and wanted.queue in (None, event.queue, split_band(event.queue)[0])
        and wanted.task in (None, event.task)
        and wanted.worker in (None, event.worker)
        and wanted.task_id in (None, event.task_id)
        and wanted.message_id in (None, event.message_id)
        and (wanted.tag is None or wanted.tag in event.tags)
        and (wanted.since_ms is None or at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or at_ms < wanted.until_ms)
        and (wanted.group is None or group_of(event) == wanted.group)
    )


def group_of(event: Event) -> str | None:
    """Return the fingerprint of the attempt's error; None without an error."""
    return _fingerprint(event.task, event.error_type, event.error) if event.error_type else None


_fingerprint = lru_cache(maxsize=20_000)(fingerprint)


def has_word(text: str, word: str) -> bool:
    """Return whether a word is part of a text; a number only as a whole: ids and other numbers are full of digits."""
    if not (word.isascii() and word.isdigit()):
        return word in text
    return word in text and re.search(rf"(?<![0-9a-z]){word}(?![0-9a-z])", text) is not None


def searched_text(event: Event, wanted: RunFilter) -> str:
    """Return the text of an event in which words are searched, in small letters."""
    ids = f"{event.task_id}\n{event.message_id}\n{event.error_type}"
    return (f"{ids}\n{event.error}" if wanted.in_errors else ids).lower()
