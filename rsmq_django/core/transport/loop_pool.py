"""The sockets of one event loop."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

import redis

from .cluster import ClusterNodes
from .connection_errors import not_connected
from .handshake import aintroduce, leave_names_to_us
from .packing import Reply, packed
from .read_timeout import Silence
from .sentinels import ASK_FOR_ROLE, Sentinels
from .sockets import ais_stale, aread, new_socket


class LoopPool:
    """The idle sockets of one event loop. They close when the loop shuts its asynchronous generators down."""

    def __init__(
        self, url: str, route: ClusterNodes, sentinels: Sentinels | None, factory: Any, role: str | None
    ) -> None:
        self._url, self._route, self._sentinels = url, route, sentinels
        self.factory, self._role = factory, role
        self.idle: deque[Any] = deque()
        self.pid = os.getpid()
        # asyncio.run() and async_to_sync() end a loop with shutdown_asyncgens(): the only hook for a library.
        self.closer = self._close_at_the_end()

    async def _close_at_the_end(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            while self.idle:
                await self.idle.pop().disconnect()

    async def take(self, timeout_s: float) -> Any:
        """Return a connected socket. Raises ConnectionFailed and other errors of not_connected()."""
        link = self.idle.pop() if self.idle else self._new_socket()
        await self.connect(link, timeout_s)
        return link

    def _new_socket(self) -> Any:
        link = new_socket(self.factory)
        link.silence = Silence()
        leave_names_to_us(link)
        return link

    async def connect(self, link: Any, timeout_s: float) -> None:
        """Connect a socket, unless it is connected and usable."""
        try:
            async with asyncio.timeout(timeout_s):
                if not link.is_connected:
                    await self._open(link, timeout_s)
                if await ais_stale(link):
                    await link.disconnect(nowait=True)
                    await self._open(link, timeout_s)
            link.silence.listen_to(link._reader)
        except (redis.RedisError, OSError) as error:
            await link.disconnect(nowait=True)
            self._route.leave(link)
            raise not_connected(self._url, error) from error
        except BaseException:
            await link.disconnect(nowait=True)
            raise

    async def _open(self, link: Any, timeout_s: float) -> None:
        if self._sentinels is not None:
            await self._sentinels.aconnect(link, self._role_of, timeout_s)
        else:
            self._route.aim(link)
            await self._open_named(link)

    async def _open_named(self, link: Any) -> None:
        await link.connect()
        await aintroduce(link, packed, self._role)

    async def _role_of(self, link: Any) -> Reply:
        """See Connection._role_of()."""
        await self._open_named(link)
        await link.send_packed_command(packed([ASK_FOR_ROLE]), check_health=False)
        return await aread(link)
