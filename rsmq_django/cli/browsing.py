"""`rsmqctl message peek, list, show, count`: read messages without receiving them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from ..core import Client
from ..core.limits import MAX_BATCH
from ..core.queue.browse import ALL, START, WHOLE_BODY, Position, State, StoredMessage, pick
from ..core.queue.browse import count as count_call
from ..core.queue.transfers import pages
from ..core.texts import counted
from .dead_letters import Filter, filter_options
from .failures import Failed
from .forms import as_json, dead_row, description, new_table, received_as_json, row
from .options import RsmqctlCommand, name_option
from .output import TextTable, write_json
from .session import Session

#: Longer bodies do not fit on a line.
PREVIEW_BYTES = 200
STATES = {"ready": State.READY, "delayed": State.DELAYED, "in-flight": State.IN_FLIGHT}


@click.command(cls=RsmqctlCommand)
@name_option
@click.option(
    "--count", type=click.IntRange(1, MAX_BATCH), default=1, metavar="N", help="Up to N messages, one line each."
)
@click.pass_obj
def peek(session: Session, /, name: str, count: int) -> None:
    """Print the messages that would be received next.

    The output is that of `receive`; the messages are not received.
    """
    client = session.client(name)
    ready = (
        message
        for part in pages(client, name, until_ms=None, body_bytes=WHOLE_BODY, count=count)
        for message in part.messages
    )
    found = list(islice(ready, count))
    for message in found:
        write_json(received_as_json(message))
    if not found:
        click.echo("null" if session.json else f"No messages on queue: {name}")


@click.command("list", cls=RsmqctlCommand)
@name_option
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Maximum number of messages."
)
@click.option("--all", "is_all", is_flag=True, help="All messages, in pages.")
@click.option("--state", type=click.Choice(list(STATES)), help="Only messages in this state.")
@filter_options
@click.pass_obj
def list_(session: Session, /, name: str, limit: int, is_all: bool, state: str | None, **conditions: Any) -> None:
    """Show messages without receiving them.

    They are listed in the order in which they become visible. For a dead-letter queue, the table shows why each message
    failed. With --json, one object per line with the whole body.
    """
    client = session.client(name)
    chosen = Filter(**conditions)
    tables: dict[bool, TextTable] = {}
    shown = 0
    for now_ms, messages in _found(session, client, name, STATES.get(state or ""), chosen, None if is_all else limit):
        shown += len(messages)
        if session.json:
            for message in messages:
                write_json(as_json(message, now_ms))
        else:
            are_dead = any(message.failure_json for message in messages)
            table = tables.setdefault(are_dead, new_table(are_dead=are_dead))
            table.print([(dead_row if are_dead else row)(message, now_ms) for message in messages])
    if not session.json:
        _print_rest(client, name, shown, is_filtered=state is not None or not chosen.is_empty)


def _found(
    session: Session, client: Client, name: str, state: State | None, chosen: Filter, limit: int | None
) -> Iterator[tuple[float, list[StoredMessage]]]:
    """Yield the messages that match, page by page, with the server's time of each page."""
    is_filtered = state is not None or not chosen.is_empty
    after = START
    if state in (State.DELAYED, State.IN_FLIGHT):
        after = Position.behind_all_of(client.run(count_call(client.namespace, name)).now_ms)
    for part in pages(
        client,
        name,
        after=after,
        until_ms=None if state is State.READY else ALL,
        body_bytes=WHOLE_BODY if session.json else PREVIEW_BYTES,
        with_failures=True,
        count=MAX_BATCH if is_filtered or limit is None else min(MAX_BATCH, limit),
    ):
        messages = [m for m in part.messages if chosen.fits(m) and state in (None, m.state(part.now_ms))][:limit]
        if messages:
            yield part.now_ms, messages
        limit = None if limit is None else limit - len(messages)
        if limit == 0:
            return


def _print_rest(client: Client, name: str, shown: int, *, is_filtered: bool) -> None:
    """Print how many messages the table does not show: on stderr, so that a pipe gets only the rows."""
    total = client.run(count_call(client.namespace, name)).messages
    if not shown:
        click.echo(
            f"No messages on queue: {name}" if not is_filtered else f"No matching messages on queue: {name}", err=True
        )
    elif total > shown:
        click.echo(f"{shown} of {counted(total)}; --limit N or --all shows more", err=True)


@click.command(cls=RsmqctlCommand)
@name_option
@click.option("-i", "--message-id", required=True, metavar="ID", help="The message.")
@click.option("--raw", is_flag=True, help="Print only the body, byte for byte.")
@click.pass_obj
def show(session: Session, /, name: str, message_id: str, raw: bool) -> None:
    """Show everything about one message."""
    client = session.client(name)
    found = client.run(pick(client.namespace, name, [message_id]))
    if not found.messages:
        raise Failed("messageNotFound", f"message not found: {message_id}; not on queue {name}")
    (message,) = found.messages
    if raw:
        sys.stdout.buffer.write(message.body)
    elif session.json:
        write_json(as_json(message, found.now_ms))
    else:
        for line in description(message, found.now_ms):
            click.echo(line)


@click.command(cls=RsmqctlCommand)
@name_option
@click.option(
    "--state", type=click.Choice(["ready", "hidden"]), help="Only messages that can, or cannot, be received now."
)
@filter_options
@click.pass_obj
def count(session: Session, /, name: str, state: str | None, **conditions: Any) -> None:
    """Print the number of messages on a queue.

    With a filter, print the number of matching dead letters.
    """
    client = session.client(name)
    chosen = Filter(**conditions)
    counts = client.run(count_call(client.namespace, name))
    number = {None: counts.messages, "ready": counts.ready, "hidden": counts.hidden}[state]
    if not chosen.is_empty:
        number = sum(
            chosen.fits(message) and (state is None or (message.visible_at_ms <= part.now_ms) == (state == "ready"))
            for part in pages(client, name, with_failures=True)
            for message in part.messages
        )
    if session.json:
        write_json({"queue": name, "count": number})
    else:
        click.echo(number)
