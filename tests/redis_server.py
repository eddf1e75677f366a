"""One private server per pytest process, on a unix socket in a directory of its own.

Knows how to start, kill, restart and empty that server. It is a plain child of the test process and ended by its pid;
no other server is ever touched, and `empty()` looks whether the one that answers is ours before it deletes anything.

Each test knows the server under an address of its own, which leads nowhere when the test is over: whatever another
test has left, in this process or outside, is cut off and cannot come back.
"""

import itertools
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from rsmq_django.embedded.binary import find_server
from tests import leftovers
from tests.support import wait_until

#: Only a name until a server starts, so that settings can be imported without one. Short: a socket path may have 107
#: bytes on Linux and 103 on macOS.
RUN_DIR = Path(tempfile.gettempdir()) / f"rsmq-test-{os.getpid()}-{secrets.token_hex(3)}"
SOCKET = RUN_DIR / "s"
#: For this process only, and what lives as long as it. Other processes get the address of their test.
URL = f"unix://{SOCKET}"


class PrivateServer:
    """The server of this pytest process."""

    def __init__(self) -> None:
        self._address = SOCKET
        self._tests = itertools.count(1)
        self.redis = redis.Redis.from_url(URL, socket_timeout=60)
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the address of the test that runs."""
        return f"unix://{self._address}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers; it opens the data that an earlier start left."""
        RUN_DIR.mkdir(mode=0o700, exist_ok=True)
        command = [find_server().path, "--port", "0", "--unixsocket", str(SOCKET), "--unixsocketperm", "700"]
        # The append-only file is never synced: data then survives kill -9 of the server (the kernel has it), which is
        # what tests need, at no cost in speed.
        command += ["--dir", str(RUN_DIR), "--appendonly", "yes", "--appendfsync", "no", "--save", ""]
        command += ["--maxmemory-policy", "noeviction", "--logfile", str(RUN_DIR / "server.log")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._watch()
        assert self._watcher is not None
        leftovers.keep(self._process.pid, self._watcher.pid)
        wait_until(self._is_ours)

    def kill(self) -> None:
        """End the server as a crash would (kill -9)."""
        if self._process is not None and self._watcher is not None:
            self._process.kill()
            self._watcher.communicate()  # before wait(): as long as nobody collects the server, its pid is its own
            self._process.wait()

    def restart(self) -> None:
        """Crash the server and start it again on the same data."""
        self.kill()
        self.start()

    def empty(self) -> None:
        """Delete everything; start the server again when a test left it dead."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        assert self._is_ours(), f"the server at {URL} is not the one that these tests started"
        self.redis.flushall()

    def begin_test(self) -> None:
        """Be empty, and found under a new address only; who came by the last one is cut off."""
        self.empty()
        if self._address != SOCKET:
            self._address.unlink()
        self._address = RUN_DIR / str(next(self._tests))
        self._address.symlink_to(SOCKET)
        os.environ["RSMQ_TEST_URL"] = self.url  # processes that a test starts use the same server
        self.redis.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        self.redis.flushall()  # what they have written meanwhile

    def connections(self) -> set[str]:
        """Return the ids of its connections.

        One whose process was killed is among them until the server has read what that process had sent.
        """
        return {each["id"] for each in self.redis.client_list()}

    def stop(self) -> None:
        """End the server and remove its directory."""
        self.redis.close()
        self.kill()
        shutil.rmtree(RUN_DIR, ignore_errors=True)

    def _watch(self) -> None:
        """Have the server killed when this process ends without doing so: killed itself, or crashed."""
        self._watcher = subprocess.Popen(
            ["sh", "-c", f"read _; kill -9 {self.pid} 2>/dev/null"], stdin=subprocess.PIPE, start_new_session=True
        )

    def _is_ours(self) -> bool:
        assert self._process is not None and self._process.poll() is None, _last_log_lines()
        try:
            self.redis.ping()  # refused while it loads its data, which INFO is not
            return self.redis.info("server")["process_id"] == self._process.pid
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
            return False


def _last_log_lines() -> str:
    log = RUN_DIR / "server.log"
    lines = log.read_text(errors="replace").splitlines()[-10:] if log.exists() else []
    return "the test server ended:\n" + "\n".join(lines)


@contextmanager
def without_its_disk(server: PrivateServer) -> Iterator[None]:
    """Let a snapshot fail: until one succeeds, the server refuses writes."""

    def status_of_a_snapshot() -> str:
        server.redis.bgsave()
        wait_until(lambda: not server.redis.info("persistence")["rdb_bgsave_in_progress"])
        return str(server.redis.info("persistence")["rdb_last_bgsave_status"])

    in_the_way = RUN_DIR / "dump.rdb"
    in_the_way.unlink(missing_ok=True)
    in_the_way.mkdir()
    server.redis.config_set("save", "3600 1000000")
    assert status_of_a_snapshot() == "err"
    try:
        yield
    finally:
        in_the_way.rmdir()
        assert status_of_a_snapshot() == "ok"
        server.redis.config_set("save", "")
