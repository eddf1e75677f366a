"""A reliable queue in memory: lists and numbers, no clock. The real one is compared with it after every step."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Held:
    """One message of the model."""

    body: bytes
    deliveries: int = 0
    unused: int = 0

    @property
    def attempts(self) -> int:
        """Return the deliveries that count."""
        return self.deliveries - self.unused


@dataclass
class Model:
    """The four places in which a message can be, each in its order."""

    messages: dict[str, Held] = field(default_factory=dict)
    undelivered: list[str] = field(default_factory=list)
    #: Delayed for so long that a test never sees the end.
    delayed: set[str] = field(default_factory=set)
    #: In the order of the last delivery.
    delivered: list[str] = field(default_factory=list)
    #: Delivered in the future: recovered by nobody.
    extended: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    max_deliveries: int = 0
    exists: bool = False

    def push(self, ids: list[str], bodies: list[bytes], *, is_delayed: bool) -> None:
        """Add new messages."""
        self.exists = True
        self.messages |= {message_id: Held(body) for message_id, body in zip(ids, bodies, strict=True)}
        if is_delayed:
            self.delayed |= set(ids)
        else:
            self.undelivered += ids

    def is_spent(self, message_id: str) -> bool:
        """Say whether a message has had all its deliveries."""
        return 0 < self.max_deliveries <= self.messages[message_id].attempts

    def pop(self, count: int) -> list[str]:
        """Return what a pop delivers."""
        popped: list[str] = []
        while self.undelivered and len(popped) < count:
            message_id = self.undelivered.pop(0)
            if self.is_spent(message_id):
                self.dead.add(message_id)
            else:
                popped.append(message_id)
        self._deliver(popped)
        return popped

    def recover(self, count: int) -> list[str]:
        """Return what a recovery without a minimal age delivers again."""
        due = [message_id for message_id in self.delivered if message_id not in self.extended]
        recovered: list[str] = []
        for message_id in due:
            if len(recovered) == count:
                break
            self._remove_delivered([message_id])
            if self.is_spent(message_id):
                self.dead.add(message_id)
            else:
                recovered.append(message_id)
        self._deliver(recovered)
        return recovered

    def _deliver(self, ids: list[str]) -> None:
        for message_id in ids:
            self.messages[message_id].deliveries += 1
        # Those that count as delivered in the future stay behind.
        self.delivered = [
            *(held for held in self.delivered if held not in self.extended),
            *ids,
            *(held for held in self.delivered if held in self.extended),
        ]

    def _remove_delivered(self, ids: list[str]) -> None:
        self.delivered = [message_id for message_id in self.delivered if message_id not in ids]
        self.extended -= set(ids)

    def holds(self, message_id: str, deliveries: int | None) -> bool:
        """Say whether a receipt is good."""
        if message_id not in self.delivered:
            return False
        return deliveries is None or self.messages[message_id].deliveries == deliveries

    def ack(self, message_id: str) -> None:
        """Remove a delivered message."""
        self._remove_delivered([message_id])
        del self.messages[message_id]

    def nack(self, ids: list[str], *, is_delayed: bool, is_unused: bool) -> None:
        """Give delivered messages back."""
        self._remove_delivered(ids)
        for message_id in ids:
            self.messages[message_id].unused += is_unused
        self.dead |= {message_id for message_id in ids if self.is_spent(message_id)}
        living = [message_id for message_id in ids if message_id not in self.dead]
        if is_delayed:
            self.delayed |= set(living)
        else:
            self.undelivered = living + self.undelivered

    def extend(self, message_id: str) -> None:
        """Let a message count as delivered far in the future."""
        self._remove_delivered([message_id])
        self.delivered.append(message_id)
        self.extended.add(message_id)

    def bury(self, message_id: str) -> None:
        """Give a delivered message up."""
        self._remove_delivered([message_id])
        self.dead.add(message_id)

    def redrive(self, message_id: str) -> None:
        """Give a dead message another chance."""
        self.dead.remove(message_id)
        self.undelivered.append(message_id)
        self.messages[message_id].unused = self.messages[message_id].deliveries
