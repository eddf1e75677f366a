"""Messages on their way to another queue, slice by slice, and what became of them.

Each slice is looked at and then moved by one script that leaves alone what somebody received meanwhile, so stopping at
any moment loses nothing and doubles nothing; the same command goes on with the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import click

from ..core import Client, RsmqError
from ..core.browse import ALL, NO_BODY, StoredMessage, pick
from ..core.browse import count as count_call
from ..core.errors import OutcomeUnknown
from ..core.moves import MAX_SLICE, MAX_SLICE_BYTES, Verdict
from .browsing import pages
from .dead_letters import Filter
from .failures import Failed, Interrupted, name_of, text_of
from .output import Progress, counted, write_json
from .session import Session

#: Why a message stayed where it was. The first two are nobody's fault.
STAYED = {
    "gone": "deleted meanwhile",
    "taken": "received by somebody meanwhile",
    "too_long": "too long for the target",
    "duplicate": "whose id the target has already",
    "no_origin": "without a record of their origin (name the target with --to)",
}
FAULTS = ("too_long", "duplicate", "no_origin")
WORDS = {
    Verdict.MISSING: "gone",
    Verdict.TAKEN: "taken",
    Verdict.TOO_LONG: "too_long",
    Verdict.DUPLICATE: "duplicate",
}


@dataclass
class Transfer:
    """Which messages of a queue are to go, how fast, and what became of them so far."""

    client: Client
    source: str
    #: Only these; () means all that fit.
    ids: Sequence[str] = ()
    chosen: Filter = Filter()
    #: Delayed messages and those in flight, too.
    with_hidden: bool = False
    limit: int | None = None
    #: Messages a second; None means as fast as it goes.
    rate: float | None = None
    with_failures: bool = False
    #: Target -> messages that went there.
    moved: Counter[str] = field(default_factory=Counter)
    #: Word of STAYED -> messages that did not go.
    stayed: Counter[str] = field(default_factory=Counter)

    def expected(self) -> int | None:
        """Return how many messages will go, for the progress bar; None when only looking at each would tell."""
        if not self.chosen.is_empty:
            return self.limit
        counts = self.client.run(count_call(self.client.namespace, self.source))
        there = len(self.ids) or (counts.messages if self.with_hidden else counts.ready)
        return there if self.limit is None else min(there, self.limit)

    def note(self, target: str, verdicts: Sequence[Verdict | str]) -> None:
        """Note what became of the messages of one slice; a text is the new id of one that went."""
        for verdict in verdicts:
            if isinstance(verdict, str) or verdict is Verdict.DONE:
                self.moved[target] += 1
            else:
                self.stayed[WORDS[verdict]] += 1

    def candidates(self) -> Iterator[list[StoredMessage]]:
        """Read the messages that are meant, page by page, up to the limit."""
        left = self.limit
        for messages in self._picked() if self.ids else self._scanned():
            fitting = [message for message in messages if self.chosen.fits(message)][:left]
            yield fitting
            left = None if left is None else left - len(fitting)
            if left == 0:
                return

    def _picked(self) -> Iterator[list[StoredMessage]]:
        for at in range(0, len(self.ids), MAX_SLICE):
            part = self.ids[at : at + MAX_SLICE]
            found = self.client.run(pick(self.client.namespace, self.source, part, body_bytes=NO_BODY)).messages
            self.stayed["gone"] += len(part) - len(found)
            yield found

    def _scanned(self) -> Iterator[list[StoredMessage]]:
        # What arrives from now on is not meant: a queue that fills as fast as it is emptied would never end.
        counts = self.client.run(count_call(self.client.namespace, self.source))
        left = counts.messages if self.with_hidden else counts.ready
        until_ms = ALL if self.with_hidden else counts.now_ms
        for part in pages(self.client, self.source, until_ms=until_ms, with_failures=self.with_failures):
            yield part.messages[:left]
            left -= len(part.messages)
            if left <= 0:
                return

    def slices(self) -> Iterator[list[StoredMessage]]:
        """Cut the messages that are meant into what one script may take, and keep to the rate."""
        # With a rate, about ten slices a second, so that consumers get a stream and not a wave.
        most = MAX_SLICE if self.rate is None else max(1, min(MAX_SLICE, int(self.rate / 10)))
        began_s, taken = time.monotonic(), 0
        for messages in self.candidates():
            for part in cut(messages, most):
                if self.rate is not None:
                    time.sleep(max(0.0, began_s + taken / self.rate - time.monotonic()))
                yield part
                taken += len(part)


def cut(messages: Sequence[StoredMessage], most: int) -> Iterator[list[StoredMessage]]:
    """Cut messages into slices of at most `most` messages and MAX_SLICE_BYTES."""
    part: list[StoredMessage] = []
    weight = 0
    for message in messages:
        size = message.size_bytes or 0
        if part and (len(part) == most or weight + size > MAX_SLICE_BYTES):
            yield part
            part, weight = [], 0
        part.append(message)
        weight += size
    if part:
        yield part


def carry_out(session: Session, transfer: Transfer, send: Callable[[list[StoredMessage]], None], verb: str) -> None:
    """Send slice after slice, and tell how far it got whatever happens."""
    under_way = 0
    try:
        with Progress(verb, transfer.expected(), is_quiet=session.json) as bar:
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
    tell(session, transfer, verb)


def so_far(transfer: Transfer, verb: str, unsure: int) -> str:
    """Say how far it got; `unsure` messages were given to a script whose answer is not known."""
    moved = transfer.moved.total()
    if not moved and not unsure:
        return ""
    more = f", up to {unsure} more may have been" if unsure else ""
    return f"; {counted(moved)} {verb}{more}; the same command goes on with the rest"


def tell(session: Session, transfer: Transfer, verb: str) -> None:
    """Print the result. Raises Failed when messages stayed that were meant to go and could have."""
    stayed = {word: number for word, number in transfer.stayed.items() if number}
    moved = transfer.moved.total()
    if session.json:
        word = verb.replace(" ", "_")
        write_json({word: moved, "targets": dict(transfer.moved), "stayed": stayed})
    else:
        targets = ", ".join(f"{number} to {target}" for target, number in transfer.moved.items() if number)
        click.echo(f"{verb} {counted(moved)} from {transfer.source}" + (f": {targets}" if targets else ""))
    if stayed:
        reasons = ", ".join(f"{number} {STAYED[word]}" for word, number in stayed.items())
        if any(word in FAULTS for word in stayed):
            raise Failed("messagesStayed", f"{counted(sum(stayed.values()))} stayed in {transfer.source}: {reasons}")
        click.echo(f"{counted(sum(stayed.values()))} stayed: {reasons}", err=True)
