"""`rsmqctl reliable list, info, inspect, set, delete, load-functions`: manage reliable queues."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..core.limits import MAX_BATCH
from ..core.reliable import KINDS, STATES, Kind, ReliableQueue, StoredReliableMessage, list_reliable_queues
from ..core.reliable.library import LIBRARY, load_functions
from ..core.texts import counted
from .failures import Failed, did_you_mean
from .options import RsmqctlCommand, yes_option
from .output import TextTable, as_duration, as_text, confirm, message_fields, printable, write_json
from .session import Session

#: Consumer name recorded for messages popped by rsmqctl.
CONSUMER = "rsmqctl"

name_option = click.option("-n", "--name", required=True, metavar="QUEUE", help="The reliable queue.")


def reliable_queue(session: Session, name: str, consumer: str = CONSUMER) -> ReliableQueue:
    """Return a reliable queue of the session's server."""
    return ReliableQueue(name, session.client(), consumer=consumer)


def check_name(session: Session, queue: ReliableQueue) -> None:
    """Raise Failed with the nearest name for a queue that does not exist and is not in the settings of the project."""
    known, name = list_reliable_queues(queue.client), queue.name
    if name in known or (session.used_project and session.used_project.declares("reliable queue", name)):
        return
    instead = "'reliable list' shows all reliable queues, 'reliable push --create' creates one"
    raise Failed("queueNotFound", f"reliable queue not found: {name}; {did_you_mean(name, known, instead)}")


def print_line(session: Session, text: str, **fields: object) -> None:
    """Print a line, or its fields as JSON."""
    if session.json:
        write_json(fields)
    else:
        click.echo(text)


@click.command("list", cls=RsmqctlCommand)
@click.pass_obj
def list_(session: Session, /) -> None:
    """Print the names of all reliable queues as a JSON array."""
    write_json(list_reliable_queues(session.client()))


@click.command(cls=RsmqctlCommand)
@name_option
@click.pass_obj
def info(session: Session, /, name: str) -> None:
    """Print the statistics of a queue as a JSON object.

    The number of messages that are ready (undelivered), delayed, in flight (delivered) and dead; the age of the oldest
    unacknowledged delivery; totals; messages in flight per consumer (of the thousand oldest deliveries).
    """
    found = reliable_queue(session, name).statistics()
    states = {kind: getattr(found.depth, state) for kind, state in STATES.items()}
    totals = {"oldest_delivery_ms": found.oldest_delivery_ms, "total_pushed": found.depth.total_sent}
    rest = asdict(found)
    del rest["depth"]
    write_json({"queue": name, **states, **totals, **rest})


@click.command(cls=RsmqctlCommand)
@name_option
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="undelivered",
    show_default=True,
    help="State of the messages.",
)
@click.option("--start", type=int, default=0, metavar="N", help="Index of the first message; -10 shows the last ten.")
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1, MAX_BATCH),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of messages.",
)
@click.pass_obj
def inspect(session: Session, /, name: str, kind: Kind, start: int, count: int) -> None:
    """Show messages without popping them.

    'undelivered' messages are ready, 'delivered' ones in flight. With --json, one object per line.
    """
    messages = reliable_queue(session, name).messages(kind, start, count)
    if session.json:
        for message in messages:
            write_json(_stored_as_json(message))
    elif not messages:
        click.echo(f"No {kind} messages on: {name}")
    else:
        table = TextTable(["ID", "TRIES", "SINCE", "CONSUMER", "BODY"], right=["TRIES", "SINCE"])
        table.print([_stored_as_row(message) for message in messages])


@click.command("set", cls=RsmqctlCommand)
@name_option
@click.option("--max-deliveries", type=click.IntRange(0), required=True, metavar="N", help="0 for no limit.")
@click.pass_obj
def set_(session: Session, /, name: str, max_deliveries: int) -> None:
    """Set the maximum number of deliveries, after which a message is dead.

    Creates the queue if it does not exist.
    """
    reliable_queue(session, name).configure(max_deliveries=max_deliveries)
    if session.json:
        write_json({"queue": name, "max_deliveries": max_deliveries})


@click.command(cls=RsmqctlCommand)
@name_option
@yes_option
@click.pass_obj
def delete(session: Session, /, name: str, yes: bool) -> None:
    """Delete a queue with all its messages."""
    queue = reliable_queue(session, name)
    depth = queue.statistics().depth
    messages = depth.messages + depth.dead
    if messages:
        confirm(f"Delete reliable queue {name} with {counted(messages)}?", yes=yes)
    queue.delete_queue()
    if session.json:
        write_json({"queue": name, "deleted": True})


@click.command("load-functions", cls=RsmqctlCommand)
@click.pass_obj
def load_functions_(session: Session, /) -> None:
    """Load the functions rq_push, rq_pop, ... into the server.

    Programs in other languages can then call them by name (FCALL), without this package. Needs Redis 7 or Valkey.
    Loading replaces the functions of an earlier release.
    """
    names = load_functions(session.client())
    print_line(session, f"loaded {LIBRARY}: {', '.join(names)}", library=LIBRARY, functions=names)


def _stored_as_json(message: StoredReliableMessage) -> dict[str, object]:
    fields = {"id": message.id, "at_ms": message.at_ms, "elapsed_ms": message.elapsed_ms}
    return {
        **fields,
        "deliveries": message.deliveries,
        "consumer": message.consumer,
        **message_fields(message.body),
    }


def _stored_as_row(message: StoredReliableMessage) -> list[str]:
    elapsed_ms = message.elapsed_ms
    if elapsed_ms is None:
        since = "-"
    else:
        since = ("in " if elapsed_ms < 0 else "") + as_duration(abs(elapsed_ms) / 1000)
    body = printable(as_text(message.body[:200], is_cut=len(message.body) > 200))
    return [printable(message.id), str(message.deliveries), since, printable(message.consumer) or "-", body]
