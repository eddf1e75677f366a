"""Queues of the settings: name -> core `Queue` on its connection.

Resolves the server of a connection (a URL, a Redis cache, the embedded server) and keeps one client per process and
alias. Does not look into messages.
"""

import threading

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from .conf.caches import cache_url, with_options
from .conf.settings import ConnectionSettings, QueueSettings, aliases_of, get_settings
from .conf.shards import shard_alias
from .core import Client, Connection, Durability, DurableClient, Queue
from .core.errors import InvalidValue, QueueExists
from .core.queue.pause import pause, paused, resume
from .core.transport.call import Call
from .core.transport.handshake import find_provider

__all__ = [
    "aensure_queue",
    "configured_queues",
    "ensure_queue",
    "get_client",
    "get_queue",
    "get_sender",
    "pause_queue",
    "paused_queues",
    "resume_queue",
    "shards_of_queue",
]

_clients: dict[str, Client] = {}
_senders: dict[tuple[str, Durability | None], Client] = {}
_queues: dict[str, Queue] = {}
#: By name and alias of the connection.
_shards: dict[tuple[str, str], Queue] = {}
# Reentrant, because building a queue builds its client.
_building = threading.RLock()


def get_queue(name: str, *, shard: int | None = None) -> Queue:
    """Return a queue or dead-letter queue of the settings. Raises ImproperlyConfigured for any other name.

    Of a queue with SHARDS, one shard has to be named: each is a queue of its own for any RSMQ client, see
    shards_of_queue(). Does no I/O, and does not create the queue: see `ensure_queue`.
    """
    if shard is not None:
        settings = get_settings().queue(name)
        if not 0 <= shard < settings.shards:
            has = f"the shards 0 to {settings.shards - 1}, not" if settings.shards > 1 else "no shards, so no shard"
            raise ImproperlyConfigured(f"Queue {name!r} has {has} {shard}.")
        return queue_on(name, shard_alias(settings.connection, shard))
    queue = _queues.get(name)
    return queue if queue is not None else _build_queue(name)


def shards_of_queue(name: str) -> list[Queue]:
    """Return all shards of a queue of the settings, in order; the queue itself if it has no SHARDS."""
    return [queue_on(name, alias) for alias in aliases_of(get_settings().queue(name))]


def queue_on(name: str, alias: str) -> Queue:
    """Return the queue, or its shard, on a connection. Raises ImproperlyConfigured if the settings have none there."""
    queue = _shards.get((name, alias))
    return queue if queue is not None else _build_shard(name, alias)


def get_client(alias: str = "default") -> Client:
    """Return the client of a connection. It is created at the first use, and shared by all threads."""
    client = _clients.get(alias)
    return client if client is not None else _build_client(alias)


def get_sender(alias: str = "default") -> Client:
    """Return the client of a connection that waits as the DURABILITY of the connection says."""
    settings = get_settings().connection(alias).durability
    return durable_client(alias, settings.durability if settings is not None else None)


def durable_client(alias: str, durability: Durability | None) -> Client:
    """Return the client of a connection whose calls wait for replicas or disks; None: the ordinary one."""
    client = _senders.get((alias, durability))
    if client is None:
        with _building:
            plain = get_client(alias)
            client = plain if durability is None else DurableClient(plain, durability)
            client = _senders.setdefault((alias, durability), client)
    return client


def pause_queue(name: str) -> bool:
    """Stop workers from receiving messages of a queue until it is resumed; return False if it was already paused.

    Running tasks finish. Raises ImproperlyConfigured for a queue that is not in the settings.
    """
    changed = [queue.client.run(pause(queue.client.namespace, queue.name)) == 1 for queue in shards_of_queue(name)]
    return any(changed)


def resume_queue(name: str) -> bool:
    """Let workers receive messages of a paused queue again; return whether it was paused. See pause_queue()."""
    changed = [queue.client.run(resume(queue.client.namespace, queue.name)) == 1 for queue in shards_of_queue(name)]
    return any(changed)


def paused_queues() -> list[str]:
    """Return the names of the settings' queues that are paused, in their order; also those with a paused shard."""
    settings = get_settings()
    clients = {alias: get_client(alias) for alias in settings.connections}
    on = {alias: client.run(paused(client.namespace)) for alias, client in clients.items()}
    queues = settings.queues.values()
    return [queue.name for queue in queues if any(queue.name in on[alias] for alias in aliases_of(queue))]


