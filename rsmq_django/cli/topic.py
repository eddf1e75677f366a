"""`rsmqctl topic list, info, groups, publish`, and the command group; reading is in `topic_reading`."""

from __future__ import annotations

import os
import sys
from typing import IO, Any

import click

from ..core.limits import MAX_BODY_BYTES
from ..core.topic import GroupStatus, Topic, list_topics
from .forms import relative
from .options import RsmqctlGroup
from .output import TextTable, as_duration, as_size, printable, write_json
from .sending import SendProgress
from .session import Session
from .topic_files import archive, restore
from .topic_keeping import bridge, group_as_json, set_, topic_as_json, trim
from .topic_reading import create_option, existing, read, replay, seek, tail, topic_option


@click.group(cls=RsmqctlGroup)
def topic() -> None:
    """Topics: logs that consumer groups read independently.

    \b
    rsmqctl topic publish -n orders -m '{"id": 7}'
    rsmqctl topic read -n orders -g billing --count 10
    rsmqctl topic replay -n orders -g billing      read all stored messages again
    rsmqctl topic tail -n orders -f                print messages without a group
    """  # fmt: skip


for command in (archive, bridge, read, replay, restore, seek, set_, tail, trim):
    topic.add_command(command)


# -- Inspecting --------------------------------------------------------------------------------------------------------


@topic.command("list")
@click.pass_obj
def list_(session: Session, /) -> None:
    """Show the topics that were used through this package.

    Topics that only other programs use are not listed; 'topic info -n NAME' shows them.
    """
    client = session.client()
    table = TextTable(["TOPIC", "KEPT", "FIRST", "LAST", "GROUPS", "NEWEST"], right=["KEPT", "FIRST", "LAST", "GROUPS"])
    rows = []
    for name in list_topics(client):
        status = Topic(name, client).status()
        if session.json:
            write_json(topic_as_json(name, status))
            continue
        numbers = map(str, (status.length, status.first, status.last, status.groups))
        rows.append([printable(name), *numbers, _ago(status.newest_ms, status.now_ms)])
    if rows:
        table.print(rows)
    elif not session.json:
        click.echo("No topics", err=True)


@topic.command()
@topic_option
@click.pass_obj
def info(session: Session, /, name: str) -> None:
    """Show a topic and its retention.

    Indexes start at 1 and are never reused. 'topic groups' shows the position of each group.
    """
    status = existing(session, name).status()
    if session.json:
        write_json(topic_as_json(name, status))
        return
    kept = status.retention
    facts = {
        "topic": printable(name),
        "messages": f"{status.length} kept, indexes {status.first} to {status.last}" if status.length else "none kept",
        "oldest": _ago(status.oldest_ms, status.now_ms),
        "newest": _ago(status.newest_ms, status.now_ms),
        "groups": str(status.groups),
        "max count": "no limit" if kept.max_count is None else str(kept.max_count),
        "max age": "no limit" if kept.max_age_s is None else as_duration(kept.max_age_s),
        "max bytes": "no limit" if kept.max_bytes is None else as_size(kept.max_bytes),
        "unread": "kept for all groups" if kept.wait_for_groups else "not kept longer",
        "idle groups": "kept" if kept.group_ttl_s is None else f"forgotten after {as_duration(kept.group_ttl_s)}",
    }
    for fact, value in facts.items():
        click.echo(f"{click.style(f'{fact}:', bold=True)}{' ' * (15 - len(fact))}{value}")


@topic.command()
@topic_option
@click.pass_obj
def groups(session: Session, /, name: str) -> None:
    """Show the consumer groups of a topic with their lag.

    LAG counts unread messages, UNACKED messages that were read but not acknowledged, SKIPPED messages that were dropped
    before the group read them, DEAD messages that moved to the dead-letter topic after too many deliveries.
    """
    found = existing(session, name)
    statuses = [(found.group(group).status(), seen_s) for group, seen_s in found.groups()]
    if session.json:
        for status, _ in statuses:
            write_json(group_as_json(status))
        return
    if not statuses:
        click.echo(f"No groups on topic: {name}", err=True)
        return
    counts = ["UNACKED", "SKIPPED", "DEAD", "LIVE"]
    table = TextTable(["GROUP", "NEXT", "LAG", "OLDEST", *counts, "SEEN"], right=["NEXT", "LAG", *counts])
    table.print([_group_row(status, seen_s) for status, seen_s in statuses])


def _group_row(status: GroupStatus, seen_s: float) -> list[str]:
    oldest_s = status.depth.oldest_ready_s
    age = "" if oldest_s is None else as_duration(oldest_s)
    counts = (status.held, status.skipped, status.depth.dead, status.live_consumers)
    first = [printable(status.name), str(status.position + 1), str(status.lag), age]
    return [*first, *map(str, counts), f"{as_duration(seen_s)} ago"]


def _ago(then_ms: int | None, now_ms: int) -> str:
    return "-" if then_ms is None else relative(then_ms, now_ms)


# -- Publishing --------------------------------------------------------------------------------------------------------


@topic.command()
@topic_option
@click.option("-m", "--message", "text", metavar="TEXT", help="The body.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the body from standard input.")
@click.option("--file", "file", type=click.File("rb"), metavar="PATH", help="Read the body from a file.")
@click.option("--lines", is_flag=True, help="Publish each line of standard input or --file as a message.")
@click.option("-k", "--key", metavar="KEY", help="Key; compaction keeps the newest message of each key.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Can be given repeatedly.")
@create_option
@click.pass_obj
def publish(
    session: Session, /, name: str, text: str | None, from_stdin: bool, file: IO[bytes] | None, lines: bool, **more: Any
) -> None:
    """Append messages and print their indexes.

    With --create, the first message creates the topic.

    \b
    rsmqctl topic publish -n orders -m 'hello' -k customer-7 -H source=shop
    rsmqctl topic publish -n orders --lines < orders.ndjson
    """  # fmt: skip
    target = Topic(name, session.client())
    options = {"key": more["key"], "headers": _headers(more["headers"])}
    if sum((text is not None, from_stdin, file is not None)) > 1 or (lines and text is not None):
        raise click.UsageError("Give only one of -m, --stdin and --file; --lines goes with the latter two.")
    source = file or sys.stdin.buffer
    if not (text is not None or from_stdin or file is not None or lines):
        raise click.UsageError("Missing option '-m' / '--message'; or give --stdin, --file or --lines.")
    if not (more["create"] or (session.used_project and session.used_project.declares("topic", name))):
        existing(session, name)
    if lines:
        _publish_lines(session, target, source, options)
    elif text is not None:
        _print_indexes(session, target.publish(os.fsencode(text), **options))
    else:
        # One byte above the limit is enough to be rejected.
        _print_indexes(session, target.publish(source.read(MAX_BODY_BYTES + 1), **options))


def _publish_lines(session: Session, target: Topic, source: IO[bytes], options: dict[str, Any]) -> None:
    account = SendProgress()
    with account.reported():
        for bodies in account.bodies(source):
            _print_indexes(session, target.publish(*bodies, **options))


def _headers(words: tuple[str, ...]) -> dict[str, str]:
    wrong = [word for word in words if not word.partition("=")[1]]
    if wrong:
        raise click.UsageError(f"Header {wrong[0]!r} has no '='; write -H name=value.")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _print_indexes(session: Session, indexes: range) -> None:
    for index in indexes:
        if session.json:
            write_json({"index": index})
        else:
            click.echo(index)
