"""Child processes of a demo: started, watched, and stopped with any end of the demo."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from example_project.flightboard.stage import ChildDied, Stage, free_port
from tests.support import wait_until

SLEEPS = [sys.executable, "-c", "import time; print('awake', flush=True); time.sleep(600)"]
IGNORES_SIGTERM = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
]


def is_alive(pid: int) -> bool:
    """Say whether the process runs; one that ended and waits to be collected does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return state != "" and not state.startswith("Z")


def test_children_are_stopped_when_the_stage_is_left(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.start("sleeper", SLEEPS)
        pid = stage.pid("sleeper")
        stage.check()
        assert is_alive(pid)

    assert not is_alive(pid)


def test_child_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("example_project.flightboard.stage.STOP_TIMEOUT_S", 0.1)

    with Stage(tmp_path) as stage:
        stage.start("deaf", IGNORES_SIGTERM)
        pid = stage.pid("deaf")
        wait_until(lambda: "deaf" in stage.log_path("deaf").read_text())

    assert not is_alive(pid)


def test_child_that_ended_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.start("worker", [sys.executable, "-c", "print('no such queue'); raise SystemExit(3)"])
        wait_until(lambda: not is_alive(stage.pid("worker")))

        with pytest.raises(ChildDied, match=r"the worker ended with exit code 3; the end of its log:\n  no such queue"):
            stage.check()


def test_children_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from example_project.flightboard.stage import Stage\n"
        "with Stage(pathlib.Path(sys.argv[1])) as stage:\n"
        "    stage.start('sleeper', [sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    print(stage.pid('sleeper'), flush=True); time.sleep(600)\n"
    )
    demo = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    child = int(demo.stdout.readline())
    assert is_alive(child)

    os.kill(demo.pid, signal.SIGKILL)
    demo.wait()
    demo.stdout.close()

    wait_until(lambda: not is_alive(child))


def test_port_in_use_is_passed_over() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]

        assert free_port(taken) > taken
