"""`./manage.py rsmq_doctor`: check servers and queues, print findings, and repair them on request."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules

from ...conf import get_settings
from ...core.doctor import Finding, Repair, Severity, examine, repair
from ...core.doctor.catalogue import found
from ...core.errors import PermissionDenied, RsmqError
from ...core.schedule import list_entries
from ...core.texts import printable
from ...live.expected import expected_queues
from ...live.installation import read_installation
from ...live.state_line import as_text, parts_of
from ...queues import get_client
from ...schedule_listing import all_entries

EPILOG = """
examples:
  manage.py rsmq_doctor                    check every connection, change nothing
  manage.py rsmq_doctor --deep             check every message, also of very long queues
  manage.py rsmq_doctor --repair           list the repairs, ask for confirmation, repair
  manage.py rsmq_doctor --repair --yes     the same without confirmation, for scripts

A repair checks twice, five seconds apart, and skips findings that changed in between: it is safe while workers run.
Exit status: 0 without errors (warnings allowed), 1 with errors, 2 if the server cannot be examined.
"""

#: Exit statuses: findings with errors, and a server that cannot be examined.
ERRORS_FOUND, NOT_EXAMINED = 1, 2


class Command(BaseCommand):
    """The management command."""

    help = (
        "Checks Redis and its RSMQ queues: settings of the server, leftovers of other clients, lost messages, "
        "and whether workers consume the queues."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--connection", action="append", metavar="ALIAS", help="only this connection; can be repeated"
        )
        parser.add_argument("--deep", action="store_true", help="check all messages, not only the first 20,000")
        parser.add_argument("--repair", action="store_true", help="repair the repairable findings after confirmation")
        parser.add_argument("--yes", action="store_true", help="skip the confirmation prompt")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Examine the connections one by one."""
        if options["yes"] and not options["repair"]:
            raise CommandError("--yes needs --repair", returncode=NOT_EXAMINED)
        if options["repair"] and not options["yes"] and (options["as_json"] or not sys.stdin.isatty()):
            raise CommandError(
                "--repair asks for confirmation on a terminal; add --yes to run without one", returncode=NOT_EXAMINED
            )
        try:
            aliases = options["connection"] or list(get_settings().connections)
            reports = [self.examine(alias, options) for alias in aliases]
        except (ImproperlyConfigured, RsmqError) as error:
            raise CommandError(printable(str(error)), returncode=NOT_EXAMINED) from error
        state = read_installation()
        line = printable(as_text(parts_of(state)))
        if options["as_json"]:
            self.stdout.write(json.dumps({"state": line, "connections": reports}, indent=2))
        else:
            self.stdout.write(f"all connections: {line}")
        if any(one["severity"] == "error" for report in reports for one in report["findings"]):
            sys.exit(ERRORS_FOUND)

    def examine(self, alias: str, options: dict[str, Any]) -> dict[str, Any]:
        """Examine one connection, repair it on request, and return the remaining findings as plain data."""
        get_settings().connection(alias)
        client, expected = get_client(alias), expected_queues(alias)
        findings = without_unused(examine(client, settings=expected, deep=options["deep"])) + unsigned_schedules(alias)
        if not options["as_json"]:
            self.show(alias, findings)
        repairs: list[Repair] = []
        curable = [finding for finding in findings if finding.repair is not None]
        if options["repair"] and curable and (options["yes"] or self.is_wanted(curable)):
            repairs = repair(client, curable, settings=expected)
            findings = without_unused(examine(client, settings=expected, deep=options["deep"])) + unsigned_schedules(
                alias
            )
            if not options["as_json"]:
                self.show_repairs(alias, repairs, findings)
        return {"alias": alias, "findings": [*map(as_data, findings)], "repairs": [*map(repair_as_data, repairs)]}

    def is_wanted(self, curable: Sequence[Finding]) -> bool:
        """Return whether the user confirms the repairs."""
        self.stdout.write("\nThe repair will")
        for finding in curable:
            self.stdout.write(printable(f"  {finding.subject}: {finding.repair}"))
        return input(f"Repair {counted(curable)}? [y/N] ").strip().lower() in ("y", "yes")

    # -- Text output ---------------------------------------------------------------------------------------------------

    def show(self, alias: str, findings: Sequence[Finding]) -> None:
        """Print findings, worst first."""
        self.stdout.write(self.style.MIGRATE_HEADING(f"connection {alias}: {counted(findings)}"))
        styles: dict[Severity, Callable[[str], str]] = {
            Severity.ERROR: self.style.ERROR,
            Severity.WARNING: self.style.WARNING,
            Severity.NOTE: str,
        }
        for finding in findings:
            head = f"{finding.severity.name.lower():<8} {finding.subject}: {finding.what}  [{finding.id}]"
            self.stdout.write(styles[finding.severity](printable(head)))
            self.stdout.write(printable(f"         {finding.why}"))
            if finding.examples:
                self.stdout.write(printable(f"         examples: {', '.join(finding.examples)}"))
            if finding.repair:
                self.stdout.write(printable(f"         --repair: {finding.repair}"))

    def show_repairs(self, alias: str, repairs: Sequence[Repair], left: Sequence[Finding]) -> None:
        """Print the repairs and the remaining findings."""
        for done in repairs:
            subject = f"{done.finding.subject} [{done.finding.id}]"
            said = f"failed: {done.failure}" if done.failure else f"{done.changed} changed"
            self.stdout.write(printable(f"repaired {subject}: {said}"))
        self.stdout.write("After the repair:")
        self.show(alias, left)


def without_unused(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those about dead-letter queues that were never used."""
    unused = get_settings().dead_letters
    return [one for one in findings if one.id != "not-created" or one.subject not in unused]


def unsigned_schedules(alias: str) -> list[Finding]:
    """Return findings for schedules of signed and encrypted queues that lack a valid signature."""
    if not any(queue.is_sealed and queue.connection == alias for queue in get_settings().queues.values()):
        return []
    autodiscover_modules("tasks")
    client = get_client(alias)
    try:
        entries = all_entries([(alias, client.run(list_entries(client.namespace)))])
    except PermissionDenied:  # missing permissions are reported by another finding
        return []
    unsigned = [entry for entry in entries if entry.is_unsigned]
    return [
        found("unsigned-schedule", entry.name, f"it calls {entry.task} on {entry.queue_name}") for entry in unsigned
    ]


def counted(findings: Sequence[Finding]) -> str:
    """Return "1 finding" or "3 findings"."""
    return f"{len(findings) or 'no'} finding{'' if len(findings) == 1 else 's'}"


def as_data(finding: Finding) -> dict[str, Any]:
    """Return the JSON object of a finding."""
    return {
        "id": finding.id,
        "severity": finding.severity.name.lower(),
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "repair": finding.repair,
        "examples": list(finding.examples),
    }


def repair_as_data(done: Repair) -> dict[str, Any]:
    """Return the JSON object of a repair."""
    return {"id": done.finding.id, "subject": done.finding.subject, "changed": done.changed, "failure": done.failure}
