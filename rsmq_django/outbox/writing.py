"""The sending side: a row for each task, in the transaction that is open, or in one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, Error, connections, transaction

from ..conf import get_settings
from .models import OutboxMessage

if TYPE_CHECKING:
    from ..tasks.sending import Outgoing

#: What PostgreSQL calls the wake-up of relays.
CHANNEL = "rsmq_outbox"
ROWS_PER_INSERT = 500


def outbox_database() -> str:
    """Return the alias of the database whose transactions tasks belong to."""
    alias = get_settings().tasks.enqueue_on_commit
    return alias if isinstance(alias, str) else DEFAULT_DB_ALIAS


def write(batches: Sequence[Outgoing], *, keeps_result: bool) -> None:
    """Store calls that have been prepared; a relay sends them after the commit, in this order."""
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
    database = outbox_database()
    OutboxMessage.objects.using(database).bulk_create(rows, batch_size=ROWS_PER_INSERT)
    if connections[database].vendor == "postgresql":
        # After the commit and not within: a notification makes commits of PostgreSQL wait for each other.
        if not any(call is _ring for _, call, *_ in connections[database].run_on_commit):
            transaction.on_commit(_ring, using=database)


def find_waiting(task_id: str) -> OutboxMessage | None:
    """Return the row of a task that has not been sent yet."""
    return OutboxMessage.objects.using(outbox_database()).filter(task_id=task_id, sent_at=None).first()


def _ring() -> None:
    """Wake the relays. When it fails they look by themselves, a moment later."""
    try:
        with connections[outbox_database()].cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")
    except Error:
        pass