def configured_queues() -> list[Queue]:
    """Return the queues of RSMQ['QUEUES'], in their order; of a queue with SHARDS, each shard."""
    return [queue for name in get_settings().queues for queue in shards_of_queue(name)]


def ensure_queue(name: str, *, shard: int | None = None) -> Queue:
    """Return the queue, created with its settings unless it exists. An existing queue keeps its attributes."""
    queue, settings = get_queue(name, shard=shard), get_settings().queue(name)
    try:
        queue.create(**_attributes(settings))
    except QueueExists:
        pass  # possibly created by another process at the same time
    return queue


def create_call(queue: Queue) -> Call[None]:
    """Return the call that creates a queue with its settings."""
    return queue.create_call(**_attributes(get_settings().queue(queue.name)))


def create_as_configured(name: str, client: Client) -> None:
    """Create a queue as ensure_queue() does, with another client than the process's own."""
    settings = get_settings().queue(name)
    try:
        Queue(name, client, realtime=True, vt_unit=settings.vt_unit).create(**_attributes(settings))
    except QueueExists:
        pass


async def aensure_queue(name: str, *, shard: int | None = None) -> Queue:
    """See ensure_queue()."""
    queue, settings = get_queue(name, shard=shard), get_settings().queue(name)
    try:
        await queue.acreate(**_attributes(settings))
    except QueueExists:
        pass
    return queue


def _attributes(settings: QueueSettings) -> dict[str, int]:
    return {
        "visibility_timeout_s": settings.visibility_timeout_s,
        "delay_s": settings.delay_s,
        "max_size_bytes": settings.max_size_bytes,
    }


def _build_queue(name: str) -> Queue:
    settings = get_settings().queue(name)
    if settings.shards > 1:
        raise ImproperlyConfigured(
            f"Queue {name!r} has {settings.shards} shards, and this would use only one of them. Name it, as in "
            f"get_queue({name!r}, shard=0), or use shards_of_queue({name!r})."
        )
    with _building:
        return _queues.setdefault(name, _build(name, settings))


def _build_shard(name: str, alias: str) -> Queue:
    settings = get_settings().queue_on(name, alias)
    if settings is None:
        raise ImproperlyConfigured(f"Queue {name!r} has no shard on the connection {alias!r}.")
    queue = _build(name, settings) if settings.shards > 1 else get_queue(name)
    with _building:
        return _shards.setdefault((name, alias), queue)


def _build(name: str, settings: QueueSettings) -> Queue:
    with _building:
        client, durability = get_client(settings.connection), settings.durability
        sender = durable_client(settings.connection, durability.durability) if durability is not None else client
        # Realtime, so that idle workers wake at once.
        return Queue(name, client, realtime=True, vt_unit=settings.vt_unit, sender=sender)


def _build_client(alias: str) -> Client:
    settings = get_settings().connection(alias)
    with _building:
        if alias not in _clients:
            connection = _build_connection(settings)
            _clients[alias] = Client(connection, namespace=settings.namespace)
        return _clients[alias]


def _build_connection(settings: ConnectionSettings) -> Connection:
    given = settings.credential_provider
    try:
        provider = None if given is None else find_provider(given)
        url = with_options(_server_url(settings), settings.options) if settings.options else _server_url(settings)
        return Connection(url, timeout_s=settings.timeout_s, credential_provider=provider)
    except (InvalidValue, ValueError) as error:
        raise ImproperlyConfigured(f"RSMQ['CONNECTIONS'][{settings.alias!r}]: {error}") from error


def _server_url(settings: ConnectionSettings) -> str:
    if settings.url is not None:
        return settings.url
    if settings.cache is not None:
        return cache_url(settings.cache)
    if settings.state_dir is None:
        raise ImproperlyConfigured(f"RSMQ['CONNECTIONS'][{settings.alias!r}] has no address.")
    # Imported here: production has no embedded server.
    from .embedded import EmbeddedServer

    return EmbeddedServer(settings.state_dir).ensure()


@receiver(setting_changed)
def _forget_connections(*, setting: str, **_: object) -> None:
    if setting in ("RSMQ", "CACHES", "BASE_DIR"):
        with _building:
            for client in _clients.values():
                client.connection.close()
            _clients.clear()
            _senders.clear()
            _queues.clear()
            _shards.clear()
