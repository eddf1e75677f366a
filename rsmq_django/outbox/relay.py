"""The relay sends rows of the outbox table to Redis, in order, queue by queue, and marks them as sent afterwards.

A row is marked as sent only when a replica of the server has its message, if there are replicas, or when what the
DURABILITY of its queue asks for has confirmed it. If the relay dies
between the two steps, or a reply is lost, the next relay sends the same rows again; the script that sends remembers
their ids and skips them. So order and "once" do not require a single relay. On databases with row locks, relays lock
the first unsent row of a queue, so that they do not do the same work; SQLite has one writer anyway, and no lock is held
there during the calls to Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Length
from django.utils import timezone

from ..conf.settings import get_settings
from ..core import Client, DurableClient, Queue, RsmqError
from ..core.errors import NotConfirmed, OutcomeUnknown, QueueNotFound
from ..core.log_lines import get_logger
from ..core.queue.bands import split_band
from ..core.tasks.outbox import Relayed, RelayItem, confirm, relay
from ..core.texts import counted
from ..core.transport.backoff import ReconnectBackoff
from ..core.transport.call import Argument
from ..queues import ensure_queue
from ..tasks.results import UNFINISHED_TTL_S
from ..tasks.route import ms_until
from .batch_size import BatchSize
from .models import WAITING, InboxEntry, OutboxMessage
from .replicas import Replicas
from .writing import first_shard, outbox_database, queue_of_rows

logger = get_logger(__name__)

#: Number of old rows that are deleted at a time, so that no transaction takes long.
PRUNE_BATCH = 1000


class Relay:
    """Sends the messages in the outbox of one database."""

    def __init__(self) -> None:
        self.database = outbox_database()
        self._backoffs: dict[str, ReconnectBackoff] = {}
        self._portions: dict[str, BatchSize] = {}
        self._replicas: dict[Client, Replicas] = {}
        #: Whether relay_waiting() was over before it had sent all rows that could be sent.
        self.leaves_some = False

    def relay_waiting(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Send the rows that can be sent now and return their number; stop after a round in which `is_over` is true.

        A round has one batch of each queue, so a queue with very many rows does not hold up the others. Problems of
        Redis are logged and leave the rows in the table. Raises the errors of the database.
        """
        names, count = self._waiting_queues(), 0
        while names:
            done = {name: self._relay_next(name) for name in names}
            count += sum(done.values())
            names = [name for name in names if done[name] and self._portions[name].leaves_some]
            if is_over():
                break
        self.leaves_some = bool(names)
        return count

    def _waiting_queues(self) -> list[str]:
        return list(self._waiting().order_by("queue_name").values_list("queue_name", flat=True).distinct())

    def _waiting(self) -> QuerySet[OutboxMessage]:
        return OutboxMessage.objects.using(self.database).filter(WAITING)

    def _relay_next(self, name: str) -> int:
        """Send the next batch of a queue, unless it had a problem a moment ago; return the number of rows."""
        server = queue_of_rows(name).client.connection if get_settings().knows_queue(name) else None
        backoff = self._backoffs.setdefault(name, ReconnectBackoff(f"outbox of queue {name}", server=server))
        if time.monotonic() < backoff.next_try_at:
            return 0
        try:
            done = self._relay_batch(name)
        except RsmqError as error:
            backoff.note(error)
            return 0
        backoff.over()
        return done

    def _relay_batch(self, name: str) -> int:
        batch_size = self._portions.setdefault(name, BatchSize())
        with self._claimed(name, batch_size) as rows:
            if not rows:
                return 0
            try:
                queue = queue_of_rows(name)
            except ImproperlyConfigured as error:
                self._refuse(rows, str(error))
                return len(rows)
            try:
                verdicts = self._send(queue, rows, batch_size)
            except NotConfirmed:  # it is stored, and sent again until it is confirmed
                raise
            except OutcomeUnknown:
                batch_size.halve(len(rows))
                raise
            self._note_sent(queue, rows, verdicts)
        batch_size.grow()
        # After the commit: until then the mark may be lost, and the ids must be remembered for a long time.
        queue.client.run(confirm(queue.client.namespace, [row.task_id for row in rows]))
        return len(rows)

    @contextmanager
    def _claimed(self, name: str, batch_size: BatchSize) -> Iterator[list[OutboxMessage]]:
        """Yield the first unsent rows of a queue; none when another relay has locked them."""
        waiting = self._waiting().filter(queue_name=name).order_by("pk")
        if not connections[self.database].features.has_select_for_update_skip_locked:
            yield _first(waiting, batch_size)
            return
        with transaction.atomic(using=self.database):
            head = waiting.values_list("pk", flat=True).first()
            if head is None or not list(waiting.filter(pk=head).select_for_update(skip_locked=True).only("pk")):
                yield []
                return
            yield _first(waiting, batch_size)

    def _send(self, queue: Queue, rows: Sequence[OutboxMessage], batch_size: BatchSize) -> list[Relayed]:
        client = queue.client
        replicas = self._replicas.setdefault(client, Replicas())
        if batch_size.patience > 1:
            connection = client.connection.with_timeout(client.connection.timeout_s * batch_size.patience)
            client = Client(connection, namespace=client.namespace)
        base, _ = split_band(queue.name)
        call = relay(
            queue.client.namespace,
            queue.keys,
            queue.name,
            [RelayItem(row.task_id, bytes(row.body), _delay(row, queue), row.keeps_result) for row in rows],
            # Workers subscribe to the queue itself, and may not know the band of a priority yet.
            channel=(queue_of_rows(base) if base in get_settings().queues else queue).keys.channel,
            record_ttl_s=UNFINISHED_TTL_S,
        )
        durability = get_settings().queue(queue.name).durability
        if durability is not None:
            client = DurableClient(client, durability.durability)
        run = client.run if durability is not None else partial(replicas.run, client)
        try:
            return run(call)
        except QueueNotFound:  # nothing was sent
            ensure_queue(queue.name, shard=first_shard(queue.name))
            return run(call)
        finally:
            if client.connection is not queue.client.connection:
                client.connection.close()

    def _note_sent(self, queue: Queue, rows: Sequence[OutboxMessage], verdicts: Sequence[Relayed]) -> None:
        pairs = list(zip(rows, verdicts, strict=True))
        sent = [row.pk for row, verdict in pairs if verdict is not Relayed.TOO_LONG]
        OutboxMessage.objects.using(self.database).filter(pk__in=sent).update(sent_at=timezone.now())
        too_long = [row for row, verdict in pairs if verdict is Relayed.TOO_LONG]
        self._refuse(too_long, f"the message is longer than queue {queue.name!r} allows; raise its maximum size")
        repeated = sum(verdict is Relayed.SENT_BEFORE for verdict in verdicts)
        if repeated:
            logger.info("outbox of queue %s: left out %s sent before", queue.name, counted(repeated))

    def _refuse(self, rows: Sequence[OutboxMessage], reason: str) -> None:
        if rows:
            logger.error(
                "%s of the outbox cannot be sent: %s. Fix the cause, then run `manage.py rsmq_outbox retry`",
                counted(len(rows)),
                reason.rstrip("."),
            )
            pks = [row.pk for row in rows]
            OutboxMessage.objects.using(self.database).filter(pk__in=pks).update(refusal=reason)


