"""The queues of a worker: those named on its command line, or all of the settings.

They are created and compared with the settings before the first message is received.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import redis
from django.core.exceptions import ImproperlyConfigured

from ...conf.options import nearest
from ...conf.settings import QueueSettings, get_settings
from ...core import Client, Connection, Queue, QueueAttributes, list_queues
from ...core.errors import (
    BrokenQueue,
    DatabaseNotFound,
    PermissionDenied,
    QueueExists,
    QueueFull,
    RedisFailure,
)
from ...core.keys import queues_key, worker_key
from ...core.log_lines import get_logger
from ...core.queue.pause import pause, paused
from ...core.queue.replies import read_attributes
from ...core.transport.call import Argument, Call
from ...queues import create_call, get_client, queue_on
from ...tasks.registry import check_primary, find_consumer
from ...tasks.task import registered_tasks
from ...tasks.topic_task import registered_topic_tasks
from ..delivery import SHORTEST_LEASE_S, WorkQueue


def work_queues_by_client(queues: Sequence[QueueSettings], worker_id: str) -> list[tuple[Client, list[WorkQueue]]]:
    """Return the queues of a worker with this id, grouped by connection; each shard is on one of its own."""
    by_connection: dict[str, list[WorkQueue]] = {}
    for settings in in_shards(queues):
        queue = queue_on(settings.name, settings.connection)
        inflight_key = worker_key(queue.client.namespace, worker_id)
        work_queue = WorkQueue(settings, queue, settings.visibility_timeout_s, inflight_key)
        by_connection.setdefault(settings.connection, []).append(work_queue)
    return [(get_client(alias), work_queues) for alias, work_queues in by_connection.items()]


def in_shards(queues: Iterable[QueueSettings]) -> list[QueueSettings]:
    """Return the queues, each with shards as its shards."""
    return [shard for queue in queues for shard in get_settings().shards_of(queue)]


def connections_of(
    queues: Sequence[QueueSettings], reliable: Sequence[str], topics: Sequence[str] | None
) -> list[Connection]:
    """Return the connections that these queues and topics are on; None for all topics with declared tasks."""
    settings = get_settings()
    aliases = {each.connection for each in in_shards(queues)}
    aliases |= {settings.reliable[name].connection for name in reliable}
    aliases |= {each.connection for each in registered_topic_tasks() if topics is None or each.topic in topics}
    return [get_client(alias).connection for alias in sorted(aliases)]


def check_servers(queues: Sequence[QueueSettings], reliable: Sequence[str], topics: Sequence[str] | None) -> None:
    """Try the connection of each of these queues and topics once.

    Raises PermissionDenied and DatabaseNotFound, which do not go away by waiting. Unavailable servers are ignored, and
    so are sentinels that do not know the name of their primary (yet).
    """
    for connection in connections_of(queues, reliable, topics):
        try:
            (reply,) = connection.exchange([("TIME",)])
        except (PermissionDenied, DatabaseNotFound):
            raise
        except RedisFailure:
            continue
        finally:
            connection.close()  # processes that are forked later have sockets of their own
        if isinstance(reply, redis.AuthenticationError):
            raise PermissionDenied(f"{connection!r} refused the connection ({reply}); put the password into the URL")


def queue_settings(names: Sequence[str]) -> list[QueueSettings]:
    """Return the settings of these queues, in this order; without names, of all of RSMQ["QUEUES"] that are for workers.

    Raises ImproperlyConfigured for an unknown name.
    """
    settings = get_settings()
    for name in names:
        if name in settings.dead_letters:
            raise ImproperlyConfigured(
                f"Queue {name!r} holds dead letters. To have workers take from it, list it in RSMQ['QUEUES']; what "
                f"fails there goes to {settings.queue(name).dead_letter!r} then."
            )
    chosen = list(names) or [name for name, queue in settings.queues.items() if not queue.for_others]
    for name in chosen:
        check_primary(name)
    return [settings.queue(name) for name in chosen]


def split_reliable(names: Sequence[str]) -> tuple[list[QueueSettings], tuple[str, ...]]:
    """Return the settings of the queues in `names`, and the names of the reliable queues; without names, of all.

    Raises ImproperlyConfigured for an unknown name.
    """
    reliable = get_settings().reliable
    if not names:
        return queue_settings([]), tuple(reliable)
    others = [name for name in names if name not in reliable]
    for name in others:
        if reliable and not get_settings().knows_queue(name):
            known = [*get_settings().queues, *reliable]
            raise ImproperlyConfigured(
                f"Queue {name!r} is neither in RSMQ['QUEUES'] nor in RSMQ['RELIABLE']. {nearest(name, known)}"
            )
    return queue_settings(others) if others else [], tuple(name for name in names if name in reliable)


logger = get_logger(__name__)

T = TypeVar("T")

# -- Creation and comparison ------------------------------------------------------------------------------------------

#: Queues per round trip.
SLICE = 250


class SettingsMismatch(Exception):
    """A queue's stored times are a thousand times the settings' or the reverse: seconds and milliseconds were mixed."""


def provision(queues: Sequence[WorkQueue]) -> Iterator[None]:
    """Create the missing queues, also dead-letter queues and target queues, and compare these queues with the settings.

    It goes on when the iterator does, and yields after each slice of many queues: the worker may have been stopped.
    A stored value that differs is logged and used: other programs share the queue. A queue that another program has
    damaged is logged and left alone: work on the other queues continues. Raises SettingsMismatch for a factor of a
    thousand, and the errors of the connection.
    """
    for part in _slices(queues):
        _pause_new_shards(part)
        for work_queue, stored in zip(part, _provide([each.queue for each in part]), strict=True):
            with damage_reported():
                stored = stored or ensure_unless_full(work_queue.queue).attributes()
                compare(work_queue.settings, stored)
                work_queue.lease_s = max(SHORTEST_LEASE_S, stored.visibility_timeout_s)
        if len(part) == SLICE:
            yield
    others = sorted(dead_letter_queues(queues) | queues_for_others(queues))
    for targets in _slices([queue_on(name, alias) for name, alias in others]):
        for target, stored in zip(targets, _provide(targets), strict=True):
            if stored is None:
                with damage_reported():
                    ensure_unless_full(target)
        if len(targets) == SLICE:
            yield


def _pause_new_shards(queues: Sequence[WorkQueue]) -> None:
    """Pause the shards among these that do not exist yet, and whose queue is paused in shard 0: it has got more shards.

    Those that exist keep what an operator has chosen for them.
    """
    shards = {each.base_name for each in queues if each.settings.shard}
    missing = shards.difference(list_queues(queues[0].queue.client)) if shards else set[str]()
    if missing:
        home = get_client(get_settings().queue(min(missing)).connection)
        if on_hold := missing & home.run(paused(home.namespace)):
            client = queues[0].queue.client
            client.run(pause(client.namespace, *sorted(on_hold)))


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + SLICE] for at in range(0, len(items), SLICE))


def _provide(queues: Sequence[Queue]) -> list[QueueAttributes | None]:
    """Create the missing ones of these queues and return the stored attributes: one round trip.

    None for a queue that is damaged, and for all of them when one is missing and the server is at its memory limit.
    """
    client = queues[0].client
    keys = [queues_key(client.namespace)]
    args: list[Argument] = []
    for queue in queues:
        keys += (queue.keys.settings, queue.keys.messages)
        args += create_call(queue).args
    try:
        stored = client.run(
            Call("tasks/worker/provision", tuple(keys), tuple(args), lambda reply: reply, repeatable=True)
        )
    except QueueFull:
        return [None] * len(queues)
    return [_attributes(queue, stored[3 * at : 3 * at + 3]) for at, queue in enumerate(queues)]


def _attributes(queue: Queue, times_and_size: Sequence[bytes]) -> QueueAttributes | None:
    counters = (b"0", b"0", b"", b"", 0, 0)
    return read_attributes(queue.vt_unit)([*times_and_size, *counters]) if any(times_and_size) else None


def ensure_unless_full(queue: Queue) -> Queue:
    """Create a queue unless it exists; if the server is at its memory limit, leave it as it is so that it drains."""
    with suppress(QueueExists, QueueFull):  # another process may have created it at the same time
        queue.client.run(create_call(queue))
    return queue


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


def dead_letter_queues(queues: Sequence[WorkQueue]) -> set[tuple[str, str]]:
    """Return the dead-letter queues that messages of these queues may move to: name, and alias of the connection.

    They include the queues of all tasks on the same server: `using(queue_name=...)` sends any task to any queue.
    """
    connections = {work_queue.settings.connection for work_queue in queues}
    consumers = [find_consumer(work_queue.name) for work_queue in queues]
    options = [task.options for task in registered_tasks().values()]
    options += [consumer.options for consumer in consumers if consumer is not None]
    found = {work_queue.settings.dead_letter for work_queue in queues}
    found |= {option.named_dead_letters for option in options}
    return _existing({name for name in found if name is not None}, connections)


def queues_for_others(queues: Sequence[WorkQueue]) -> set[tuple[str, str]]:
    """Return the queues on the same servers that other programs consume, and may look for before a first send."""
    connections = {work_queue.settings.connection for work_queue in queues}
    return _existing({name for name, queue in get_settings().queues.items() if queue.for_others}, connections)


def _existing(names: set[str], aliases: set[str]) -> set[tuple[str, str]]:
    """Return name and alias of the queues, or shards of them, that the settings have on these connections."""
    settings = get_settings()
    return {(name, alias) for name in names for alias in aliases if settings.queue_on(name, alias) is not None}
