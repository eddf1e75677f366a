"""Health: what a worker shows in files and on a port, and what probes make of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.worker.health import HealthFile, Report, is_well, main, make_report, problem_of
from rsmq_django.worker.supervise.probes import (
    MAX_CLIENTS,
    MAX_REQUEST_BYTES,
    HealthPort,
    PidFile,
    PidFileTaken,
    ProbeOptions,
    Probes,
)
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.workshop import Configure

SMALL = ("--processes", "1", "--threads", "1")


def report(*ages_s: float, max_age_s: float = 60, is_stopping: bool = False) -> Report:
    now = time.monotonic()
    processes = [(number, now - age_s) for number, age_s in enumerate(ages_s)]
    return make_report("painter", processes, max_age_s=max_age_s, is_stopping=is_stopping)


# -- The report --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (report(0, 1), "ok"),
        (report(0, 1, is_stopping=True), "stopping"),
        (report(0, 61), "failing"),
        (report(0, 61, is_stopping=True), "failing"),
        (report(3, max_age_s=2), "failing"),
    ],
)
def test_worker_is_well_when_each_process_polled_not_long_ago(given: Report, status: str):
    assert given["status"] == status
    assert is_well(given) == (status != "failing")


# -- The file ----------------------------------------------------------------------------------------------------------


def test_health_file_of_a_healthy_worker_has_no_complaint(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    HealthFile(tmp_path / "health").show(report(0.5))

    assert problem_of(tmp_path / "health") is None
    assert main([str(tmp_path / "health")]) == 0
    assert capsys.readouterr().out == "ok\n"


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        (lambda: json.dumps(report(7000)), "a process last looked for messages 70"),
        (lambda: json.dumps(report(0) | {"written_at": time.monotonic() - 100}), "the supervisor is gone or hangs"),
        (lambda: json.dumps(report(0) | {"written_at": time.monotonic() + 1e6}), "the supervisor is gone or hangs"),
        (lambda: "half a rep", "is not the health file of a worker"),
        (lambda: "[]", "is not the health file of a worker"),
        (None, "no worker: "),
    ],
)
def test_complaint_has_the_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: Callable[[], str] | None, complaint: str
):
    path = tmp_path / "health"
    if written is not None:
        path.write_text(written())

    assert main([str(path)]) == 1
    assert complaint in capsys.readouterr().err


def test_a_check_may_be_stricter_than_the_worker(tmp_path: Path):
    HealthFile(tmp_path / "health").show(report(30))

    assert problem_of(tmp_path / "health") is None
    assert "20 s are allowed" in (problem_of(tmp_path / "health", max_age_s=20) or "")


def test_check_imports_neither_django_nor_redis(tmp_path: Path):
    HealthFile(tmp_path / "health").show(report(0))
    code = f"""
