"""Findings about single messages: reads a queue's messages and fields in bounded slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from ..keys import QueueKeys
from ..transport.call import Call
from . import calls
from .calls import GRACE_S, FieldSlice, MessageSlice, SideSlice
from .catalogue import EXAMPLES, found
from .finding import Finding, Progress
from .probe import Probe

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


def walk(run: Callable[[Call[S]], S | None], scan: Callable[[str], Call[S]]) -> Iterator[S]:
    """Yield the slices of a walk up to its end, or up to a slice that may not be read."""
    cursor = "0"
    while (piece := run(scan(cursor))) is not None:
        yield piece
        cursor = piece.cursor
        if cursor == "0":
            return


def examine_messages(
    probe: Probe, name: str, keys: QueueKeys, *, total: int, deep: bool, progress: Progress
) -> Iterator[Finding]:
    """Yield the findings about the messages of a queue."""
    phantoms, foreign, future = ExampleCount(), ExampleCount(), ExampleCount()
    looked = 0
    run = partial(probe.run, about="single messages")
    for piece in walk(run, lambda cursor: calls.scan_messages(keys, cursor, grace_s=GRACE_S)):
        looked += piece.looked
        phantoms.add(len(piece.phantoms), *(phantom for phantom, _ in piece.phantoms))
        foreign.add(piece.foreign, piece.foreign_id)
        future.add(piece.future, piece.future_id)
        progress(f"messages of {name}", looked, total)
        if looked >= SHALLOW and not deep:
            break
    among = _among(looked, total, "messages")
    if phantoms.count:
        said = f"{phantoms.count} ids without a body among {among}"
        yield found("phantoms", name, said, examples=phantoms.examples)
    if foreign.count:
        said = f"{foreign.count} ids that do not have 32 characters among {among}"
        yield found("foreign-ids", name, said, examples=foreign.examples)
    if future.count:
        said = f"{future.count} messages among {among} have a send time in the future"
        yield found("sent-in-the-future", name, said, examples=future.examples)


def examine_fields(
    probe: Probe, name: str, keys: QueueKeys, *, total: int, deep: bool, progress: Progress
) -> Iterator[Finding]:
    """Yield the findings about fields of a queue's hash that belong to no message."""
    bodies, counters, unknown = ExampleCount(), ExampleCount(), ExampleCount()
    looked = 0
    run = partial(probe.run, about="single fields")
    for piece in walk(run, lambda cursor: calls.scan_fields(keys, cursor, grace_s=GRACE_S)):
        looked += piece.looked
        bodies.add(len(piece.bodies), *piece.bodies)
        counters.add(len(piece.counters), *piece.counters)
        unknown.add(piece.unknown, piece.unknown_field)
        progress(f"fields of {name}", looked, total)
        if looked >= SHALLOW and not deep:
            break
    among = _among(looked, total, "fields")
    if bodies.count:
        said = f"{bodies.count} bodies without a message among {among}"
        yield found("orphan-bodies", name, said, examples=bodies.examples)
    if counters.count:
        said = f"{counters.count} counters without a message among {among}"
        yield found("orphan-counters", name, said, examples=counters.examples)
    if unknown.count:
        said = f"{unknown.count} fields of an unknown kind among {among}"
        yield found("foreign-fields", name, said, examples=unknown.examples)


def _among(looked: int, total: int, what: str) -> str:
    return f"{looked} {what}" if looked >= total else f"the first {looked} of {total} {what}"


def examine_side_data(probe: Probe, name: str, keys: QueueKeys, *, exists: bool, deep: bool) -> Iterator[Finding]:
    """Yield findings about our records of messages or queues that no longer exist."""
    if not exists:
        yield found("stale-side-data", name, "there are records about it, but no such queue")
        return
    stale, looked = ExampleCount(), 0
    for side in (keys.failures, keys.releases):
        for piece in walk(partial(probe.run, about="our side data"), partial(calls.scan_side, keys, side)):
            looked += piece.looked
            stale.add(len(piece.stale), *piece.stale)
            if looked >= SHALLOW and not deep:
                break
    if stale.count:
        said = f"{stale.count} of {looked} records belong to messages that no longer exist"
        yield found("stale-side-data", name, said, examples=stale.examples)
