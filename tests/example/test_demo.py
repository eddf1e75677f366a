"""The demo from outside: the command, its output, its exit code, and no leftovers."""

import os
import re
import secrets
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from example_project.flightboard.departures import read_departures
from example_project.flightboard.replay import parse_day
from tests.support import wait_until
from tools.release import read_demo

from .demo_process import BLIZZARD, demo_command, demo_environment, read_until
from .test_stage import is_alive

FLIGHTS = 60


def run_once(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = demo_command("--once", "--day", BLIZZARD, "--limit", str(FLIGHTS), *arguments)
    return subprocess.run(
        command, env=demo_environment(**environment), capture_output=True, text=True, timeout=240, check=False
    )


def figures(output: str, name: str) -> list[int]:
    """Return the numbers of one line of the summary."""
    found = re.search(rf"^ *{name} +(\d[\d, ]*)$", output, re.MULTILINE)
    assert found, output
    return [int(number.replace(",", "")) for number in found[1].split()]


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started and not yet collected."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children = [int(line.split()[0]) for line in table.splitlines() if int(line.split()[1]) == pid]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def arguments_of(pid: int) -> str:
    return subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True).stdout


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that serves its pages, in a directory of its own."""
    # Between the moment when a demo finds a port free and the one when it listens there, another one may find it, too.
    port = str(secrets.choice(range(10_001, 32_000)))
    command = demo_command("--limit", "20", "--speed", "0", "--port", port)
    environment = demo_environment(RSMQ_STATE_DIR=str(tmp_path / "state"), PYTHONUNBUFFERED="1")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.slow
def test_every_message_of_a_replayed_slice_is_accounted_for() -> None:
    flights = list(read_departures(parse_day(BLIZZARD)))[:FLIGHTS]
    cancelled = sum(flight.departed_at is None for flight in flights)

    done = run_once()

    assert done.returncode == 0, done.stdout + done.stderr
    report = len({flight.carrier for flight in flights}) + 1
    assert figures(done.stdout, "default")[:2] == [FLIGHTS + report, FLIGHTS + report]
    sent, succeeded, retries, dead = figures(done.stdout, "notices")
    assert dead == cancelled > 0
    assert sent == succeeded + dead
    assert retries == 2 * cancelled
    assert re.search(rf"^ *{cancelled} +notices +NeverDeparted +3 +attempts used up *$", done.stdout, re.MULTILINE)
    assert re.match(r"\d+ messages settled in", read_demo(done.stdout)), "what the trial of a release reads"


@pytest.mark.slow
def test_demo_on_a_given_server_leaves_no_queue_behind(redis_url: str) -> None:
    done = run_once(RSMQ_URL=redis_url)

    assert done.returncode == 0, done.stdout + done.stderr
    with redis.Redis.from_url(redis_url, socket_timeout=60) as server:
        assert [key for key in server.keys("flightboard-*") if b"::" not in key] == []


@pytest.mark.slow
def test_worker_that_cannot_run_is_reported_with_its_own_words() -> None:
    done = run_once("--threads", "-1")

    assert done.returncode == 1
    assert "the worker ended with exit code" in done.stderr


@pytest.mark.slow
def test_worker_that_is_killed_fails_the_demo() -> None:
    command = demo_command("--once", "--day", BLIZZARD)
    with subprocess.Popen(command, env=demo_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        worker = wait_until(
            lambda: next((pid for pid in descendants(demo.pid) if "rsmq_worker" in arguments_of(pid)), 0)
        )

        os.kill(worker, signal.SIGKILL)

        _, said = demo.communicate(timeout=180)
    assert demo.returncode == 1
    assert b"the worker ended with exit code -9" in said


@pytest.mark.slow
def test_work_that_is_not_done_in_time_is_a_failure_that_names_the_queues() -> None:
    done = run_once("--settle-timeout", "0")

    assert done.returncode == 1
    assert re.search(r"\d+ messages are not settled 0 s after the replay \(default \d+, notices \d+", done.stderr)


@pytest.mark.slow
def test_unknown_day_is_refused_before_anything_starts() -> None:
    done = subprocess.run(
        demo_command("--once", "--day", "2014-01-01"),
        env=demo_environment(),
        capture_output=True,
        text=True,
        timeout=180,
    )

    assert done.returncode == 2
    assert "not in 2013" in done.stderr


@pytest.mark.slow
def test_site_is_served_until_ctrl_c_which_stops_all_that_was_started(demo: subprocess.Popen[str]) -> None:
    printed = read_until(demo, "The site is still there")
    url = re.search(r"Board +(http://\S+)", printed)
    assert url, printed
    with urllib.request.urlopen(url[1]) as page:  # noqa: S310  (our own address)
        assert "20 flights" in page.read().decode()
    children = descendants(demo.pid)
    assert len(children) >= 3  # web server, worker, guardian

    demo.send_signal(signal.SIGINT)

    assert demo.wait(180) == 0
    assert not any(map(is_alive, children))


@pytest.mark.slow
def test_second_demo_in_the_same_directory_is_refused_and_a_killed_one_takes_its_children_along(
    demo: subprocess.Popen[str], tmp_path: Path
) -> None:
    read_until(demo, "Board ")
    children = descendants(demo.pid)

    second = subprocess.run(
        demo_command(),
        env=demo_environment(RSMQ_STATE_DIR=str(tmp_path / "state")),
        capture_output=True,
        text=True,
        timeout=180,
    )

    assert second.returncode == 1
    assert "a demo runs already" in second.stderr

    demo.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(map(is_alive, children)))
