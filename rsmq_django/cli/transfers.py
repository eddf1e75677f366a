"""`rsmqctl message move, redrive`: messages to another queue, slice by slice.

Each slice is looked at and then moved by one script that leaves alone what somebody received meanwhile, so stopping at
any moment loses nothing and doubles nothing; the same command goes on with the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from ..core import Client, RsmqError
from ..core.browse import ALL, NO_BODY, StoredMessage, pick
from ..core.browse import count as count_call
from ..core.errors import InvalidName, OutcomeUnknown
from ..core.keys import checked_name
from ..core.moves import MAX_SLICE, MAX_SLICE_BYTES, Verdict
from ..core.moves import move as move_call
from ..core.moves import redrive as redrive_call
from .browsing import pages
from .dead_letters import Filter, filter_options
from .failures import Failed, Interrupted, name_of, text_of
from .options import Command, complete_queue_name, dry_run_option, name_option
from .output import Progress, Table, counted, printable, write_json
from .session import Session

F = TypeVar("F", bound=Callable[..., Any])

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
        most = MAX_SLICE if self.rate is None else max(1, min(MAX_SLICE, int(self.rate)))
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


# -- Commands ---------------------------------------------------------------------------------------------------------


def transfer_options(function: F) -> F:
    """Add what move and redrive have in common."""
    options = (
        dry_run_option,
        click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N a second."),
        click.option("--hidden", "with_hidden", is_flag=True, help="Also delayed messages and those in flight."),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="At most N messages."),
        click.option("-i", "--message-id", "ids", multiple=True, metavar="ID", help="Only this one; can be repeated."),
    )
    for option in options:
        function = option(function)
    return function


@click.command(cls=Command)
@name_option
@click.option("--to", "target", required=True, metavar="QUEUE", shell_complete=complete_queue_name)
@transfer_options
@click.pass_obj
def move(session: Session, /, name: str, target: str, dry_run: bool, ids: tuple[str, ...], **choices: Any) -> None:
    """Move messages to another queue as they are: id, receive count and the time they become visible stay.

    Only what is ready goes, unless --hidden is given or the messages are named. To run dead letters again, use redrive.
    """
    transfer = Transfer(client_for(session, name, target), name, ids=tuple(dict.fromkeys(ids)), **choices)
    namespace = transfer.client.namespace

    def send(part: list[StoredMessage]) -> None:
        transfer.note(target, transfer.client.run(move_call(namespace, name, target, part)))

    if dry_run:
        transfer.moved[target] = sum(len(part) for part in transfer.candidates())
        tell(session, transfer, "would move")
    else:
        carry_out(session, transfer, send, "moved")


@click.command(cls=Command)
@name_option
@click.option(
    "--to", "target", metavar="QUEUE", shell_complete=complete_queue_name, help="Default: where each came from."
)
@filter_options
@transfer_options
@click.pass_obj
def redrive(
    session: Session,
    /,
    name: str,
    target: str | None,
    dry_run: bool,
    ids: tuple[str, ...],
    limit: int | None,
    with_hidden: bool,
    rate: float | None,
    **conditions: Any,
) -> None:
    """Send dead letters back to the queues they came from, to be run again.

    Each becomes a new message with the same body; its attempts start anew, and a task keeps its id.

    \b
    rsmqctl message redrive -n mail-dead --dry-run
    rsmqctl message redrive -n mail-dead --error 'Connection*' --since 2h --rate 50
    """
    transfer = Transfer(
        client_for(session, name, target),
        name,
        ids=tuple(dict.fromkeys(ids)),
        chosen=Filter(**conditions),
        with_hidden=with_hidden,
        limit=limit,
        rate=rate,
        with_failures=True,
    )

    def send(part: list[StoredMessage]) -> None:
        for home, messages in by_target(transfer, part, target).items():
            transfer.note(home, transfer.client.run(redrive_call(transfer.client.namespace, name, home, messages)))

    if dry_run:
        preview(session, transfer, target)
    else:
        carry_out(session, transfer, send, "redriven")


def client_for(session: Session, source: str, target: str | None) -> Client:
    """Return the client of both queues. Raises Failed when they are on different servers."""
    client = session.queue(source).client
    if target is not None:
        other = session.queue(target).client
        if (other.connection, other.namespace) != (client.connection, client.namespace):
            raise Failed(
                "differentServers",
                f"queues {source} and {target} are on different connections; a message moves within one server only",
            )
    return client


def by_target(transfer: Transfer, part: Sequence[StoredMessage], target: str | None) -> dict[str, list[StoredMessage]]:
    """Group dead letters by the queue they go to; those without one stay."""
    found: dict[str, list[StoredMessage]] = {}
    for message in part:
        home = target or origin_of(message)
        if home is None:
            transfer.stayed["no_origin"] += 1
        else:
            found.setdefault(home, []).append(message)
    return found


def origin_of(message: StoredMessage) -> str | None:
    """Return the queue that a dead letter came from, if its record names one."""
    failure = message.failure()
    try:
        return checked_name(failure.queue) if failure else None
    except InvalidName:
        return None


def carry_out(session: Session, transfer: Transfer, send: Callable[[list[StoredMessage]], None], verb: str) -> None:
    """Send slice after slice, and tell how far it got whatever happens."""
    with Progress(verb, transfer.expected(), is_quiet=session.json) as bar:
        for part in transfer.slices():
            before = transfer.moved.total()
            try:
                send(part)
            except RsmqError as error:
                unsure = len(part) if isinstance(error, OutcomeUnknown) else 0
                raise Failed(name_of(error), f"{text_of(error)}; {so_far(transfer, verb, unsure)}") from error
            except KeyboardInterrupt as error:
                raise Interrupted(f"interrupted; {so_far(transfer, verb, len(part))}") from error
            bar.advance(transfer.moved.total() - before)
    tell(session, transfer, verb)


def so_far(transfer: Transfer, verb: str, unsure: int) -> str:
    """Say how far it got; `unsure` messages were given to a script whose answer is not known."""
    more = f", up to {unsure} more may have been" if unsure else ""
    return f"{counted(transfer.moved.total())} {verb}{more}; the same command goes on with the rest"


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


def preview(session: Session, transfer: Transfer, target: str | None) -> None:
    """Tell what redrive would do: how many messages of which failure would go where."""
    groups: Counter[tuple[str, str, str, str]] = Counter()
    for part in transfer.candidates():
        for home, messages in by_target(transfer, part, target).items():
            transfer.moved[home] += len(messages)
            for message in messages:
                failure = message.failure()
                why = (failure.task, failure.reason, failure.error) if failure else ("", "", "")
                groups[home, *why] += 1
    if groups and not session.json:
        rows = [[str(number), *map(printable, group)] for group, number in groups.most_common()]
        Table(["COUNT", "TO", "TASK", "REASON", "ERROR"], right=["COUNT"]).print(rows)
    tell(session, transfer, "would redrive")
