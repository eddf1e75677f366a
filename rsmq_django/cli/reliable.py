"""`rsmqctl reliable ...`: reliable queues, which keep messages until they are acknowledged."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import IO

import click

from ..core.limits import MAX_BATCH, MAX_BODY_BYTES
from ..core.reliable import Kind, ReliableMessage
from ..core.texts import counted
from .failures import Failed
from .options import RsmqctlGroup
from .output import message_fields, write_json
from .reliable_queues import (
    CONSUMER,
    check_name,
    delete,
    info,
    inspect,
    list_,
    load_functions_,
    name_option,
    print_line,
    reliable_queue,
    set_,
)
from .sending import SendProgress
from .session import Session

count_option = click.option(
    "-c",
    "--count",
    type=click.IntRange(1, MAX_BATCH),
    default=1,
    show_default=True,
    metavar="N",
    help="Maximum number of messages.",
)
consumer_option = click.option(
    "--consumer", default=CONSUMER, show_default=True, metavar="TEXT", help="Consumer name to record for the messages."
)
receipts_option = click.option(
    "-i",
    "--message-id",
    "receipts",
    required=True,
    multiple=True,
    metavar="ID",
    help="Can be given repeatedly. ID:N is valid for delivery number N only.",
)


@click.group(cls=RsmqctlGroup)
def reliable() -> None:
    """Push, pop, acknowledge and recover on reliable queues.

    A popped message stays in flight until it is acknowledged (ack), released (nack) or recovered because its consumer
    seems to have died (recover).

    \b
    rsmqctl reliable push -n orders -m 'order 7'
    rsmqctl reliable pop -n orders --wait 5
    rsmqctl reliable ack -n orders -i 1795190885422-1
    """  # fmt: skip


for command in (list_, info, inspect, set_, delete, load_functions_):
    reliable.add_command(command)


@reliable.command()
@name_option
@click.option("-m", "--message", "texts", multiple=True, metavar="TEXT", help="A body; can be given repeatedly.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the body from standard input.")
@click.option("--lines", is_flag=True, help="Send each line of standard input or --file as a message.")
@click.option("--file", "file", type=click.File("rb"), metavar="PATH", help="Read the body from a file.")
@click.option("-d", "--delay", type=float, default=0, metavar="S", help="Seconds until it can be popped.")
@click.option("--create", is_flag=True, help="Create it if it does not exist.")
@click.pass_obj
def push(
    session: Session,
    /,
    name: str,
    texts: tuple[str, ...],
    from_stdin: bool,
    lines: bool,
    file: IO[bytes] | None,
    delay: float,
    create: bool,
) -> None:
    """Push messages and print their ids.

    With --create, the first push creates the queue. With --lines, messages are stored in batches of a thousand.
    """
    if sum((bool(texts), from_stdin, file is not None)) > 1 or (lines and texts):
        raise click.UsageError("Give only one of -m, --stdin and --file; --lines goes with the latter two.")
    if not (texts or from_stdin or file or lines):
        raise click.UsageError("Missing option '-m' / '--message'; or give --stdin, --file or --lines.")
    queue = reliable_queue(session, name)
    if not create:
        check_name(session, queue)
    source, account = file or sys.stdin.buffer, SendProgress()
    with account.reported() if lines else nullcontext():
        for bodies in account.bodies(source) if lines else [_bodies(texts, source)]:
            for message_id in queue.push(*bodies, delay_s=delay):
                print_line(session, message_id, queue=name, id=message_id)


def _bodies(texts: Sequence[str], source: IO[bytes]) -> list[bytes]:
    if texts:
        return [os.fsencode(text) for text in texts]
    return [source.read(MAX_BODY_BYTES + 1)]  # one byte above the limit is enough to be rejected


@reliable.command()
@click.option(
    "-n",
    "--name",
    "names",
    required=True,
    multiple=True,
    metavar="QUEUE",
    help="Can be repeated; earlier queues have priority.",
)
@count_option
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0, metavar="S", help="Wait up to S seconds for a message."
)
@consumer_option
@click.pass_obj
def pop(session: Session, /, names: tuple[str, ...], count: int, wait: float, consumer: str) -> None:
    """Pop messages, from the first queue first.

    Each is printed as a JSON object with its receipt, for 'ack' and 'nack'. Until then the messages are in flight.
    """
    first, *others = names
    queue = reliable_queue(session, first, consumer)
    _print_taken(session, queue.pop_messages(count, round(wait * 1000), *others), f"No messages on: {', '.join(names)}")


@reliable.command()
@name_option
@receipts_option
@click.pass_obj
def ack(session: Session, /, name: str, receipts: tuple[str, ...]) -> None:
    """Acknowledge messages in flight, which deletes them."""
    _settle(session, name, receipts, "acknowledged", reliable_queue(session, name).ack(*receipts))


@reliable.command()
@name_option
@receipts_option
@click.option("-d", "--delay", type=float, default=0, metavar="S", help="Seconds until it can be popped again.")
@click.option("--unused", is_flag=True, help="Do not count this delivery.")
@click.pass_obj
def nack(session: Session, /, name: str, receipts: tuple[str, ...], delay: float, unused: bool) -> None:
    """Release messages in flight.

    They go to the front of the queue; with a delay, to its end. A message with the maximum number of deliveries becomes
    a dead message.
    """
    queue = reliable_queue(session, name)
    _settle(session, name, receipts, "given_back", queue.nack(*receipts, delay_s=delay, is_unused=unused))


@reliable.command()
@name_option
@receipts_option
@click.option(
    "-s", "--seconds", type=float, default=0, metavar="S", help="Extension, counted from now; 0 is a heartbeat."
)
@click.pass_obj
def extend(session: Session, /, name: str, receipts: tuple[str, ...], seconds: float) -> None:
    """Postpone the recovery of messages in flight, by setting a later delivery time."""
    _settle(session, name, receipts, "extended", reliable_queue(session, name).extend(*receipts, seconds=seconds))


@reliable.command()
@name_option
@count_option
@click.option(
    "-e", "--elapsed", type=float, required=True, metavar="S", help="Minimum number of seconds since the last delivery."
)
@consumer_option
@click.pass_obj
def recover(session: Session, /, name: str, count: int, elapsed: float, consumer: str) -> None:
    """Pop messages in flight again whose consumer seems to have died.

    Oldest delivery first. Workers do this automatically.
    """
    taken = reliable_queue(session, name, consumer).recover_messages(count, round(elapsed * 1000))
    _print_taken(session, taken, f"No messages to recover on: {name}")


@reliable.command()
@name_option
@click.option("-i", "--message-id", "ids", multiple=True, metavar="ID", help="Can be given repeatedly.")
@click.option("-c", "--count", type=click.IntRange(1, MAX_BATCH), metavar="N", help="Or the N oldest dead messages.")
@click.pass_obj
def redrive(session: Session, /, name: str, ids: tuple[str, ...], count: int | None) -> None:
    """Move dead messages to the end of their queue, for another attempt."""
    if bool(ids) == bool(count):
        raise click.UsageError("Give either -i or --count.")
    queue = reliable_queue(session, name)
    if ids:
        _settle(session, name, ids, "redriven", queue.redrive(*ids), kind="dead")
    else:
        done = queue.redrive(count=count or 0) or []
        print_line(session, f"redriven {counted(len(done))} of {name}", queue=name, redriven=done)


# -- Shared -----------------------------------------------------------------------------------------------------------


def _settle(
    session: Session, name: str, said: Sequence[str], word: str, done: list[str] | None, *, kind: Kind = "delivered"
) -> None:
    """Print the ids of the changed messages. Raises Failed with the ids of the others."""
    settled = set(done or ())
    missing = [receipt for receipt in said if receipt not in settled and receipt.split(":")[0] not in settled]
    if session.json and done:
        write_json({"queue": name, word: done})
    if missing:
        raise Failed(
            "messageNotFound",
            f"not {word.replace('_', ' ')}: {', '.join(missing)}; queue {name} does not have it in that state, or has "
            f"delivered it again since; see: rsmqctl reliable inspect -n {name} --kind {kind}",
        )


def _print_taken(session: Session, messages: Sequence[ReliableMessage], nothing: str) -> None:
    for message in messages:
        fields = {"queue": message.queue, "id": message.id, "receipt": message.receipt}
        write_json({**fields, "deliveries": message.deliveries, **message_fields(message.body)})
    if not messages:
        click.echo("null" if session.json else nothing)
