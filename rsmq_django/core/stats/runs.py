"""Search of attempts in the event log, newest first, with filters.

Events are in the log; in the mode "recent", successes are in one short stream for each task (core/stats/events.py).
This module merges them. It never requests more than a thousand entries at a time, so other clients wait for a
millisecond; a page reads a bounded number of entries, and reports how far back it has searched.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import redis

from ..errors import InvalidValue
from ..keys import events_key, queue_keys, result_key, successes_key, successful_tasks_key
from ..limits import MAX_BATCH
from ..queue.bands import split_band
from ..transport.call import Argument, Call
from ..transport.client import Client, as_our_error
from ..transport.connection import Command
from .events import VALUES, Event, EventKind, read_event
from .fingerprint import fingerprint

__all__ = ["RunFilter", "RunPage", "Tail", "attempts_of", "find_runs", "read_run"]

#: Maximum number of entries that are read for one page: 20 ms of the server's time, and 100 ms of this process.
MOST_LOOKED_AT = 60_000
#: Maximum number of tasks with a stream of their last successes; a new one replaces the one that was added first.
MOST_TASKS = 400
#: Cost of parsing an event, of finding its error group, and of searching its arguments, in read entries.
_EVENT_COST, _GROUP_COST, _BODY_COST = 5, 15, 12
_ENTRY_ID = re.compile(r"[0-9]{1,18}-[0-9]{1,18}", re.ASCII)
#: How many streams are read in one round trip, and how many bodies searched by one script.
_STREAMS_AT_ONCE, _BODIES_AT_ONCE = 100, 250

SUCCEEDED = EventKind.SUCCEEDED.value
FAILED = frozenset({EventKind.RETRIED.value, EventKind.DEAD.value, EventKind.DISCARDED.value, EventKind.LOST.value})

#: The event of a function that returned after its lease was lost is in the stream of successes.
_AMONG_SUCCESSES = frozenset({SUCCEEDED, EventKind.LOST.value})

#: An entry as the server returns it: its id, and fields and values in turn.
Entry = tuple[bytes, Sequence[bytes]]
#: Returns the queue that dead letters of a queue go to, for searches in their arguments.
DeadLettersOf = Callable[[Event], str | None]


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


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of attempts, newest first."""

    runs: list[Event]
    #: `before` of the next page; None on the last page.
    older: str | None
    #: Number of entries that were read.
    looked_at: int
    #: Whether the search ended before the page was full: older entries may match.
    is_cut: bool = False

    @property
    def looked_back_to_ms(self) -> int | None:
        """Return the time back to which all entries were read; None for the whole log."""
        return None if self.older is None else int(self.older.partition("-")[0])


# -- Pages ------------------------------------------------------------------------------------------------------------


def find_runs(
    client: Client,
    wanted: RunFilter = RunFilter(),
    *,
    before: str = "+",
    count: int = 50,
    most_looked_at: int = MOST_LOOKED_AT,
    dead_letters_of: DeadLettersOf = lambda event: None,
) -> RunPage:
    """Return up to `count` matching attempts, newest first; `before` is the `older` of the previous page.

    A page is longer when several attempts in different streams have the entry id of its last one.
    """
    look = _Look(client, wanted, before, dead_letters_of)
    apart, found = _newest_first(look.successes(count)), list[Event]()
    ages = [_age(event.entry_id) for event in apart]
    horizon: str | None = "+"  # all newer entries were read
    while horizon is not None and (horizon == "+" or look.cost < most_looked_at):
        if len(found) + bisect_right(ages, _age(horizon)) > count:
            break
        more, horizon = look.next_slice(count)
        found += more
    found += apart if horizon is None else apart[: bisect_right(ages, _age(horizon))]
    found = _newest_first(found)
    runs = found[:count]
    runs += takewhile(lambda event: event.entry_id == runs[-1].entry_id, found[count:])
    if len(found) > len(runs):
        return RunPage(runs, runs[-1].entry_id, look.looked_at)
    return RunPage(runs, horizon, look.looked_at, is_cut=horizon is not None)


def read_run(client: Client, entry_id: str, *, task: str = "", message_id: str = "") -> Event | None:
    """Return the attempt whose event has this id, or None.

    Different streams may have an entry of the same id: task and message id select one; without a task, all streams are
    searched. Raises InvalidValue for an id that no event can have.
    """
    if not _ENTRY_ID.fullmatch(entry_id):
        raise InvalidValue(f"{entry_id!r} is not the id of an event; it looks like 1795000000000-0")
    keys = [events_key(client.namespace), *_success_keys(client, task or None)]
    for each in _in_keys(client, keys, entry_id):
        if task in ("", each.task) and message_id in ("", each.message_id):
            return each
    return None


