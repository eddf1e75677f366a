"""A private local server for development, demo and tests: it starts with its first client and stops after the last.

Used only if the settings contain `EMBEDDED`; a production site has a server of its own. `supervisor.py` is the process
that owns the server, `binary.py` finds the executable; tests have their server from `testing/`.
"""

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

if sys.platform == "win32":
    raise ImportError("the embedded server does not run on Windows; use WSL, or set a URL of a running server")

from ..core.log_lines import get_logger
from .binary import ServerBinary, ServerNotFound, find_server
from .files import StateFiles, answers, check_owner, is_current, open_lock, take
from .supervisor import START_TIMEOUT_S

__all__ = ["EmbeddedServer", "ServerDidNotStart", "ServerNotFound"]

logger = get_logger(__name__)

#: The path of a unix socket has at most 107 bytes on Linux and 103 on macOS.
MAX_SOCKET_PATH_BYTES = 103
POLL_S = 0.01
QUOTED_LOG_LINES = 8

#: Each client process holds a shared lock of users.lock, which the kernel releases however the process ends: kill -9 of
#: every client leaves no server behind, and no client can stop the server while another one uses it.
#: State directory -> descriptor of its users.lock, for every server that this process uses. Stored here and not in the
#: object, which may be garbage-collected while the process still uses the server.
_held: dict[Path, int] = {}


class ServerDidNotStart(RuntimeError):
    """The embedded server did not start; the message quotes the end of its logs."""


class EmbeddedServer:
    """The server of one state directory."""

    def __init__(self, state_dir: str | Path) -> None:
        self.files = StateFiles(Path(state_dir).resolve())

    def ensure(self) -> str:
        """Start the server unless it is running, register this process as a client, and return the server's URL.

        Safe to call repeatedly and from many processes at once. Forked child processes count as clients, too.
        Raises ServerNotFound or ServerDidNotStart; PermissionError for a directory that other users may write to.
        """
        self._prepare_directory()
        self._count_as_user()  # from here on, the supervisor keeps the server running
        with self._one_starter_at_a_time():
            socket = self._wait_until_served()
        return f"unix://{quote(str(socket))}"  # TMPDIR may contain any characters

    def release(self) -> None:
        """Unregister this process; the server stops soon after its last client."""
        descriptor = _held.pop(self.files.directory, None)
        if descriptor is not None:
            os.close(descriptor)

    def _prepare_directory(self) -> None:
        self.files.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_owner(self.files.directory)
        ignore = self.files.directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def _count_as_user(self) -> None:
        held = _held.get(self.files.directory)
        if held is not None and is_current(held, self.files.users_lock):
            return
        self.release()
        descriptor = open_lock(self.files.users_lock)
        try:
            take(descriptor, shared=True, wait=True)
        except OSError as error:
            os.close(descriptor)
            raise ServerDidNotStart(
                f"{self.files.directory} has no file locks ({error}); set RSMQ_STATE_DIR to a directory of a local disk"
            ) from error
        _held[self.files.directory] = descriptor

    @contextmanager
    def _one_starter_at_a_time(self) -> Iterator[None]:
        descriptor = open_lock(self.files.start_lock)
        try:
            take(descriptor, wait=True)
            yield
        finally:
            os.close(descriptor)

    def _wait_until_served(self) -> Path:
        """Return the socket of a responding server; start a supervisor if there is none.

        A responding server may have lost its supervisor to a kill; then the new supervisor replaces the server, which
        would otherwise run forever.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            if not self._is_supervised():
                self._start_supervisor()
            socket = self.files.recorded_socket()
            if socket is not None and answers(socket):
                return socket
            if time.monotonic() > deadline_s:
                raise ServerDidNotStart(self._explain())
            time.sleep(POLL_S)

    def _is_supervised(self) -> bool:
        descriptor = open_lock(self.files.supervisor_lock)
        try:
            return not take(descriptor)
        finally:
            os.close(descriptor)

    def _start_supervisor(self) -> None:
        """Start the detached supervisor and wait until it reports that the server responds."""
        binary = find_server()
        self._announce_other_data(binary)
        socket = _socket_for(self.files.directory)
        command = [sys.executable, "-m", __name__, str(self.files.directory), str(socket)]
        command += [binary.path, binary.data_format]
        # The supervisor must import the package from the same place.
        places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        with self.files.supervisor_log.open("ab") as log:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        if not done.stdout:
            raise ServerDidNotStart(self._explain())

    def _announce_other_data(self, binary: ServerBinary) -> None:
        """Log a warning if this server starts empty because it cannot read the existing data of another one."""
        own = self.files.directory / binary.data_format
        others = sorted(path.name for path in self.files.directory.glob("*-*.*") if path.is_dir())
        if others and not own.exists():
            logger.warning(
                "the embedded server is now %s and starts empty; the data of %s stays in %s, "
                "set RSMQ_REDIS_SERVER to a server of that kind to use it again",
                binary.data_format,
                " and ".join(others),
                self.files.directory,
            )

    def _explain(self) -> str:
        text = f"the embedded server in {self.files.directory} did not start"
        for log in (self.files.supervisor_log, self.files.server_log):
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            text += f"; the end of {log}:\n  " + "\n  ".join(lines[-QUOTED_LOG_LINES:] or ["(empty)"])
        return text


def _socket_for(state_dir: Path) -> Path:
    """Return a short enough socket path in a directory that only this user can access."""
    digest = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:10]
    name = f"rsmq-{os.getuid()}-{digest}"
    socket = Path(tempfile.gettempdir(), name, "s")
    if len(os.fsencode(socket)) > MAX_SOCKET_PATH_BYTES:
        socket = Path("/tmp", name, "s")  # noqa: S108 - its directory is made and checked below
    directory = socket.parent
    directory.mkdir(mode=0o700, exist_ok=True)
    # All users may write to the temporary directory: another user may have created ours first.
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private directory of this user; remove it, or set TMPDIR")
    return socket
