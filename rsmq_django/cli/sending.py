"""`rsmqctl message send`: one message, or one per line of a file in batches of a thousand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

import click

from ..core import Queue, RsmqError
from ..core.errors import MessageTooLong, OutcomeUnknown
from ..core.limits import MAX_BATCH, MAX_BODY_BYTES
from ..core.texts import counted
from .failures import Failed, Interrupted, PipeClosed, name_of, text_of
from .options import RsmqctlCommand, name_option
from .output import ProgressBar, write_json
from .session import Session

#: The server stores a batch in one step; this limit keeps the step within a few milliseconds.
MAX_BATCH_BYTES = 1024 * 1024

#: Bodies with their line numbers.
Lines = list[tuple[int, bytes]]


@click.command(cls=RsmqctlCommand)
@name_option
@click.option("-m", "--message", "text", metavar="TEXT", help="The body.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the body from standard input.")
@click.option("--file", "file", type=click.File("rb"), metavar="PATH", help="Read the body from a file.")
@click.option("--lines", is_flag=True, help="Send each line of standard input or --file as a message.")
@click.option("-d", "--delay", type=float, metavar="S", help="Delay in seconds; default: the queue's own.")
@click.pass_obj
def send(
    session: Session,
    /,
    name: str,
    text: str | None,
    from_stdin: bool,
    file: IO[bytes] | None,
    lines: bool,
    delay: float | None,
) -> None:
    """Send a message and print its id.

    \b
    rsmqctl message send -n mail -m 'hello'
    rsmqctl message send -n mail --file picture.png
    rsmqctl message send -n mail --lines < orders.ndjson
    """  # fmt: skip
    queue = session.queue(name)
    if sum((text is not None, from_stdin, file is not None)) > 1 or (lines and text is not None):
        raise click.UsageError("Give only one of -m, --stdin and --file; --lines goes with the latter two.")
    if lines:
        send_lines(session, queue, file or sys.stdin.buffer, delay_s=delay)
    elif text is not None:
        _print_id(session, queue.send(os.fsencode(text), delay_s=delay))
    elif from_stdin or file is not None:
        # One byte above the limit is enough to be rejected.
        body = (file or sys.stdin.buffer).read(MAX_BODY_BYTES + 1)
        _print_id(session, queue.send(body, delay_s=delay))
    else:
        raise click.UsageError("Missing option '-m' / '--message'; or give --stdin, --file or --lines.")


def send_lines(session: Session, queue: Queue, source: IO[bytes], *, delay_s: float | None) -> None:
    """Send each non-empty line without its line ending, and print the ids."""
    account = SendProgress(queue)
    size_bytes = _size_of(source)
    # On a terminal, the ids of a large file would flood the screen.
    prints_ids = session.json or not sys.stdout.isatty()
    bar = ProgressBar("sending", size_bytes, shows_numbers=size_bytes is None, is_quiet=session.json)
    with account.reported(), bar:
        for account.under_way, batch_bytes in batches(source):
            ids = queue.send_many([body for _, body in account.under_way], delay_s=delay_s)
            account.close_batch()
            bar.advance(batch_bytes if size_bytes else len(ids))
            for message_id in ids if prints_ids else ():
                _print_id(session, message_id)
    if not prints_ids:
        click.echo(f"sent {counted(account.sent)} to {queue.name}")


@dataclass
class SendProgress:
    """Progress of sending a file."""

    #: The queue; None for a structure whose messages are only limited by this client.
    queue: Queue | None = None
    sent: int = 0
    #: The last line that was sent.
    last_line: int = 0
    #: The batch whose reply has not arrived yet.
    under_way: Lines = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{counted(self.sent)} sent" + (f", up to line {self.last_line}" if self.sent else "")
        if self.under_way:
            first, last = self.under_way[0][0], self.under_way[-1][0]
            text += f"; lines {first} to {last} were either all sent or not sent at all"
        return text

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Add the progress to an error, to Ctrl-C, and to the end of the reader of the output."""
        try:
            yield
        except RsmqError as error:
            raise Failed(name_of(error), self.stopped_by(error)) from error
        except BrokenPipeError as error:  # of the ids: a line that was not sent must not be taken for one that was
            if self.under_way:
                self.close_batch()
            text = f"the reader of the output has ended; {self}; continue with line {self.last_line + 1}"
            raise PipeClosed(text) from error
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted; {self}") from error

    def bodies(self, source: IO[bytes]) -> Iterator[list[bytes]]:
        """Yield the lines of a file in batches; each counts as stored when the next one is taken."""
        for self.under_way, _ in batches(source):
            yield [body for _, body in self.under_way]
            self.close_batch()

    def close_batch(self) -> None:
        """Count the current batch as stored."""
        self.sent += len(self.under_way)
        self.last_line = self.under_way[-1][0]
        self.under_way = []

    def stopped_by(self, error: RsmqError) -> str:
        """Return the error line with the line that failed and the line to continue with."""
        what = text_of(error)
        if isinstance(error, OutcomeUnknown):
            return f"{what}; {self}"
        if isinstance(error, MessageTooLong):
            what = f"line {self._first_too_long()}: {what}"
        first = self.under_way[0][0] if self.under_way else self.last_line + 1
        self.under_way = []  # none of it was stored
        return f"{what}; {self}; continue with line {first}" if self.sent else f"{what}; nothing sent"

    def _first_too_long(self) -> int:
        limit = self.queue.attributes().max_size_bytes if self.queue is not None else -1
        too_long = (n for n, body in self.under_way if len(body) > (limit if limit >= 0 else MAX_BODY_BYTES))
        return next(too_long, self.under_way[0][0])


def batches(source: IO[bytes]) -> Iterator[tuple[Lines, int]]:
    """Yield a file's lines in batches, each with its size in bytes; lines of a slow pipe are yielded as they arrive."""
    rest, first_line = b"", 1
    while chunk := source.read1(MAX_BATCH_BYTES):  # type: ignore[attr-defined]  # every binary file of Python has this method
        *lines, rest = (rest + chunk).split(b"\n")
        yield from _cut(lines, first_line)
        first_line += len(lines)
        if len(rest) > MAX_BODY_BYTES:
            break  # will be rejected as too long; reading on would only fill the memory
    yield from _cut([rest], first_line)


def _cut(lines: Sequence[bytes], first_line: int) -> Iterator[tuple[Lines, int]]:
    batch: Lines = []
    read_bytes = 0
    for number, line in enumerate(lines, first_line):
        body = line.removesuffix(b"\r")
        if len(batch) == MAX_BATCH or (batch and read_bytes + len(line) > MAX_BATCH_BYTES):
            yield batch, read_bytes
            batch, read_bytes = [], 0
        read_bytes += len(line) + 1
        if body:
            batch.append((number, body))
    if batch:
        yield batch, read_bytes


def _size_of(source: IO[bytes]) -> int | None:
    """Return the size of a regular file in bytes; None for a pipe."""
    try:
        return os.fstat(source.fileno()).st_size or None
    except OSError:
        return None


def _print_id(session: Session, message_id: str) -> None:
    if session.json:
        write_json({"id": message_id})
    else:
        click.echo(message_id)
