"""`./manage.py rsmq_worker`: parse options, set up logging, run a worker."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error, connections
from django.utils.module_loading import autodiscover_modules

from ...conf.options import nearest
from ...conf.settings import QueueSettings, get_settings
from ...core import RsmqError
from ...core.transport.handshake import set_process_role
from ...tasks.backend import RSMQBackend
from ...tasks.compat import InvalidTask, task_backends
from ...tasks.topic_task import check_topic_tasks, registered_topic_tasks
from ...worker.fetch.queues import check_servers, split_reliable
from ...worker.supervise.probes import PidFileTaken, ProbeOptions
from ...worker.supervise.reload import modification_times, run_with_reload
from ...worker.supervise.supervisor import Supervisor, SupervisorOptions
from ...worker.worker import WorkerOptions, random_worker_id
from ..arguments import SuggestingCommand
from ..worker_arguments import add_worker_arguments

#: Names in the line about the start.
MOST_NAMED = 10
LEVELS = {0: logging.CRITICAL, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}
LOG_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"

EPILOG = """
examples:
  manage.py rsmq_worker                        all queues of RSMQ["QUEUES"] and RSMQ["RELIABLE"], until stopped
  manage.py rsmq_worker --queues urgent,mail   urgent first, mail when urgent has no backlog
  manage.py rsmq_worker --batch                until no message is ready, for cron and scripts
  manage.py rsmq_worker --burst                until no message is left, delayed and retried ones included, for tests
  manage.py rsmq_worker --processes 4 --threads 1 --max-tasks 1000 --max-memory 500
                                               for CPU-bound or leaking tasks: replace processes regularly
  manage.py rsmq_worker --health-port 0.0.0.0:8080 --pid-file /run/worker.pid
                                               for Kubernetes or systemd: see docs/how-to/operations.md

A supervisor runs --processes worker processes, each of which runs up to --threads functions and --async-tasks
coroutines at the same time. A worker process that dies is replaced, and its tasks start again in about a second.
The first SIGTERM or SIGINT releases prefetched messages at once and waits for running tasks; the second one stops now.
Exit status: 0 if all started tasks finished, 1 if some were released unfinished or an outcome could not be reported to
Redis.
"""


class Command(SuggestingCommand):
    """The management command."""

    help = "Runs a worker: consumes RSMQ queues and runs tasks."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the examples."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options; options without a default use RSMQ["WORKER"]."""
        add_worker_arguments(parser)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Note the times of source files before the system checks import them."""
        self._reloads = wants_reload(options)
        self._before = modification_times() if self._reloads else {}
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the supervisor."""
        if getattr(self, "_called_from_command_line", False):
            set_process_role("supervisor")
        set_up_logging(options["verbosity"])
        try:
            autodiscover_modules("tasks")
            queues, reliable = chosen_queues(options["queues"], options["exclude_queues"], backend=options["backend"])
            options["topics"] = chosen_topics(options["topics"], no_topics=options["no_topics"])
            check_servers(queues, reliable, options["topics"])
        except (ImproperlyConfigured, InvalidTask, RsmqError) as error:
            raise CommandError(str(error)) from error
        options["reliable"] = reliable
        if not self._reloads:
            sys.exit(self._run(queues, options))
        sys.exit(run_with_reload(lambda lifeline: self._run(queues, options, lifeline=lifeline), self._before))

    def _run(self, queues: list[QueueSettings], options: dict[str, Any], *, lifeline: int | None = None) -> int:
        try:
            supervisor = Supervisor(queues, _supervisor_options(options))
        except (OSError, PidFileTaken) as error:
            raise CommandError(f"cannot start: {error}") from error
        if lifeline is not None:
            supervisor.end_with(lifeline)
        if options["verbosity"]:
            worker = supervisor.options.worker
            topics = [f"topic {name}" for name in worker.topics or ()]
            names = _some_of([*(queue.name for queue in queues), *worker.reliable, *topics])
            processes = supervisor.options.processes
            with_processes = "1 process" if processes == 1 else f"{processes} processes"
            self.stdout.write(f"worker {worker.worker_id} works on {names} with {with_processes}; Ctrl-C stops it")
        if supervisor.options.relays_outbox and (options["batch"] or options["burst"]):
            relay_first()
        return supervisor.run()


