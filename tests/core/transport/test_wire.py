"""Sockets that are written and read without redis-py: their timeouts, large requests, and sockets that cannot be."""

import contextlib
import datetime
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import OutcomeUnknown
from rsmq_django.core.transport import wire as wire_module
from rsmq_django.core.transport.wire import Wire
from tests.redis_server import PrivateServer


class SocketOfAnotherKind(socket.socket):
    """Stands for gevent's, which waits by itself and knows nothing of the kernel's timeouts."""


@contextmanager
def silent_server(path: Path, then: Callable[[socket.socket], None] = lambda _: None) -> Iterator[str]:
    """Yield the URL of a server that reads nothing more after its first PING; `then` may send something."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        accepted: list[socket.socket] = []

        def answer_until_ping() -> None:
            accepted.append(listening.accept()[0])
            heard, told = b"", 0
            while b"PING" not in heard:
                heard += accepted[0].recv(65_536)
                while told < heard.count(b"\r\nCLIENT\r\n"):  # a new socket gets its names
                    accepted[0].sendall(b"+OK\r\n")
                    told += 1
            accepted[0].sendall(b"+PONG\r\n")
            then(accepted[0])

        thread = threading.Thread(target=answer_until_ping)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            thread.join()
            accepted[0].close()


@pytest.mark.parametrize(
    ("request_bytes", "why"), [(10, "Timeout reading from socket"), (10_000_000, "Timeout writing to socket")]
)
def test_server_that_stops_answering_or_reading_is_an_unknown_outcome(tmp_path: Path, request_bytes: int, why: str):
    with silent_server(tmp_path / "s") as url:
        connection = Connection(url, timeout_s=15)
        assert connection.exchange([("PING",)]) == [b"PONG"]
        (link,) = connection._idle
        link.wire = Wire.of(link, 0.2)

        with pytest.raises(OutcomeUnknown, match=why) as caught:
            connection.exchange([("ECHO", b"x" * request_bytes)])

    assert isinstance(caught.value.__cause__, redis.TimeoutError)
    assert link._sock is None, "its late replies have no reader"


def test_reply_may_take_longer_than_the_timeout_while_data_arrives(tmp_path: Path):
    body, timeout_s = b"x" * 400_000, 1.0
    reply = b"$%d\r\n%b\r\n" % (len(body), body)

    def answer_slowly(accepted: socket.socket) -> None:
        began_at, at, never = time.monotonic(), 0, threading.Event()
        while at < len(reply):
            is_late = time.monotonic() > began_at + 1.5 * timeout_s
            piece = reply[at:] if is_late else reply[at : at + 10_000]
            accepted.sendall(piece)
            at += len(piece)
            assert at < len(reply) or is_late, "the last piece is sent when the timeout is over"
            never.wait(0 if is_late else timeout_s / 20)

    with silent_server(tmp_path / "s", then=answer_slowly) as url:
        connection = Connection(url, timeout_s=timeout_s)

        assert connection.exchange([("PING",), ("ECHO", b"x")]) == [b"PONG", body]

    assert connection._idle[0].wire is not None


@contextmanager
def ticking(interval_s: float) -> Iterator[None]:
    """Interrupt this thread by a signal again and again, as the timer of a profiler does."""
    handler_before = signal.signal(signal.SIGALRM, lambda *_: None)
    timer_before = signal.setitimer(signal.ITIMER_REAL, interval_s, interval_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer_before)
        signal.signal(signal.SIGALRM, handler_before)


def test_timer_that_interrupts_each_wait_does_not_make_it_endless(tmp_path: Path):
    with silent_server(tmp_path / "s") as url, ticking(0.05):
        connection = Connection(url, timeout_s=15)
        assert connection.exchange([("PING",)]) == [b"PONG"]
        (link,) = connection._idle
        assert link.wire is None, "the kernel begins each interrupted wait anew"
        link._sock.settimeout(0.2)

        with pytest.raises(OutcomeUnknown, match="Timeout reading from "):
            connection.exchange([("PING",)])


def test_timer_that_interrupts_less_often_than_the_timeout_changes_nothing(server: PrivateServer):
    with ticking(3600):
        connection = Connection(server.url, timeout_s=15)
        connection.exchange([("PING",)])

    assert connection._idle[0].wire is not None


def test_request_and_reply_of_many_megabytes_come_through(server: PrivateServer):
    connection = Connection(server.url, timeout_s=15)
    body = bytes(range(256)) * 80_000

    assert connection.exchange([("PING",), ("ECHO", body), ("ECHO", body)]) == [b"PONG", body, body]

    assert connection._idle[0].wire is not None


def test_sockets_of_another_kind_are_left_to_redis_py(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "socket", SocketOfAnotherKind)
    queue.client.connection.close()
    queue.client.connection._idle.clear()

    message_id = queue.send(b"x")

    (link,) = queue.client.connection._idle
    assert (link.wire, link._sock.gettimeout()) == (None, queue.client.connection.timeout_s)
    message = queue.receive()
    assert message is not None and message.id == message_id


def test_without_hiredis_redis_py_reads_the_replies(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire_module, "hiredis", None)
    queue.client.connection.close()

    assert len(queue.send(b"x")) == 32

    assert queue.client.connection._idle[0].wire is None


# -- TLS ---------------------------------------------------------------------------------------------------------------


def certificate(directory: Path) -> Path:
    """Write a key and a certificate of its own for localhost, and return the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = directory / "localhost.pem"
    file.write_bytes(private + built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return file


@contextmanager
def tls_in_front_of(server: PrivateServer, file: Path) -> Iterator[int]:
    """Yield the port of a TLS server for one connection, whose data a thread carries to Redis and back."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    opened: list[ssl.SSLSocket] = []

    def carry(behind: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the end of the test closes them
            opened.append(context.wrap_socket(listening.accept()[0], server_side=True))
            while True:
                ready: Any = opened if opened[0].pending() else select.select([opened[0], behind], [], [])[0]
                for one in ready:
                    data = one.recv(65_536)
                    if not data:
                        return
                    (behind if one is opened[0] else opened[0]).sendall(data)

    (link,) = linked(server)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=carry, args=(link._sock,))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            link._sock.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in opened:
                each.close()


def linked(server: PrivateServer) -> list[Any]:
    """Return a connected socket of the server as redis-py's connection."""
    connection = Connection(server.url, timeout_s=15)
    connection.exchange([("PING",)])
    return list(connection._idle)


def test_queue_works_over_tls(server: PrivateServer, queue: Queue, tmp_path: Path):
    file = certificate(tmp_path)
    with tls_in_front_of(server, file) as port:
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={file}"
        distant = Queue("jobs", Client(Connection(url, timeout_s=15)))
        sent = [distant.send(b"x" * 60_000) for _ in range(3)]
        received = [message.id for message in distant.receive_many(3)]
        (link,) = distant.client.connection._idle
        is_wired = link.wire is not None
        distant.client.connection.close()

    assert received == sent and not is_wired
