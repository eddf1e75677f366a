"""The search for attempts in the streams of the event log: its position, its cost, and the reading of entries.

It never requests more than a thousand entries at a time, so other clients wait for a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import redis

from ..keys import events_key, queue_keys, result_key, successes_key, successful_tasks_key
from ..limits import MAX_BATCH
from ..transport.call import Argument, Call
from ..transport.client import Client, as_our_error
from ..transport.packing import Command
from .events import VALUES, Event, read_event
from .run_filter import RunFilter, fits, has_word, searched_text

#: Maximum number of tasks with a stream of their last successes; a new one replaces the one that was added first.
MOST_TASKS = 400
#: Cost of parsing an event, of finding its error group, and of searching its arguments, in read entries.
_EVENT_COST, _GROUP_COST, _BODY_COST = 5, 15, 12
#: How many streams are read in one round trip, and how many bodies searched by one script.
_STREAMS_AT_ONCE, _BODIES_AT_ONCE = 100, 250

#: An entry as the server returns it: its id, and fields and values in turn.
Entry = tuple[bytes, Sequence[bytes]]
#: Returns the queue that dead letters of a queue go to, for searches in their arguments.
DeadLettersOf = Callable[[Event], str | None]


@dataclass(slots=True)
class RunSearch:
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
        if until_ms is not None and (self.before == "+" or as_number(self.before)[0] >= until_ms):
            self._at = f"{max(until_ms, 1)}-0"
        if self._at == "0-0":
            self._at = "0-1"  # no entry is before 0-0

    def successes(self, count: int) -> list[Event]:
        """Return successes from the streams of tasks: no more than a page of `count` needs."""
        if not self.wanted.may_have_succeeded:
            return []
        found: list[Entry] = []
        keys, is_open = success_keys(self.client, self.wanted.task), self.wanted.is_open
        each = min(count + 1, MAX_BATCH) if is_open else MAX_BATCH
        for at in range(0, len(keys), _STREAMS_AT_ONCE):
            for entries in read_entries(
                self.client, [self._call(key, each) for key in keys[at : at + _STREAMS_AT_ONCE]]
            ):
                found += entries
        if is_open and len(found) > count:  # all match: only the entries that can be on the page are read
            found.sort(key=lambda entry: as_age(entry[0].decode("ascii")))
            last = found[count][0]
            found = [*found[:count], *takewhile(lambda entry: entry[0] == last, found[count:])]
        return self.fitting(found)

    def next_slice(self, count: int) -> tuple[list[Event], str | None]:
        """Return the matches in the next slice of the log, and the id of its last entry; None at the end of the log."""
        is_plain = self.wanted.is_open and self.wanted.task is None
        size = min(count + 1, MAX_BATCH) if is_plain else MAX_BATCH
        entries = read_entries(self.client, [self._call(events_key(self.client.namespace), size)])[0]
        found = self.fitting(entries)
        if len(entries) < size:
            return found, None
        self._at = entries[-1][0].decode()
        return found, self._at

    def _call(self, key: str, count: int) -> Command:
        last = self._at if self._at == "+" else f"({self._at}"
        first = "-" if self.wanted.since_ms is None else str(max(0, self.wanted.since_ms))
        return newest_command(key, last, count, first)

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
            if fits(event, wanted):
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
            text = searched_text(event, self.wanted)
            missing[at] = {number for number, word in enumerate(words, 1) if not has_word(text, word)}
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


# -- Entries ----------------------------------------------------------------------------------------------------------


def success_keys(client: Client, task: str | None) -> list[str]:
    """Return the keys of the streams of successes: of one task, of none for "", or of all for None."""
    if task is not None:
        return [successes_key(client.namespace, task)] if task else []
    tasks = Call("ZREVRANGE", (successful_tasks_key(client.namespace),), (0, MOST_TASKS - 1), _read_tasks, True)
    return [successes_key(client.namespace, each) for each in client.run(tasks)]


def events_in(client: Client, keys: Sequence[str], entry_id: str) -> Iterator[Event]:
    """Yield the events with this entry id in several streams."""
    for entries in read_entries(client, [newest_command(key, entry_id, 1, entry_id) for key in keys]):
        yield from (read_event(each.decode("ascii"), words) for each, words in entries)


def newest_command(key: str, last: str, count: int, first: str = "-") -> Command:
    """Return the command that reads a stream backwards."""
    return ("XREVRANGE", key, last, first, "COUNT", count)


def read_entries(client: Client, commands: Sequence[Command]) -> list[list[Entry]]:
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


def as_number(entry_id: str) -> tuple[float, int]:
    """Return an entry id as a value that can be compared; "+" is the greatest."""
    if entry_id == "+":
        return (float("inf"), 0)
    ms, _, sequence = entry_id.partition("-")
    return (int(ms), int(sequence or 0))


def as_age(entry_id: str) -> tuple[float, int]:
    """Return a sort key that puts the newest entry first."""
    ms, sequence = as_number(entry_id)
    return (-ms, -sequence)


def newest_first(events: Iterable[Event]) -> list[Event]:
    """Return events in the order of the pages."""
    return sorted(events, key=lambda event: as_age(event.entry_id))
