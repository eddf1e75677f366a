"""Writing of outbox rows, in the open transaction or in a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction

from ..conf.settings import get_settings
from ..core import Queue
from ..queues import get_queue
from .models import OutboxMessage

if TYPE_CHECKING:
    from ..tasks.outgoing import Outgoing

#: Name of the PostgreSQL notification that wakes relays.
CHANNEL = "rsmq_outbox"
ROWS_PER_INSERT = 500


def outbox_database() -> str:
    """Return the alias of the outbox's database."""
    alias = get_settings().tasks.enqueue_on_commit
    return alias if isinstance(alias, str) else DEFAULT_DB_ALIAS


def write(batches: Sequence[Outgoing], *, keeps_result: bool) -> None:
    """Insert rows for prepared calls; a relay sends them after the commit, in this order.

    Raises TransactionManagementError where Django allows no hooks of a commit. No row exists then.
    """
    database = outbox_database()
    connection = connections[database]
    if not (connection.in_atomic_block or connection.get_autocommit()):
        raise transaction.TransactionManagementError(
            f"autocommit of the database {database!r} is off, and Django allows no hooks of a commit then; nothing was "
            "stored. Use transaction.atomic()"
        )
    rows = [
        OutboxMessage(
            queue_name=batch.queue.name,
            task_id=task_id,
            task=batch.task.module_path[:255],
            body=body,
            run_after=batch.task.run_after,
            keeps_result=keeps_result,
        )
        for batch in batches
        for task_id, body in zip(batch.ids, batch.bodies, strict=True)
    ]
    OutboxMessage.objects.using(database).bulk_create(rows, batch_size=ROWS_PER_INSERT)
    if connection.vendor == "postgresql":
        # After the commit, since a notification within a transaction serializes commits of PostgreSQL.
        if not any(call is _ring for _, call, *_ in connection.run_on_commit):
            transaction.on_commit(_ring, using=database)


def find_waiting(task_id: str) -> OutboxMessage | None:
    """Return the unsent row of a task."""
    return OutboxMessage.objects.using(outbox_database()).filter(task_id=task_id, sent_at=None).first()


def queue_of_rows(name: str) -> Queue:
    """Return the queue of these rows; of one that has got shards after they were written, the first, where it was.

    Raises ImproperlyConfigured for a queue that is not in the settings.
    """
    return get_queue(name, shard=first_shard(name))


def first_shard(name: str) -> int | None:
    """Return the number of the first shard of a queue; None for a queue without shards."""
    return 0 if get_settings().queue(name).shards > 1 else None


def _ring() -> None:
    """Wake the relays. If this fails, their next poll finds the rows."""
    try:
        with connections[outbox_database()].cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")
    except Error:
        pass
