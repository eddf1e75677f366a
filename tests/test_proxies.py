"""The proxies of the tests leave nothing open, whatever their clients are doing when a test ends."""

from __future__ import annotations

import gc
import socket
import threading

from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until


def test_connection_accepted_while_its_proxy_closes_is_closed(server: PrivateServer):
    proxy = FaultProxy(server.url)
    goes_on = threading.Event()
    proxy._loop.call_soon_threadsafe(goes_on.wait)
    closing = threading.Thread(target=proxy.close)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:  # the next turn accepts it
        closing.start()
        wait_until(lambda: len(proxy._loop._ready) > 0)  # type: ignore[attr-defined]
        goes_on.set()
        closing.join()
        client.settimeout(60)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
    gc.collect()  # a socket that is left open is a warning here
