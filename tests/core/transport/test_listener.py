"""A listener counts publishes, and tells on which of the marked channels some arrived."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from rsmq_django.core.transport.listener import Listener

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
