"""Parsing of the raw replies of topic scripts. Invalid data of other clients must not raise here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from ..numbers import bounded, read_count
from ..stats.depth import Depth
from .records import NO_HEADERS, GroupStatus, Retention, SeekResult, TopicBatch, TopicMessage, TopicRange, TopicStatus

#: Creates a message from its eight values in half the time of the class.
_new_message: Callable[[tuple[Any, ...]], TopicMessage] = partial(tuple.__new__, TopicMessage)


def read_published(reply: list[int]) -> range:
    """Return the new indexes."""
    return range(reply[0], reply[1] + 1)


def read_batch(reply: list[Any]) -> TopicBatch:
    """Return the batch of a topic/read reply: consecutive bodies, with None for gaps."""
    last, skipped, holes, left, first, count = reply[-6:]
    bodies = reply[:count]
    indexes = range(first, first + count)
    extras = _extras(reply[count:-6], count)
    if extras is None and holes == 0:
        rest = repeat(None), repeat(NO_HEADERS), repeat(1), repeat(None), repeat(""), repeat(0)
        messages = list(map(_new_message, zip(indexes, bodies, *rest, strict=False)))
    else:
        keys, headers = extras or (repeat(None), repeat(NO_HEADERS))
        rows = zip(indexes, bodies, keys, headers, strict=False)
        messages = [TopicMessage(*row) for row in rows if row[1] is not None]
    return TopicBatch(messages, skipped, holes, 0, left, last)


def read_leased(reply: list[Any]) -> TopicBatch:
    """Return the batch of a topic/lease reply: columns."""
    last, skipped, holes, left, dead, due_ms, count, receipt_end = reply[:8]
    indexes, deliveries, bodies = (reply[8 + at * count : 8 + (at + 1) * count] for at in range(3))
    keys, headers = _extras(reply[8 + 3 * count :], count) or (repeat(None), repeat(NO_HEADERS))
    end, released = receipt_end.decode("utf-8", "surrogateescape"), [0] * count
    for at, delivery in enumerate(deliveries):
        if isinstance(delivery, bytes):  # some of them were released unused
            deliveries[at], released[at] = map(int, delivery.split(b":"))
    receipts = [f"{delivery}{end}" for delivery in deliveries]
    rows = zip(indexes, bodies, keys, headers, deliveries, repeat(None), receipts, released, strict=False)
    messages = list(map(_new_message, rows))
    return TopicBatch(messages, skipped, holes, dead, left, last, None if due_ms < 0 else due_ms)


def read_held(reply: int | list[int], count: int) -> list[bool]:
    """Return which of `count` messages were in flight, from a topic/ack or topic/retry reply."""
    return [reply > 0] * count if isinstance(reply, int) else list(map(bool, reply))


def read_range(reply: list[Any], *, has_sizes: bool = False) -> TopicRange:
    """Return the range of a topic/range reply."""
    last, lowest, first, count, slots = reply[:5]
    times = [(read_count(reply[at]), read_count(reply[at + 1])) for at in range(5, 5 + 2 * slots, 2)]
    start = 5 + 2 * slots
    bodies = reply[start : start + count]
    start += count
    sizes = reply[start : start + count] if has_sizes else []
    keys, headers = _extras(reply[start + len(sizes) :], count) or (repeat(None), repeat(NO_HEADERS))
    rows = zip(range(first, first + count), bodies, keys, headers, repeat(1), _slot_of_each(first, count, times))
    messages = [TopicMessage(*row) for row in rows if row[1] is not None]
    kept = [size for size, body in zip(sizes, bodies, strict=False) if body is not None]
    return TopicRange(messages, lowest, last, kept)


def _slot_of_each(first: int, count: int, slots: Sequence[tuple[int, int]]) -> list[int | None]:
    times: list[int | None] = []
    at, now = 0, None
    for index in range(first, first + count):
        while at < len(slots) and slots[at][0] <= index:
            now = slots[at][1]
            at += 1
        times.append(now)
    return times


def _extras(words: Sequence[Any], count: int) -> tuple[list[str | None], list[Mapping[str, str]]] | None:
    if not words:
        return None
    keys = [None if key is None else key.decode("utf-8", "replace") for key in words[:count]]
    return keys, [read_headers(headers) for headers in words[count:]]


def read_headers(stored: bytes | None) -> Mapping[str, str]:
    """Return the headers of a message; empty if they are not a JSON object of texts."""
    if not stored:
        return NO_HEADERS
    try:
        headers = json.loads(stored)
    except (ValueError, RecursionError):
        return NO_HEADERS
    is_of_texts = isinstance(headers, dict) and all(isinstance(text, str) for text in headers.values())
    return headers if is_of_texts else NO_HEADERS


def read_status(reply: list[int]) -> TopicStatus:
    """Return the status of a topic/status reply."""
    exists, last, first, noted, oldest_ms, newest_ms, groups, now_ms = reply[:8]
    max_count, max_age_ms, max_bytes, wait_for_groups, group_ttl_ms = map(_known, reply[8:])
    retention = Retention(
        max_count=max_count,
        max_age_s=_seconds(max_age_ms),
        max_bytes=max_bytes,
        wait_for_groups=wait_for_groups is not None,
        group_ttl_s=_seconds(group_ttl_ms),
    )
    times = _known(oldest_ms), _known(newest_ms)
    return TopicStatus(exists == 1, first, last, max(0, noted), *times, groups, now_ms, retention)


def read_group_status(name: str) -> Callable[[list[int]], GroupStatus]:
    """Return a parser of topic/group_status replies."""

    def read(reply: list[int]) -> GroupStatus:
        exists, position, last, first, held, due, skipped, dead, live, seen_ms, slot_ms, now_ms = reply
        start = max(position, first - 1)
        lag = max(0, last - start)
        return GroupStatus(
            name=name,
            exists=exists == 1,
            position=position,
            lag=lag,
            missed=start - position,
            due=due,
            depth=Depth(
                now_ms=now_ms,
                ready=lag + due,
                hidden=held - due,
                in_flight=held - due,
                dead=dead,
                oldest_ready_s=max(0, now_ms - slot_ms) / 1000 if slot_ms >= 0 else None,
                total_sent=position + lag,
                total_received=position,
            ),
            skipped=skipped,
            live_consumers=live,
            seen_ms=_known(seen_ms),
        )

    return read


def read_seek(reply: list[int]) -> SeekResult:
    """Return the result of a topic/seek reply."""
    before, after, last, first, live, held = reply
    return SeekResult(before + 1, after + 1, first, last, live, held)


def read_groups(reply: list[bytes]) -> list[tuple[str, float]]:
    """Return the groups with the seconds since their last activity."""
    now_ms = float(reply[0])
    return [
        (reply[at].decode("utf-8", "replace"), max(0.0, now_ms - bounded(reply[at + 1])) / 1000)
        for at in range(1, len(reply), 2)
    ]


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
