"""Findings about single messages: reads a queue's messages and fields in bounded slices.

Each examination is a generator that asks for its slices one after the other, so that `Probe.examine_side_by_side()` can
read those of many queues in one round trip.
"""

from __future__ import annotations

from typing import TypeVar

from ..keys import QueueKeys
from . import calls
from .calls import GRACE_S, FieldSlice, MessageSlice, SideSlice
from .catalogue import EXAMPLES, found
from .finding import Finding, Progress
from .probe import Examination

#: A slice of one of the walks.
S = TypeVar("S", bound=MessageSlice | FieldSlice | SideSlice)

#: How many messages and fields of a queue are examined unless the examination is deep.
SHALLOW = 20_000


class ExampleCount:
    """Counts the finds of one kind and keeps a few examples."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[str] = []

    def add(self, count: int, *examples: str) -> None:
        """Add `count` finds."""
        self.count += count
        if count:
            self.examples += examples[: EXAMPLES - len(self.examples)]


def following(piece: S, looked: int = 0, *, deep: bool = True) -> str | None:
    """Return the cursor of the next slice; None at the end, and after SHALLOW entries unless the walk is deep."""
    return None if piece.cursor == "0" or (looked >= SHALLOW and not deep) else piece.cursor


def examine_messages(name: str, keys: QueueKeys, *, total: int, deep: bool, progress: Progress) -> Examination:
    """Return the findings about the messages of a queue."""
    phantoms, foreign, future = ExampleCount(), ExampleCount(), ExampleCount()
    findings, looked = list[Finding](), 0
    cursor: str | None = "0"
    while cursor is not None:
        piece = yield calls.scan_messages(keys, cursor, grace_s=GRACE_S), "single messages"
        if piece is None:
            break
        looked += piece.looked
        phantoms.add(len(piece.phantoms), *(phantom for phantom, _ in piece.phantoms))
        foreign.add(piece.foreign, piece.foreign_id)
        future.add(piece.future, piece.future_id)
        progress(f"messages of {name}", looked, total)
        cursor = following(piece, looked, deep=deep)
    among = _among(looked, total, "messages")
    if phantoms.count:
        said = f"{phantoms.count} ids without a body among {among}"
        findings.append(found("phantoms", name, said, examples=phantoms.examples))
    if foreign.count:
        said = f"{foreign.count} ids that do not have 32 characters among {among}"
        findings.append(found("foreign-ids", name, said, examples=foreign.examples))
    if future.count:
        said = f"{future.count} messages among {among} have a send time in the future"
        findings.append(found("sent-in-the-future", name, said, examples=future.examples))
    return findings


def examine_fields(name: str, keys: QueueKeys, *, total: int, deep: bool, progress: Progress) -> Examination:
    """Return the findings about fields of a queue's hash that belong to no message."""
    bodies, counters, unknown = ExampleCount(), ExampleCount(), ExampleCount()
    findings, looked = list[Finding](), 0
    cursor: str | None = "0"
    while cursor is not None:
        piece = yield calls.scan_fields(keys, cursor, grace_s=GRACE_S), "single fields"
        if piece is None:
            break
        looked += piece.looked
        bodies.add(len(piece.bodies), *piece.bodies)
        counters.add(len(piece.counters), *piece.counters)
        unknown.add(piece.unknown, piece.unknown_field)
        progress(f"fields of {name}", looked, total)
        cursor = following(piece, looked, deep=deep)
    among = _among(looked, total, "fields")
    if bodies.count:
        said = f"{bodies.count} bodies without a message among {among}"
        findings.append(found("orphan-bodies", name, said, examples=bodies.examples))
    if counters.count:
        said = f"{counters.count} counters without a message among {among}"
        findings.append(found("orphan-counters", name, said, examples=counters.examples))
    if unknown.count:
        said = f"{unknown.count} fields of an unknown kind among {among}"
        findings.append(found("foreign-fields", name, said, examples=unknown.examples))
    return findings


def _among(looked: int, total: int, what: str) -> str:
    return f"{looked} {what}" if looked >= total else f"the first {looked} of {total} {what}"


def examine_side_data(name: str, keys: QueueKeys, *, deep: bool) -> Examination:
    """Return the findings about our records of messages that no longer exist."""
    stale, looked = ExampleCount(), 0
    for side in (keys.failures, keys.releases):
        cursor: str | None = "0"
        while cursor is not None:
            piece = yield calls.scan_side(keys, side, cursor), "our side data"
            if piece is None:
                break
            looked += piece.looked
            stale.add(len(piece.stale), *piece.stale)
            cursor = following(piece, looked, deep=deep)
    if not stale.count:
        return []
    said = f"{stale.count} of {looked} records belong to messages that no longer exist"
    return [found("stale-side-data", name, said, examples=stale.examples)]
