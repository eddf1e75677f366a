"""The supervisor when the machine will not give it processes, or takes them away before they begin to work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rsmq_django.queues import get_queue
from tests.chaos.project import tasks
from tests.redis_server import PrivateServer
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

PREAMBLE = """
import errno, logging, os, signal, sys, time
import django
django.setup()
from django.utils.module_loading import autodiscover_modules
autodiscover_modules("tasks")
from rsmq_django.worker.supervise import supervisor
from rsmq_django.worker.supervise.supervisor import Supervisor, SupervisorOptions
from rsmq_django.worker.fetch.queues import queue_settings
from rsmq_django.worker.worker import WorkerOptions
logging.basicConfig(level=logging.INFO, stream=sys.stdout)

def run(kind=Supervisor, **options):
    worker = WorkerOptions(threads=2, async_tasks=1, poll_interval_s=0.1, shutdown_timeout_s=5, **options)
    sys.exit(kind(queue_settings([]), SupervisorOptions(processes=2, worker=worker, max_crashes=3)).run())
"""


def run_supervisor(code: str, server: PrivateServer) -> str:
    """Run a supervisor to which `code` has done something; returns its log. It must end well."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.chaos.project.settings", "RSMQ_TEST_URL": server.url}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_processes_that_end_at_once_are_not_started_in_a_storm(
    project: Configure, server: PrivateServer, journal: Journal
):
    log = run_supervisor(
        """
Supervisor._run_child = lambda self, *parts: os._exit(70)
fork, forked_at = os.fork, []
def fork_and_end_after_seven():
    pid = fork()
    if pid:
        forked_at.append(time.monotonic())
        if len(forked_at) == 7:
            print("seven took", forked_at[-1] - forked_at[0], "s", flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.fork = fork_and_end_after_seven
run()
""",
        server,
    )

    # A lower bound, which a busy machine keeps as well: without the growing wait seven would take no time at all.
    assert float(log.partition("seven took ")[2].split()[0]) > 2
    assert "ended with exit status 70" in log


def test_process_that_cannot_be_forked_is_tried_again(project: Configure, server: PrivateServer, journal: Journal):
    tasks.good.enqueue_many([[str(number)] for number in range(10)])

    log = run_supervisor(
        """
supervisor.LONGEST_RESTART_WAIT_S = 0.1
fork, failures = os.fork, [1, 2, 3]
def fail_at_first():
    if failures:
        failures.pop()
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
    return fork()
os.fork = fail_at_first
run(until_drained=True)
""",
        server,
    )

    assert log.count("cannot start a process: [Errno 11] Resource temporarily unavailable; trying again") == 3
    assert sorted(journal.names("end"), key=int) == [str(number) for number in range(10)]


def test_library_that_reaps_every_child_takes_no_message_along(
    project: Configure, server: PrivateServer, journal: Journal
):
    names = [str(number) for number in range(100)]
    tasks.nap.enqueue_many([[name, 0.01] for name in names])
    tasks.die.enqueue("pill", "kill")

    log = run_supervisor(
        """
class Robbed(Supervisor):
    reaped = 0
    def _reap_children(self):
        if self.reaped < 3:  # what a library does that waits for processes of its own
            try:
                self.reaped += bool(os.waitpid(-1, os.WNOHANG)[0])
            except ChildProcessError:
                pass
        super()._reap_children()
run(Robbed, until_empty=True)
""",
        server,
    )

    assert "ended with an unknown exit status" in log
    assert set(journal.names("end")) == set(names)
    assert get_queue("default").attributes().messages == 0
