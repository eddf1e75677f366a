"""A socket that is subscribed to channels and reports publishes without their content.

Reading takes one system call and no parsing, so a worker can wait for it together with other sockets, and a thousand
publishes cost as much as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from ..errors import ConnectionFailed, PermissionDenied, ServerRefused
from .call import RULES_PAGE
from .connection_errors import not_connected
from .factories import masked
from .packing import packed
from .sockets import LOST

_CHUNK_BYTES = 65536
#: Maximum size of one read; the next read gets the rest.
_CHUNKS = 100
#: Beginning of the reply for a publish.
_PUBLISHED = b"*3\r\n$7\r\nmessage\r\n"


class Listener:
    """A subscription on a socket of its own; see Connection.listener()."""

    def __init__(self, link: Any, where: str, *, markers: Sequence[bytes] = ()) -> None:
        self._link = link
        self._socket = link._sock
        self._socket.setblocking(False)
        #: Data that TLS has decrypted already would not make the socket readable for poll().
        self._is_tls = hasattr(self._socket, "pending")
        self._where = where
        self._is_confirmed = False
        #: Names of the channels that are reported separately.
        self._markers = markers
        self._longest = max(map(len, markers), default=2)
        self._tail = b""
        self._seen: set[bytes] = set()

    def fileno(self) -> int:
        """Return the file descriptor for select() and poll()."""
        return int(self._socket.fileno())

    def drain(self) -> int:
        """Read without waiting, and return the number of publishes: at least 1 when anything was read.

        The server's confirmation counts, too: earlier publishes were missed. Raises ConnectionFailed when the server
        has closed the socket, PermissionDenied when its user may not subscribe, and ServerRefused when the server
        accepts no subscription now.
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
                    raise PermissionDenied(f"{self._where} refuses the subscription ({text}); see {RULES_PAGE}")
                raise ServerRefused(f"{self._where} refuses the subscription ({text})")
            # Anything else is the rest of a publish that was read in two parts, or the confirmation: both count, too.
            heard += data.count(_PUBLISHED) + (not data.startswith(_PUBLISHED))
            self._is_confirmed = True
            self._look_for_markers(data)
            if not self._is_tls and len(data) < _CHUNK_BYTES:
                break  # the socket is empty: another call would only confirm it
        return heard

    def take_markers(self) -> set[bytes]:
        """Return the markers that were read since the last call; the server's confirmation contains them, too."""
        seen, self._seen = self._seen, set()
        return seen

    def _look_for_markers(self, data: bytes) -> None:
        # One may have arrived in parts; one that is complete in the earlier part was seen already.
        text, before = self._tail + data, len(self._tail)
        self._seen.update(each for each in self._markers if text.find(each, max(0, before + 1 - len(each))) >= 0)
        self._tail = text[1 - self._longest :]

    def close(self) -> None:
        """Close the socket."""
        try:
            self._link.disconnect()
        except (redis.RedisError, OSError):
            pass  # already closed


def subscribed(link: Any, url: str, channels: Sequence[str], *, markers: Sequence[str] = ()) -> Listener:
    """Subscribe a connected socket to channels, and return its listener; see Connection.listener()."""
    try:
        link.send_packed_command([packed([("SUBSCRIBE", *channels)])], check_health=False)
    except LOST as error:
        link.disconnect()
        raise not_connected(url, error) from error
    return Listener(link, masked(url), markers=[marker.encode() for marker in markers])