import sys
from rsmq_django.worker.health import main
status = main([{str(tmp_path / "health")!r}])
sys.exit(status or int(any(name.split(".")[0] in ("django", "redis") for name in sys.modules)))
"""

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_file_is_always_whole(tmp_path: Path):
    path, complaints, stop = tmp_path / "health", [], threading.Event()

    def read() -> None:
        while not stop.is_set():
            complaints.append(problem_of(path))

    HealthFile(path).show(report(*range(50)))
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        HealthFile(path).show(report(*range(50)))
    stop.set()
    reader.join()

    assert set(complaints) == {None}
    assert [each.name for each in tmp_path.iterdir()] == ["health"]


# -- The port ----------------------------------------------------------------------------------------------------------


class Served:
    """A port that is served on a thread, with a report that the test chooses."""

    def __init__(self) -> None:
        self.report = report(0)
        self.port = HealthPort(("127.0.0.1", 0), lambda: self.report)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.wait(0.005):
            self.port.serve()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.port.address, timeout=180)

    def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*self.port.address, timeout=180)
        connection.request(method, path)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, json.loads(body) if body else None

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.port.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def test_probe_learns_whether_the_worker_is_well(served: Served):
    assert served.ask("/health")[0] == 200
    assert served.ask("/?from=a-load-balancer")[0] == 200

    served.report = report(0, 70)

    status, body = served.ask("/health")
    assert (status, body["status"]) == (503, "failing")
    assert [round(process["last_poll_age_s"]) for process in body["processes"]] == [0, 70]
    assert served.ask("/live")[0] == 200


def test_client_that_was_answered_no_longer_counts_as_connected(served: Served):
    assert served.ask("/health")[0] == 200
    assert served.ask("/health")[0] == 200

    wait_until(lambda: served.port._clients == [])


def test_client_is_disconnected_when_it_has_its_answer(served: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.worker.supervise.probes.REPLY_WITHIN_S", 3600)
    with served.connect() as client:
        client.settimeout(30)
        client.sendall(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")

        answer = b"".join(iter(lambda: client.recv(4096), b""))  # up to its end, although the client stays

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_retry_that_is_not_a_probe_is_reported(served: Served):
    assert served.ask("/etc/passwd") == (404, {"error": "Not Found"})
    assert served.ask("/health", method="POST") == (405, {"error": "Method Not Allowed"})
    assert served.ask("/health", method="HEAD") == (200, None)


def test_request_may_come_in_pieces(served: Served):
    with served.connect() as connection:
        for piece in (b"GET /health HT", b"TP/1.1\r\nHost: a\r\n", b"\r\n"):
            connection.sendall(piece)
            threading.Event().wait(0.02)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


def test_silent_and_flooding_clients_do_not_block_other_clients(served: Served):
    silent = [served.connect() for _ in range(2 * MAX_CLIENTS)]
    with served.connect() as chatty:
        chatty.sendall(b"x" * MAX_REQUEST_BYTES)
        assert chatty.recv(100).startswith(b"HTTP/1.1 400 Bad Request\r\n")

    assert served.ask("/health")[0] == 200
    for connection in silent:
        connection.close()


def test_silent_client_is_disconnected_after_a_while(served: Served, monkeypatch: pytest.MonkeyPatch):
    with served.connect() as silent:
        assert served.ask("/health")[0] == 200  # so it has been accepted
        monkeypatch.setattr("rsmq_django.worker.supervise.probes.REPLY_WITHIN_S", 0)

        assert silent.recv(1) == b""


# -- The pid file ------------------------------------------------------------------------------------------------------


def test_pid_file_of_a_dead_process_is_taken_over(tmp_path: Path):
    (tmp_path / "pid").write_text("12345678\n")

    pid_file = PidFile(tmp_path / "pid")

    assert (tmp_path / "pid").read_text() == f"{os.getpid()}\n"
    pid_file.remove()
    assert list(tmp_path.iterdir()) == []


def test_pid_file_of_a_living_process_is_refused(tmp_path: Path):
    first = PidFile(tmp_path / "pid")

    with pytest.raises(PidFileTaken, match=f"is held by process {os.getpid()}, which runs"):
        PidFile(tmp_path / "pid")

    first.remove()
    PidFile(tmp_path / "pid").remove()


# -- Files in a directory where others may write -----------------------------------------------------------------------


def test_pid_file_that_is_a_link_is_refused_and_its_target_is_unchanged(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (tmp_path / "pid").symlink_to(victim)

    with pytest.raises(OSError, match="symbolic link"):
        PidFile(tmp_path / "pid")
    assert victim.read_text() == "precious\n"

    os.link(victim, tmp_path / "hard")
    with pytest.raises(OSError, match="has other names"):
        PidFile(tmp_path / "hard")
    assert victim.read_text() == "precious\n"


def test_pid_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pid").write_text("1\n")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(OSError, match="belongs to user"):
        PidFile(tmp_path / "pid")
    assert (tmp_path / "pid").read_text() == "1\n"


def test_draft_of_the_health_file_follows_no_link(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (tmp_path / f"health.{os.getpid()}").symlink_to(victim)
    (tmp_path / "health").symlink_to(victim)

    HealthFile(tmp_path / "health").show(make_report("w", [(1, time.monotonic())], max_age_s=60, is_stopping=False))

    assert victim.read_text() == "precious\n"
    assert problem_of(tmp_path / "health") is None and not (tmp_path / "health").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["health", "victim"]


# -- A real worker -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_shows_itself_and_leaves_nothing_behind(project: Configure, start_worker: StartWorker, tmp_path: Path):
    pid, health = tmp_path / "pid", tmp_path / "health"
    shown = ("--pid-file", str(pid), "--health-file", str(health))
    worker = start_worker(*shown, "--health-port", "0", *SMALL)
    wait_until(lambda: "health: http://127.0.0.1:" in worker.output and "started process" in worker.output)
    port = int(worker.output.partition("health: http://127.0.0.1:")[2].partition("/")[0])

    assert int(pid.read_text()) == worker.process.pid
    wait_until(lambda: problem_of(health, max_age_s=5) is None)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()

    second = start_worker(*shown, *SMALL)
    assert second.wait() == 1
    assert f"cannot start: {pid} is held by process {worker.process.pid}, which runs" in second.output
    assert "Traceback" not in second.output

    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not pid.exists() and not health.exists()


@pytest.mark.slow
def test_worker_without_its_server_is_unhealthy_until_it_is_back(
    project: Configure, start_worker: StartWorker, server: PrivateServer, tmp_path: Path
):
    health = tmp_path / "health"
    worker = start_worker("--health-file", str(health), "--health-max-age", "2", *SMALL)
    wait_until(lambda: "started process" in worker.output and problem_of(health) is None)

    server.kill()
    wait_until(lambda: "a process last looked for messages" in (problem_of(health) or ""))
    server.start()

    wait_until(lambda: problem_of(health) is None)


@pytest.mark.slow
def test_supervisor_that_is_killed_or_paused_is_not_well(project: Configure, start_worker: StartWorker, tmp_path: Path):
    health, pid = tmp_path / "health", tmp_path / "pid"
    shown = ("--health-file", str(health), "--pid-file", str(pid), "--health-max-age", "2")
    worker = start_worker(*shown, *SMALL)
    wait_until(lambda: "started process" in worker.output and problem_of(health) is None)

    worker.send_to_all(signal.SIGSTOP)
    wait_until(lambda: "the supervisor is gone or hangs" in (problem_of(health) or ""))
    worker.send_to_all(signal.SIGCONT)
    wait_until(lambda: problem_of(health) is None)
    worker.send(signal.SIGKILL)
    wait_until(lambda: "the supervisor is gone or hangs" in (problem_of(health) or ""))

    again = start_worker(*shown, *SMALL)  # the lock of the pid file did not outlive its holder
    wait_until(lambda: problem_of(health) is None)
    assert int(pid.read_text()) == again.process.pid


# -- What a supervisor shows -------------------------------------------------------------------------------------------


def test_supervisor_shows_the_requested_state_until_it_ends(tmp_path: Path):
    pid_file, health_file = tmp_path / "pid", tmp_path / "health"
    probes = Probes(ProbeOptions(pid_file=pid_file, health_file=health_file), lambda: report(0))

    assert pid_file.read_text() == f"{os.getpid()}\n"
    assert problem_of(health_file) is None

    probes.close()
    assert list(tmp_path.iterdir()) == []


def test_supervisor_without_a_request_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    probes = Probes(ProbeOptions(), lambda: report(0))
    probes.update()
    probes.close()

    assert list(tmp_path.iterdir()) == []
