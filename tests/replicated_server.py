"""Servers on free ports that replicate one another, for tests of failovers. Each is a child of the test process."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from pathlib import Path

import redis

from rsmq_django.embedded.binary import find_server
from tests.support import wait_until


class ReplicatedServer:
    """A server on a free port."""

    def __init__(self, directory: Path, *words: str) -> None:
        directory.mkdir()
        command = [find_server().path, "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
        command += ["--repl-diskless-sync-delay", "0", *words]
        for _ in range(100):
            self.port = secrets.choice(range(10_001, 32_000))  # where the system takes no ports of its own
            self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=subprocess.DEVNULL)
            self.url = f"redis://127.0.0.1:{self.port}"
            self.redis = redis.Redis(port=self.port, socket_timeout=60)
            wait_until(lambda: self._answers() or self.process.poll() is not None)
            if self.process.poll() is None:
                return
        raise AssertionError("no free port")

    def _answers(self) -> bool:
        """Say whether it is this server that answers: another one may have taken the port first."""
        with contextlib.suppress(redis.RedisError):
            return self.redis.info("server")["process_id"] == self.process.pid
        return False

    def stand_still(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.redis.close()
        self.process.kill()
        self.process.wait()

    def follow(self, primary: ReplicatedServer) -> None:
        """Become a replica, and wait until it has the data."""
        self.redis.replicaof("127.0.0.1", primary.port)
        wait_until(lambda: self.redis.info("replication")["master_link_status"] == "up")
        wait_until(lambda: primary.redis.wait(1, 1) >= 1)

    def take_over(self) -> None:
        """Become a primary."""
        self.redis.replicaof("NO", "ONE")
