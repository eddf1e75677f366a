"""`rsmqctl message move, redrive`: move messages between queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..core import Client
from ..core.errors import QueueNotFound
from ..core.queue.browse import StoredMessage
from ..core.queue.transfers import Transfer, move_messages, preview, redrive_slice
from ..core.texts import counted
from .dead_letters import Filter, filter_options
from .failures import Failed, name_of, text_of
from .options import RsmqctlCommand, complete_queue_name, dry_run_option, name_option
from .output import TextTable, printable
from .session import Session
from .transfers import MessagesStayed, carry_out, print_result

F = TypeVar("F", bound=Callable[..., Any])


def transfer_options(function: F) -> F:
    """Add the options that move and redrive share."""
    options = (
        dry_run_option,
        click.option(
            "--rate",
            type=click.FloatRange(min=0, min_open=True),
            metavar="N",
            help="Maximum number of messages per second.",
        ),
        click.option("--hidden", "with_hidden", is_flag=True, help="Include delayed messages and messages in flight."),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of messages."),
        click.option(
            "-i", "--message-id", "ids", multiple=True, metavar="ID", help="Only this message; can be repeated."
        ),
    )
    for option in options:
        function = option(function)
    return function


@click.command(cls=RsmqctlCommand)
@name_option
@click.option("--to", "target", required=True, metavar="QUEUE", shell_complete=complete_queue_name, help="The target.")
@transfer_options
@click.pass_obj
def move(session: Session, /, name: str, target: str, dry_run: bool, ids: tuple[str, ...], **choices: Any) -> None:
    """Move messages to another queue.

    They keep their id, receive count and the time they become visible. Only ready messages are moved, unless --hidden
    or message ids are given. To run dead letters again, use redrive.
    """
    transfer = Transfer(client_for(session, name, target), name, ids=tuple(dict.fromkeys(ids)), **choices)

    def send(part: list[StoredMessage]) -> None:
        move_messages(transfer.client, name, part, transfer.tally, target=target)

    if dry_run:
        transfer.moved[target] = sum(len(part) for part in transfer.candidates())
        print_result(session, transfer, "would move")
    else:
        carry_out(session, transfer, send, "moved")


@click.command(cls=RsmqctlCommand)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=complete_queue_name)
@click.option(
    "-n",
    "--name",
    "names",
    multiple=True,
    metavar="QUEUE",
    shell_complete=complete_queue_name,
    help="A dead-letter queue, as the argument; can be repeated.",
)
@click.option(
    "--to",
    "target",
    metavar="QUEUE",
    shell_complete=complete_queue_name,
    help="Default: each message's original queue.",
)
@filter_options
@transfer_options
@click.pass_obj
def redrive(
    session: Session, /, queues: tuple[str, ...], names: tuple[str, ...], target: str | None, **choices: Any
) -> None:
    """Send dead letters back to their original queues.

    They are run again. Each becomes a new message with the same body; its attempts start anew, a task keeps its id, and
    the record of earlier failures stays. Ctrl-C neither loses nor duplicates messages; the same command continues with
    the rest. Under manage.py the default is all dead-letter queues of the settings.

    \b
    rsmqctl message redrive mail-dead --dry-run
    rsmqctl message redrive mail-dead --error 'Connection*' --since 2h --rate 50
    rsmqctl message redrive mail-dead --limit 1
    """
    failures = []
    chosen = (*names, *queues) or all_dead_letter_queues(session)
    refuse_original_queues(session, chosen)
    for name in chosen:
        try:
            redrive_shards(session, name, target, **choices)
        except MessagesStayed as failure:  # the other queues are redriven all the same
            failures.append(failure)
    if failures:
        raise MessagesStayed("; ".join(failure.text for failure in failures))


def all_dead_letter_queues(session: Session) -> Sequence[str]:
    """Return the dead-letter queues of the project. Raises UsageError where there is none."""
    if session.used_project is None:
        raise click.UsageError("Missing argument 'QUEUE'.")
    return session.used_project.dead_letter_queues(session.aliases)


def redrive_shards(session: Session, name: str, target: str | None, *, limit: int | None, **choices: Any) -> None:
    """Redrive the dead letters of one queue: of all its shards, up to the limit in all."""
    moved, failures = 0, []
    shards = session.existing_shards(name)
    for shard in shards:
        left = None if limit is None else limit - moved
        if left == 0:
            break
        try:
            moved += redrive_queue(shard, name, target, limit=left, **choices)
        except MessagesStayed as failure:
            failures.append(failure)
            moved += failure.moved
    if len(shards) > 1 and not session.json:
        verb = "would redrive" if choices["dry_run"] else "redriven"
        click.echo(f"{verb} {counted(moved)} from {name} in all")
    if failures:
        raise failures[0] if len(failures) == 1 else MessagesStayed("; ".join(each.text for each in failures))


def redrive_queue(
    session: Session,
    name: str,
    target: str | None,
    *,
    dry_run: bool,
    ids: tuple[str, ...],
    limit: int | None,
    with_hidden: bool,
    rate: float | None,
    **conditions: Any,
) -> int:
    """Redrive the dead letters of one queue, or print what a redrive would do; return how many.

    Raises Failed for an unknown queue.
    """
    transfer = Transfer(
        client_for(session, name, target),
        name,
        ids=tuple(dict.fromkeys(ids)),
        chosen=Filter(**conditions),
        with_hidden=with_hidden,
        limit=limit,
        rate=rate,
        with_failures=True,
    )

    def send(part: list[StoredMessage]) -> None:
        redrive_slice(transfer, part, target)

    try:
        if dry_run:
            print_preview(session, transfer, target)
        else:
            carry_out(session, transfer, send, "redriven")
    except (QueueNotFound, Failed) as error:
        cause = error.__cause__ if isinstance(error, Failed) else error
        if not isinstance(cause, QueueNotFound):
            raise
        raise Failed(name_of(error), text_of(error) + nearest_name(session, cause.queue_name)) from cause
    return transfer.moved.total()


def refuse_original_queues(session: Session, names: Sequence[str]) -> None:
    """Raise UsageError if one of the queues is an original queue rather than a dead-letter queue."""
    project = session.used_project
    for name in names if project else ():
        dead = project.dead_letter_queue_of(name) if project else None
        if dead:
            raise click.UsageError(f"{name} is not a dead-letter queue: its dead letters are in {dead}")


def nearest_name(session: Session, *names: str) -> str:
    """Return the end of an error line: the nearest names of the settings, for names that are not in the settings."""
    project = session.used_project
    return "".join(f". {hint}" for hint in map(project.nearest_queue, names) if hint) if project else ""


def client_for(session: Session, source: str, target: str | None) -> Client:
    """Return the client of both queues. Raises Failed when they are on different servers."""
    client = session.queue(source).client
    if target is not None:
        other = session.queue(target).client
        if (other.connection, other.namespace) != (client.connection, client.namespace):
            raise Failed(
                "differentServers",
                f"queues {source} and {target} are on different connections; messages move within one server only"
                + nearest_name(session, source, target),
            )
    return client


def print_preview(session: Session, transfer: Transfer, target: str | None) -> None:
    """Print what redrive would do: the number of messages by target and failure."""
    groups = preview(transfer, to=target)
    for (home, *_kind), number in groups.items():
        transfer.moved[home] += number
    if groups and not session.json:
        rows = [[str(number), *map(printable, group)] for group, number in groups.most_common()]
        TextTable(["COUNT", "TO", "TASK", "REASON", "ERROR"], right=["COUNT"]).print(rows)
    print_result(session, transfer, "would redrive")
