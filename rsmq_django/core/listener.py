"""A socket that is subscribed to channels and says that something was published, not what.

Reading what it says takes one system call and no parsing, so it can be waited for beside other things, and a thousand
messages cost as much as one.
"""

from __future__ import annotations

from typing import Any

import redis

from .errors import ConnectionFailed, PermissionDenied, ServerRefused

_CHUNK_BYTES = 65536
#: So much is read in one go at most; the rest can be read the next time.
_CHUNKS = 100
#: How something that was published begins.
_PUBLISHED = b"*3\r\n$7\r\nmessage\r\n"


class Listener:
    """A subscription on a socket of its own; see Connection.listener()."""

    def __init__(self, link: Any, where: str, *, marker: bytes = b"") -> None:
        self._link = link
        self._socket = link._sock
        self._socket.setblocking(False)
        #: What it has decrypted already would not make it readable for poll().
        self._is_tls = hasattr(self._socket, "pending")
        self._where = where
        self._is_confirmed = False
        #: Bytes to look out for: the name of a channel that means something else than the others.
        self._marker = marker
        self._tail = b""
        self._saw_marker = False

    def fileno(self) -> int:
        """Return what select() and poll() wait for."""
        return int(self._socket.fileno())

    def drain(self) -> int:
        """Read all there is without waiting, and return how much was published, at least 1 when there was something.

        The server's confirmation counts, too: what was published before it was not heard. Raises ConnectionFailed when
        the server has closed the socket, PermissionDenied when its user may not listen, and ServerRefused when nobody
        may at the moment.
        """
        heard = 0
        for _ in range(_CHUNKS):
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                    break
                raise ConnectionFailed(f"{self._where} closed the subscription ({error})") from error
            if not data:
                raise ConnectionFailed(f"{self._where} closed the subscription")
            if not self._is_confirmed and data.startswith(b"-"):
                text = data[1:].partition(b"\r\n")[0].decode("utf-8", "replace")
                if text.startswith("NOPERM"):
                    raise PermissionDenied(f"{self._where} refuses the subscription ({text}); see the ACL of its user")
                raise ServerRefused(f"{self._where} refuses the subscription ({text})")
            # What does not begin so is the rest of something that was cut, or the confirmation: it counts, too.
            heard += data.count(_PUBLISHED) + (not data.startswith(_PUBLISHED))
            self._is_confirmed = True
            if self._marker:
                self._look_for_marker(data)
            if not self._is_tls and len(data) < _CHUNK_BYTES:
                break  # that was all; one call more would say the same
        return heard

    def take_marker(self) -> bool:
        """Say whether the marker was read since this was last asked; the server's confirmation contains it, too."""
        saw, self._saw_marker = self._saw_marker, False
        return saw

    def _look_for_marker(self, data: bytes) -> None:
        # It may have come in two pieces.
        self._saw_marker |= self._marker in self._tail + data
        self._tail = data[1 - len(self._marker) :]

    def close(self) -> None:
        """Close the socket."""
        try:
            self._link.disconnect()
        except (redis.RedisError, OSError):
            pass  # it was closed already
