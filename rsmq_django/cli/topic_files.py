"""`rsmqctl topic archive, restore`: the messages of a topic in a file of JSON lines, and back."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from ..core.limits import MAX_BATCH, MAX_TRIP_BYTES
from ..core.portions import portions
from ..core.topics import Entry, Topic, TopicMessage
from .failures import Failed, Interrupted
from .options import Command
from .output import counted, write_json
from .session import Session
from .topic_reading import as_json, existing, topic_option

file_option = click.option(
    "--file",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The file; compressed when its name ends with .gz.",
)


@click.command(cls=Command)
@topic_option
@file_option
@click.option("--from", "first", type=click.IntRange(1), default=1, metavar="INDEX", help="Begin with this index.")
@click.pass_obj
def archive(session: Session, /, name: str, path: Path, first: int) -> None:
    """Write the messages of a topic to a file.

    Each line is a JSON object with index, message, key, headers and time of publication. No group is moved. An existing
    file is replaced once the new one is complete.
    """
    topic = existing(session, name)
    unfinished = path.with_name(path.name + ".part")
    count = 0
    try:
        with _opened(unfinished, "wb", gz=path.suffix == ".gz") as file:
            for message in _messages(topic, first):
                file.write(json.dumps(as_json(message)).encode() + b"\n")
                count += 1
        os.replace(unfinished, path)
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted; nothing was written") from error
    finally:
        unfinished.unlink(missing_ok=True)
    _tell(session, name, count, "archived", "from")


@click.command(cls=Command)
@topic_option
@file_option
@click.option("--append", is_flag=True, help="Publish behind the messages that the topic has.")
@click.option("--skip", type=click.IntRange(0), default=0, metavar="N", help="Leave out the first N messages.")
@click.pass_obj
def restore(session: Session, /, name: str, path: Path, append: bool, skip: int) -> None:
    """Publish the messages of an archive.

    They keep their order, keys and headers, and get new indexes and times. A topic that has messages is refused without
    --append. After an interruption, go on with --append --skip N.
    """
    topic = Topic(name, session.client())
    if not append and topic.status().length:
        raise Failed("topicExists", f"topic {name} has messages; restore another one, or give --append")
    done = skip
    try:
        with _opened(path, "rb", gz=path.suffix == ".gz") as file:
            for batch in portions(_entries(file, skip), _size_of, count=MAX_BATCH, size_bytes=MAX_TRIP_BYTES):
                topic.publish(*batch)
                done += len(batch)
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted; go on with --append --skip {done}") from error
    _tell(session, name, done - skip, "restored", "to")


def _messages(topic: Topic, first: int) -> Iterator[TopicMessage]:
    """Yield the messages that there are now; those that are published meanwhile are left for the next archive."""
    last = topic.status().last
    while first <= last:
        found = topic.read_range(first, MAX_BATCH)
        yield from (message for message in found.messages if message.index <= last)
        first = max(first + MAX_BATCH, found.first)


def _entries(file: IO[bytes], skip: int) -> Iterator[Entry]:
    for number, line in enumerate(file, 1):
        if number <= skip:
            continue
        try:
            fields: dict[str, Any] = json.loads(line)
            text = fields["message"]
            body = base64.b64decode(text) if fields.get("encoding") == "base64" else text.encode()
            yield Entry(body, key=fields.get("key"), headers=fields.get("headers") or {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed("fileError", f"line {number} is not a message of an archive: {error}") from error


def _size_of(entry: Entry) -> int:
    return len(entry.body)


def _opened(path: Path, mode: str, *, gz: bool) -> IO[bytes]:
    try:
        file: Any = gzip.open(path, mode) if gz else open(path, mode)
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error
    opened: IO[bytes] = file
    return opened


def _tell(session: Session, name: str, count: int, word: str, way: str) -> None:
    if session.json:
        write_json({"topic": name, word: count})
    else:
        click.echo(f"{word} {counted(count)} {way} topic {name}")
