"""`manage.py rsmqctl outbox`, also `rsmq_outbox`: show the outbox, relay it, send rows again, delete old rows."""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime
from typing import Any

import click
from django.conf import settings
from django.db import Error
from django.db.models import Count, Max, Min, Q
from django.utils import timezone

from ...cli.failures import Failed
from ...cli.options import MOMENT, RsmqctlGroup, dry_run_option
from ...cli.output import printable, write_json
from ...cli.session import Session
from ...conf.settings import get_settings
from ...conf.timetable import in_words
from ...core.texts import counted
from ...outbox.models import WAITING, InboxEntry, OutboxMessage
from ...outbox.relay import Relay, prune
from ...outbox.relay_process import StopRequest, relay_until, said
from ...outbox.writing import outbox_database


class OutboxGroup(RsmqctlGroup):
    """Commands that explain errors of the database."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Error as error:
            raise Failed("databaseError", said(error).rstrip(".")) from error


@click.group(cls=OutboxGroup)
def outbox() -> None:
    """Show and send the task messages in the outbox.

    A task for a queue with OUTBOX is written to a table in the caller's transaction. The relay sends it to Redis.
    rsmq_worker runs a relay, so most projects need only the status.
    """


# -- status -----------------------------------------------------------------------------------------------------------


@outbox.command()
@click.pass_obj
def status(session: Session, /) -> None:
    """Show unsent messages with their age, and messages that were set aside because of errors.

    Exits with 1 if messages were set aside.
    """
    rows: list[Any] = list(
        OutboxMessage.objects.using(outbox_database())
        .filter(Q(sent_at=None))
        .values("queue_name")
        .annotate(waiting=Count("pk", filter=WAITING), oldest=Min("created_at", filter=WAITING))
        .annotate(refused=Count("pk", filter=~Q(refusal="")), reason=Max("refusal"))
        .order_by("queue_name")
    )
    done = InboxEntry.objects.using(outbox_database()).count()
    if session.json:
        for row in rows:
            row["oldest"] = row["oldest"].isoformat() if row["oldest"] else None
        write_json({"queues": rows, "done": done})
    else:
        show_rows(rows)
        click.echo(f"inbox: {done} {'task' if done == 1 else 'tasks'} with once=True recorded as done")
    refused = sum(row["refused"] for row in rows)
    if refused:
        raise Failed("setAside", f"{counted(refused)} set aside; 'retry' sends them again, after a fix")


def show_rows(rows: list[dict[str, Any]]) -> None:
    """Print the unsent messages as text."""
    if not rows:
        click.echo("no unsent messages")
        if not any(queue.outbox for queue in get_settings().queues.values()):
            click.echo("no queue has an outbox; RSMQ['QUEUES'][...]['OUTBOX'] = True enables it")
    for row in rows:
        age = ""
        if row["oldest"] is not None:
            age = f", the oldest for {in_words(max(0, round((timezone.now() - row['oldest']).total_seconds())))}"
        click.echo(f"{row['queue_name']}: {counted(row['waiting'])} unsent{age}")
        if row["refused"]:
            said = f"  {counted(row['refused'])} set aside, for example because {row['reason']}"
            click.secho(printable(said), fg="red")


# -- Sending and deleting ---------------------------------------------------------------------------------------------


@outbox.command()
@click.option("--once", is_flag=True, help="Send the current messages and exit; with 1 if messages are left.")
@click.pass_obj
def relay(session: Session, /, once: bool) -> None:
    """Send messages until stopped."""
    if once:
        count = Relay().relay_waiting()
        left = OutboxMessage.objects.using(outbox_database()).filter(WAITING).count()
        print_result(session, f"sent {counted(count)}, {left} unsent", sent=count, unsent=left)
        if left:
            raise Failed("unsent", f"{counted(left)} unsent")
        return
    stop = StopRequest()
    stop.on_signals(signal.SIGTERM, signal.SIGINT)
    if not session.json:
        click.echo("relaying the outbox; Ctrl-C stops it")
        sys.stdout.flush()
    relay_until(stop)


@outbox.command()
@click.pass_obj
def retry(session: Session, /) -> None:
    """Send messages that were set aside, after a fix."""
    count = OutboxMessage.objects.using(outbox_database()).exclude(refusal="").update(refusal="")
    print_result(session, f"{counted(count)} will be sent again", retried=count)


@outbox.command()
@click.option(
    "--since", "since_ms", type=MOMENT, required=True, metavar="TIME", help="An age (10m) or a time (2026-03-01T12:00)."
)
@dry_run_option
@click.pass_obj
def resend(session: Session, /, since_ms: float, dry_run: bool) -> None:
    """Send messages again that were sent since a time.

    After a failover of Redis that may have lost the latest messages. Skips calls that Redis knows.
    """
    since = as_time(since_ms)
    sent = OutboxMessage.objects.using(outbox_database()).filter(sent_at__gte=since)
    if dry_run:
        count = sent.count()
        print_result(session, f"{counted(count)} would be sent again", would_resend=count)
        return
    count = sent.update(sent_at=None)
    print_result(session, f"{counted(count)} will be sent again, except calls that Redis knows", resent=count)
    kept_s = get_settings().outbox.keep_sent_s
    if (timezone.now() - since).total_seconds() > kept_s and not session.json:
        click.echo(f"rows sent more than {in_words(kept_s)} ago were already deleted (KEEP_SENT_S)")


@outbox.command("prune")
@click.pass_obj
def prune_(session: Session, /) -> None:
    """Delete rows older than RSMQ["OUTBOX"] allows; the relay does so, too."""
    kept = get_settings().outbox
    sent, done = prune(keep_sent_s=kept.keep_sent_s, keep_done_s=kept.keep_done_s)
    text = f"deleted {counted(sent)} that had been sent, and {done} inbox entries"
    print_result(session, text, deleted=sent, deleted_inbox=done)


def print_result(session: Session, text: str, **numbers: int) -> None:
    """Print a line for people, or numbers for programs."""
    if session.json:
        write_json(numbers)
    else:
        click.echo(text)


def as_time(epoch_ms: float) -> datetime:
    """Return a time as the database of the project stores it."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    return moment if settings.USE_TZ else timezone.make_naive(moment)
