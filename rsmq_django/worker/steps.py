"""The parts of one exchange with Redis: endings, renewals, starts and a fetch. Each is a call and how to read it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core import Message, Settlement
from ..core.call import Call
from ..core.replies import first_received_ms, read_message_id
from .delivery import Delivery
from .endings import Ending, start
from .outcomes import Released
from .provision import SHORTEST_LEASE_S

if TYPE_CHECKING:
    from .fetcher import Fetcher

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class EndStep:
    """Carries outcomes out."""

    fetcher: Fetcher
    endings: list[Ending]
    call: Call[list[Settlement]]

    def done(self, verdicts: Sequence[Settlement]) -> None:
        """Forget what has ended, and tell what was lost."""
        for ending, verdict in zip(self.endings, verdicts, strict=True):
            self.fetcher.leases.drop(ending.delivery)
            if verdict is Settlement.LEASE_LOST and not isinstance(ending.outcome, Released):
                self.fetcher.announcer.lost(ending.delivery)
            # MISSING: the reply to an earlier try was lost, or somebody deleted the message. Either way it is gone.

    def failed(self) -> None:
        """Keep the outcomes for the next exchange."""
        self.fetcher.put_back(self.endings)


@dataclass(slots=True)
class RenewStep:
    """Hides messages for another lease."""

    fetcher: Fetcher
    deliveries: list[Delivery]
    call: Call[list[Settlement]]

    def done(self, verdicts: Sequence[Settlement]) -> None:
        """Note the new leases."""
        for lost in self.fetcher.leases.renewed(self.deliveries, verdicts, time.monotonic()):
            logger.warning(
                "the lease of message %s of queue %s is lost; its task is told and its result will be discarded",
                lost.message.id,
                lost.work_queue.name,
            )

    def failed(self) -> None:
        """Leave it to the next exchange: the leases are still due."""


@dataclass(slots=True)
class StartStep:
    """Notes in a result record that an attempt began."""

    ending: Ending
    call: Call[list[Settlement]] = field(init=False)

    def __post_init__(self) -> None:
        self.call = start(self.ending)

    def done(self, verdicts: Sequence[Settlement]) -> None:
        """Do not note it again."""
        self.ending.delivery.start_noted = True

    def failed(self) -> None:
        """Leave it to the next exchange."""


@dataclass(slots=True)
class Fetched:
    """What a look at the queues found."""

    server_ms: int
    #: Time until the next message becomes visible; negative when none is waiting at all.
    next_ms: float
    #: Positions of queues that do not exist or whose attributes cannot be read.
    unreadable: list[int]
    #: Position of the queue, message, and how often it was given back unused.
    messages: list[tuple[int, Message, int]]


@dataclass(slots=True)
class FetchStep:
    """Takes messages."""

    fetcher: Fetcher
    room: int
    call: Call[Fetched] = field(init=False)
    deliveries: list[Delivery] = field(default_factory=list)
    _sent_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        queues = [work_queue.queue for work_queue in self.fetcher.queues]
        every = [queue.keys for queue in queues]
        keys = tuple(key for keys in every for key in (keys.messages, keys.settings, keys.releases, keys.phantoms))
        units = [queue.vt_unit for queue in queues]
        self.call = Call("worker/fetch", keys, (self.room, round(SHORTEST_LEASE_S * 1000), *units), read_fetched)

    def done(self, fetched: Fetched) -> None:
        """Hold what came."""
        self.fetcher.clock.set(fetched.server_ms)
        # The lease began at the server some time after the request was sent: counting from then errs on the safe side.
        self.deliveries = [
            Delivery(self.fetcher.queues[position - 1], message, message.receive_count - released, self._sent_at)
            for position, message, released in fetched.messages
        ]
        self.fetcher.leases.hold(self.deliveries)
        self.fetcher.looked(fetched, self.room)

    def failed(self) -> None:
        """Leave it to the next exchange."""


Step = EndStep | RenewStep | StartStep | FetchStep


def read_fetched(reply: list[Any]) -> Fetched:
    """Read the reply of worker/fetch."""
    server_ms, next_ms, unreadable = int(reply[0]), reply[1], reply[2]
    first = 3 + unreadable
    messages = [
        (
            reply[at],
            Message(
                read_message_id(reply[at + 1]),
                reply[at + 2],
                int(reply[at + 3]),
                first_received_ms(reply[at + 4]),
            ),
            int(reply[at + 5] or 0),
        )
        for at in range(first, len(reply), 6)
    ]
    return Fetched(server_ms, next_ms, reply[3:first], messages)
