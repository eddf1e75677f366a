"""`rsmqctl topic tail, read, replay, seek`: read topics, and move the positions of groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from ..core.errors import InvalidValue
from ..core.limits import MAX_BATCH
from ..core.texts import counted
from ..core.topic import ConsumerGroup, SeekResult, Topic, TopicMessage, list_topics
from ..core.topic.seeking import Target, seek_words
from .failures import Failed, Interrupted, did_you_mean
from .options import MOMENT, RsmqctlCommand, complete_topic_name, dry_run_option
from .output import message_fields, write_json
from .session import Session

topic_option = click.option(
    "-n", "--name", required=True, metavar="TOPIC", shell_complete=complete_topic_name, help="The topic."
)
group_option = click.option("-g", "--group", required=True, metavar="GROUP", help="The consumer group.")
force_option = click.option("--force", is_flag=True, help="Seek even if the group has active consumers.")

FOLLOW_EVERY_MS = 1000


create_option = click.option("--create", is_flag=True, help="Create it if it does not exist.")


def existing(session: Session, name: str) -> Topic:
    """Return an existing topic. Raises Failed with the nearest name for an unknown one."""
    topic = Topic(name, session.client())
    if not topic.status().exists:
        instead = "'topic list' shows all topics, 'topic publish --create' creates one"
        raise Failed(
            "topicNotFound", f"topic not found: {name}; {did_you_mean(name, list_topics(topic.client), instead)}"
        )
    return topic


def existing_group(topic: Topic, name: str) -> ConsumerGroup:
    """Return an existing group. Raises Failed with the nearest name for an unknown one."""
    group = topic.group(name)
    if not group.status().exists:
        hint = did_you_mean(
            name,
            [known for known, _ in topic.groups()],
            f"'topic groups -n {topic.name}' shows the groups of topic {topic.name}",
        )
        raise Failed("groupNotFound", f"group not found: {name}; {hint}")
    return group


def as_json(message: TopicMessage) -> dict[str, Any]:
    """Return the JSON object of a message, without absent fields."""
    body = message_fields(message.body)
    fields: dict[str, Any] = {"index": message.index, "message": body.pop("message"), **body}
    if message.key is not None:
        fields["key"] = message.key
    if message.headers:
        fields["headers"] = dict(message.headers)
    if message.published_ms is not None:
        fields["published"] = message.published_ms
    return fields


# -- Reading -----------------------------------------------------------------------------------------------------------


@click.command(cls=RsmqctlCommand)
@topic_option
@click.option(
    "--last",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="Start N messages before the end.",
)
@click.option("--from", "first", type=click.IntRange(0), metavar="INDEX", help="Start at this index instead.")
@click.option("-f", "--follow", is_flag=True, help="Print new messages until Ctrl-C.")
@click.pass_obj
def tail(session: Session, /, name: str, last: int, first: int | None, follow: bool) -> None:
    """Print messages without a consumer group.

    Each is printed as a JSON object. Groups keep their positions.
    """
    topic = Topic(name, session.client()) if follow else existing(session, name)
    status = topic.status()
    try:
        for message in _ranges(topic, first if first is not None else status.last - last + 1, is_endless=follow):
            write_json(as_json(message))
    except KeyboardInterrupt as error:
        raise Interrupted() from error


def _ranges(topic: Topic, index: int, *, is_endless: bool) -> Iterator[TopicMessage]:
    """Yield messages from an index on; at the end, wait for new ones or stop."""
    index = max(0, index)
    while True:
        found = topic.read_range(index, MAX_BATCH)
        yield from found.messages
        index = min(max(index + MAX_BATCH, found.first), found.last + 1)
        if index <= found.last:
            continue
        if not is_endless:
            return
        topic.waiter.wait(topic.name, topic.keys.wake, found.last, FOLLOW_EVERY_MS)


@click.command(cls=RsmqctlCommand)
@topic_option
@group_option
@click.option(
    "--count",
    type=click.IntRange(1, MAX_BATCH),
    default=1,
    show_default=True,
    metavar="N",
    help="Maximum number of messages.",
)
@click.option(
    "--wait", type=click.FloatRange(0, 86_400), default=0, metavar="S", help="Wait up to S seconds for a message."
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest", "error"]),
    default="earliest",
    show_default=True,
    help="Start position of a new group.",
)
@click.pass_obj
def read(session: Session, /, name: str, group: str, count: int, wait: float, start: str) -> None:
    """Read the next messages of a group.

    Each is printed as a JSON object. The group's position advances at once: no other consumer of the group receives
    these messages. To print messages only, use 'topic tail'.
    """
    reader = Topic(name, session.client()).group(group, start=start)
    batch = reader.read(count, block_ms=int(wait * 1000))
    for message in batch:
        write_json(as_json(message))
    if batch.skipped:
        click.echo(f"the group missed {counted(batch.skipped)}, dropped before it read that far", err=True)
    if not batch.messages:
        click.echo("null" if session.json else f"No messages for group {group} on topic: {name}")
    reader.leave()


# -- Seeking ----------------------------------------------------------------------------------------------


@click.command(cls=RsmqctlCommand)
@topic_option
@group_option
@dry_run_option
@force_option
@click.pass_obj
def replay(session: Session, /, name: str, group: str, dry_run: bool, force: bool) -> None:
    """Move a group back to the oldest stored message.

    Rejected while the group has active consumers (active in the last 15 seconds), unless forced.
    """
    reader = existing_group(existing(session, name), group)
    _print_position(session, name, group, reader.replay(force=force, dry_run=dry_run), dry_run=dry_run)


@click.command(cls=RsmqctlCommand)
@topic_option
@group_option
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TARGET",
    help="Target: index, earliest, latest, +N, -N, an age (30m) or a time.",
)
@dry_run_option
@force_option
@create_option
@click.pass_obj
def seek(session: Session, /, name: str, group: str, target: str, dry_run: bool, force: bool, create: bool) -> None:
    """Move a group to another position.

    \b
    --to 1042               this index
    --to earliest           the oldest stored message
    --to latest             only messages published from now on
    --to +10, --to -10      N messages forward or back
    --to 30m, --to 2h       messages published since then
    --to 2026-03-01T12:00   the same, with a time (local unless it names a zone)

    A target outside the topic becomes its nearer end. A missing group is created with --create. Rejected while the
    group has active consumers, unless forced.
    """  # fmt: skip
    topic = existing(session, name)
    reader = topic.group(group) if create else existing_group(topic, group)
    _print_position(session, name, group, reader.seek(_place(target), force=force, dry_run=dry_run), dry_run=dry_run)


def _place(words: str) -> Target:
    """Return the target of `Group.seek()` for the value of --to."""
    if re.fullmatch(r"\d+", words):
        return int(words)
    try:
        seek_words(words)
    except InvalidValue:
        pass
    else:
        return words
    try:
        return datetime.fromtimestamp(MOMENT.convert(words, None, None) / 1000, UTC)
    except (click.BadParameter, ValueError, OverflowError, OSError) as error:
        raise click.UsageError(
            f"Cannot seek to {words!r}; give an index, 'earliest', 'latest', '+10', '-10', an age such as 30m or 2h, "
            "or a time such as 2026-03-01T12:00."
        ) from error


def _print_position(session: Session, name: str, group: str, result: SeekResult, *, dry_run: bool) -> None:
    if session.json:
        write_json(
            {
                "topic": name,
                "group": group,
                "before": result.before,
                "after": result.after,
                "ahead": result.ahead,
                "held": result.held,
                "live": result.live_consumers,
                "dry_run": dry_run,
            }
        )
        return
    would = "would read" if dry_run else "reads"
    held = f"; {result.held} unacknowledged messages would be delivered again" if result.held and dry_run else ""
    click.echo(f"{group} {would} index {result.after} next instead of {result.before}, {result.ahead} to read{held}")
