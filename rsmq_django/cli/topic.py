"""`rsmqctl topic list, info, groups, publish, set, trim, bridge`: topics as a whole; reading is in `topic_reading`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from ..core import Queue
from ..core.limits import MAX_BODY_BYTES
from ..core.topics import Bridge, Entry, GroupStatus, Retention, Topic, TopicStatus, list_topics
from .failures import Interrupted
from .forms import relative
from .options import Group, complete_queue_name, dry_run_option, yes_option
from .output import Table, as_duration, as_size, confirm, counted, printable, write_json
from .sending import batches
from .session import Session
from .topic_reading import existing, group_option, read, replay, seek, tail, topic_option


@click.group(cls=Group)
def topic() -> None:
    """Logs that many groups of readers follow, each at its own pace.

    \b
    rsmqctl topic publish -n orders -m '{"id": 7}'
    rsmqctl topic read -n orders -g billing --count 10
    rsmqctl topic replay -n orders -g billing      everything that is kept comes again
    rsmqctl topic tail -n orders -f                look without being a group
    """  # fmt: skip


for command in (read, replay, seek, tail):
    topic.add_command(command)


# -- Looking -----------------------------------------------------------------------------------------------------------


@topic.command("list")
@click.pass_obj
def list_(session: Session, /) -> None:
    """Show the topics that were used with this package.

    One that only other programs use is not listed; name it to look at it.
    """
    client = session.client()
    table = Table(["TOPIC", "KEPT", "FIRST", "LAST", "GROUPS", "NEWEST"], right=["KEPT", "FIRST", "LAST", "GROUPS"])
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
    """Show a topic and what it keeps.

    Indexes count from 1 and are never used twice. How far each group is, 'topic groups' shows.
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
    """Show who reads a topic, and how far behind each group is.

    LAG counts what lies ahead, HELD what was read and not acknowledged, SKIPPED what was dropped before it was read,
    DEAD what went to the dead-letter topic after too many deliveries.
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
    counts = ["HELD", "SKIPPED", "DEAD", "LIVE"]
    table = Table(["GROUP", "NEXT", "LAG", "OLDEST", *counts, "SEEN"], right=["NEXT", "LAG", *counts])
    table.print([_group_row(status, seen_s) for status, seen_s in statuses])


def _group_row(status: GroupStatus, seen_s: float) -> list[str]:
    age = "" if status.age_s is None else as_duration(status.age_s)
    counts = (status.held, status.skipped, status.dead_lettered, status.live_consumers)
    first = [printable(status.name), str(status.position + 1), str(status.lag), age]
    return [*first, *map(str, counts), f"{as_duration(seen_s)} ago"]


def topic_as_json(name: str, status: TopicStatus) -> dict[str, Any]:
    """Return a topic for programs; times are epoch milliseconds."""
    kept = status.retention
    return {
        "topic": name,
        "messages": status.length,
        "first": status.first,
        "last": status.last,
        "oldest": status.oldest_ms,
        "newest": status.newest_ms,
        "groups": status.groups,
        "max_count": kept.max_count,
        "max_age": kept.max_age_s,
        "max_bytes": kept.max_bytes,
        "wait_for_groups": kept.wait_for_groups,
        "group_ttl": kept.group_ttl_s,
    }


def group_as_json(status: GroupStatus) -> dict[str, Any]:
    """Return a group for programs."""
    return {
        "group": status.name,
        "next": status.position + 1,
        "lag": status.lag,
        "age": status.age_s,
        "held": status.held,
        "due": status.due,
        "missed": status.missed,
        "skipped": status.skipped,
        "dead": status.dead_lettered,
        "live": status.live_consumers,
        "seen": status.seen_ms,
    }


def _ago(then_ms: int | None, now_ms: int) -> str:
    return "-" if then_ms is None else relative(then_ms, now_ms)


# -- Publishing --------------------------------------------------------------------------------------------------------


@topic.command()
@topic_option
@click.option("-m", "--message", "text", metavar="TEXT", help="The body.")
@click.option("--stdin", "from_stdin", is_flag=True, help="The body is what arrives on standard input.")
@click.option("--file", "file", type=click.File("rb"), metavar="PATH", help="The body is the content of a file.")
@click.option("--lines", is_flag=True, help="Of the input (standard input, or --file) each line is a message.")
@click.option("-k", "--key", metavar="KEY", help="Messages of one key replace each other when the topic is compacted.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Can be given repeatedly.")
@click.pass_obj
def publish(
    session: Session, /, name: str, text: str | None, from_stdin: bool, file: IO[bytes] | None, lines: bool, **more: Any
) -> None:
    """Append messages and print their indexes.

    A topic needs no creation: it begins with its first message.

    \b
    rsmqctl topic publish -n orders -m 'hello' -k customer-7 -H source=shop
    rsmqctl topic publish -n orders --lines < orders.ndjson
    """  # fmt: skip
    target = Topic(name, session.client())
    options = {"key": more["key"], "headers": _headers(more["headers"])}
    if sum((text is not None, from_stdin, file is not None)) > 1 or (lines and text is not None):
        raise click.UsageError("Give only one of -m, --stdin and --file; --lines goes with the latter two.")
    source = file or sys.stdin.buffer
    if lines:
        _publish_lines(session, target, source, options)
    elif text is not None:
        _tell_indexes(session, target.publish(os.fsencode(text), **options))
    elif from_stdin or file is not None:
        # One byte more than is allowed is enough to be refused.
        _tell_indexes(session, target.publish(source.read(MAX_BODY_BYTES + 1), **options))
    else:
        raise click.UsageError("Missing option '-m' / '--message'; or give --stdin, --file or --lines.")


def _publish_lines(session: Session, target: Topic, source: IO[bytes], options: dict[str, Any]) -> None:
    line = 0
    try:
        for batch, _ in batches(source):
            _tell_indexes(session, target.publish(*[Entry(body) for _, body in batch], **options))
            line = batch[-1][0]
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted; published up to line {line}") from error


def _headers(words: tuple[str, ...]) -> dict[str, str]:
    wrong = [word for word in words if not word.partition("=")[1]]
    if wrong:
        raise click.UsageError(f"Header {wrong[0]!r} has no '='; write -H name=value.")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _tell_indexes(session: Session, indexes: range) -> None:
    for index in indexes:
        if session.json:
            write_json({"index": index})
        else:
            click.echo(index)


# -- Keeping it small --------------------------------------------------------------------------------------------------


@topic.command("set")
@topic_option
@click.option(
    "--max-count", type=click.IntRange(0), metavar="N", help="Keep about the last N messages; 0 for no limit."
)
@click.option("--max-age", type=click.FloatRange(0), metavar="S", help="Keep messages S seconds; 0 for no limit.")
@click.option("--max-bytes", type=click.IntRange(0), metavar="N", help="Keep bodies of N bytes; 0 for no limit.")
@click.option("--wait-for-groups/--no-wait-for-groups", default=None, help="Keep what a group has not read yet.")
@click.option("--group-ttl", type=click.FloatRange(0), metavar="S", help="Forget groups idle so long; 0 for never.")
@click.pass_obj
def set_(session: Session, /, name: str, **given: Any) -> None:
    """Choose what a topic keeps. What is not given stays as it is.

    Publishing drops what exceeds the limits, some hundred messages at a time; 'topic trim' drops it exactly.
    """
    if all(value is None for value in given.values()):
        raise click.UsageError("Nothing to set; give --max-count, --max-age, --max-bytes or another option.")
    target = Topic(name, session.client())
    stored = target.status().retention
    wait = given["wait_for_groups"]
    target.set_retention(
        Retention(
            max_count=_chosen(given["max_count"], stored.max_count),
            max_age_s=_chosen(given["max_age"], stored.max_age_s),
            max_bytes=_chosen(given["max_bytes"], stored.max_bytes),
            wait_for_groups=stored.wait_for_groups if wait is None else wait,
            group_ttl_s=_chosen(given["group_ttl"], stored.group_ttl_s),
        )
    )
    write_json(topic_as_json(name, target.status()))


def _chosen(given: Any, stored: Any) -> Any:
    return stored if given is None else given or None


@topic.command()
@topic_option
@click.option("--before", type=click.IntRange(0), metavar="INDEX", help="Drop the messages before this one.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Drop all but the last N messages.")
@click.option("--compact", is_flag=True, help="Drop messages whose key has a newer one; messages without key stay.")
@dry_run_option
@yes_option
@click.pass_obj
def trim(
    session: Session, /, name: str, before: int | None, keep: int | None, compact: bool, dry_run: bool, yes: bool
) -> None:
    """Drop old messages for good.

    Without --before, --keep and --compact those that the topic's settings let go ('topic set'). Groups that have not
    read them jump, and are told how many they missed.
    """
    if sum((before is not None, keep is not None, compact)) > 1:
        raise click.UsageError("Give only one of --before, --keep and --compact.")
    target = existing(session, name)
    status = target.status()
    chosen = None
    if before is not None or keep is not None:
        end = before if before is not None else status.last - (keep or 0) + 1
        chosen = max(0, min(end, status.last + 1) - status.first)
    if dry_run:
        if chosen is None:
            raise click.UsageError("--dry-run goes with --before or --keep: only those are known beforehand.")
        _tell_dropped(session, name, chosen, would=True)
        return
    if chosen:
        confirm(f"Drop {counted(chosen)} of topic {name}?", yes=yes)
    dropped = target.compact() if compact else target.trim(before=before, keep=keep)
    _tell_dropped(session, name, dropped, would=False)


def _tell_dropped(session: Session, name: str, dropped: int, *, would: bool) -> None:
    word = "would_drop" if would else "dropped"
    if session.json:
        write_json({"topic": name, word: dropped})
    else:
        click.echo(f"{word.replace('_', ' ')} {counted(dropped)} of {name}")


# -- Bridging ----------------------------------------------------------------------------------------------------------


@topic.command()
@topic_option
@group_option
@click.option("--to", "target", required=True, metavar="QUEUE", shell_complete=complete_queue_name, help="The queue.")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.pass_obj
def bridge(session: Session, /, name: str, group: str, target: str, follow: bool) -> None:
    """Move a group's messages into a queue, for programs that know queues but no topics.

    Each arrives exactly once. One that is longer than the queue allows goes to the dead-letter topic, NAME.dlt.
    """
    queue: Queue = session.queue(target)
    moving = Bridge(Topic(name, queue.client).group(group), queue)
    moved = dead = 0
    with _left_at_the_end(moving):
        try:
            while True:
                done = moving.forward(100, block_ms=1000 if follow else 0)
                moved, dead = moved + done.moved, dead + done.dead_lettered
                if not done.left and not follow:
                    break
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted; moved {counted(moved)}, {dead} dead-lettered") from error
    if session.json:
        write_json({"topic": name, "queue": target, "moved": moved, "dead_lettered": dead})
    else:
        note = f"; {dead} went to {name}.dlt, they are longer than the queue allows" if dead else ""
        click.echo(f"moved {counted(moved)} from {name} to {target}{note}")


@contextmanager
def _left_at_the_end(moving: Bridge) -> Iterator[None]:
    try:
        yield
    finally:
        moving.group.leave()
