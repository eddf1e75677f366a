"""Start everything, replay a day of 2013, and show the results.

Knows in which order things start and stop. The private server starts by the settings; web server and worker are child
processes; the replay runs here. With --once there is no web server: a new database and a new server in a temporary
directory, one day, a table, and an exit code that says whether every message is accounted for.
"""

import datetime as dt
import fcntl
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from example_project.flightboard.departures import DataMissing, Departure
from example_project.flightboard.replay import clear_board, read_day, replay
from example_project.flightboard.stage import ChildDied, Stage, free_port, wait_for_page
from example_project.flightboard.stock import (
    create_queues,
    delete_queues,
    delete_topic,
    in_outbox,
    read_balance,
    read_queues,
    unread_gates,
    unsettled,
)
from example_project.flightboard.summary import print_summary
from rsmq_django.core.errors import RsmqError

from .replay_day import add_replay_arguments, with_progress

#: Names the directory of a --once run, in the environment of its processes.
OWN_DIR_VARIABLE = "FLIGHTBOARD_ONCE_DIR"
POLL_S = 0.05
#: How long the figures may take to add up after the last message is gone: the work log is written after the task.
BALANCE_TIMEOUT_S = 30.0
#: How often the demo looks after its children while you look at the pages.
WATCH_EVERY_S = 0.5
USER = "demo"


class Unaccounted(Exception):
    """Some work was not done in time, or the figures do not add up."""


class Command(BaseCommand):
    """See the module."""

    help = "Show everything: a private server, the site, a worker, and a replayed day. Ctrl-C stops it all."
    has_own_process = False

    def add_arguments(self, parser: CommandParser) -> None:
        add_replay_arguments(parser, default_flights_per_s=30)
        parser.add_argument("--once", action="store_true", help="replay at full speed, print a summary, and exit")
        parser.add_argument("--port", type=int, default=8000, help="first port to try for the site (default: 8000)")
        parser.add_argument(
            "--threads", type=int, default=8, help="threads of each of the two worker processes (default: 8)"
        )
        parser.add_argument(
            "--settle-timeout",
            type=float,
            default=120.0,
            metavar="S",
            help="seconds after which work that is not done is a failure (default: 120)",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        """Remember that this process is ours alone."""
        self.has_own_process = True
        super().run_from_argv(argv)

    def handle(self, *, once: bool, **options: Any) -> None:
        if once and OWN_DIR_VARIABLE not in os.environ:
            if not self.has_own_process:
                raise CommandError("--once needs a process of its own; run it from the command line")
            restart_in_own_directory()
        # SIGINT too: a shell starts what it runs in the background with SIGINT ignored.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, raise_interrupt)
        run = self.run_once if once else self.run_until_stopped
        try:
            run(**options)
        except KeyboardInterrupt:
            self.stdout.write("\nStopped, with everything that was started.")
        except (ChildDied, DataMissing, RsmqError, Unaccounted, OSError) as error:
            raise CommandError(str(error)) from error

    def run_once(self, *, day: dt.date, limit: int | None, threads: int, settle_timeout: float, **_: Any) -> None:
        """Replay a day where nothing else was ever sent, and print a summary."""
        own_dir = Path(os.environ[OWN_DIR_VARIABLE])
        try:
            departures = read_day(day, limit=limit)
            with Stage(own_dir) as stage:
                prepare()
                start_worker(stage, threads=threads)
                started = self.replay(stage, day, departures, flights_per_s=0)
                try:
                    settle(stage, timeout_s=settle_timeout)
                except Unaccounted as error:
                    raise Unaccounted(f"{error}; of the worker's log, {stage.quote_log('worker')}") from error
                self.sum_up(day, departures, started=started)
        finally:
            if os.environ.get("RSMQ_URL"):  # not our server: leave it as it was
                delete_queues()
                delete_topic()
            shutil.rmtree(own_dir, ignore_errors=True)

    def run_until_stopped(self, *, day: dt.date, limit: int | None, threads: int, port: int, **options: Any) -> None:
        """Serve the site, replay a day, print a summary, and serve until Ctrl-C."""
        departures = read_day(day, limit=limit)
        with only_demo_here(), Stage(settings.STATE_DIR) as stage:
            self.stdout.write("Starting the message server, the worker and the site ...")
            prepare()
            port = free_port(port)
            start_worker(stage, threads=threads)
            stage.start("web server", manage("runserver", "--noreload", f"127.0.0.1:{port}"))
            password = set_password_of_demo_user()
            url = f"http://127.0.0.1:{port}/"
            wait_for_page(url, stage)
            self.stdout.write(f"Board    {url}\nAdmin    {url}admin/   user {USER}, password {password}")
            self.stdout.write(
                f"Logs     {settings.STATE_DIR}\nReplay   {how_long(departures, options['speed'])}\nStop     Ctrl-C\n"
            )
            self.stdout.flush()  # the output may be a pipe
            started = self.replay(stage, day, departures, flights_per_s=options["speed"])
            try:
                settle(stage, timeout_s=options["settle_timeout"])
            except Unaccounted as error:  # a user of the pages may cause this; the demo continues
                self.stderr.write(self.style.WARNING(str(error)))
            self.sum_up(day, departures, started=started)
            self.stdout.write(f"\nThe site is still there: {url}  Ctrl-C stops everything.")
            while True:
                stage.check()
                time.sleep(WATCH_EVERY_S)

    def replay(self, stage: Stage, day: dt.date, departures: list[Departure], *, flights_per_s: float) -> float:
        """Save the flights while the worker works, and return when that began (monotonic seconds)."""
        started = time.monotonic()
        steps = replay(day, departures, flights_per_s=flights_per_s)
        for _ in with_progress(steps, f"Replaying {day}", len(departures)):
            stage.check()
        return started

    def sum_up(self, day: dt.date, departures: list[Departure], *, started: float) -> None:
        """Print the summary."""
        wall_s = time.monotonic() - started
        cancelled = sum(departure.departed_at is None for departure in departures)
        title = f"{day}: {len(departures):,} flights, {cancelled:,} of them cancelled"
        print_summary(Console(), title, read_balance(), wall_s=wall_s)


def how_long(departures: list[Departure], flights_per_s: float) -> str:
    """Return the number of flights and the expected duration."""
    flights = f"{len(departures):,} flights"
    return f"{flights}, about {len(departures) / flights_per_s:.0f} s" if flights_per_s else f"{flights}, at full speed"


def restart_in_own_directory() -> NoReturn:
    """Run this command again with its own database, server and namespace."""
    own_dir = tempfile.mkdtemp(prefix="flightboard-")
    own = {
        OWN_DIR_VARIABLE: own_dir,
        "RSMQ_STATE_DIR": own_dir,
        "FLIGHTBOARD_NAMESPACE": Path(own_dir).name,
    }
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **own})  # noqa: S606


