"""Isolation of tests: no process, connection or address of one test reaches another, and none hangs."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from django import urls
from django.utils import timezone, translation

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import RedisFailure
from rsmq_django.signals import lease_lost
from rsmq_django.tasks.running import current_run
from tests import deadline, leftovers, process_state
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


def import_again() -> None:
    del sys.modules["rsmq_django.signals"]
    importlib.import_module("rsmq_django.signals")


#: What a test may change by mistake, by the name under which that is reported.
CHANGES: dict[str, Callable[[], object]] = {
    "loggers": lambda: logging.getLogger("rsmq_django").setLevel(logging.INFO),
    "loggers: 'root'": lambda: logging.getLogger().setLevel(logging.INFO),
    "loggers: 'rsmq_django.new'": lambda: logging.getLogger("rsmq_django.new").addHandler(logging.NullHandler()),
    "disabled log levels": lambda: logging.disable(logging.ERROR),
    "environment variables: b'RSMQ_ADDED'": lambda: os.environ.update(RSMQ_ADDED="1"),
    "environment variables: b'PATH'": lambda: os.environ.update(PATH="/nowhere"),
    "environment variables: b'HOME'": lambda: os.environ.pop("HOME"),
    "working directory": lambda: os.chdir("/"),
    "sys.path": lambda: sys.path.append("/nowhere"),
    "modules: 'rsmq_django.signals'": import_again,
    "handlers of system signals": lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "blocked system signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]),
    "receivers of Django signals: 'lease_lost'": lambda: lease_lost.connect(lambda **_: None, weak=False),
    "current task": lambda: current_run.set(Mock()),
    "language": lambda: translation.activate("de"),
    "time zone": lambda: timezone.activate("Asia/Tokyo"),
    "URLconf": lambda: urls.set_urlconf("tests.urls"),
    "URL prefix": lambda: urls.set_script_prefix("/shop/"),
    "timeout of sockets": lambda: socket.setdefaulttimeout(7),
    "garbage collection": gc.disable,
    "recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    "switch interval": lambda: sys.setswitchinterval(0.1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_that_a_test_leaves_behind_is_reported_and_put_back(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home")
    before = process_state.read()
    assert process_state.put_back(before) == []

    CHANGES[name]()

    (told,) = process_state.put_back(before)
    assert told.startswith(f"{name}: ") and " became " in told
    assert process_state.read() == before


def test_every_part_of_the_process_that_is_compared_has_such_a_change():
    assert {name.partition(":")[0] for name in CHANGES} == set(process_state.PARTS)
