"""The queues of a worker exist and are what the settings say, before the first message is taken."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..conf import QueueSettings
from ..core import QueueAttributes
from ..core.errors import QueueExists
from ..queues import ensure_queue
from ..tasks.registry import find_consumer, registered_tasks
from .delivery import WorkQueue

logger = logging.getLogger(__name__)

#: Even a queue created with a visibility timeout of 0 is worked on under a lease.
SHORTEST_LEASE_S = 1.0


class SettingsMismatch(Exception):
    """A queue's stored times are a thousand times the settings' or the reverse: somebody mixed seconds and ms."""


def provision(queues: Sequence[WorkQueue]) -> None:
    """Create the queues and dead-letter queues that are missing, and compare the others with the settings.

    A stored value that differs is reported and used: other programs share the queue. Raises SettingsMismatch for a
    factor of a thousand, and the errors of the connection.
    """
    for work_queue in queues:
        try:
            ensure_new(work_queue)
        except QueueExists:
            compare(work_queue.settings, work_queue.queue.attributes())
        stored_s = work_queue.queue.attributes().visibility_timeout_s
        work_queue.lease_s = max(SHORTEST_LEASE_S, stored_s)
    for name in dead_letter_queues(queues):
        ensure_queue(name)


def ensure_new(work_queue: WorkQueue) -> None:
    """Create the queue as the settings say. Raises QueueExists."""
    settings = work_queue.settings
    work_queue.queue.create(
        visibility_timeout_s=settings.visibility_timeout_s,
        delay_s=settings.delay_s,
        max_size_bytes=settings.max_size_bytes,
    )
    logger.info("created queue %s", work_queue.name)


def compare(settings: QueueSettings, stored: QueueAttributes) -> None:
    """Report attributes that differ from the settings. Raises SettingsMismatch for a factor of a thousand."""
    for option, wanted, found in (
        ("VISIBILITY_TIMEOUT_S", settings.visibility_timeout_s, stored.visibility_timeout_s),
        ("DELAY_S", settings.delay_s, stored.delay_s),
        ("MAX_SIZE_BYTES", settings.max_size_bytes, stored.max_size_bytes),
    ):
        if wanted == found:
            continue
        if option.endswith("_S") and wanted and found and found / wanted in (1000, 0.001):
            raise SettingsMismatch(
                f"queue {settings.name!r} is stored with {option} = {found}, the settings say {wanted}: one of them "
                "is in milliseconds, probably of a client that uses them. Correct the setting, or the stored value "
                f"with get_queue({settings.name!r}).set_attributes(...)"
            )
        logger.warning(
            "queue %s is stored with %s = %s, the settings say %s; the stored value is used",
            settings.name,
            option,
            found,
            wanted,
        )


def dead_letter_queues(queues: Sequence[WorkQueue]) -> set[str]:
    """Return the dead-letter queues that messages of these queues may go to."""
    names = {work_queue.name for work_queue in queues}
    found = {work_queue.settings.dead_letter for work_queue in queues}
    options = [task.options for task in registered_tasks().values() if task.queue_name in names]
    options += [consumer.options for consumer in map(find_consumer, names) if consumer is not None]
    return found | {option.dead_letter_queue for option in options if option.dead_letter_queue}
