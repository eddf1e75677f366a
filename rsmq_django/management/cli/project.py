"""The settings as the commands of rsmq_django.cli see them, and the option --connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
import redis
from django.utils.module_loading import autodiscover_modules

from ...cli.session import Session, Structure
from ...conf.options import nearest
from ...conf.settings import QueueSettings, aliases_of, get_settings
from ...core import Client, list_queues
from ...core.doctor import ExpectedQueue, Finding
from ...core.doctor.catalogue import found
from ...core.errors import PermissionDenied
from ...core.keys import queues_key, shard_namespace
from ...core.limits import MOST_SHARDS, batches
from ...core.queue.browse import count
from ...core.tasks.schedules import list_entries
from ...core.texts import counted
from ...core.transport.client import raise_or_return
from ...live.durability import shortfalls
from ...live.expected import expected_queues
from ...live.installation import read_installation
from ...live.processes import served_names
from ...live.state_line import as_text, parts_of
from ...queues import get_client
from ...redrive import dead_letter_queues
from ...tasks.schedule_listing import all_entries


class SettingsProject:
    """The connections and queues of settings.RSMQ; see rsmq_django.cli.session.Project."""

    def client(self, queue_name: str | None, aliases: Sequence[str]) -> Client:
        """Return the client of the connection, else of the queue's configured connection, else of the default one."""
        if len(aliases) > 1:
            raise click.UsageError("This command works on one connection; give --connection once.")
        settings = get_settings()
        if aliases:
            (alias,) = aliases
        elif shards := self.shards(queue_name or "", aliases):
            names = ", ".join(shards)
            raise click.UsageError(
                f"Queue {queue_name} has {len(shards)} shards; choose one with --connection: {names}. Commands for all "
                "shards: stats, doctor, queue pause, queue resume, queue purge, message redrive."
            )
        else:
            known = settings.queues.get(queue_name or "") or settings.dead_letters.get(queue_name or "")
            alias = known.connection if known else "default"
            if alias not in settings.connections and len(settings.connections) == 1:
                (alias,) = settings.connections
        return _client_of(alias)

    def shards(self, queue_name: str, aliases: Sequence[str]) -> Sequence[str]:
        """Return the connections of the shards of a queue; none if it has no shards or --connection names some."""
        settings = get_settings()
        if aliases or not settings.knows_queue(queue_name):
            return ()
        found = aliases_of(settings.queue(queue_name))
        return found if len(found) > 1 else ()

    def clients(self, aliases: Sequence[str]) -> Mapping[str, Client]:
        """Return the clients of these connections, or of all."""
        return {alias: _client_of(alias) for alias in aliases or get_settings().connections}

    def expected(self, client: Client) -> Mapping[str, ExpectedQueue]:
        """Return the queues that the settings declare for a client."""
        aliases = [alias for alias in get_settings().connections if get_client(alias) is client]
        return {name: queue for alias in aliases for name, queue in expected_queues(alias).items()}

    def reviewed(self, client: Client, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings without unused dead-letter queues, with unsigned schedules and unreachable durability."""
        unused = get_settings().dead_letters
        used = [one for one in findings if one.id != "not-created" or one.subject not in unused]
        every = [*used, *_unsigned_schedules(client), *_unreachable_durability(client), *_left_out_shards(client)]
        return sorted(every, key=lambda one: -one.severity)

    def state(self) -> str:
        """Return the backlog, dead letters and workers of all connections on one line."""
        return as_text(parts_of(read_installation()))

    def dead_letter_queues(self, aliases: Sequence[str]) -> Sequence[str]:
        """Return the existing dead-letter queues of these connections, or of all."""
        homes = {name: aliases_of(get_settings().queue(name)) for name in dead_letter_queues()}
        used = {alias for found in homes.values() for alias in found}
        clients = {alias: client for alias, client in self.clients(aliases).items() if alias in used}
        existing = {alias: list_queues(client) for alias, client in clients.items()}
        return [name for name, found in homes.items() if any(name in existing.get(alias, ()) for alias in found)]

    def dead_letter_queue_of(self, queue_name: str) -> str | None:
        """Return the dead-letter queue of a queue that is not one itself."""
        queue = get_settings().queues.get(queue_name)
        return queue.dead_letter if queue is not None and queue_name not in dead_letter_queues() else None

    def declares(self, structure: Structure, name: str) -> bool:
        """Return whether a topic or reliable queue of this name is in the settings."""
        settings = get_settings()
        return name in (settings.topics or () if structure == "topic" else settings.reliable)

    def nearest_queue(self, queue_name: str) -> str:
        """Return the question for the nearest name in the settings; "" for a queue of the settings."""
        settings = get_settings()
        known = [*settings.queues, *settings.dead_letters]
        return "" if settings.knows_queue(queue_name) else nearest(queue_name, known)


def _client_of(alias: str) -> Client:
    get_settings().connection(alias)
    return get_client(alias)


def _unsigned_schedules(client: Client) -> list[Finding]:
    """Return findings for schedules of signed and encrypted queues that lack a valid signature."""
    settings = get_settings()
    aliases = [alias for alias in settings.connections if get_client(alias) is client]
    if not any(queue.is_sealed and queue.connection in aliases for queue in settings.queues.values()):
        return []
    autodiscover_modules("tasks")
    try:
        entries = all_entries([(aliases[0], client.run(list_entries(client.namespace)))])
    except PermissionDenied:  # missing permissions are reported by another finding
        return []
    return [
        found("unsigned-schedule", entry.name, f"it calls {entry.task} on {entry.queue_name}")
        for entry in entries
        if entry.is_unsigned
    ]


def _unreachable_durability(client: Client) -> list[Finding]:
    """Return findings for a DURABILITY that the server cannot reach."""
    settings = get_settings()
    aliases = [alias for alias in settings.connections if get_client(alias) is client]
    try:
        return [found("not-durable", "server", each.text) for alias in aliases for each in shortfalls(settings, alias)]
    except redis.RedisError:  # INFO is refused, which another finding reports
        return []


def _left_out_shards(client: Client) -> Iterator[Finding]:
    """Yield findings for messages in shards that SHARDS does not include any more."""
    settings = get_settings()
    queues = [*settings.queues.values(), *settings.dead_letters.values()]
    for alias, connection in settings.connections.items():
        here = [queue for queue in queues if queue.connection == alias and get_client(alias) is client]
        for shard in _possible_shards(client, connection.namespace, here) if here else ():
            other = Client(client.connection, namespace=shard_namespace(connection.namespace, shard))
            names = [queue.name for queue in here if queue.shards <= shard]
            for name, messages in _messages_left(other, names).items():
                where = f"in the namespace {other.namespace}, which may be shard {shard}"
                text = f"{counted(messages)} {where}: SHARDS is {settings.queue(name).shards}"
                yield found("left-out-shard", name, text)


def _messages_left(client: Client, names: Sequence[str]) -> dict[str, int]:
    """Return how many messages the queues of a namespace have, those without any left out.

    It is empty if workers receive them: they have other settings, or it is the namespace of another project. It is
    empty, too, for a user who may not read them: the connection of a shard in use reports that.
    """
    try:
        existing = sorted({*list_queues(client)}.intersection(names))
        calls = [count(client.namespace, name) for name in existing]
        counts = [raise_or_return(reply).messages for part in batches(calls) for reply in client.run_many(part)]
        left = {name: messages for name, messages in zip(existing, counts, strict=True) if messages}
        return {} if left and served_names(client) else left
    except PermissionDenied:
        return {}


def _possible_shards(client: Client, namespace: str, queues: Sequence[QueueSettings]) -> Iterator[int]:
    """Yield the shards that queues on a connection have or had: the settings do not know the former number.

    Workers create all shards, so the first number without any queue is the end. A restricted user of the server is
    refused one key, and not a key for each possible shard.
    """
    in_use = max(queue.shards for queue in queues)
    yield from range(1, in_use)
    connections = get_settings().connections.values()
    foreign = {connection.namespace for connection in connections if connection.shard is None}
    for shard in range(in_use, MOST_SHARDS):
        name = shard_namespace(namespace, shard)
        if name not in foreign:
            (exists,) = Client(client.connection, namespace=name).ask([("EXISTS", queues_key(name))])
            if exists != 1:
                return
            yield shard


def _choose_connections(context: click.Context, _parameter: click.Parameter, aliases: tuple[str, ...]) -> None:
    if aliases:
        context.ensure_object(Session).aliases = aliases


CONNECTION_OPTION = click.Option(
    ["--connection"],
    metavar="ALIAS",
    multiple=True,
    expose_value=False,
    callback=_choose_connections,
    help="A connection of RSMQ['CONNECTIONS']; default: the queue's, else 'default'. Commands about all connections "
    "(doctor, stats, redrive) accept the option several times.",
)
