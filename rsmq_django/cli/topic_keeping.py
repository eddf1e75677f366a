"""`rsmqctl topic set, trim, bridge`: retention of topics, and forwarding to queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..core import Queue
from ..core.texts import counted
from ..core.topic import Bridge, GroupStatus, Retention, Topic, TopicStatus
from .failures import Interrupted
from .options import RsmqctlCommand, complete_queue_name, dry_run_option, yes_option
from .output import confirm, write_json
from .session import Session
from .topic_reading import existing, group_option, topic_option


def topic_as_json(name: str, status: TopicStatus) -> dict[str, Any]:
    """Return the JSON object of a topic; times are epoch milliseconds."""
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
    """Return the JSON object of a group."""
    return {
        "group": status.name,
        "next": status.position + 1,
        "lag": status.lag,
        "age": status.depth.oldest_ready_s,
        "held": status.held,
        "due": status.due,
        "missed": status.missed,
        "skipped": status.skipped,
        "dead": status.depth.dead,
        "live": status.live_consumers,
        "seen": status.seen_ms,
    }


@click.command("set", cls=RsmqctlCommand)
@topic_option
@click.option("--max-count", type=click.IntRange(0), metavar="N", help="Keep about N messages; 0 for no limit.")
@click.option("--max-age", type=click.FloatRange(0), metavar="S", help="Keep messages for S seconds; 0 for no limit.")
@click.option("--max-bytes", type=click.IntRange(0), metavar="N", help="Keep up to N bytes of bodies; 0 for no limit.")
@click.option(
    "--wait-for-groups/--no-wait-for-groups", default=None, help="Keep messages until all groups have read them."
)
@click.option(
    "--group-ttl", type=click.FloatRange(0), metavar="S", help="Delete groups idle for S seconds; 0 for never."
)
@click.pass_obj
def set_(session: Session, /, name: str, **given: Any) -> None:
    """Set the retention of a topic. Options that are not given stay unchanged.

    Publishing drops messages beyond the limits, some hundred at a time; 'topic trim' applies the limits exactly.
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


@click.command(cls=RsmqctlCommand)
@topic_option
@click.option("--before", type=click.IntRange(0), metavar="INDEX", help="Drop the messages before this one.")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Drop all but the last N messages.")
@click.option("--compact", is_flag=True, help="Keep the newest message of each key; messages without key stay.")
@dry_run_option
@yes_option
@click.pass_obj
def trim(
    session: Session, /, name: str, before: int | None, keep: int | None, compact: bool, dry_run: bool, yes: bool
) -> None:
    """Delete old messages permanently.

    Without --before, --keep and --compact, the topic's retention applies ('topic set'). Groups that have not read these
    messages skip them; their next read reports how many.
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
            raise click.UsageError("--dry-run needs --before or --keep: other numbers are not known beforehand.")
        _print_dropped(session, name, chosen, would=True)
        return
    if chosen:
        confirm(f"Drop {counted(chosen)} of topic {name}?", yes=yes)
    dropped = target.compact() if compact else target.trim(before=before, keep=keep)
    _print_dropped(session, name, dropped, would=False)


def _print_dropped(session: Session, name: str, dropped: int, *, would: bool) -> None:
    word = "would_drop" if would else "dropped"
    if session.json:
        write_json({"topic": name, word: dropped})
    else:
        click.echo(f"{word.replace('_', ' ')} {counted(dropped)} of {name}")


# -- Bridge ----------------------------------------------------------------------------------------------------------


@click.command(cls=RsmqctlCommand)
@topic_option
@group_option
@click.option("--to", "target", required=True, metavar="QUEUE", shell_complete=complete_queue_name, help="The queue.")
@click.option("-f", "--follow", is_flag=True, help="Continue until Ctrl-C.")
@click.pass_obj
def bridge(session: Session, /, name: str, group: str, target: str, follow: bool) -> None:
    """Move a group's messages to a queue, for programs that support queues but not topics.

    Each arrives exactly once. A message longer than the queue allows goes to the dead-letter topic, NAME.dlt.
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
        note = f"; {dead} too long for the queue, moved to {name}.dlt" if dead else ""
        click.echo(f"moved {counted(moved)} from {name} to {target}{note}")


@contextmanager
def _left_at_the_end(moving: Bridge) -> Iterator[None]:
    try:
        yield
    finally:
        moving.group.leave()
