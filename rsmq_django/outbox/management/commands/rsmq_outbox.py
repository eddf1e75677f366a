"""`./manage.py rsmq_outbox`: show the outbox, relay it, send rows again, delete old rows."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from datetime import UTC, datetime
from typing import Any

from click import ClickException
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, OperationalError, ProgrammingError
from django.db.models import Count, Max, Min, Q
from django.utils import timezone

from ....cli.options import TimeParam
from ....conf.settings import get_settings
from ....conf.timetable import in_words
from ....core.texts import printable
from ...models import WAITING, InboxEntry, OutboxMessage
from ...relay import Relay, prune
from ...relay_process import StopRequest, relay_until
from ...writing import outbox_database

EPILOG = """
A task for a queue with OUTBOX is written to a table in the caller's transaction. The relay sends it to Redis.
rsmq_worker runs a relay, so most projects need only the status of this command.

examples:
  manage.py rsmq_outbox status         unsent messages with their age, and messages set aside because of errors
  manage.py rsmq_outbox relay          send messages until stopped
  manage.py rsmq_outbox relay --once   send the current messages, for scripts
  manage.py rsmq_outbox retry          send messages that were set aside, after a fix
  manage.py rsmq_outbox resend --since 10m
                                       send rows again that were sent since then, after a failover of Redis that may
                                       have lost the latest messages. Skips calls that Redis knows
  manage.py rsmq_outbox prune          delete rows older than RSMQ["OUTBOX"] allows; the relay does so, too

Exit status 1: status found messages that were set aside; relay --once left unsent messages.
"""


class Command(BaseCommand):
    """The management command."""

    help = "Shows and sends the task messages in the outbox."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the sub-commands."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        status = actions.add_parser("status", help="show unsent messages and messages set aside")
        status.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        relay = actions.add_parser("relay", help="send messages")
        relay.add_argument("--once", action="store_true", help="send the current messages and exit")
        actions.add_parser("retry", help="send messages that were set aside")
        resend = actions.add_parser("resend", help="send messages again that were sent since a time")
        resend.add_argument("--since", required=True, metavar="TIME", help="an age (10m) or a time (2026-03-01T12:00)")
        resend.add_argument("--dry-run", action="store_true", help="count the messages, and change nothing")
        actions.add_parser("prune", help="delete old rows of both tables")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the chosen action."""
        try:
            if options["action"] == "status":
                self.show_status(as_json=options["as_json"])
            elif options["action"] == "relay":
                self.relay(once=options["once"])
            elif options["action"] == "retry":
                count = OutboxMessage.objects.using(outbox_database()).exclude(refusal="").update(refusal="")
                self.stdout.write(f"{_messages(count)} will be sent again")
            elif options["action"] == "resend":
                self.resend(_moment(options["since"]), dry_run=options["dry_run"])
            else:
                self.prune()
        except (OperationalError, ProgrammingError) as error:  # raised by the drivers for a missing table
            hint = "If its tables are missing, run `manage.py migrate`"
            raise CommandError(f"{str(error).strip().rstrip('.')}. {hint}") from error
        except (ImproperlyConfigured, Error) as error:
            raise CommandError(str(error).strip()) from error

    def show_status(self, *, as_json: bool) -> None:
        """Print the unsent messages of each queue."""
        rows: list[Any] = list(
            OutboxMessage.objects.using(outbox_database())
            .filter(Q(sent_at=None))
            .values("queue_name")
            .annotate(waiting=Count("pk", filter=WAITING), oldest=Min("created_at", filter=WAITING))
            .annotate(refused=Count("pk", filter=~Q(refusal="")), reason=Max("refusal"))
            .order_by("queue_name")
        )
        done = InboxEntry.objects.using(outbox_database()).count()
        if as_json:
            for row in rows:
                row["oldest"] = row["oldest"].isoformat() if row["oldest"] else None
            self.stdout.write(json.dumps({"queues": rows, "done": done}, indent=2))
        else:
            self.show_rows(rows)
            self.stdout.write(f"inbox: {done} {'task' if done == 1 else 'tasks'} with once=True recorded as done")
        if any(row["refused"] for row in rows):
            sys.exit(1)

    def show_rows(self, rows: list[dict[str, Any]]) -> None:
        """Print the unsent messages as text."""
        if not rows:
            self.stdout.write("no unsent messages")
            if not any(queue.outbox for queue in get_settings().queues.values()):
                self.stdout.write("no queue has an outbox; RSMQ['QUEUES'][...]['OUTBOX'] = True enables it")
        for row in rows:
            age = ""
            if row["oldest"] is not None:
                age = f", the oldest for {in_words(max(0, round((timezone.now() - row['oldest']).total_seconds())))}"
            waiting = row["waiting"]
            self.stdout.write(f"{row['queue_name']}: {_messages(waiting)} unsent{age}")
            if row["refused"]:
                said = f"  {_messages(row['refused'])} set aside, for example because {row['reason']}"
                self.stdout.write(self.style.ERROR(printable(said)))

    def relay(self, *, once: bool) -> None:
        """Relay the outbox, once or until stopped."""
        if once:
            count = Relay().relay_waiting()
            left = OutboxMessage.objects.using(outbox_database()).filter(WAITING).count()
            self.stdout.write(f"sent {_messages(count)}, {left} unsent")
            if left:
                sys.exit(1)
            return
        stop = StopRequest()
        stop.on_signals(signal.SIGTERM, signal.SIGINT)
        self.stdout.write("relaying the outbox; Ctrl-C stops it")
        self.stdout.flush()
        relay_until(stop)

    def resend(self, since: datetime, *, dry_run: bool) -> None:
        """Mark rows that were sent since a time as unsent."""
        sent = OutboxMessage.objects.using(outbox_database()).filter(sent_at__gte=since)
        if dry_run:
            self.stdout.write(f"{_messages(sent.count())} would be sent again")
            return
        count = sent.update(sent_at=None)
        self.stdout.write(f"{_messages(count)} will be sent again, except calls that Redis knows")
        kept_s = get_settings().outbox.keep_sent_s
        if (timezone.now() - since).total_seconds() > kept_s:
            self.stdout.write(f"rows sent more than {in_words(kept_s)} ago were already deleted (KEEP_SENT_S)")

    def prune(self) -> None:
        """Delete old rows of both tables."""
        settings = get_settings().outbox
        sent, done = prune(keep_sent_s=settings.keep_sent_s, keep_done_s=settings.keep_done_s)
        self.stdout.write(f"deleted {_messages(sent)} that had been sent, and {done} inbox entries")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromtimestamp(TimeParam().convert(text, None, None) / 1000, UTC)
    except (ClickException, OverflowError, ValueError) as error:
        raise CommandError(f"--since: {getattr(error, 'message', error)}") from error
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"
