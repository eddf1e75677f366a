"""Reading positions in a stream: counting of entries, including removed ones, and trimming after the slowest reader.

Each function returns a `Call`. The content of the entries is not read. Redis counts every entry ever added (Redis 7,
Valkey), so added minus length is the number of entries removed from the head: a reader that counts its entries knows
exactly how many it missed.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

from ..limits import MAX_BATCH
from .call import Call

#: The id before the first entry of any stream.
BEGINNING = "0-0"
#: A reader that was inactive for this time no longer delays the trimming.
READER_SILENT_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class StreamStep:
    """The result of one step along a stream."""

    entries: int
    #: Id of the last entry of the step; its start id when there was no entry.
    last_id: str
    #: Entries ever added; -1 when the server does not count them (before Redis 7).
    added: int
    #: Entries that were removed from the head.
    gone: int
    #: The newest id that the stream ever had.
    newest_id: str
    #: Identity of the log: two streams of the same name, on two servers or one after the other, differ in it. "" when
    #: it has none yet, see name_log().
    log: str = ""


def step(stream: str, *, after: str, upto: str = "+", most: int = MAX_BATCH) -> Call[StreamStep]:
    """Return the call that counts up to `most` (at most 1,000) entries after an id, without reading them."""
    return Call("queue/bulk/step", (stream,), (after, upto, min(most, MAX_BATCH)), _read_step, repeatable=True)


def name_log(stream: str) -> Call[str]:
    """Return the call that gives a stream an identity unless it has one, and returns it; "" without a stream."""
    return Call("queue/bulk/name_log", (stream,), (f"log:{uuid.uuid4().hex}",), bytes.decode, repeatable=True)


def trim(
    stream: str, readers: str, *, reader: str, finished_id: str, log: str, silent_ms: int = READER_SILENT_MS
) -> Call[int]:
    """Return the call that stores a reader's position, and removes the entries that all live readers have finished.

    Nothing happens when the stream is not the log that was read. An empty stream whose ids are ahead of the clock by
    more than an hour is deleted, so that the next entry gets the right time, unless it has other readers or groups.
    """
    return Call("queue/bulk/trim", (stream, readers), (reader, finished_id, silent_ms, log), int, repeatable=True)


def first_after(stream: str, *, after: str) -> Call[str]:
    """Return the call that reads the id of the first entry after an id; "" without one."""
    return Call("XRANGE", (stream,), (f"({after}", "+", "COUNT", 1), _read_id, repeatable=True)


def position_of(stream: str, reader: str) -> Call[str]:
    """Return the call that reads the last id that a reader has finished, as it told trim(); BEGINNING without one."""
    return Call("HGET", (readers_key(stream),), (reader,), _read_position, repeatable=True)


def readers_key(stream: str) -> str:
    """Return the key of the hash of a stream's readers."""
    return f"{stream}:readers"


def id_order(entry_id: str) -> tuple[int, int]:
    """Return the sort key of an entry id: milliseconds and sequence number."""
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number or 0)


def _read_step(reply: list[Any]) -> StreamStep:
    entries, last_id, added, gone, newest_id, log = reply
    return StreamStep(entries, last_id.decode("ascii"), added, gone, newest_id.decode("ascii"), log.decode())


def _read_id(reply: list[Any]) -> str:
    return reply[0][0].decode("ascii") if reply else ""


def _read_position(reply: bytes | None) -> str:
    found = re.match(rb"(\d+-\d+)@", reply or b"")
    return found[1].decode("ascii") if found else BEGINNING
