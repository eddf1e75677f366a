"""`./manage.py rsmq_schedule`: list, run, pause, resume, add and remove periodic tasks."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from ... import schedules
from ...conf.timetable import about_in_words
from ...core.errors import RsmqError
from ...core.texts import printable
from ...schedules import Entry

EPILOG = """
examples:
  manage.py rsmq_schedule list
  manage.py rsmq_schedule run shop.tasks.refresh_prices       enqueue it now, besides its schedule
  manage.py rsmq_schedule pause shop.tasks.refresh_prices     until it is resumed, across deployments
  manage.py rsmq_schedule add weekly --task shop.tasks.report --cron "0 7 * * MON" --time-zone Europe/Berlin
  manage.py rsmq_schedule add ping --task shop.tasks.ping --every 30 --kwargs '{"host": "db"}'
  manage.py rsmq_schedule remove ping

Schedules declared in code are changed in the code; this command can pause, resume and run them.
Exit status of list: 1 if a schedule cannot fire, else 0.
"""


class Command(BaseCommand):
    """The management command."""

    help = "Shows and changes schedules of periodic tasks."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the sub-commands."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="list schedules with their next and last runs")
        listing.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        for action, what in ACTIONS.items():
            actions.add_parser(action, help=what).add_argument("name")
        adding = actions.add_parser("add", help="add a schedule")
        adding.add_argument("name")
        adding.add_argument("--task", required=True, metavar="PATH", help="dotted path of the task")
        when = adding.add_mutually_exclusive_group(required=True)
        when.add_argument("--every", type=float, metavar="S", dest="every_s", help="run every S seconds")
        when.add_argument("--cron", metavar="EXPRESSION", help="five fields, or six with seconds first")
        adding.add_argument(
            "--time-zone", metavar="ZONE", help="time zone of the cron expression; default: the project's"
        )
        adding.add_argument(
            "--args", type=_json, metavar="JSON", dest="task_args", help="positional arguments, a JSON array"
        )
        adding.add_argument(
            "--kwargs", type=_json, metavar="JSON", dest="task_kwargs", help="keyword arguments, a JSON object"
        )
        adding.add_argument("--queue", metavar="NAME", help="default: the task's")
        adding.add_argument(
            "--jitter", type=float, metavar="S", dest="jitter_s", help="random delay of up to S seconds"
        )
        adding.add_argument(
            "--missed", choices=("skip", "once", "all"), help="what to do with missed ticks; default: once"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the chosen action."""
        autodiscover_modules("tasks")
        try:
            if options["action"] == "list":
                self.show_all(as_json=options["as_json"])
            elif options["action"] == "add":
                self.add(options)
            else:
                self.act(options["action"], options["name"])
        except (ImproperlyConfigured, RsmqError, ValueError) as error:
            raise CommandError(printable(str(error))) from error

    def show_all(self, *, as_json: bool) -> None:
        """Print all schedules."""
        entries = schedules.entries()
        if as_json:
            self.stdout.write(json.dumps([as_data(entry) for entry in entries], indent=2))
        else:
            self.show(entries)
        if any(entry.problem for entry in entries):
            sys.exit(1)

    def show(self, entries: list[Entry]) -> None:
        """Print schedules as text."""
        if not entries:
            self.stdout.write('There are no schedules: see @every, @cron and RSMQ["SCHEDULES"].')
        for entry in entries:
            source = "declared" if entry.is_declared else "added at run time"
            self.stdout.write(self.style.MIGRATE_HEADING(printable(entry.name)) + f"  {entry.when}  ({source})")
            lines = [f"task {entry.task} on {entry.queue_name or '?'}", f"next {next_words(entry)}"]
            if entry.last_fired_at is not None:
                lines.append(f"last {shown(entry.last_planned_at)}, {entry.fired} in all, task id {entry.last_task_id}")
            if entry.skipped:
                lines.append(f"{entry.skipped} missed ticks were skipped")
            for line in lines:
                self.stdout.write("  " + printable(line))
            if entry.problem:
                self.stdout.write("  " + self.style.ERROR(printable(entry.problem)))

    def add(self, options: dict[str, Any]) -> None:
        """Add a schedule."""
        names = ("every_s", "cron", "time_zone", "queue", "jitter_s", "missed")
        chosen = {name: options[name] for name in names}
        # Django keeps the name "args" for itself.
        chosen |= {"args": options["task_args"], "kwargs": options["task_kwargs"]}
        entry = schedules.add(options["name"], options["task"], **chosen)
        self.stdout.write(f"added {printable(entry.name)}; next {next_words(entry)}")

    def act(self, action: str, name: str) -> None:
        """Run, pause, resume or remove a schedule."""
        if action == "run":
            result = schedules.run_now(name)
            self.stdout.write(f"enqueued {printable(result.task.module_path)} as task {result.id}")
            return
        {"pause": schedules.pause, "resume": schedules.resume, "remove": schedules.remove}[action](name)
        self.stdout.write(f"{printable(name)}: {DONE[action]}")


ACTIONS = {
    "run": "enqueue its task now",
    "pause": "stop runs until it is resumed",
    "resume": "continue with the next run",
    "remove": "remove a schedule that was added at run time",
}
DONE = {"pause": "paused", "resume": "resumed", "remove": "removed"}


def next_words(entry: Entry) -> str:
    """Return the time of the next run, in words."""
    if entry.is_paused:
        return "never: it is paused"
    if entry.next_at is None:
        return "unknown"
    wait_s = round((entry.next_at - timezone.now()).total_seconds()) if timezone.is_aware(entry.next_at) else 0
    return f"{shown(entry.next_at)} (in {about_in_words(wait_s)})" if wait_s > 0 else f"{shown(entry.next_at)} (due)"


def shown(moment: datetime | None) -> str:
    """Return a time in the project's time zone."""
    return "never" if moment is None else f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def as_data(entry: Entry) -> dict[str, Any]:
    """Return the JSON object of a schedule."""
    data = {name: getattr(entry, name) for name in entry.__dataclass_fields__ if name != "schedule"}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in data.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not valid JSON: {error}") from error
