"""A private server per measurement, on a free port, started empty and ended by its pid.

Knows how to start one and what it costs. TCP on the loopback and not a unix socket, because every peer can speak it,
and because that is what a server on another machine would speak.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis

from rsmq_django.embedded.binary import find_server

from .processes import tree_cpu_s

START_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call of a script, as the server has noted it."""

    keys: int
    ms: float


class Server:
    """A running server; use it as a context manager."""

    def __init__(self, *, appendonly: bool = False) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.redis = redis.Redis(port=self.port)
        self.dir = Path(tempfile.mkdtemp(prefix="rsmq-bench-"))
        self._appendonly = appendonly

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_WITHIN_S
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the server did not start; see {self.dir / 'log'}")
            time.sleep(0.01)
        return self

    def command(self) -> list[str]:
        """Return the command that starts it."""
        command = [find_server().path, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.dir)]
        command += ["--save", "", "--appendonly", "yes" if self._appendonly else "no", "--appendfsync", "everysec"]
        return [*command, "--maxmemory-policy", "noeviction", "--logfile", str(self.dir / "log")]

    def __exit__(self, *_: object) -> None:
        self.redis.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the processor time that the server has used, to the microsecond."""
        info = self.info("cpu")
        return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])

    def tree_cpu_s(self) -> float | None:
        """Return the processor time of its process, without asking it."""
        return tree_cpu_s(self.pid)

    def log_commands(self) -> None:
        """Begin to note how long each command takes."""
        self.redis.config_set("slowlog-max-len", 10_000)
        self.redis.config_set("slowlog-log-slower-than", 0)
        self.redis.slowlog_reset()

    def logged_scripts(self) -> list[ScriptCall]:
        """Return the script calls since log_commands()."""
        entries: list[dict[str, Any]] = self.redis.slowlog_get(10_000)
        words = [(entry["command"].split(), entry["duration"]) for entry in entries]
        return [ScriptCall(int(command[2]), us / 1000) for command, us in words if command[0] == b"EVALSHA"]

    def hears(self, channel: str) -> bool:
        """Return whether a client listens on a channel."""
        return bool(self.redis.pubsub_numsub(channel)[0][1])

    def listeners(self, queue: str) -> int:
        """Return how many workers wait to be told of messages in a queue of ours."""
        channel = f"rsmq:rt:{queue}".encode()
        return int(dict(self.redis.pubsub_numsub(channel))[channel])

    def memory_bytes(self) -> int:
        """Return the memory that its data takes."""
        return int(self.info("memory")["used_memory"])

    def info(self, section: str) -> dict[str, Any]:
        """Return a section of INFO."""
        found: dict[str, Any] = self.redis.info(section)
        return found

    def _answers(self) -> bool:
        try:
            return bool(self.info("server")["process_id"] == self._process.pid)
        except redis.RedisError:
            return False


def describe() -> str:
    """Name the server that is measured, such as "valkey 9.1"."""
    found = find_server()
    return f"{found.flavour} {found.version[0]}.{found.version[1]}"


def free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    # The kernel chooses from its range of short-lived ports, where no server listens by default.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