def _some_of(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def chosen_queues(names: str, excluded: str, *, backend: str | None) -> tuple[list[QueueSettings], tuple[str, ...]]:
    """Return the queues that the command line selects, and the names of the reliable ones among them.

    Raises ImproperlyConfigured.
    """
    wanted = split_names(names)
    if excluded and wanted:
        raise ImproperlyConfigured("--exclude-queues cannot be combined with --queues")
    if backend is not None and not wanted:
        wanted = _queues_of_backend(backend)
    queues, reliable = split_reliable(wanted)
    if excluded:
        without, without_reliable = split_reliable(split_names(excluded))
        queues = [queue for queue in queues if queue not in without]
        reliable = tuple(name for name in reliable if name not in without_reliable)
    if not queues and not reliable:
        cause = "--exclude-queues excludes all queues" if excluded else "all queues of RSMQ['QUEUES'] are FOR_OTHERS"
        raise ImproperlyConfigured(f"no queue to consume: {cause}")
    return queues, reliable


def chosen_topics(names: str | None, *, no_topics: bool) -> tuple[str, ...]:
    """Return the topics to consume. Raises ImproperlyConfigured for a topic without declared tasks."""
    check_topic_tasks()
    declared = sorted({each.topic for each in registered_topic_tasks()})
    if no_topics:
        return ()
    chosen = declared if names is None else split_names(names) or declared
    for name in chosen:
        if name not in declared:
            raise ImproperlyConfigured(f"Topic {name!r} has no declared topic task. {nearest(name, declared)}")
    return tuple(chosen)


def _queues_of_backend(alias: str) -> list[str]:
    try:
        backend = task_backends[alias]
    except Exception as error:  # Django and its backport raise different classes
        raise ImproperlyConfigured(f"--backend: {error}") from error
    if not isinstance(backend, RSMQBackend):
        raise ImproperlyConfigured(
            f"--backend: TASKS[{alias!r}] is not an RSMQBackend; this worker cannot run its tasks"
        )
    ours = [name for name, queue in get_settings().queues.items() if not queue.for_others]
    allowed = [name for name in ours if name in backend.queues]
    if backend.queues and not allowed:
        raise ImproperlyConfigured(f"--backend: TASKS[{alias!r}]['QUEUES'] has no queue of RSMQ['QUEUES']")
    return allowed  # an empty set allows all queues


def wants_reload(options: dict[str, Any]) -> bool:
    """Return whether to restart when a source file changes."""
    ends_by_itself = options["batch"] or options["burst"]
    if options["reload"] and ends_by_itself:
        logging.getLogger(__name__).warning("--reload ignored: it has no effect with --batch and --burst")
    wanted = django_settings.DEBUG if options["reload"] is None else options["reload"]
    return bool(wanted and not ends_by_itself)


def relay_first() -> None:
    """Send the messages in the outbox, for workers that stop when the queues are empty."""
    from ...outbox.relay import Relay  # its application is optional

    try:
        Relay().relay_waiting()
    except Error as error:
        logging.getLogger("rsmq_django.outbox.relay").error("outbox: %s; its messages will be sent later", error)
    connections.close_all()  # forked processes must not share a connection


def split_names(text: str) -> list[str]:
    """Return the queue names of a comma-separated list; "*" means all."""
    return [] if text.strip() == "*" else [name.strip() for name in text.split(",") if name.strip()]


def set_up_logging(verbosity: int) -> None:
    """Print the log of this package on the terminal, unless the project configures logging."""
    ours = logging.getLogger("rsmq_django")
    if ours.level == logging.NOTSET:
        ours.setLevel(LEVELS[verbosity])
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        ours.addHandler(handler)
    for name in ("django.tasks", "django_tasks"):
        # It repeats our log with less detail, and loads a TaskResult for every message.
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _supervisor_options(options: dict[str, Any]) -> SupervisorOptions:
    jitter = options["max_tasks_jitter"]
    return SupervisorOptions(
        processes=options["processes"] or os.cpu_count() or 1,
        worker=_worker_options(options),
        max_memory_bytes=options["max_memory"] and options["max_memory"] * 1024 * 1024,
        max_tasks_jitter=(options["max_tasks"] or 0) // 10 if jitter is None else jitter,
        max_crashes=get_settings().tasks.max_crashes,
        # A worker that drains queues would never stop while schedules fill them.
        fires_schedules=not (options["no_scheduler"] or options["batch"] or options["burst"]),
        relays_outbox=apps.is_installed("rsmq_django.outbox") and not options["no_relay"],
        probes=ProbeOptions(
            pid_file=options["pid_file"],
            health_file=options["health_file"],
            health_address=options["health_port"],
            health_max_age_s=options["health_max_age"],
        ),
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
        reliable=options["reliable"],
        topics=options["topics"],
        until_drained=options["batch"],
        until_empty=options["burst"],
    )
