"""`./manage.py rsmq_redrive`: send dead letters back to their queues."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import click
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...cli.options import MOMENT
from ...cli.output import ProgressBar, TextTable, counted, printable
from ...cli.transfers import FAULTS, STAYED, so_far
from ...conf import get_settings
from ...core import RsmqError
from ...core.dead_letters import Filter
from ...core.errors import QueueNotFound
from ...core.transfers import Transfer, preview, redrive_slice
from ...redrive import dead_letter_queues, transfer_from

EPILOG = """
examples:
  manage.py rsmq_redrive --dry-run                        count all dead letters by task and error
  manage.py rsmq_redrive mail-dead --error 'Connection*'  dead letters with a connection error
  manage.py rsmq_redrive --task send_receipt --since 2h --rate 50
  manage.py rsmq_redrive mail-dead --limit 1              one message, to test a fix

Each dead letter becomes a new message at the end of its original queue, and its attempts start anew. A task keeps its
id, and its result keeps earlier attempts and errors. Ctrl-C neither loses nor duplicates messages; the same command
continues with the rest. Exit status: 1 if a message could not be redriven.
"""


class Command(BaseCommand):
    """The management command."""

    help = "Sends dead letters back to their original queues, to be run again."
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        which = parser.add_argument_group("which")
        which.add_argument(
            "queues", nargs="*", metavar="QUEUE", help="dead-letter queues; default: all in the settings"
        )
        which.add_argument("--task", metavar="NAME", help="of this task: path or name; * and ? are wildcards")
        which.add_argument("--error", metavar="NAME", help="with this exception: path or name; * and ? are wildcards")
        which.add_argument("--reason", metavar="WORD", help="with this reason, for example gave_up")
        which.add_argument(
            "--since", type=_moment, metavar="TIME", help="failed at or after TIME: 30m, 2h, 7d ago, or a date and time"
        )
        which.add_argument(
            "--until", type=_moment, metavar="TIME", help="failed at or before TIME; same forms as --since"
        )
        which.add_argument("--limit", type=_positive(int), metavar="N", help="maximum number of messages per queue")
        how = parser.add_argument_group("how")
        how.add_argument("--to", metavar="QUEUE", help="default: each message's original queue")
        how.add_argument("--rate", type=_positive(float), metavar="N", help="maximum number of messages per second")
        how.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Redrive the dead letters of the queues."""
        chosen = Filter(
            task=options["task"],
            error=options["error"],
            reason=options["reason"],
            since_ms=options["since"],
            until_ms=options["until"],
        )
        to, faults = options["to"], 0
        for name in options["queues"] or dead_letter_queues():
            try:
                transfer = transfer_from(name, chosen, to=to, limit=options["limit"], rate=options["rate"])
                if options["dry_run"]:
                    self._show(transfer, preview(transfer, to=to))
                else:
                    self._carry_out(transfer, to)
            except ImproperlyConfigured as error:
                raise CommandError(str(error)) from error
            except QueueNotFound as error:
                if options["queues"] or to is not None or transfer.moved:
                    raise CommandError(str(error) + so_far(transfer, "redriven", 0)) from error
                continue  # never created: no task of this project has failed permanently
            except RsmqError as error:
                raise CommandError(str(error) + so_far(transfer, "redriven", 0)) from error
            faults += self._print_skipped(transfer)
            self._hint_at_dead_letter_queue(name)
        if faults:
            raise CommandError(f"{counted(faults)} could not be redriven")

    def _show(self, transfer: Transfer, groups: Counter[tuple[str, str, str, str]]) -> None:
        if groups:
            rows = [[str(number), *map(printable, group)] for group, number in groups.most_common()]
            text = "\n".join(TextTable(["COUNT", "TO", "TASK", "REASON", "ERROR"], right=["COUNT"]).lines(rows))
            self.stdout.write(text if self.stdout.isatty() else click.unstyle(text))
        self.stdout.write(f"would redrive {counted(groups.total())} from {transfer.source}")

    def _carry_out(self, transfer: Transfer, to: str | None) -> None:
        try:
            with ProgressBar(f"redriving {transfer.source}", transfer.expected()) as bar:
                for part in transfer.slices():
                    before = transfer.moved.total()
                    redrive_slice(transfer, part, to)
                    bar.advance(transfer.moved.total() - before)
        except KeyboardInterrupt as error:
            raise CommandError("interrupted" + so_far(transfer, "redriven", 0)) from error
        targets = ", ".join(f"{number} to {target}" for target, number in transfer.moved.items() if number)
        text = f"redriven {counted(transfer.moved.total())} from {transfer.source}"
        self.stdout.write(f"{text}: {targets}" if targets else text)

    def _hint_at_dead_letter_queue(self, name: str) -> None:
        """Print a hint if the queue is an original queue rather than a dead-letter queue."""
        queue = get_settings().queue(name)
        if queue.dead_letter and name not in dead_letter_queues():
            self.stderr.write(f"{name} is not a dead-letter queue: its dead letters are in {queue.dead_letter}")

    def _print_skipped(self, transfer: Transfer) -> int:
        """Print why messages were not redriven, and return how many of them are failures."""
        for word, number in transfer.stayed.items():
            if number:
                self.stderr.write(f"{counted(number)} not redriven from {transfer.source}: {STAYED[word]}")
        return sum(transfer.stayed[word] for word in FAULTS)


def _moment(text: str) -> float:
    try:
        return MOMENT.convert(text, None, None)
    except click.UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def _positive(kind: type[int] | type[float]) -> Any:
    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1e12:
            raise argparse.ArgumentTypeError(f"{text} must be greater than 0")
        return value

    return number
