"""`rsmqctl doctor` and `queue repair`: find and repair problems of a server and its queues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from ..core import Client
from ..core.doctor import Finding, Repair, Severity, examine
from ..core.doctor import repair as repair_findings
from ..core.errors import RedisFailure
from .failures import Failed, failed_on
from .options import RsmqctlCommand, complete_queue_name, dry_run_option, yes_option
from .output import StatusLine, confirm, printable, write_json
from .session import Session

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@dataclass
class ServerReport:
    """What was found on one server, and repaired."""

    #: The connection of the settings; None for a server that was named by its URL.
    alias: str | None
    client: Client
    findings: list[Finding]
    repairs: list[Repair] = field(default_factory=list)


@click.command(cls=RsmqctlCommand)
@click.option("--deep", is_flag=True, help="Check every message, not only the first 20,000 of each queue.")
@click.option("--repair", "repairs", is_flag=True, help="Repair the repairable findings; checks every message.")
@yes_option
@click.option(
    "--fail-level",
    type=click.Choice([level.name.lower() for level in Severity]),
    default=Severity.ERROR.name.lower(),
    show_default=True,
    help="Exit with 1 if there is a finding of this severity or a higher one.",
)
@click.pass_obj
def doctor(session: Session, /, deep: bool, repairs: bool, yes: bool, fail_level: str) -> None:
    """Check servers and queues for problems.

    Checks the settings of the server, traces of other clients and of crashes, and lost messages; in a project, all
    connections, the differences to the settings, and whether workers consume the queues. Changes nothing without
    --repair. A repair looks twice, five seconds apart, and skips findings that have changed: it is safe while workers
    run.

    \b
    rsmqctl doctor --deep                  check every message, also of very long queues
    rsmqctl doctor --repair                list the repairs, ask for confirmation, repair
    rsmqctl doctor --repair --yes          the same without confirmation, for scripts
    rsmqctl doctor --fail-level warning    exit with 1 for warnings as well
    """
    if yes and not repairs:
        raise click.UsageError("--yes needs --repair.")
    if repairs and session.json and not yes:
        raise click.UsageError("--repair with --json needs --yes.")
    reports, silent = list[ServerReport](), list[RedisFailure]()
    for server in session.servers().items():
        try:
            reports.append(examine_and_show(session, *server, deep=deep or repairs))
        except RedisFailure as failure:  # the other servers are examined all the same
            silent.append(failure)
    if not reports:
        raise silent[0]
    if repairs:
        repair_servers(session, reports, yes=yes)
    state = session.used_project.state() if session.used_project else None
    if session.json:
        write_json({"state": state, "connections": [report_as_json(report) for report in reports]})
    elif state is not None:
        click.echo(f"all connections: {printable(state)}")
    if silent:
        raise failed_on(silent)
    fail_if_unhealthy(reports, Severity[fail_level.upper()])


def examine_and_show(session: Session, alias: str | None, client: Client, *, deep: bool) -> ServerReport:
    """Examine a server, and print the findings for people, worst first."""
    report = ServerReport(alias, client, examine_server(session, client, deep=deep))
    if not session.json:
        if alias is not None:
            click.secho(f"connection {alias}: {counted_findings(report.findings)}", bold=True)
        if alias is None or report.findings:
            print_findings(session, report.findings)
    return report


def repair_servers(session: Session, reports: Sequence[ServerReport], *, yes: bool) -> None:
    """Ask once, repair what can be repaired on all servers, and examine the changed ones again."""
    repairable = [[finding for finding in report.findings if finding.repair] for report in reports]
    if not any(repairable):
        return
    confirm(repair_question(sum(map(len, repairable))), yes=yes)
    for report, findings in zip(reports, repairable, strict=True):
        if not findings:
            continue
        report.repairs = apply_repairs(session, report.client, findings)
        if not session.json:
            click.echo("\n".join([*map(outcome, report.repairs), "After the repair:"]))
        report.findings = examine_and_show(session, report.alias, report.client, deep=True).findings


def fail_if_unhealthy(reports: Sequence[ServerReport], level: Severity) -> None:
    """Raise Failed for failed repairs, and for findings of this severity or a higher one."""
    repairs = [one for report in reports for one in report.repairs]
    fail_if_not_repaired(repairs)
    findings = [finding for report in reports for finding in report.findings]
    bad = sum(finding.severity >= level for finding in findings)
    if bad:
        kinds = " or ".join(f"{each.name.lower()}s" for each in Severity if each >= level)
        repairable = sum(finding.repair is not None for finding in findings)
        hint = f"; --repair repairs {repairable} of all" if repairable else ""
        raise Failed("unhealthy", f"{bad} of {len(findings)} findings are {kinds}{hint}")


@click.command(cls=RsmqctlCommand)
@click.option("-n", "--name", metavar="QUEUE", shell_complete=complete_queue_name, help="Only this queue.")
@dry_run_option
@yes_option
@click.pass_obj
def repair(session: Session, /, name: str | None, dry_run: bool, yes: bool) -> None:
    """Repair half-created queues, ghosts, phantoms and orphans.

    Checks every message first, and repairs the traces of other clients, crashes and evictions.
    """
    client = session.client(name)
    found = examine_server(session, client, deep=True)
    findings = [finding for finding in found if finding.repair and name in (None, finding.subject)]
    if dry_run:
        print_findings(session, findings)
    else:
        repair_all(session, client, findings, yes=yes)


def examine_server(session: Session, client: Client, *, deep: bool) -> list[Finding]:
    """Return the findings about the server; on a terminal, show the current check."""
    with StatusLine(is_quiet=session.json) as line:
        findings = examine(client, settings=session.expected(client), deep=deep, progress=line.show_progress)
    return session.used_project.reviewed(client, findings) if session.used_project else findings


def repair_all(session: Session, client: Client, findings: Sequence[Finding], *, yes: bool) -> None:
    """Show the repairs, ask for confirmation, and apply them. Raises Failed when a repair fails."""
    repairable = [finding for finding in findings if finding.repair]
    if not session.json:
        print_findings(session, repairable)
    if repairable:
        confirm(repair_question(len(repairable)), yes=yes)
    done = apply_repairs(session, client, repairable)
    if session.json:
        write_json([repair_as_json(one) for one in done])
    else:
        for one in done:
            click.echo(outcome(one))
    fail_if_not_repaired(done)


def repair_question(number: int) -> str:
    """Return the question before a number of repairs."""
    return f"Repair {'this' if number == 1 else f'these {number}'}?"


def apply_repairs(session: Session, client: Client, repairable: Sequence[Finding]) -> list[Repair]:
    """Repair findings of one server; on a terminal, show that the command waits."""
    with StatusLine(is_quiet=session.json) as line:

        def wait(seconds: float) -> None:
            line.show("waiting to confirm that the findings persist")
            time.sleep(seconds)

        return repair_findings(client, repairable, settings=session.expected(client), wait=wait)


def fail_if_not_repaired(repairs: Sequence[Repair]) -> None:
    """Raise Failed when a repair has failed."""
    failed = sum(bool(one.failure) for one in repairs)
    if failed:
        raise Failed("notRepaired", f"{failed} of {len(repairs)} findings could not be repaired")


def print_findings(session: Session, findings: Sequence[Finding]) -> None:
    """Print findings, worst first."""
    if session.json:
        write_json([as_json(finding) for finding in findings])
        return
    for finding in findings:
        click.echo("\n".join(description(finding)))
    if not findings:
        click.echo("nothing found")


def description(finding: Finding) -> list[str]:
    """Return the lines about a finding: the finding, why it matters, examples, and the repair."""
    severity = finding.severity.name.lower()
    head = click.style(f"{severity:7}", fg=COLOURS[finding.severity], bold=True)
    lines = [f"{head}  {printable(f'{finding.subject}: {finding.what}')} ({finding.id})", finding.why]
    if finding.examples:
        lines.append(f"examples: {printable(', '.join(finding.examples))}")
    if finding.repair:
        lines.append(f"repair: {finding.repair}")
    return [lines[0], *(f"         {line}" for line in lines[1:])]


def outcome(done: Repair) -> str:
    """Return the line about the result of a repair."""
    finding = done.finding
    name = f"{printable(finding.subject)}: {finding.id}"
    if done.failure:
        return f"{click.style('failed', fg='red')}   {name}: {printable(done.failure)}"
    if not done.changed:
        return f"nothing  {name}: not found when checked again"
    return f"{click.style('repaired', fg='green')} {name}: {done.changed} changed"


def as_json(finding: Finding) -> dict[str, Any]:
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


def repair_as_json(done: Repair) -> dict[str, Any]:
    """Return the JSON object of a repair: its finding, and the result."""
    return as_json(done.finding) | {"changed": done.changed, "failure": done.failure}


def report_as_json(report: ServerReport) -> dict[str, Any]:
    """Return the JSON object of a server."""
    return {
        "alias": report.alias,
        "findings": [as_json(finding) for finding in report.findings],
        "repairs": [repair_as_json(done) for done in report.repairs],
    }


def counted_findings(findings: Sequence[Finding]) -> str:
    """Return "1 finding" or "3 findings"."""
    return f"{len(findings) or 'no'} finding{'' if len(findings) == 1 else 's'}"
