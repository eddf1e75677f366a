"""The probes of a supervisor for other programs: its pid file, its health file, and its health over HTTP."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...core.log_lines import get_logger
from ..fetch.wakeup import Wakeup
from ..health import MAX_AGE_S, HealthFile, Report, is_well

logger = get_logger(__name__)


class PidFileTaken(Exception):
    """Another supervisor holds the pid file."""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """The files and the address of the probes; None for none."""

    pid_file: Path | None = None
    health_file: Path | None = None
    #: Host and port.
    health_address: tuple[str, int] | None = None
    #: A process whose last successful fetch is older than this is not healthy.
    health_max_age_s: float = MAX_AGE_S


class PidFile:
    """A file with the pid of this process, locked as long as the process lives.

    The lock, not the number, proves that the process exists: the pid in an old file may belong to any other process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        while True:
            self._descriptor = _open_own(path)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pid = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
                os.close(self._descriptor)
                raise PidFileTaken(f"{path} is held by process {pid}, which runs; stop it first") from None
            if self._is_still_there():
                break
            os.close(self._descriptor)  # its last holder removed it between the two steps
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _is_still_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file and release the lock."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)

    def leave_to_parent(self) -> None:
        """Close the copy that a fork made: the lock ends with its last copy."""
        os.close(self._descriptor)


def _open_own(path: Path) -> int:
    """Open a file of this user for writing. Raises OSError for a link, which may point to any file of this user."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    found = os.fstat(descriptor)
    wrong = ""
    if not stat.S_ISREG(found.st_mode):
        wrong = "is not a file"
    elif found.st_uid != os.geteuid():
        wrong = f"belongs to user {found.st_uid}"
    elif found.st_nlink > 1:
        wrong = "has other names"
    if wrong:
        os.close(descriptor)
        raise PermissionError(f"{path} {wrong}; remove it, or choose a directory where only this user may write")
    return descriptor


#: The request of a probe is many times shorter; a longer request is refused.
MAX_REQUEST_BYTES = 8192
#: Maximum number of connected clients. One more, and the oldest is dropped.
MAX_CLIENTS = 32
REPLY_WITHIN_S = 5.0

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(slots=True, eq=False)
class _Client:
    connection: socket.socket
    request: bytes = b""
    came_at: float = field(default_factory=time.monotonic)


class HealthPort:
    """The health report over HTTP, for probes of orchestrators and load balancers.

        GET /health    200 when every process has looked for messages not long ago, else 503
        GET /live      200 as long as the supervisor turns

    It runs on the supervisor's only thread, so an answer shows that the supervisor works, and it never blocks: a client
    that sends nothing is dropped. It implements the part of HTTP that a probe needs: one request, one answer, then the
    connection closes.
    """

    def __init__(self, address: tuple[str, int], report: Callable[[], Report]) -> None:
        self._report = report
        self._clients: list[_Client] = []
        host, port = address
        ((family, _, _, _, place), *_) = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self._listener = socket.create_server(place[:2], family=family, backlog=MAX_CLIENTS)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    @property
    def address(self) -> tuple[str, int]:
        """Return the address; the port is the real one even when 0 was asked for."""
        host, port, *_ = self._listener.getsockname()
        return host, port

    def fileno(self) -> int:
        """Return a descriptor that is readable when a client connects or sends something."""
        return self._selector.fileno()

    def serve(self) -> None:
        """Answer pending requests. Never blocks and never raises because of a client."""
        for key, _ in self._selector.select(0):
            if key.data is None:
                self._accept()
            elif key.data in self._clients:  # otherwise it was dropped a moment ago
                self._read(key.data)
        too_old = time.monotonic() - REPLY_WITHIN_S
        for client in [client for client in self._clients if client.came_at < too_old]:
            self._drop(client)

    def close(self) -> None:
        """Stop listening."""
        for client in list(self._clients):
            self._drop(client)
        self._selector.close()
        self._listener.close()

    def leave_to_parent(self) -> None:
        """Close the copies that a fork made, so that the port is free when the parent is gone."""
        # Not unregistered: the selector's list is shared with the parent.
        with contextlib.suppress(OSError):  # on macOS the child has no copy
            self._selector.close()
        self._listener.close()
        for client in self._clients:
            client.connection.close()

    # -- One client ---------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the client has disconnected, or there are too many open files
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            client = _Client(connection)
            self._clients.append(client)
            self._selector.register(connection, selectors.EVENT_READ, client)
        if len(self._clients) > MAX_CLIENTS:
            self._drop(self._clients[0])

    def _read(self, client: _Client) -> None:
        try:
            data = client.connection.recv(MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.request += data
        if data and b"\r\n\r\n" not in client.request and len(client.request) < MAX_REQUEST_BYTES:
            return
        if data:
            with contextlib.suppress(OSError):  # a few hundred bytes fit into every send buffer
                client.connection.send(self._answer(client.request))
        self._drop(client)

    def _drop(self, client: _Client) -> None:
        self._clients.remove(client)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(client.connection)
        client.connection.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        report = self._report()
        if not rest or b"\r\n\r\n" not in request:
            status = 400
        elif method not in (b"GET", b"HEAD"):
            status = 405
        elif path == b"/live":
            status = 200
        elif path in (b"/", b"/health"):
            status = 200 if is_well(report) else 503
        else:
            status = 404
        body = json.dumps(report if status in (200, 503) else {"error": _REASONS[status]}).encode() + b"\n"
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == b"HEAD" else body)


class Probes:
    """The open probes; raises OSError or PidFileTaken before any work begins if one cannot be opened."""

    def __init__(self, options: ProbeOptions, report: Callable[[], Report]) -> None:
        self._report = report
        self._file_works = True
        self._pid_file = PidFile(options.pid_file) if options.pid_file else None
        self._port = HealthPort(options.health_address, report) if options.health_address else None
        self._health_file = HealthFile(options.health_file) if options.health_file else None
        if self._health_file is not None:
            self._health_file.show(report())

    def watch(self, wakeup: Wakeup) -> None:
        """Let a client of the health port end a sleep."""
        if self._port is not None:
            port = self._port

            def serve() -> None:
                port.serve()
                wakeup.watch(port.fileno(), serve)  # a watch works once

            wakeup.watch(port.fileno(), serve)
            host, number = port.address
            logger.info("health: http://%s:%d/health", f"[{host}]" if ":" in host else host, number)

    def update(self) -> None:
        """Update the file and drop clients that send nothing."""
        if self._port is not None:
            self._port.serve()
        if self._health_file is not None:
            try:
                self._health_file.show(self._report())
                self._file_works = True
            except OSError as error:  # a full disk is not a reason to stop, and a stale file shows the problem
                if self._file_works:
                    logger.error("cannot write the health file; this worker looks dead to its probes: %s", error)
                self._file_works = False

    def leave_to_parent(self) -> None:
        """Close all probes in a forked child."""
        if self._port is not None:
            self._port.leave_to_parent()
        if self._pid_file is not None:
            self._pid_file.leave_to_parent()

    def close(self) -> None:
        """Close and remove all probes: this worker ends."""
        if self._port is not None:
            self._port.close()
        if self._health_file is not None:
            self._health_file.remove()
        if self._pid_file is not None:
            self._pid_file.remove()