def raise_interrupt(*_: object) -> NoReturn:
    """Treat SIGTERM as Ctrl-C: leave everything in order, then end."""
    raise KeyboardInterrupt


@contextmanager
def only_demo_here() -> Iterator[None]:
    """Hold a lock that ends with this process; two demos would empty each other's queues."""
    with (settings.STATE_DIR / "demo.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"a demo runs already on {settings.STATE_DIR}; stop it, or name another directory in RSMQ_STATE_DIR"
            ) from None
        yield


def prepare() -> None:
    """Bring the database up to date, and empty the board and its queues."""
    call_command("migrate", verbosity=0, interactive=False)
    clear_board()
    delete_queues()
    delete_topic()
    create_queues()


def manage(*arguments: str) -> list[str]:
    """Return the command line of a management command."""
    return [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]


def start_worker(stage: Stage, *, threads: int) -> None:
    """Start the worker. Without DEBUG, which would remember the queries of every task."""
    stage.start(
        "worker", manage("rsmq_worker", "--processes", "2", "--threads", str(threads)), env={"FLIGHTBOARD_DEBUG": "0"}
    )


def set_password_of_demo_user() -> str:
    """Give the demo user a new random password, and all rights, and return the password."""
    users = get_user_model().objects
    user, _ = users.update_or_create(username=USER, defaults={"is_staff": True, "is_superuser": True})
    password = secrets.token_urlsafe(9)
    user.set_password(password)
    user.save()
    return password


def settle(stage: Stage, *, timeout_s: float) -> None:
    """Wait until all work is done and accounted for. Raises Unaccounted."""
    with Console().status("Waiting for the last retries and reminders"):
        wait_until_settled(stage, timeout_s=timeout_s)
        wait_until_balanced(timeout_s=BALANCE_TIMEOUT_S)


def wait_until_settled(stage: Stage, *, timeout_s: float) -> None:
    """Wait until no queue holds a message: none ready, none delayed, none with the worker. Raises Unaccounted."""
    deadline = time.monotonic() + timeout_s
    # The outbox first: messages that leave it meanwhile are seen in their queue.
    while left := in_outbox() + unsettled(queues := read_queues()) + unread_gates():
        stage.check()
        if time.monotonic() > deadline:
            where = ", ".join(f"{queue.name} {queue.ready + queue.hidden}" for queue in queues)
            raise Unaccounted(
                f"{left} messages are not settled {timeout_s:g} s after the replay ({where}); raise --settle-timeout"
            )
        time.sleep(POLL_S)


def wait_until_balanced(*, timeout_s: float) -> None:
    """Wait until all that was sent either succeeded or is a dead letter. Raises Unaccounted."""
    deadline = time.monotonic() + timeout_s
    while differences := read_balance().differences():
        if time.monotonic() > deadline:
            raise Unaccounted("the figures do not add up: " + "; ".join(differences))
        time.sleep(POLL_S)