def attempts_of(client: Client, run: Event, *, most_looked_at: int = MOST_LOOKED_AT) -> RunPage:
    """Return all attempts of the same call, newest first, including this one."""
    about = RunFilter(task_id=run.task_id) if run.task_id else RunFilter(message_id=run.message_id, queue=run.queue)
    # A server's clock may have been set back a little since.
    since_ms = None if run.enqueued_ms is None else max(0, run.enqueued_ms - 60_000)
    wanted = replace(about, since_ms=since_ms, task=None if not run.task else run.task)
    return find_runs(client, wanted, count=MAX_BATCH, most_looked_at=most_looked_at)


class Tail:
    """Follows attempts as they end: each call of `more()` returns the new ones, in order."""

    def __init__(self, client: Client, wanted: RunFilter = RunFilter()) -> None:
        self._client = client
        self._look = _Look(client, wanted, "+", lambda event: None)
        self._wanted = wanted
        #: Stream -> id of its last known entry. A stream that is not in it has been created since.
        self._known: dict[str, str] = {}
        keys = self._keys()
        for key, found in zip(keys, _all(client, [_newest(key, "+", 1) for key in keys]), strict=True):
            self._known[key] = found[0][0].decode() if found else "-"

    def more(self) -> list[Event]:
        """Return the attempts that have ended since the last call, up to a thousand of each stream."""
        keys = self._keys()
        events: list[Event] = []
        firsts = [f"({self._known[key]}" if self._known.get(key, "-") != "-" else "-" for key in keys]
        commands = [("XRANGE", key, first, "+", "COUNT", MAX_BATCH) for key, first in zip(keys, firsts, strict=True)]
        for key, found in zip(keys, _all(self._client, commands), strict=True):
            if found:
                self._known[key] = found[-1][0].decode()
                events += self._look.fitting(found)
        return sorted(events, key=lambda event: _number(event.entry_id))

    def _keys(self) -> list[str]:
        wanted = self._wanted
        keys = _success_keys(self._client, wanted.task) if wanted.may_have_succeeded else []
        return [events_key(self._client.namespace), *keys]


# -- Searching --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look:
    """One search of the log: its position and its cost so far."""

    client: Client
    wanted: RunFilter
    before: str
    dead_letters_of: DeadLettersOf
    looked_at: int = 0
    cost: int = 0
    _at: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._at = self.before
        until_ms = self.wanted.until_ms
        if until_ms is not None and (self.before == "+" or _number(self.before)[0] >= until_ms):
            self._at = f"{max(until_ms, 1)}-0"
        if self._at == "0-0":
            self._at = "0-1"  # no entry is before 0-0

    def successes(self, count: int) -> list[Event]:
        """Return successes from the streams of tasks: no more than a page of `count` needs."""
        if not self.wanted.may_have_succeeded:
            return []
        found: list[Entry] = []
        keys, is_open = _success_keys(self.client, self.wanted.task), self.wanted.is_open
        each = min(count + 1, MAX_BATCH) if is_open else MAX_BATCH
        for at in range(0, len(keys), _STREAMS_AT_ONCE):
            for entries in _all(self.client, [self._call(key, each) for key in keys[at : at + _STREAMS_AT_ONCE]]):
                found += entries
        if is_open and len(found) > count:  # all match: only the entries that can be on the page are read
            found.sort(key=lambda entry: _age(entry[0].decode("ascii")))
            last = found[count][0]
            found = [*found[:count], *takewhile(lambda entry: entry[0] == last, found[count:])]
        return self.fitting(found)

    def next_slice(self, count: int) -> tuple[list[Event], str | None]:
        """Return the matches in the next slice of the log, and the id of its last entry; None at the end of the log."""
        is_plain = self.wanted.is_open and self.wanted.task is None
        size = min(count + 1, MAX_BATCH) if is_plain else MAX_BATCH
        entries = _all(self.client, [self._call(events_key(self.client.namespace), size)])[0]
        found = self.fitting(entries)
        if len(entries) < size:
            return found, None
        self._at = entries[-1][0].decode()
        return found, self._at

    def _call(self, key: str, count: int) -> Command:
        last = self._at if self._at == "+" else f"({self._at}"
        first = "-" if self.wanted.since_ms is None else str(max(0, self.wanted.since_ms))
        return _newest(key, last, count, first)

    def fitting(self, entries: Sequence[Entry]) -> list[Event]:
        """Return the attempts of these entries that match."""
        self.looked_at += len(entries)
        self.cost += len(entries)
        wanted, hints, may_lack = self.wanted, self._hints(), self._lacks_a_word()
        events, kinds = [], {kind.encode() for kind in wanted.kinds}
        for entry_id, words in entries:
            # Parsing an entry takes ten times as long as these checks.
            text = words[1] if len(words) == 2 else b"\n".join(words)
            if any(hint not in text for hint in hints) or (may_lack and may_lack(text)):
                continue
            if kinds and words[0] == VALUES and words[1].partition(b"\n")[0] not in kinds:
                continue
            if wanted.group is not None and text.endswith(b"\n\n"):  # no error
                continue
            event = read_event(entry_id.decode("ascii"), words)
            self.cost += _EVENT_COST if wanted.group is None else _GROUP_COST
            if _fits(event, wanted):
                events.append(event)
        return events if not wanted.words else self._with_words(events)

    def _hints(self) -> list[bytes]:
        wanted = self.wanted
        asked = [wanted.queue, wanted.task, wanted.worker, wanted.tag, wanted.task_id, wanted.message_id]
        if len(wanted.kinds) == 1:
            asked += wanted.kinds
        return [word.encode("utf-8", "surrogateescape") for word in asked if word is not None]

    def _lacks_a_word(self) -> Callable[[bytes], bool] | None:
        """Return a test for entries that cannot have all words, if only entries are searched."""
        words = [word.lower().encode("utf-8", "surrogateescape") for word in self.wanted.words]
        if not words or self.wanted.in_arguments or not all(word.isascii() for word in words):
            return None
        return lambda text: any(word not in text.lower() for word in words)

    def _with_words(self, events: Sequence[Event]) -> list[Event]:
        """Return the attempts in which every word is found, in any case."""
        words, missing = [word.lower() for word in self.wanted.words], dict[int, set[int]]()
        for at, event in enumerate(events):
            text = _text_of(event, self.wanted)
            missing[at] = {number for number, word in enumerate(words, 1) if not _has_word(text, word)}
        unsure = [at for at in missing if missing[at]] if self.wanted.in_arguments else []
        while unsure:
            found = self.client.run(self._search(words, [events[at] for at in unsure[:_BODIES_AT_ONCE]]))
            self.cost += _BODY_COST * len(found)
            for at, there in zip(unsure, found, strict=False):
                missing[at] -= there
            unsure = unsure[len(found) :]
        return [events[at] for at in missing if not missing[at]]

    def _search(self, words: Sequence[str], events: Sequence[Event]) -> Call[list[set[int]]]:
        namespace, keys = self.client.namespace, list[str]()
        for event in events:
            own = queue_keys(namespace, event.queue).settings
            dead = self.dead_letters_of(event)
            keys += (result_key(namespace, event.task_id), own, queue_keys(namespace, dead).settings if dead else own)
        encoded: list[Argument] = [word.encode("utf-8", "surrogateescape") for word in words]
        args: tuple[Argument, ...] = (
            len(words),
            *encoded,
            *(event.message_id.encode("utf-8", "surrogateescape") for event in events),
        )
        return Call("stats/events/has_words", tuple(keys), args, _read_numbers, True)


