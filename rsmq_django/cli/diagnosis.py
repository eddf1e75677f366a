"""`rsmqctl doctor` and `queue repair`: find and repair problems of a server and its queues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from ..core import Client
from ..core.doctor import Finding, Repair, Severity, examine
from ..core.doctor import repair as repair_findings
from .failures import Failed
from .options import RsmqctlCommand, complete_queue_name, dry_run_option, yes_option
from .output import StatusLine, confirm, printable, write_json
from .session import Session

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@click.command(cls=RsmqctlCommand)
@click.option("--deep", is_flag=True, help="Check every message, not only the first 20,000 of each queue.")
@click.option("--repair", "repairs", is_flag=True, help="Repair the repairable findings; checks every message.")
@yes_option
@click.pass_obj
def doctor(session: Session, /, deep: bool, repairs: bool, yes: bool) -> None:
    """Check the server and its queues for problems.

    Changes nothing without --repair. Exits with 1 when there is a warning or an error, else with 0.
    """
    client = session.client()
    findings = examine_server(session, client, deep=deep or repairs)
    if repairs:
        repair_all(session, client, findings, yes=yes)
        return
    print_findings(session, findings)
    bad = sum(finding.severity > Severity.NOTE for finding in findings)
    if bad:
        repairable = sum(finding.repair is not None for finding in findings)
        hint = f"; --repair repairs {repairable} of all" if repairable else ""
        raise Failed("unhealthy", f"{bad} of {len(findings)} findings are warnings or errors{hint}")


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
        return examine(client, settings=session.expected(client), deep=deep, progress=line.show_progress)


def repair_all(session: Session, client: Client, findings: Sequence[Finding], *, yes: bool) -> None:
    """Show the repairs, ask for confirmation, and apply them. Raises Failed when a repair fails."""
    repairable = [finding for finding in findings if finding.repair]
    if not session.json:
        print_findings(session, repairable)
    if repairable:
        confirm(f"Repair {'this' if len(repairable) == 1 else f'these {len(repairable)}'}?", yes=yes)
    with StatusLine(is_quiet=session.json) as line:

        def wait(seconds: float) -> None:
            line.show("waiting to confirm that the findings persist")
            time.sleep(seconds)

        done = repair_findings(client, repairable, settings=session.expected(client), wait=wait)
    if session.json:
        write_json([as_json(one.finding) | {"changed": one.changed, "failure": one.failure} for one in done])
    else:
        for one in done:
            click.echo(outcome(one))
    failed = sum(bool(one.failure) for one in done)
    if failed:
        raise Failed("notRepaired", f"{failed} of {len(done)} findings could not be repaired")


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
