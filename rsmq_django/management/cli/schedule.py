"""`manage.py rsmqctl schedule`, also `rsmq_schedule`: list, run, pause, resume, add and remove periodic tasks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from ... import schedules
from ...cli.failures import Failed
from ...cli.options import RsmqctlGroup
from ...cli.output import printable, write_json
from ...cli.session import Session
from ...conf.timetable import about_in_words
from ...schedules import ListedSchedule


class JsonValue(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """A JSON document."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of the document."""
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"{value} is not valid JSON: {error}", param, ctx)


class ScheduleGroup(RsmqctlGroup):
    """Commands that know the tasks of the project, and explain wrong values."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        autodiscover_modules("tasks")
        try:
            return super().invoke(ctx)
        except ValueError as error:
            raise Failed("invalidValue", str(error)) from error


@click.group(cls=ScheduleGroup)
def schedule() -> None:
    """Show and change schedules of periodic tasks.

    Schedules declared in code are changed in the code; these commands can pause, resume and run them.
    """


name_argument = click.argument("name", metavar="NAME")


@schedule.command("list")
@click.pass_obj
def list_(session: Session, /) -> None:
    """List schedules with their next and last runs.

    Exits with 1 if a schedule cannot fire.
    """
    entries = schedules.entries()
    if session.json:
        write_json([as_data(entry) for entry in entries])
    else:
        show(entries)
    broken = sum(bool(entry.problem) for entry in entries)
    if broken:
        raise Failed("cannotFire", f"{broken} of {len(entries)} schedules cannot fire")


@schedule.command()
@name_argument
@click.option("--task", required=True, metavar="PATH", help="Dotted path of the task.")
@click.option("--every", "--every-s", "every", type=float, metavar="S", help="Run every S seconds.")
@click.option("--cron", metavar="EXPRESSION", help="Five fields, or six with seconds first.")
@click.option("--time-zone", metavar="ZONE", help="Time zone of the cron expression; default: the project's.")
@click.option("--args", type=JsonValue(), metavar="JSON", help="Positional arguments, a JSON array.")
@click.option("--kwargs", type=JsonValue(), metavar="JSON", help="Keyword arguments, a JSON object.")
@click.option("--queue", metavar="NAME", help="Default: the task's.")
@click.option("--jitter", type=float, metavar="S", help="Random delay of up to S seconds.")
@click.option(
    "--missed", type=click.Choice(["skip", "once", "all"]), help="What to do with missed runs; default: once."
)
@click.pass_obj
def add(session: Session, /, name: str, task: str, every: float | None, jitter: float | None, **choices: Any) -> None:
    """Add a schedule, with --every or --cron.

    \b
    rsmqctl schedule add weekly --task shop.tasks.report --cron "0 7 * * MON" --time-zone Europe/Berlin
    rsmqctl schedule add ping --task shop.tasks.ping --every 30 --kwargs '{"host": "db"}'
    """
    if (every is None) == (choices["cron"] is None):
        raise click.UsageError("Give either --every or --cron.")
    entry = schedules.add(name, task, every_s=every, jitter_s=jitter, **choices)
    if session.json:
        write_json(as_data(entry))
    else:
        click.echo(f"added {printable(entry.name)}; next {next_words(entry)}")


@schedule.command()
@name_argument
@click.pass_obj
def run(session: Session, /, name: str) -> None:
    """Enqueue its task now, besides its schedule."""
    result = schedules.run_now(name)
    if session.json:
        write_json({"name": name, "task": result.task.module_path, "task_id": result.id})
    else:
        click.echo(f"enqueued {printable(result.task.module_path)} as task {result.id}")


@schedule.command()
@name_argument
@click.pass_obj
def pause(session: Session, /, name: str) -> None:
    """Stop its runs until it is resumed, across deployments."""
    schedules.pause(name)
    print_done(session, name, "paused")


@schedule.command()
@name_argument
@click.pass_obj
def resume(session: Session, /, name: str) -> None:
    """Continue with the next run."""
    schedules.resume(name)
    print_done(session, name, "resumed")


@schedule.command()
@name_argument
@click.pass_obj
def remove(session: Session, /, name: str) -> None:
    """Remove a schedule that was added at run time."""
    schedules.remove(name)
    print_done(session, name, "removed")


def print_done(session: Session, name: str, change: str) -> None:
    """Print the result of a change."""
    if session.json:
        write_json({"name": name, "change": change})
    else:
        click.echo(f"{printable(name)}: {change}")


def show(entries: list[ListedSchedule]) -> None:
    """Print schedules as text."""
    if not entries:
        click.echo('There are no schedules: see @every, @cron and RSMQ["SCHEDULES"].')
    for entry in entries:
        source = "declared" if entry.is_declared else "added at run time"
        click.echo(f"{click.style(printable(entry.name), bold=True)}  {entry.when}  ({source})")
        lines = [f"task {entry.task} on {entry.queue_name or '?'}", f"next {next_words(entry)}"]
        if entry.last_fired_at is not None:
            lines.append(f"last {shown(entry.last_planned_at)}, {entry.fired} in all, task id {entry.last_task_id}")
        if entry.skipped:
            lines.append(f"{entry.skipped} missed ticks were skipped")
        for line in lines:
            click.echo("  " + printable(line))
        if entry.problem:
            click.secho("  " + printable(entry.problem), fg="red")


def next_words(entry: ListedSchedule) -> str:
    """Return the time of the next run, in words."""
    if entry.is_paused:
        return "never: it is paused"
    if entry.next_at is None:
        return "unknown"
    wait_s = round((_aware(entry.next_at) - datetime.now(UTC)).total_seconds())
    return f"{shown(entry.next_at)} (in {about_in_words(wait_s)})" if wait_s > 0 else f"{shown(entry.next_at)} (due)"


def shown(moment: datetime | None) -> str:
    """Return a time in the project's time zone."""
    return "never" if moment is None else f"{timezone.localtime(_aware(moment)):%Y-%m-%d %H:%M:%S %Z}"


def _aware(moment: datetime) -> datetime:
    """Return a time with its zone; without USE_TZ it is a local time without one."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def as_data(entry: ListedSchedule) -> dict[str, Any]:
    """Return the JSON object of a schedule."""
    data = {name: getattr(entry, name) for name in entry.__dataclass_fields__ if name != "schedule"}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in data.items()}
