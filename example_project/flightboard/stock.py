"""Take stock of the queues and of the work: figures for the page, and the balance of a replayed day.

Every figure is read at its source:

- sent, deliveries: RSMQ's own counters of the queue (`totalsent`, `totalrecv`);
- ready, hidden: messages in the queue now; hidden = delayed, waiting for a retry, or in flight;
- dead: messages in the queue's dead-letter queue, with the reasons of their failure records;
- succeeded: rows that tasks left in the database (work log, weather), not "sent minus dead".

So sent = succeeded + dead is a check that can fail, and not a sum that is correct by construction.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count, Q

from rsmq_django.conf.settings import get_settings
from rsmq_django.core import Queue, QueueAttributes, list_queues
from rsmq_django.core.errors import QueueNotFound, RsmqError
from rsmq_django.core.queue.bands import bands_of
from rsmq_django.core.topic.keys import TOPICS_KEY
from rsmq_django.outbox.models import WAITING, OutboxMessage
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.topics import get_topic

from .models import FinishedTask, Flight, Weather
from .replay import WEATHER_QUEUE


@dataclass(frozen=True)
class QueueFigures:
    """One queue at this moment, with its dead-letter queue."""

    name: str
    sent: int
    deliveries: int
    ready: int
    hidden: int
    dead: int


@dataclass(frozen=True)
class Reason:
    """Why messages of a queue are dead letters."""

    queue: str
    error: str
    #: Why there was no further attempt, in the words of the failure record: "gave_up", "attempts_used_up", ...
    ended: str
    attempts: int


@dataclass(frozen=True)
class Balance:
    """The outcomes of all sent messages, per queue."""

    queues: list[QueueFigures]
    succeeded: dict[str, int]
    reasons: Counter[Reason]

    @property
    def sent(self) -> int:
        return sum(queue.sent for queue in self.queues)

    @property
    def dead(self) -> int:
        return sum(queue.dead for queue in self.queues)

    @property
    def settled(self) -> int:
        return sum(self.succeeded.values()) + self.dead

    @property
    def retries(self) -> int:
        return sum(queue.deliveries - queue.sent for queue in self.queues)

    def differences(self) -> list[str]:
        """Return a line for each queue whose figures do not add up; none when all do."""
        return [
            f"{queue.name}: {queue.sent} sent, but {self.succeeded[queue.name]} succeeded and {queue.dead} dead letters"
            for queue in self.queues
            if queue.sent != self.succeeded[queue.name] + queue.dead
        ]


def demo_queues() -> list[str]:
    """Return the names of the queues of this site, without their dead-letter queues."""
    return list(get_settings().queues)


def dead_letters_of(name: str) -> str:
    """Return the dead-letter queue of a queue; the site discards nothing."""
    found = get_settings().queue(name).dead_letter
    assert found is not None
    return found


def create_queues() -> None:
    """Create the site's queues and their dead-letter queues, as far as they do not exist."""
    for name in demo_queues():
        ensure_queue(name)
        ensure_queue(dead_letters_of(name))


def delete_queues() -> None:
    """Delete the site's queues with everything in them; their counters start at 0 again when they are created."""
    existing = list_queues(get_client())
    for name in demo_queues():
        for queue_name in (name, *bands_of(name, existing), dead_letters_of(name)):
            try:
                get_queue(queue_name).delete_queue()
            except QueueNotFound:
                pass  # never created, or deleted by hand


def delete_topic() -> None:
    """Delete the log of gates and the state of its readers. No reader may be active."""
    topic = get_topic(settings.FLIGHTBOARD_GATE_TOPIC)
    topic.trim(keep=0)
    topic.prune(idle_s=0)
    topic.client.connection.exchange([("DEL", *topic.keys.log), ("SREM", TOPICS_KEY, topic.name)])


def read_queues() -> list[QueueFigures]:
    """Read all queues and their dead-letter queues in one round trip."""
    names = demo_queues()
    alive = [get_queue(name) for name in names]
    dead = [get_queue(dead_letters_of(name)) for name in names]
    attributes = _attributes([*alive, *dead])
    return [
        QueueFigures(
            name=name,
            sent=here.total_sent if here else 0,
            deliveries=here.total_received if here else 0,
            ready=here.ready_messages if here else 0,
            hidden=here.hidden_messages if here else 0,
            dead=dead_letters.messages if dead_letters else 0,
        )
        for name, here, dead_letters in zip(names, attributes[: len(names)], attributes[len(names) :], strict=True)
    ]


def read_balance() -> Balance:
    """Count all sent messages and their outcomes."""
    queues = read_queues()
    finished = FinishedTask.objects.filter(has_succeeded=True).values_list("queue_name").annotate(Count("id"))
    succeeded = {queue.name: 0 for queue in queues} | dict(finished.order_by())
    # Raw messages have no task and no result; they leave a report behind.
    succeeded[WEATHER_QUEUE] = Weather.objects.count()
    return Balance(queues=queues, succeeded=succeeded, reasons=_reasons([queue.name for queue in queues]))


def in_outbox() -> int:
    """Return how many messages are still in the database."""
    return OutboxMessage.objects.filter(WAITING).count()


def unread_gates() -> int:
    """Return the number of gates that one of the readers of the topic has not processed yet."""
    return Flight.objects.exclude(gate="").filter(Q(gate_shown_at=None) | Q(gate_told_at=None)).count()


def unsettled(queues: Sequence[QueueFigures]) -> int:
    """Return the number of unprocessed messages: ready, delayed, waiting for a retry or in flight."""
    return sum(queue.ready + queue.hidden for queue in queues)


def _attributes(queues: list[Queue]) -> list[QueueAttributes | None]:
    """Return the attributes of each queue; None for a queue that does not exist yet, which is empty."""
    answers = get_client().run_many([queue._attributes() for queue in queues])
    for answer in answers:
        if isinstance(answer, RsmqError) and not isinstance(answer, QueueNotFound):
            raise answer
    return [answer if isinstance(answer, QueueAttributes) else None for answer in answers]


def _reasons(names: list[str]) -> Counter[Reason]:
    found: Counter[Reason] = Counter()
    for name in names:
        for record in failure_records(name):
            error = record["error"].rpartition(".")[2]
            found[Reason(name, error, record["reason"], record["attempts"])] += 1
    return found


def failure_records(name: str) -> list[dict[str, Any]]:
    """Return the failure records of the dead letters of a queue."""
    dead = get_queue(dead_letters_of(name))
    (values,) = dead.client.connection.exchange([("HVALS", dead.keys.failures)])
    return [json.loads(value) for value in values]
