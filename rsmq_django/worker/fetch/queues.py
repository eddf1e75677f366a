"""Which queues a worker works on: the queues named on its command line, or all of the settings."""

from __future__ import annotations

from collections.abc import Sequence

import redis
from django.core.exceptions import ImproperlyConfigured

from ...conf import QueueSettings, get_settings
from ...core import Client, Connection
from ...core.errors import DatabaseNotFound, PermissionDenied, RedisFailure
from ...core.keys import worker_key
from ...options import nearest
from ...queues import get_client, get_queue
from ...tasks.registry import check_primary
from ..lease.delivery import WorkQueue


def work_queues_by_client(queues: Sequence[QueueSettings], worker_id: str) -> list[tuple[Client, list[WorkQueue]]]:
    """Return the queues of a worker with this id, grouped by connection."""
    by_connection: dict[str, list[WorkQueue]] = {}
    for settings in queues:
        queue = get_queue(settings.name)
        inflight_key = worker_key(queue.client.namespace, worker_id)
        work_queue = WorkQueue(settings, queue, settings.visibility_timeout_s, inflight_key)
        by_connection.setdefault(settings.connection, []).append(work_queue)
    return [(get_client(alias), work_queues) for alias, work_queues in by_connection.items()]


def connections_of(queues: Sequence[QueueSettings], reliable: Sequence[str]) -> list[Connection]:
    """Return the connections that these queues are on."""
    settings = get_settings()
    aliases = {each.connection for each in queues} | {settings.reliable[name].connection for name in reliable}
    return [get_client(alias).connection for alias in sorted(aliases)]


def check_servers(queues: Sequence[QueueSettings], reliable: Sequence[str]) -> None:
    """Try the connection of each of these queues once.

    Raises PermissionDenied and DatabaseNotFound, which do not go away by waiting. Unavailable servers are ignored.
    """
    for connection in connections_of(queues, reliable):
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
