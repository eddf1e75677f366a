"""`rsmqctl topic archive, restore`: export a topic to a file of JSON lines, and import it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import click

from ..core import RsmqError
from ..core.errors import OutcomeUnknown, without_claims
from ..core.limits import MAX_BATCH, MAX_TRIP_BYTES
from ..core.texts import counted
from ..core.topic import NewMessage, Topic, TopicMessage
from ..core.transport.portions import portions
from .failures import Failed, Interrupted, name_of, text_of
from .options import RsmqctlCommand
from .output import write_json
from .session import Session
from .topic_reading import as_json, existing, topic_option

file_option = click.option(
    "--file",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The file; compressed if its name ends with .gz.",
)


@click.command(cls=RsmqctlCommand)
@topic_option
@file_option
@click.option("--from", "first", type=click.IntRange(1), default=1, metavar="INDEX", help="Start at this index.")
@click.pass_obj
def archive(session: Session, /, name: str, path: Path, first: int) -> None:
    """Write the messages of a topic to a file.

    Each line is a JSON object with index, message, key, headers and time of publication. Groups keep their positions.
    An existing file is replaced when the new one is complete. For an archive that grows, in the lake of the pipeline:
    manage.py rsmq_pipeline archive-topic.
    """
    topic = existing(session, name)
    unfinished = path.with_name(path.name + ".part")
    file = _opened(unfinished, "wb", gz=path.suffix == ".gz")
    try:
        count = _write(file, _messages(topic, first))
        os.replace(unfinished, path)
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted; nothing was written") from error
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    _print_count(session, name, count, "archived", "from")


@click.command(cls=RsmqctlCommand)
@topic_option
@file_option
@click.option("--append", is_flag=True, help="Publish after the existing messages of the topic.")
@click.option("--skip", type=click.IntRange(0), default=0, metavar="N", help="Skip the first N messages.")
@click.pass_obj
def restore(session: Session, /, name: str, path: Path, append: bool, skip: int) -> None:
    """Publish the messages of an archive.

    They keep their order, keys and headers, and get new indexes and times. A topic with messages requires --append.
    After an interruption or an error, continue with --append --skip N.
    """
    topic = Topic(name, session.client())
    if not append and topic.status().length:
        raise Failed("topicExists", f"topic {name} has messages; restore to another topic, or add --append")
    done, under_way = skip, 0
    try:
        with _opened(path, "rb", gz=path.suffix == ".gz") as file:
            for batch in portions(_entries(file, path, skip), _size_of, count=MAX_BATCH, size=MAX_TRIP_BYTES):
                under_way = len(batch)
                topic.publish(*batch)
                done, under_way = done + under_way, 0
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted; {_way_on(done, under_way)}") from error
    except (RsmqError, Failed) as error:
        under_way = under_way if isinstance(error, OutcomeUnknown) else 0
        if done == skip and not under_way:
            raise
        raise Failed(name_of(error), f"{_reason(error)}; {_way_on(done, under_way)}") from error
    _print_count(session, name, done - skip, "restored", "to")


def _messages(topic: Topic, first: int) -> Iterator[TopicMessage]:
    """Yield the messages that exist at the start; messages published meanwhile are left for the next archive."""
    last = topic.status().last
    while first <= last:
        found = topic.read_range(first, MAX_BATCH)
        yield from (message for message in found.messages if message.index <= last)
        first = max(first + MAX_BATCH, found.first)


def _write(file: IO[bytes], messages: Iterable[TopicMessage]) -> int:
    count = 0
    with file:
        for message in messages:
            file.write(json.dumps(as_json(message)).encode() + b"\n")
            count += 1
    return count


def _way_on(done: int, under_way: int) -> str:
    """Return how to continue after the first `done` messages of an archive were restored."""
    if not under_way:
        return f"continue with --append --skip {done}"
    return (
        f"{counted(done)} restored, and the next {under_way} may be: check with 'topic tail', then continue with "
        f"--append and --skip {done} or {done + under_way}"
    )


def _reason(error: RsmqError | Failed) -> str:
    return (without_claims(error) if isinstance(error, RsmqError) else text_of(error)).rstrip(".")


def _entries(file: IO[bytes], path: Path, skip: int) -> Iterator[NewMessage]:
    for number, line in _lines(file, path):
        if number <= skip:
            continue
        try:
            yield _entry(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failed("fileError", f"line {number} is not a message of an archive: {error}") from error


def _lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from enumerate(file, 1)
    except (OSError, EOFError, zlib.error) as error:  # the latter two, and some of the first: a truncated .gz file
        raise Failed("fileError", f"{path} cannot be read to its end: {error}") from error


def _entry(fields: dict[str, Any]) -> NewMessage:
    text, headers = fields["message"], fields.get("headers") or {}
    if not isinstance(headers, dict):
        raise TypeError(f"its headers are {headers!r}")
    body = base64.b64decode(text, validate=True) if fields.get("encoding") == "base64" else text.encode()
    return NewMessage(body, key=fields.get("key"), headers=headers)


def _size_of(entry: NewMessage) -> int:
    return len(entry.body)


def _opened(path: Path, mode: str, *, gz: bool) -> IO[bytes]:
    try:
        file: Any = gzip.open(path, mode) if gz else open(path, mode)
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error
    opened: IO[bytes] = file
    return opened


def _print_count(session: Session, name: str, count: int, word: str, way: str) -> None:
    if session.json:
        write_json({"topic": name, word: count})
    else:
        click.echo(f"{word} {counted(count)} {way} topic {name}")
