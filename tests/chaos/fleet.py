"""Real worker processes in the project of these tests, with the output of them and of their tasks."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.worker.supervise.process import resident_bytes
from tests.redis_server import PrivateServer
from tests.worker.processes import StartWorker, WorkerProcess
from tests.worker.site.journal import Journal

ONE = ("--processes", "1", "--threads", "1")


@pytest.fixture
def start(server: PrivateServer, journal: Journal, tmp_path: Path) -> Iterator[StartWorker]:
    """Return the function that starts `manage.py rsmq_worker` in the project of these tests."""
    started: list[WorkerProcess] = []

    def start(
        *arguments: str,
        queues: dict[str, Any] | None = None,
        connections: dict[str, Any] | None = None,
        url: str | None = None,
    ) -> WorkerProcess:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.chaos.project.settings",
            "RSMQ_TEST_URL": server.url,
            "RSMQ_TEST_QUEUES": json.dumps(queues or {"default": {}}),
            "RSMQ_TEST_CONNECTIONS": json.dumps(connections or {}),
            "RSMQ_TEST_WORKER_URL": url or "",
        }
        started.append(WorkerProcess(arguments, environment=environment, log=tmp_path / f"log-{len(started)}"))
        return started[-1]

    yield start
    for worker in started:
        worker.destroy()


def processes() -> list[tuple[int, int, str]]:
    """Return pid, parent's pid and state of every process of this machine."""
    done = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return [(int(pid), int(parent), state) for pid, parent, state in lines]


def children_of(worker: WorkerProcess) -> list[int]:
    """Return the pids of the living processes that a supervisor has forked."""
    return [pid for pid, parent, state in processes() if parent == worker.process.pid and state[0] != "Z"]


def is_there(pid: int) -> bool:
    """Say whether a process lives."""
    return any(each == pid and state[0] != "Z" for each, _, state in processes())


def records_of_workers(server: PrivateServer) -> list[Any]:
    return list(server.redis.keys("rsmq::worker*"))


def names_of(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def pids_by_name(journal: Journal, word: str) -> dict[str, list[int]]:
    """Return in which processes each task began ("start") or ended ("end"), in order."""
    pids = defaultdict(list)
    for name, pid in journal.lines(word):
        pids[name].append(int(pid))
    return pids


def assert_done_once(journal: Journal, names: list[str]) -> None:
    done = Counter(journal.names("end"))
    assert set(done) == set(names)
    assert {name: times for name, times in done.items() if times > 1} == {}


def usage(pid: int) -> tuple[Any, int, int]:
    """Return the resident bytes, threads and open files of a process."""
    directory = Path(f"/proc/{pid}")
    return resident_bytes(pid), len(os.listdir(directory / "task")), len(os.listdir(directory / "fd"))
