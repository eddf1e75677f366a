"""`rsmqctl queue ...`: create, inspect, change and delete queues."""

from __future__ import annotations

import sys

import click

from ..core import QueueAttributes, list_queues
from ..core.limits import MAX_MAX_SIZE_BYTES
from ..core.queue.browse import count
from ..core.queue.moves import purge as purge_queue
from ..core.queue.pause import pause as pause_call
from ..core.queue.pause import paused as paused_call
from ..core.queue.pause import resume as resume_call
from ..core.texts import counted
from .diagnosis import repair
from .options import RsmqctlGroup, attribute_options, dry_run_option, name_option, yes_option
from .output import confirm, write_json
from .session import Session
from .statistics import stats


@click.group(cls=RsmqctlGroup)
def queue() -> None:
    """Create, list, inspect, change, pause, purge and delete queues."""


queue.add_command(repair)
queue.add_command(stats)


@queue.command("list")
@click.pass_obj
def list_(session: Session, /) -> None:
    """Print the names of all queues as a JSON array."""
    write_json(list_queues(session.client()))


@queue.command()
@name_option
@attribute_options(vt=30, delay=0, max_size=MAX_MAX_SIZE_BYTES)
@click.pass_obj
def create(session: Session, /, name: str, visibility_timeout: int, delay: int, maxsize: int) -> None:
    """Create a queue."""
    session.queue(name).create(visibility_timeout_s=visibility_timeout, delay_s=delay, max_size_bytes=maxsize)
    _print_line(session, None, queue=name, created=True)


@queue.command()
@name_option
@dry_run_option
@yes_option
@click.pass_obj
def delete(session: Session, /, name: str, dry_run: bool, yes: bool) -> None:
    """Delete a queue with all its messages.

    On a terminal, asks for confirmation if the queue has messages. Without a terminal it deletes without asking, like
    the original rsmqctl.
    """
    target = session.queue(name)
    if dry_run:
        messages = target.attributes().messages
        _print_line(session, f"would delete {name} with {counted(messages)}", queue=name, would_delete=messages)
        return
    # Without a terminal it does not need --yes, because scripts for the original rsmqctl have none.
    if not yes and sys.stdin.isatty():
        messages = target.attributes().messages
        if messages:
            confirm(f"Delete queue {name} with {counted(messages)}?", yes=False)
    target.delete_queue()
    _print_line(session, None, queue=name, deleted=True)


@queue.command()
@name_option
@click.pass_obj
def describe(session: Session, /, name: str) -> None:
    """Print a queue's attributes as a JSON object."""
    write_json(as_json(session.queue(name).attributes()))


@queue.command("set")
@name_option
@attribute_options(vt=None, delay=None, max_size=None)
@click.pass_obj
def set_(
    session: Session, /, name: str, visibility_timeout: int | None, delay: int | None, maxsize: int | None
) -> None:
    """Change a queue's attributes, and print all of them."""
    attributes = session.queue(name).set_attributes(
        visibility_timeout_s=visibility_timeout, delay_s=delay, max_size_bytes=maxsize
    )
    write_json(as_json(attributes))


@queue.command()
@name_option
@dry_run_option
@yes_option
@click.pass_obj
def purge(session: Session, /, name: str, dry_run: bool, yes: bool) -> None:
    """Delete all messages of a queue.

    Including those in flight. The queue stays, with its attributes and counters.
    """
    clients = [each.queue(name).client for each in session.existing_shards(name)]
    messages = sum(client.run(count(client.namespace, name)).messages for client in clients)
    if not dry_run and messages:
        confirm(f"Delete {counted(messages)} of queue {name}?", yes=yes)
    removed = messages if dry_run else sum(purge_queue(client, name) for client in clients)
    word = "would remove" if dry_run else "removed"
    _print_line(session, f"{word} {counted(removed)} from {name}", queue=name, **{word.replace(" ", "_"): removed})


@queue.command()
@name_option
@click.pass_obj
def pause(session: Session, /, name: str) -> None:
    """Stop rsmq-django workers from consuming a queue.

    Running tasks finish, and messages can still be sent. Programs that receive messages directly are unaffected.
    """
    targets = [each.queue(name) for each in session.shards(name)]
    session.existing_shards(name)[0].queue(name).attributes()  # raises for a misspelt name
    is_news = sum(target.client.run(pause_call(target.client.namespace, name)) for target in targets) > 0
    text = f"paused {name}" if is_news else f"{name} was already paused"
    _print_line(session, text, queue=name, paused=True, changed=is_news)


@queue.command()
@name_option
@click.pass_obj
def resume(session: Session, /, name: str) -> None:
    """Let workers consume a paused queue again."""
    targets = [each.queue(name) for each in session.shards(name)]
    is_news = sum(target.client.run(resume_call(target.client.namespace, name)) for target in targets) > 0
    text = f"resumed {name}" if is_news else f"{name} was not paused"
    _print_line(session, text, queue=name, paused=False, changed=is_news)


@queue.command()
@click.pass_obj
def paused(session: Session, /) -> None:
    """Print the names of all paused queues as a JSON array."""
    client = session.client()
    write_json(sorted(client.run(paused_call(client.namespace))))


def _print_line(session: Session, text: str | None, **fields: object) -> None:
    if session.json:
        write_json(fields)
    elif text is not None:
        click.echo(text)


def as_json(attributes: QueueAttributes) -> dict[str, object]:
    """Return attributes under RSMQ's names, the queue's times as floats."""
    return {
        "vt": float(attributes.visibility_timeout_s),
        "delay": float(attributes.delay_s),
        "maxsize": attributes.max_size_bytes,
        "totalrecv": attributes.total_received,
        "totalsent": attributes.total_sent,
        "created": _whole(attributes.created_s),
        "modified": _whole(attributes.modified_s),
        "msgs": attributes.messages,
        "hiddenmsgs": attributes.hidden_messages,
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
