"""What a worker takes messages from: everything that its main loop asks of a source, on one page.

A turn of the main loop asks each source for one `exchange()`: outcomes go out and messages come in. Then the worker
sleeps until the earliest `next_exchange_at()`, or until a source wakes it. Executions hand their outcomes to the source
of their message (`AckSink`). A source knows its structure; the worker knows none.

To run fewer messages at a time than the worker has room for, a source fetches fewer. A source that keeps an order, for
example, fetches nothing while it holds a message of the same order: `exchange()` returns nothing then, and
`next_exchange_at()` names no time for a fetch. The outcome of the held message starts the next exchange, which settles
it and fetches again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...core import Client
from ..delivery import Delivery
from ..execute.batch import Batch
from ..execute.execution import AckSink, Execution
from ..execute.sequence import MessageSequence
from ..fetch.polling import IdleTurn
from ..fetch.wakeup import Wakeup
from ..report.notifications import Notifier
from ..report.shared_state import SharedState

#: Idle processes that are started together poll at different times of this span.
POLLS_WITHIN_S = 1.0


def _some_time() -> float:
    return time.monotonic() - random.uniform(0, POLLS_WITHIN_S)  # noqa: S311 - spreads load


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What all sources of a worker share."""

    notifier: Notifier
    #: Fetch at least this often: not every sender publishes.
    poll_interval_s: float
    #: Ends the sleep of the main thread; any thread may call it.
    wake: Callable[[], None]
    #: The memory that the process shares with its supervisor; None without one.
    shared_state: SharedState | None = None
    #: The turns of the processes of one supervisor.
    idle_turns: IdleTurn | None = None
    #: The worker ends when nothing is left: it does not wait for wake-ups.
    ends_by_itself: bool = False
    #: All connections poll at this time plus a multiple of the interval; those of other processes at another time.
    polls_from: float = field(default_factory=_some_time)


class Source(AckSink, Protocol):
    """Messages of one connection: of RSMQ queues, for example, or of reliable queues."""

    #: Of its connection; also for stacks and the worker's sign-off.
    client: Client
    #: Whether the supervisor releases the messages of a process that has ended. Otherwise the worker releases running
    #: messages itself, a moment before its end.
    is_released_by_supervisor: bool

    # -- Start and end ------------------------------------------------------------------------------------------------

    def start(self, wakeup: Wakeup, may_fetch: Callable[[], bool]) -> None:
        """Begin to end the sleep of the worker when messages arrive; `may_fetch` returns whether it wants any."""

    def stop_soon(self) -> None:
        """Let threads end, so that stop() waits for them less long. Further calls do nothing."""

    def stop(self) -> None:
        """End what start() began. Further calls do nothing."""

    def flush(self) -> None:
        """Send all pending outcomes for the last time. Messages whose outcome is lost become ready again later."""

    # -- A turn -------------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int) -> Sequence[Delivery]:
        """Send outcomes, renew leases, and fetch messages for up to `room` calls: one round trip, or none when idle.

        A call takes one message, or a batch; `at_most` is the maximum number of messages. Never raises errors of the
        server: what could not be carried out stays for a later exchange.
        """

    def fetch_ahead(self, room: int, *, at_most: int) -> None:
        """Send the next fetch before the messages of the last exchange are handed out, if the source can do that."""

    def prepare_fetch(self, room: int, *, at_most: int) -> None:
        """Prepare the fetch that a wake-up sends, if the source can do that; with a room of 0, send none."""

    def note_arrived(self, executions: Sequence[Execution]) -> None:
        """Count the messages of the last exchange."""

    def admit(self, executions: Sequence[Execution]) -> Sequence[Execution]:
        """Return the messages that may run now; the others are settled as postponed."""

    def in_calls(self, executions: Iterable[Execution]) -> Iterator[Execution | Batch | MessageSequence]:
        """Return what the pool runs for messages of one exchange: each alone, several in one call, or in sequence."""

    def take_cancelled(self) -> Sequence[Execution]:
        """Return the executions that were cancelled since the last call."""

    def next_exchange_at(self, room: int, *, settle_within_s: float) -> float | None:
        """Return when the next exchange is due, on the monotonic clock; None when only an event can start it.

        Outcomes may wait for `settle_within_s`, so that more of them are sent together.
        """

    # -- State --------------------------------------------------------------------------------------------------------

    @property
    def is_fetch_pending(self) -> bool:
        """Return whether a fetch was sent whose reply the next exchange reads."""

    @property
    def has_settlements(self) -> bool:
        """Return whether outcomes are pending, or were sent without a reply yet."""

    @property
    def is_idle(self) -> bool:
        """Return whether no message is held and nothing is pending."""

    @property
    def is_drained(self) -> bool | None:
        """Return whether the last fetch left nothing ready; None before the first fetch."""

    @property
    def left_to_others(self) -> int:
        """Return the number of messages if all are calls of tasks that are not known here, else 0. Asks the server."""

    @property
    def is_empty(self) -> bool | None:
        """Return whether the last fetch found no message at all; None before the first fetch."""

    @property
    def is_unavailable(self) -> bool:
        """Return whether the server did not answer the last exchange."""

    @property
    def is_stuck(self) -> bool:
        """Return whether only outcomes are left that a damaged key has refused for a while."""

    @property
    def unreported(self) -> int:
        """Return the number of outcomes of completed runs that Redis does not know."""

    @property
    def holds_nothing(self) -> bool:
        """Return whether it is certain that the supervisor has nothing to release when the process ends."""
