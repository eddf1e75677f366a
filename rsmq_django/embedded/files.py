"""The files of a state directory, their locks, and the liveness check of a server.

Shared by client processes and the supervisor. This module starts and stops nothing.
"""

import fcntl
import json
import os
import socket as sockets
import stat
import struct
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files in a state directory, besides one data directory per server flavour and version."""

    directory: Path

    @property
    def users_lock(self) -> Path:
        """Path of the clients' lock: shared by every client process for life; exclusive by a supervisor that stops."""
        return self.directory / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Path of the start lock: exclusive by the client process that checks or starts the server."""
        return self.directory / "start.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Path of the supervisor's lock: exclusive by the supervisor for life."""
        return self.directory / "supervisor.lock"

    @property
    def server_log(self) -> Path:
        """Path of the log of the server."""
        return self.directory / "server.log"

    @property
    def supervisor_log(self) -> Path:
        """Path of the log of the supervisor, and of its tracebacks."""
        return self.directory / "supervisor.log"

    @property
    def record(self) -> Path:
        """Path of the record, a JSON object: pid, supervisor_pid, server, executable, socket. It may be outdated."""
        return self.directory / "server.json"

    def write_record(self, **facts: str | int) -> None:
        """Replace the record atomically."""
        draft = self.record.with_suffix(".new")
        draft.write_text(json.dumps(facts, indent=2) + "\n")
        draft.replace(self.record)

    def recorded_socket(self) -> Path | None:
        """Return the socket of the last server, which a process with another TMPDIR could not derive."""
        try:
            return Path(json.loads(self.record.read_text())["socket"])
        except (OSError, ValueError, KeyError):
            return None


def check_owner(directory: Path) -> None:
    """Raise PermissionError for a directory that another user owns or may write to.

    Its files determine the server's address, and the server writes into them.
    """
    found = directory.lstat()
    wrong = ""
    if not stat.S_ISDIR(found.st_mode):
        wrong = "is not a directory"
    elif found.st_uid != os.getuid():
        wrong = f"belongs to user {found.st_uid}, this process runs as user {os.getuid()}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "is not private: other users may write to it"
    if wrong:
        raise PermissionError(f"{directory} {wrong}; set RSMQ_STATE_DIR to a directory of your own")


def open_lock(path: Path) -> int:
    """Open a lock file and return its descriptor; forked processes inherit it, executed programs do not."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def take(descriptor: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Acquire the lock of the open file, and return whether that succeeded; with `wait`, block until it does."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def give_back(descriptor: int) -> None:
    """Release the lock of the open file."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_current(descriptor: int, path: Path) -> bool:
    """Return whether the open file is still the one at `path`: the state directory may have been deleted."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def ask(socket: Path, command: str) -> str:
    """Send a command and return the start of the reply; '' without a reply or if another user runs the server."""
    try:
        with sockets.socket(sockets.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(socket))
            if not _is_own(client):
                return ""
            client.sendall(f"{command}\r\n".encode())
            return client.recv(4096).decode(errors="replace")
    except OSError:
        return ""


def _is_own(client: sockets.socket) -> bool:
    """Return whether this user runs the other side of a socket; True if the system cannot tell."""
    option = getattr(sockets, "SO_PEERCRED", None)
    if option is None:
        return True
    _pid, user_id, _group_id = struct.unpack("3i", client.getsockopt(sockets.SOL_SOCKET, option, struct.calcsize("3i")))
    return bool(user_id == os.getuid())


def answers(socket: Path) -> bool:
    """Return whether a server responds on the socket; False while it loads its data."""
    return ask(socket, "PING").startswith("+PONG")