def _fits(event: Event, wanted: RunFilter) -> bool:
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


def _has_word(text: str, word: str) -> bool:
    """Return whether a word is part of a text; a number only as a whole: ids and other numbers are full of digits."""
    if not (word.isascii() and word.isdigit()):
        return word in text
    return word in text and re.search(rf"(?<![0-9a-z]){word}(?![0-9a-z])", text) is not None


def _text_of(event: Event, wanted: RunFilter) -> str:
    ids = f"{event.task_id}\n{event.message_id}\n{event.error_type}"
    return (f"{ids}\n{event.error}" if wanted.in_errors else ids).lower()


# -- Replies ----------------------------------------------------------------------------------------------------------


def _success_keys(client: Client, task: str | None) -> list[str]:
    if task is not None:
        return [successes_key(client.namespace, task)] if task else []
    tasks = Call("ZREVRANGE", (successful_tasks_key(client.namespace),), (0, MOST_TASKS - 1), _read_tasks, True)
    return [successes_key(client.namespace, each) for each in client.run(tasks)]


def _in_keys(client: Client, keys: Sequence[str], entry_id: str) -> Iterator[Event]:
    for entries in _all(client, [_newest(key, entry_id, 1, entry_id) for key in keys]):
        yield from (read_event(each.decode("ascii"), words) for each, words in entries)


def _newest(key: str, last: str, count: int, first: str = "-") -> Command:
    return ("XREVRANGE", key, last, first, "COUNT", count)


def _all(client: Client, commands: Sequence[Command]) -> list[list[Entry]]:
    """Return the replies to plain commands. A script with the same reply would take ten times as long."""
    return [_entries(command, reply) for command, reply in zip(commands, client.ask(commands), strict=True)]


def _entries(command: Command, reply: Any) -> list[Entry]:
    if isinstance(reply, redis.RedisError):
        raise as_our_error(Call(str(command[0]), (str(command[1]),), (), list), reply)
    return [(entry_id, words) for entry_id, words in reply]


def _read_tasks(reply: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in reply]


def _read_numbers(reply: list[bytes]) -> list[set[int]]:
    return [set(map(int, numbers.split())) for numbers in reply]


def _number(entry_id: str) -> tuple[float, int]:
    """Return an entry id as a value that can be compared; "+" is the greatest."""
    if entry_id == "+":
        return (float("inf"), 0)
    ms, _, sequence = entry_id.partition("-")
    return (int(ms), int(sequence or 0))


def _age(entry_id: str) -> tuple[float, int]:
    """Return a sort key that puts the newest entry first."""
    ms, sequence = _number(entry_id)
    return (-ms, -sequence)


def _newest_first(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: _age(event.entry_id))
