"""Isolation of tests: no process, connection or address of one test reaches another, and none hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import RedisFailure
from tests import deadline, leftovers
from tests.chaos.fleet import is_there
from tests.redis_server import PrivateServer
from tests.support import wait_until

#: Starts a process in a session of its own, writes down its pid, and leaves it alone.
LEAVE_ONE_BEHIND = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
"""


def test_orphaned_process_in_another_session_ends_with_the_test(tmp_path: Path):
    before, note = leftovers.children(), tmp_path / "pid"
    subprocess.run([sys.executable, "-c", LEAVE_ONE_BEHIND, str(note)], check=True)
    pid = int(note.read_text())
    assert is_there(pid)

    leftovers.end_all_but(before)

    assert not is_there(pid)
    assert leftovers.children() == before


def test_processes_that_ignore_every_signal_end_with_the_test(tmp_path: Path):
    ready = tmp_path / "ready"
    deaf = f"trap '' INT TERM HUP; sleep 1000 & touch {ready}; wait; sleep 1000"
    before = leftovers.children()
    with subprocess.Popen(["sh", "-c", deaf], start_new_session=True) as shell:
        wait_until(ready.exists)

        leftovers.end_all_but(before)

    assert leftovers.children() == before
    assert not is_there(shell.pid)


def test_server_outlives_tests(server: PrivateServer):
    before = leftovers.children() - {server.pid}

    leftovers.end_all_but(before)

    assert is_there(server.pid)


def test_client_of_an_earlier_test_reaches_nothing(server: PrivateServer):
    earlier = Queue("jobs", Client(Connection(server.url, timeout_s=15)))
    earlier.create()

    server.begin_test()

    with pytest.raises(RedisFailure):
        earlier.send(b"late")
    with pytest.raises(RedisFailure):
        Queue("jobs", Client(Connection(earlier.client.connection.url, timeout_s=15))).create()
    Queue("jobs", Client(Connection(server.url, timeout_s=15))).create()  # nothing has that name now


def test_test_that_hangs_fails_by_its_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deadline, "DEADLINE_S", 0.05)
    handler = signal.getsignal(signal.SIGALRM)

    with pytest.raises(deadline.DeadlinePassed, match="test_test_that_hangs_fails_by_its_name: the test took longer"):
        with deadline.of(request.node, "the test"):
            while True:
                with suppress(Exception):
                    time.sleep(1000)

    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 1, "the deadline of the test itself goes on"
