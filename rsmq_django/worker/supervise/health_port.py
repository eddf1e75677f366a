"""The health report over HTTP, for probes of orchestrators and load balancers.

    GET /health    200 when every process has looked for messages not long ago, else 503
    GET /live      200 as long as the supervisor turns

It runs on the supervisor's only thread, so an answer shows that the supervisor works, and it never blocks: a client
that sends nothing is dropped. It implements the part of HTTP that a probe needs: one request, one answer, then the
connection closes.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..health import Report, is_well

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
    """Listens on an address and answers with the latest report."""

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
