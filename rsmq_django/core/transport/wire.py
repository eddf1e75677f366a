"""An open socket, written and read with one system call each; redis-py's layers and Python's timeouts cost several.

The kernel limits the waits instead: each write and each read to the timeout of the connection. TLS, sockets of gevent
or eventlet, Python without hiredis, and processes with a timer whose signals interrupt each wait are served by
redis-py's own methods.
"""

from __future__ import annotations

import select
import signal
import socket
import struct
from typing import Any

import redis
from redis.exceptions import InvalidResponse

try:
    import hiredis
except ImportError:  # it is optional
    hiredis = None  # type: ignore[assignment]

_CHUNK_BYTES = 65_536
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_INCOMPLETE = object()
#: The same texts as redis-py's.
_CLOSED = "Connection closed by server."
_NOT_READ, _NOT_WRITTEN = "Timeout reading from socket", "Timeout writing to socket"


class Wire:
    """The socket of a redis-py connection that is ready for commands. Used by one thread at a time."""

    __slots__ = ("_feed", "_gets", "_poll", "_recv", "_send", "_sendall")

    def __init__(self, sock: socket.socket, parse_error: Any) -> None:
        self._send, self._sendall, self._recv = sock.send, sock.sendall, sock.recv
        # redis-py converts error replies to its exceptions.
        reader = hiredis.Reader(protocolError=InvalidResponse, replyError=parse_error, notEnoughData=_INCOMPLETE)
        self._feed, self._gets = reader.feed, reader.gets
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        self._poll = poll.poll

    @classmethod
    def of(cls, link: Any, timeout_s: float) -> Wire | None:
        """Return the wire of a connected socket; None for a socket that redis-py has to read and write."""
        sock = link._sock
        # The module tells the standard socket from TLS and from those that replace it.
        if hiredis is None or type(sock).__module__ != "socket" or not timeout_s > 0 or _is_interrupted(timeout_s):
            return None
        limit = struct.pack("ll", int(timeout_s), round(timeout_s % 1 * 1e6) or int(timeout_s < 1))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        except OSError:
            return None
        sock.settimeout(None)
        return cls(sock, link._parser.parse_error)

    def is_readable(self) -> bool:
        """Return whether the server closed the socket, or sent something unasked."""
        return self._poll(0) != []

    def write(self, request: bytes) -> None:
        """Send packed commands. Raises OSError or redis-py's TimeoutError."""
        try:
            sent = self._send(request)
            if sent < len(request):  # larger than the kernel's buffer, and the server has not read it yet
                self._sendall(memoryview(request)[sent:])
        except BlockingIOError as error:
            raise redis.TimeoutError(_NOT_WRITTEN) from error

    def read(self) -> Any:
        """Return the next reply; an error of the server is returned. Raises OSError, or redis-py's exceptions."""
        reply = self._gets()
        while reply is _INCOMPLETE:
            try:
                data = self._recv(_CHUNK_BYTES)
            except BlockingIOError as error:
                raise redis.TimeoutError(_NOT_READ) from error
            if not data:
                raise redis.ConnectionError(_CLOSED)
            self._feed(data)
            reply = self._gets()
        return reply


def _is_interrupted(wait_s: float) -> bool:
    """Return whether a timer of this process, of a profiler say, sends signals at least once in each wait.

    After a signal, Python calls the kernel again, which begins the wait anew: it would never end.
    """
    return any(0 < signal.getitimer(timer)[1] <= wait_s for timer in _TIMERS)
