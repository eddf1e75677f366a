"""`./manage.py rsmq_worker`: parse, set up logging, run a worker."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import autodiscover_modules

from ...conf import get_settings
from ...worker.supervisor import Supervisor, SupervisorOptions
from ...worker.worker import WorkerOptions, queue_settings, random_worker_id

LEVELS = {0: logging.CRITICAL, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}
LOG_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"

EPILOG = """
examples:
  manage.py rsmq_worker                        all queues of RSMQ["QUEUES"], until it is stopped
  manage.py rsmq_worker --queues urgent,mail   urgent first, mail when nothing urgent is ready
  manage.py rsmq_worker --batch                until nothing is ready any more, for cron and scripts
  manage.py rsmq_worker --burst                until no message is left, delayed and retried ones included, for tests

The first SIGTERM or SIGINT lets running tasks end and gives everything else back at once; the second one stops now.
Exit status: 0 when every task that began could end, 1 when some were given back unfinished.
"""


class Command(BaseCommand):
    """See the module."""

    help = "Runs tasks: takes messages from RSMQ queues and calls the functions that they name."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options; those without a default take it from RSMQ["WORKER"]."""
        parser.add_argument(
            "--queues", "--queue-name", metavar="A,B", default="", help="which queues, first ones first"
        )
        parser.add_argument(
            "--processes", type=_at_least(1), metavar="N", help="how many processes; default: the cores"
        )
        parser.add_argument("--threads", type=_at_least(1), metavar="N", help="how many functions run at a time")
        parser.add_argument("--async-tasks", type=_at_least(1), metavar="N", help="how many coroutines run at a time")
        parser.add_argument("--poll-interval", type=_seconds, metavar="S", help="longest wait between two looks")
        parser.add_argument(
            "--shutdown-timeout", type=_seconds, metavar="S", help="how long tasks may go on after a stop"
        )
        parser.add_argument(
            "--max-tasks", type=_at_least(1), metavar="N", help="each process ends after so many messages"
        )
        parser.add_argument("--max-memory", type=_at_least(1), metavar="MB", help="replace a process that uses more")
        parser.add_argument("--worker-id", metavar="NAME", help="name in results, 1 to 64 characters; default: random")
        parser.add_argument("--batch", action="store_true", help="stop when nothing is ready any more")
        parser.add_argument(
            "--burst", action="store_true", help="stop when no message is left, delayed and retried ones included"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the supervisor."""
        set_up_logging(options["verbosity"])
        autodiscover_modules("tasks")
        try:
            queues = queue_settings(split_names(options["queues"]))
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        supervisor = Supervisor(queues, _supervisor_options(options))
        if options["verbosity"]:
            names = ", ".join(queue.name for queue in queues)
            processes = supervisor.options.processes
            with_processes = "1 process" if processes == 1 else f"{processes} processes"
            worker_id = supervisor.options.worker.worker_id
            self.stdout.write(f"worker {worker_id} works on {names} with {with_processes}; Ctrl-C stops it")
        sys.exit(supervisor.run())


def split_names(text: str) -> list[str]:
    """Return the queue names of a comma-separated list; "*" means all."""
    return [] if text.strip() == "*" else [name.strip() for name in text.split(",") if name.strip()]


def set_up_logging(verbosity: int) -> None:
    """Show this package's log on the terminal unless the project has configured one."""
    ours = logging.getLogger("rsmq_django")
    if ours.level == logging.NOTSET:
        ours.setLevel(LEVELS[verbosity])
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        ours.addHandler(handler)
    for name in ("django.tasks", "django_tasks"):
        # It says the same as our log, with less detail, and costs a TaskResult for every message.
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _supervisor_options(options: dict[str, Any]) -> SupervisorOptions:
    return SupervisorOptions(
        processes=options["processes"] or os.cpu_count() or 1,
        worker=_worker_options(options),
        max_memory_bytes=options["max_memory"] and options["max_memory"] * 1024 * 1024,
        max_crashes=get_settings().tasks.max_crashes,
    )


def _worker_options(options: dict[str, Any]) -> WorkerOptions:
    return WorkerOptions.from_settings(
        get_settings().worker,
        threads=options["threads"],
        async_tasks=options["async_tasks"],
        poll_interval_s=options["poll_interval"],
        shutdown_timeout_s=options["shutdown_timeout"],
        max_tasks=options["max_tasks"],
        worker_id=options["worker_id"] or random_worker_id(),
        until_drained=options["batch"],
        until_empty=options["burst"],
    )


def _at_least(least: int) -> Any:
    def whole_number(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is too small, at least {least}")
        return number

    return whole_number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return number
