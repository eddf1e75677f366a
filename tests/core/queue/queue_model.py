"""A queue in memory, to compare a real one with: what RSMQ says about each operation, and nothing about how it is done.

The model takes from the server what only the server can know (ids, the time of a write) after checking it, so it holds
for every message exactly the bytes that Redis should hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

#: A phantom that is overdue by more is removed by whoever meets it.
PHANTOM_GRACE_MS = 5000


@dataclass
class Held:
    """One message as it should be stored. Without a body it is a phantom."""

    score_ms: float
    body: bytes | None
    receive_count: int = 0
    first_received_ms: int | None = None

    @property
    def is_phantom(self) -> bool:
        return self.body is None


@dataclass
class QueueModel:
    """Everything that should be stored about one queue."""

    #: "vt", "delay" and "maxsize"; empty when there is no queue.
    attributes: dict[str, int] = field(default_factory=dict)
    messages: dict[str, Held] = field(default_factory=dict)
    #: Bodies that another client left behind.
    orphans: dict[str, bytes] = field(default_factory=dict)
    #: Ids that were deleted or popped: they must never be seen again.
    gone: set[str] = field(default_factory=set)
    is_listed: bool = False
    total_sent: int = 0
    total_received: int = 0
    phantoms_removed: int = 0

    @property
    def exists(self) -> bool:
        return bool(self.attributes)

    @property
    def has_keys(self) -> bool:
        return bool(self.attributes or self.messages or self.orphans or self.total_sent or self.total_received)

    # -- What Redis should hold ---------------------------------------------------------------------------------------

    def scores(self) -> dict[str, float]:
        """Return the sorted set."""
        return {id_: held.score_ms for id_, held in self.messages.items()}

    def fields(self) -> dict[str, bytes]:
        """Return the hash, without the two times that nothing depends on."""
        stored: dict[str, bytes | int] = {**self.attributes, **self.orphans}
        for name, total in (("totalsent", self.total_sent), ("totalrecv", self.total_received)):
            if total:
                stored[name] = total
        for id_, held in self.messages.items():
            if held.body is not None:
                stored[id_] = held.body
            if held.receive_count:
                stored[f"{id_}:rc"] = held.receive_count
            if held.first_received_ms is not None:
                stored[f"{id_}:fr"] = held.first_received_ms
        return {name: value if isinstance(value, bytes) else str(value).encode() for name, value in stored.items()}

    # -- What operations do -------------------------------------------------------------------------------------------

    def in_order(self) -> list[tuple[float, str]]:
        """Return scores and ids as a sorted set has them."""
        return sorted((held.score_ms, id_) for id_, held in self.messages.items())

    def ready(self, now_ms: float) -> Iterator[str]:
        """Yield the ids that a receive looks at, oldest first."""
        return (id_ for score_ms, id_ in self.in_order() if score_ms <= now_ms)

    def deliverable(self, now_ms: float) -> list[str]:
        """Return the messages that could be received now, oldest first."""
        return [id_ for id_ in self.ready(now_ms) if not self.messages[id_].is_phantom]

    def meet_phantoms(self, count: int, now_ms: float) -> list[str]:
        """Return the phantoms that a receive of `count` messages meets and removes."""
        met, left = [], count
        for id_ in self.ready(now_ms):
            held = self.messages[id_]
            if not held.is_phantom:
                left -= 1
            elif held.score_ms <= now_ms - PHANTOM_GRACE_MS:
                met.append(id_)
            if left == 0:
                break
        return met

    def drop_phantoms(self, ids: list[str]) -> None:
        for id_ in ids:
            del self.messages[id_]
        self.phantoms_removed += len(ids)

    def deliver(self, id_: str, *, now_ms: int, score_ms: float) -> Held:
        """Note a reception; the first one fixes the time of first receive."""
        held = self.messages[id_]
        held.receive_count += 1
        held.score_ms = score_ms
        if held.receive_count == 1:
            held.first_received_ms = now_ms
        self.total_received += 1
        return held

    def remove(self, id_: str) -> None:
        del self.messages[id_]
        self.gone.add(id_)

    def delete_queue(self) -> None:
        self.gone |= set(self.messages)
        self.attributes, self.messages, self.orphans = {}, {}, {}
        self.total_sent = self.total_received = self.phantoms_removed = 0
        self.is_listed = False

    def pass_time(self, milliseconds: int) -> None:
        for held in self.messages.values():
            held.score_ms -= milliseconds
