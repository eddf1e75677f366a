"""`./manage.py rsmq_outbox`: look at the outbox, relay it, try again what was refused, delete what is old."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error
from django.db.models import Count, Max, Min, Q
from django.utils import timezone

from ....conf import get_settings
from ....timetable import in_words
from ....worker.attendant import StopRequest, relay_until
from ....worker.relay import Relay, prune
from ...models import WAITING, InboxEntry, OutboxMessage
from ...writing import outbox_database

EPILOG = """
examples:
  manage.py rsmq_outbox status         what waits, for how long, and what cannot be sent
  manage.py rsmq_outbox relay          send what comes in until it is stopped; rsmq_worker does this, too
  manage.py rsmq_outbox relay --once   send what waits now, for scripts
  manage.py rsmq_outbox retry          try again what could not be sent, once the reason is mended
  manage.py rsmq_outbox prune          delete what is older than RSMQ["OUTBOX"] says; the relay does this every minute

Exit status of status: 1 when there is something that cannot be sent, else 0.
"""


class Command(BaseCommand):
    """See the module."""

    help = "Shows and relays tasks that were written to the database and wait to be sent."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the sub-commands."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        status = actions.add_parser("status", help="what waits and what was refused")
        status.add_argument("--json", action="store_true", dest="as_json", help="for programs")
        relay = actions.add_parser("relay", help="send what waits")
        relay.add_argument("--once", action="store_true", help="end when nothing waits any more")
        actions.add_parser("retry", help="let what was refused wait again")
        actions.add_parser("prune", help="delete what is old")

    def handle(self, *args: Any, **options: Any) -> None:
        """Carry out the action."""
        try:
            if options["action"] == "status":
                self.show_status(as_json=options["as_json"])
            elif options["action"] == "relay":
                self.relay(once=options["once"])
            elif options["action"] == "retry":
                count = OutboxMessage.objects.using(outbox_database()).exclude(refusal="").update(refusal="")
                self.stdout.write(f"{count} messages wait again")
            else:
                self.prune()
        except (ImproperlyConfigured, Error) as error:
            raise CommandError(str(error).strip()) from error

    def show_status(self, *, as_json: bool) -> None:
        """Print what waits for each queue."""
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
            self.stdout.write(f"{done} {'task is' if done == 1 else 'tasks are'} noted as done")
        if any(row["refused"] for row in rows):
            sys.exit(1)

    def show_rows(self, rows: list[dict[str, Any]]) -> None:
        """Print what waits for people."""
        if not rows:
            self.stdout.write("nothing waits")
        for row in rows:
            age = ""
            if row["oldest"] is not None:
                age = f", the oldest for {in_words(max(0, round((timezone.now() - row['oldest']).total_seconds())))}"
            self.stdout.write(f"{row['queue_name']}: {row['waiting']} wait{age}")
            if row["refused"]:
                said = f"  {row['refused']} cannot be sent, for example: {row['reason']}"
                self.stdout.write(self.style.ERROR(said.encode("unicode_escape").decode()))

    def relay(self, *, once: bool) -> None:
        """Send what waits."""
        if once:
            count = Relay().relay_waiting()
            left = OutboxMessage.objects.using(outbox_database()).filter(WAITING).count()
            self.stdout.write(f"sent {count}, {left} wait still")
            if left:
                sys.exit(1)
            return
        stop = StopRequest()
        stop.on_signals(signal.SIGTERM, signal.SIGINT)
        self.stdout.write("relaying the outbox; Ctrl-C stops it")
        self.stdout.flush()
        relay_until(stop)

    def prune(self) -> None:
        """Delete what is old."""
        settings = get_settings().outbox
        sent, done = prune(keep_sent_s=settings.keep_sent_s, keep_done_s=settings.keep_done_s)
        self.stdout.write(f"deleted {sent} sent messages and {done} notes of done tasks")
