"""Creates the queues of a worker and compares them with the settings, before the first message is received."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ...conf import QueueSettings, get_settings
from ...core import Queue, QueueAttributes
from ...core.call import Argument, Call
from ...core.errors import BrokenQueue, QueueFull
from ...core.keys import queues_key
from ...core.log_lines import get_logger
from ...core.replies import read_attributes
from ...queues import create_call, ensure_queue, get_queue
from ...tasks.registry import find_consumer, registered_tasks
from ..lease.delivery import WorkQueue

logger = get_logger(__name__)

T = TypeVar("T")

#: Queues per round trip.
SLICE = 250
#: Messages of a queue with a visibility timeout of 0 are leased, too.
SHORTEST_LEASE_S = 1.0


class SettingsMismatch(Exception):
    """A queue's stored times are a thousand times the settings' or the reverse: seconds and milliseconds were mixed."""


def provision(queues: Sequence[WorkQueue]) -> None:
    """Create the missing queues, also dead-letter queues and target queues, and compare these queues with the settings.

    A stored value that differs is logged and used: other programs share the queue. A queue that another program has
    damaged is logged and left alone: work on the other queues continues. Raises SettingsMismatch for a factor of a
    thousand, and the errors of the connection.
    """
    for part in _slices(queues):
        for work_queue, stored in zip(part, _provide([each.name for each in part]), strict=True):
            with damage_reported():
                stored = stored or ensure_unless_full(work_queue.name).attributes()
                compare(work_queue.settings, stored)
                work_queue.lease_s = max(SHORTEST_LEASE_S, stored.visibility_timeout_s)
    for names in _slices(sorted(dead_letter_queues(queues) | queues_for_others(queues))):
        for name, stored in zip(names, _provide(names), strict=True):
            if stored is None:
                with damage_reported():
                    ensure_unless_full(name)


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + SLICE] for at in range(0, len(items), SLICE))


def _provide(names: Sequence[str]) -> list[QueueAttributes | None]:
    """Create the missing ones of these queues and return the stored attributes: one round trip.

    None for a queue that is damaged, and for all of them when one is missing and the server is at its memory limit.
    """
    queues = [get_queue(name) for name in names]
    client = queues[0].client
    keys = [queues_key(client.namespace)]
    args: list[Argument] = []
    for queue in queues:
        keys += (queue.keys.settings, queue.keys.messages)
        args += create_call(queue.name).args
    try:
        stored = client.run(Call("worker/provision", tuple(keys), tuple(args), lambda reply: reply, repeatable=True))
    except QueueFull:
        return [None] * len(names)
    return [_attributes(queue, stored[3 * at : 3 * at + 3]) for at, queue in enumerate(queues)]


def _attributes(queue: Queue, times_and_size: Sequence[bytes]) -> QueueAttributes | None:
    counters = (b"0", b"0", b"", b"", 0, 0)
    return read_attributes(queue.vt_unit)([*times_and_size, *counters]) if any(times_and_size) else None


def ensure_unless_full(name: str) -> Queue:
    """Create a queue unless it exists; if the server is at its memory limit, return it unchanged so that it drains."""
    try:
        return ensure_queue(name)
    except QueueFull:
        return get_queue(name)


@contextmanager
def damage_reported() -> Iterator[None]:
    """Log a damaged queue instead of raising the error."""
    try:
        yield
    except BrokenQueue as error:
        logger.error("%s; its messages wait until it is repaired", error)


def compare(settings: QueueSettings, stored: QueueAttributes) -> None:
    """Log attributes that differ from the settings. Raises SettingsMismatch for a factor of a thousand."""
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
                "is in milliseconds, probably of a client that uses them. Set the queue's VT_UNIT to the unit in which "
                "its clients store times, or correct the stored value with "
                f"get_queue({settings.name!r}).set_attributes(...)"
            )
        logger.warning(
            "queue %s is stored with %s = %s, the settings say %s; the stored value is used",
            settings.name,
            option,
            found,
            wanted,
        )


def dead_letter_queues(queues: Sequence[WorkQueue]) -> set[str]:
    """Return the dead-letter queues that messages of these queues may move to.

    They include the queues of all tasks on the same server: `using(queue_name=...)` sends any task to any queue.
    """
    connections = {work_queue.settings.connection for work_queue in queues}
    consumers = [find_consumer(work_queue.name) for work_queue in queues]
    options = [task.options for task in registered_tasks().values()]
    options += [consumer.options for consumer in consumers if consumer is not None]
    found = {work_queue.settings.dead_letter for work_queue in queues}
    found |= {option.named_dead_letters for option in options}
    return {name for name in found if name is not None and get_settings().queue(name).connection in connections}


def queues_for_others(queues: Sequence[WorkQueue]) -> set[str]:
    """Return the queues on the same servers that other programs consume, and may look for before a first send."""
    connections = {work_queue.settings.connection for work_queue in queues}
    found = get_settings().queues.items()
    return {name for name, settings in found if settings.for_others and settings.connection in connections}
