"""`rsmqctl message receive, pop, delete, visibility`, and the command group."""

from __future__ import annotations

import click

from ..core import Message, SettleResult
from ..core.limits import MAX_BATCH
from ..core.queue.browse import NO_BODY, pick
from ..core.queue.moves import MAX_SLICE, change_visibility, discard
from ..core.texts import counted
from .browsing import count, list_, peek, show
from .failures import Failed
from .forms import received_as_json
from .moving import move, redrive
from .options import RsmqctlGroup, dry_run_option, name_option
from .output import write_json
from .sending import send
from .session import Session
from .waiting import until_found


@click.group(cls=RsmqctlGroup)
def message() -> None:
    """Send, receive, inspect, move and delete messages."""


for command in (send, peek, list_, show, count, move, redrive):
    message.add_command(command)

wait_option = click.option(
    "--wait", type=click.FloatRange(min=0), default=0, metavar="S", help="Wait up to S seconds for a message."
)
count_option = click.option(
    "--count",
    type=click.IntRange(1, MAX_BATCH),
    default=1,
    metavar="N",
    help="Receive up to N messages, one line each.",
)


@message.command()
@name_option
@click.option(
    "-t",
    "--visibility-timeout",
    type=float,
    metavar="S",
    help="Visibility timeout in seconds; default: the queue's own.",
)
@count_option
@wait_option
@click.pass_obj
def receive(session: Session, /, name: str, visibility_timeout: float | None, count: int, wait: float) -> None:
    """Receive messages and hide them for the visibility timeout.

    Each is printed as a JSON object. They become visible again unless they are deleted.
    """
    queue = session.queue(name)
    found = until_found(queue, lambda: queue.receive_many(count, visibility_timeout_s=visibility_timeout), wait_s=wait)
    _print(session, name, found)


@message.command()
@name_option
@count_option
@wait_option
@click.pass_obj
def pop(session: Session, /, name: str, count: int, wait: float) -> None:
    """Receive messages and delete them at once.

    Each is printed as a JSON object.
    """
    queue = session.queue(name)

    def look() -> list[Message]:
        popped = queue.pop()
        return [popped] if popped else []

    found = until_found(queue, look, wait_s=wait)
    _print(session, name, found)
    # One by one: a popped message that is not printed, because the reply or the reader is lost, is lost for good.
    for _ in range(count - 1 if found else 0):
        found = look()
        if not found:
            break
        _print(session, name, found)


@message.command()
@name_option
@click.option("-i", "--message-id", "ids", required=True, multiple=True, metavar="ID", help="Can be given repeatedly.")
@dry_run_option
@click.pass_obj
def delete(session: Session, /, name: str, ids: tuple[str, ...], dry_run: bool) -> None:
    """Delete messages, even those in flight."""
    client = session.queue(name).client
    missing: list[str] = []
    for at in range(0, len(ids), MAX_SLICE):
        part = ids[at : at + MAX_SLICE]
        if dry_run:
            there = {
                message.id for message in client.run(pick(client.namespace, name, part, body_bytes=NO_BODY)).messages
            }
            done = [message_id in there for message_id in part]
        else:
            done = client.run(discard(client.namespace, name, part))
        missing += [message_id for message_id, was_there in zip(part, done, strict=True) if not was_there]
    if missing:
        raise Failed("messageNotFound", f"message not found: {', '.join(missing)}; not on queue {name}")
    if session.json:
        write_json({"would_delete" if dry_run else "deleted": list(ids)})
    elif dry_run:
        click.echo(f"would delete {counted(len(ids))} from {name}")


@message.command()
@name_option
@click.option("-i", "--message-id", required=True, metavar="ID", help="The message.")
@click.option(
    "-t", "--visibility-timeout", type=float, required=True, metavar="S", help="Seconds; 0 makes it visible at once."
)
@click.pass_obj
def visibility(session: Session, /, name: str, message_id: str, visibility_timeout: float) -> None:
    """Set when a message becomes visible.

    The time counts from now. 0 makes a delayed message or one in flight ready at once.
    """
    client = session.queue(name).client
    (done,) = client.run(change_visibility(client.namespace, name, message_id, visibility_timeout))
    if done is not SettleResult.DONE:
        raise Failed("messageNotFound", f"message not found: {message_id}; not on queue {name}")
    seconds = int(visibility_timeout) if visibility_timeout.is_integer() else visibility_timeout
    if session.json:
        write_json({"id": message_id, "visibility_timeout": seconds})
    else:
        click.echo(f"Message ID: {message_id} visibility timeout set to {seconds}s")


def _print(session: Session, name: str, messages: list[Message]) -> None:
    for message in messages:
        write_json(received_as_json(message))
    if not messages:
        click.echo("null" if session.json else f"No messages on queue: {name}")
