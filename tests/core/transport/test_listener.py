"""A listener counts publishes, and tells on which of the marked channels some arrived."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from rsmq_django.core.transport.listener import Listener
from tests.tls_proxy import Authority

OWN, CANCELLED = b"rsmq::wake:host-1-abc", b"rsmq::cancelled"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Listener]]:
    """The server's end of a connection, and the listener at the other end."""
    server, client = socket.socketpair()
    with server, client:
        yield server, Listener(SimpleNamespace(_sock=client), "redis", markers=[OWN, CANCELLED])


def published(channel: bytes) -> bytes:
    return b"*3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(channel), channel)


@pytest.mark.parametrize("channel", [OWN, CANCELLED])
def test_a_marker_is_found_wherever_it_is_divided(ends: tuple[socket.socket, Listener], channel: bytes):
    server, listener = ends
    text = published(channel)
    for at in range(1, len(text)):
        server.sendall(text[:at])
        listener.drain()
        server.sendall(text[at:])
        listener.drain()

        assert listener.take_markers() == {channel}


def test_a_marker_is_found_in_single_bytes(ends: tuple[socket.socket, Listener]):
    server, listener = ends
    for byte in published(OWN):
        server.sendall(bytes([byte]))
        listener.drain()

    assert listener.take_markers() == {OWN}


def test_a_marker_is_reported_once(ends: tuple[socket.socket, Listener]):
    server, listener = ends
    server.sendall(published(CANCELLED))
    assert (listener.drain(), listener.take_markers()) == (1, {CANCELLED})

    server.sendall(published(b"rsmq:rt:mail"))
    assert (listener.drain(), listener.take_markers()) == (1, set())

    server.sendall(published(OWN) + published(b"rsmq:rt:mail"))
    assert (listener.drain(), listener.take_markers()) == (2, {OWN})


def test_publishes_in_several_parts_of_a_tls_stream_are_read_together(tmp_path: Path):
    authority = Authority(tmp_path, "house")
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(*authority.issue("server"))
    of_client = ssl.create_default_context(cafile=str(authority.file))
    ends = socket.socketpair()
    with ThreadPoolExecutor() as threads:
        handshake = threads.submit(of_server.wrap_socket, ends[0], server_side=True)
        client = of_client.wrap_socket(ends[1], server_hostname="localhost")
        server = handshake.result()
    with server, client:
        listener = Listener(SimpleNamespace(_sock=client), "redis", markers=[OWN, CANCELLED])
        server.sendall(published(OWN))
        server.sendall(published(CANCELLED))

        assert (listener.drain(), listener.take_markers()) == (2, {OWN, CANCELLED})
