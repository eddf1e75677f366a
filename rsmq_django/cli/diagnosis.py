"""`rsmqctl doctor` and `queue repair`: what is wrong with a server and its queues, and mending it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from ..core import Client
from ..core.doctor import Finding, Repair, Severity, examine
from ..core.doctor import repair as repair_findings
from .failures import Failed
from .options import Command, complete_queue_name, dry_run_option, yes_option
from .output import StatusLine, confirm, printable, write_json
from .session import Session

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@click.command(cls=Command)
@click.option("--deep", is_flag=True, help="Look at every message, not only at the first 20,000 of each queue.")
@click.option("--repair", "mends", is_flag=True, help="Mend what can be mended; looks at every message.")
@yes_option
@click.pass_obj
def doctor(session: Session, /, deep: bool, mends: bool, yes: bool) -> None:
    """Look for what is wrong with the server and its queues.

    Changes nothing unless --repair is given. Exits 1 when there is a warning or an error, 0 otherwise.
    """
    client = session.client()
    findings = look(session, client, deep=deep or mends)
    if mends:
        mend(session, client, findings, yes=yes)
        return
    tell(session, findings)
    bad = sum(finding.severity > Severity.NOTE for finding in findings)
    if bad:
        mendable = sum(finding.repair is not None for finding in findings)
        hint = f"; --repair mends {mendable} of all" if mendable else ""
        raise Failed("unhealthy", f"{bad} of {len(findings)} findings are warnings or errors{hint}")


@click.command(cls=Command)
@click.option("-n", "--name", metavar="QUEUE", shell_complete=complete_queue_name, help="Only this queue.")
@dry_run_option
@yes_option
@click.pass_obj
def repair(session: Session, /, name: str | None, dry_run: bool, yes: bool) -> None:
    """Mend half-created queues, ghosts, phantoms and orphans.

    Looks at every message first, and mends what other clients, crashes and evictions left half done.
    """
    client = session.client(name)
    found = look(session, client, deep=True)
    findings = [finding for finding in found if finding.repair and name in (None, finding.subject)]
    if dry_run:
        tell(session, findings)
    else:
        mend(session, client, findings, yes=yes)


def look(session: Session, client: Client, *, deep: bool) -> list[Finding]:
    """Examine the server, and show on a terminal what is being looked at."""
    with StatusLine(is_quiet=session.json) as line:
        return examine(client, settings=session.expected(client), deep=deep, progress=line.show_progress)


def mend(session: Session, client: Client, findings: Sequence[Finding], *, yes: bool) -> None:
    """Show what will be mended, ask, and do it. Raises Failed when something could not be."""
    mendable = [finding for finding in findings if finding.repair]
    if not session.json:
        tell(session, mendable)
    if mendable:
        confirm(f"Mend {'this' if len(mendable) == 1 else f'these {len(mendable)}'}?", yes=yes)
    with StatusLine(is_quiet=session.json) as line:

        def wait(seconds: float) -> None:
            line.show("waiting to see what stays as it is")
            time.sleep(seconds)

        done = repair_findings(client, mendable, settings=session.expected(client), wait=wait)
    if session.json:
        write_json([as_json(one.finding) | {"changed": one.changed, "failure": one.failure} for one in done])
    else:
        for one in done:
            click.echo(outcome(one))
    failed = sum(bool(one.failure) for one in done)
    if failed:
        raise Failed("notMended", f"{failed} of {len(done)} findings could not be mended")


def tell(session: Session, findings: Sequence[Finding]) -> None:
    """Print findings, worst first."""
    if session.json:
        write_json([as_json(finding) for finding in findings])
        return
    for finding in findings:
        click.echo("\n".join(description(finding)))
    if not findings:
        click.echo("nothing found")


def description(finding: Finding) -> list[str]:
    """Return the lines about a finding: what, why it matters, examples, what a repair does."""
    severity = finding.severity.name.lower()
    head = click.style(f"{severity:7}", fg=COLOURS[finding.severity], bold=True)
    lines = [f"{head}  {printable(f'{finding.subject}: {finding.what}')} ({finding.id})", finding.why]
    if finding.examples:
        lines.append(f"for example {printable(', '.join(finding.examples))}")
    if finding.repair:
        lines.append(f"repair: {finding.repair}")
    return [lines[0], *(f"         {line}" for line in lines[1:])]


def outcome(done: Repair) -> str:
    """Return the line about what a repair did."""
    finding = done.finding
    name = f"{printable(finding.subject)}: {finding.id}"
    if done.failure:
        return f"{click.style('failed', fg='red')}   {name}: {printable(done.failure)}"
    if not done.changed:
        return f"nothing  {name}: it was gone when looked at again"
    return f"{click.style('mended', fg='green')}   {name}: {done.changed} changed"


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding for programs."""
    return {
        "id": finding.id,
        "severity": finding.severity.name.lower(),
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "repair": finding.repair,
        "examples": list(finding.examples),
    }
