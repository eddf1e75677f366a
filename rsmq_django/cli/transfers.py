"""Progress and result of commands that move messages to another queue."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..core import RsmqError
from ..core.errors import OutcomeUnknown
from ..core.queue.browse import StoredMessage
from ..core.queue.transfers import DUPLICATE, GONE, NO_ORIGIN, TAKEN, TOO_LONG, Transfer
from ..core.texts import counted
from .failures import Failed, Interrupted, name_of, text_of
from .output import ProgressBar, write_json
from .session import Session

#: Why a message was not moved. The first two are not failures.
STAYED = {
    GONE: "deleted meanwhile",
    TAKEN: "received by a consumer meanwhile",
    TOO_LONG: "too long for the target",
    DUPLICATE: "with an id that the target already has",
    NO_ORIGIN: "without a record of their origin (name the target with --to)",
}
FAULTS = (TOO_LONG, DUPLICATE, NO_ORIGIN)


class MessagesStayed(Failed):
    """Messages that exist could not be moved."""

    def __init__(self, text: str, *, moved: int = 0) -> None:
        super().__init__("messagesStayed", text)
        #: Number of the others, which were moved.
        self.moved = moved


def carry_out(session: Session, transfer: Transfer, send: Callable[[list[StoredMessage]], None], verb: str) -> None:
    """Send slice by slice, and report the progress, also after an error or Ctrl-C."""
    under_way = 0
    try:
        with ProgressBar(verb, transfer.expected(), is_quiet=session.json) as bar:
            for part in transfer.slices():
                before, under_way = transfer.moved.total(), len(part)
                send(part)
                under_way = 0
                bar.advance(transfer.moved.total() - before)
    except RsmqError as error:
        unsure = under_way if isinstance(error, OutcomeUnknown) else 0
        raise Failed(name_of(error), text_of(error) + so_far(transfer, verb, unsure)) from error
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted" + so_far(transfer, verb, under_way)) from error
    print_result(session, transfer, verb)


def so_far(transfer: Transfer, verb: str, unsure: int) -> str:
    """Return the progress so far; `unsure` messages were passed to a script whose reply is unknown."""
    moved = transfer.moved.total()
    if not moved and not unsure:
        return ""
    more = f", up to {unsure} more may have been" if unsure else ""
    return f"; {counted(moved)} {verb}{more}; the same command continues with the rest"


def print_result(session: Session, transfer: Transfer, verb: str) -> None:
    """Print the result. Raises MessagesStayed when messages that exist could not be moved."""
    stayed = dict(transfer.stayed)
    moved = transfer.moved.total()
    alias = session.shard_alias(transfer.source)
    source = f"{transfer.source} on {alias}" if alias else transfer.source
    if session.json:
        word = verb.replace(" ", "_")
        shard = {"connection": alias} if alias else {}
        write_json({word: moved, "targets": dict(transfer.moved), "stayed": stayed, **shard})
    else:
        targets = ", ".join(f"{number} to {target}" for target, number in transfer.moved.items() if number)
        click.echo(f"{verb} {counted(moved)} from {source}" + (f": {targets}" if targets else ""))
    if stayed:
        reasons = ", ".join(f"{number} {STAYED[word]}" for word, number in stayed.items())
        if any(word in FAULTS for word in stayed):
            raise MessagesStayed(f"{counted(sum(stayed.values()))} not moved from {source}: {reasons}", moved=moved)
        click.echo(f"{counted(sum(stayed.values()))} not moved: {reasons}", err=True)