def prune(*, keep_sent_s: float, keep_done_s: float, is_over: Callable[[], bool] = lambda: False) -> tuple[int, int]:
    """Delete sent rows, and inbox entries of finished tasks, that are older than this; return the number of each.

    Stops after a slice of both when `is_over` is true: others are deleted the next time.
    """
    now, database = timezone.now(), outbox_database()
    sent = OutboxMessage.objects.using(database).filter(sent_at__lt=now - timedelta(seconds=keep_sent_s))
    done = InboxEntry.objects.using(database).filter(done_at__lt=now - timedelta(seconds=keep_done_s))
    counts = [0, 0]
    while any(deleted := [_delete_slice(sent), _delete_slice(done)]):
        counts = [count + more for count, more in zip(counts, deleted, strict=True)]
        if is_over():
            break
    return counts[0], counts[1]


def _delete_slice(old: QuerySet[OutboxMessage] | QuerySet[InboxEntry]) -> int:
    pks = list(old.values_list("pk", flat=True)[:PRUNE_BATCH])
    return old.filter(Q(pk__in=pks)).delete()[0] if pks else 0


def _first(waiting: QuerySet[OutboxMessage], batch_size: BatchSize) -> list[OutboxMessage]:
    """Return the first rows that are sent together. Their sizes are read before their bodies, which may be large."""
    sizes = waiting.annotate(size=Length("body")).values_list("pk", "size")[: batch_size.rows]
    pks = batch_size.choose(list(sizes))
    return list(waiting.filter(pk__in=pks)) if pks else []


def _delay(row: OutboxMessage, queue: Queue) -> Argument:
    if row.run_after is None:
        return queue.vt_unit  # the queue's own delay
    return ms_until(row.run_after)
