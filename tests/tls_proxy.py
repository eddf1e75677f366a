"""A TLS server in front of a Redis server: it verifies the certificates of clients, and passes on what they say.

The certificates are made for each run. Their keys are elliptic curves, which take a millisecond.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fault_proxy import abort_transports, close_server

CHUNK_BYTES = 65_536


class Authority:
    """A certificate authority with its files in a directory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(name, self._key, self._key, is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, password: bytes | None = None, has_expired: bool = False) -> tuple[Path, Path]:
        """Return the files of a certificate and its key. The certificate of a server is for localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._folder / f"{self._name}-{name}.pem"
        signed = self._signed(name, key, self._key, has_expired=has_expired)
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        key_file = self._folder / f"{self._name}-{name}.key"
        key_file.write_bytes(key.private_bytes(*form))
        return certificate, key_file

    def _signed(
        self, name: str, key: Any, by: Any, *, is_authority: bool = False, has_expired: bool = False
    ) -> x509.Certificate:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = dt.datetime.now(dt.UTC)
        names = [x509.DNSName("localhost")]
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(hours=-1 if has_expired else 24))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
            .add_extension(_key_usage(is_authority=is_authority), critical=True)
            .sign(by, hashes.SHA256())
        )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


class TlsProxy:
    """Listens with TLS on a free port of this machine and forwards to a unix socket or a port."""

    def __init__(self, upstream_url: str, *, certificate: tuple[Path, Path], clients: Authority) -> None:
        self._upstream = urlsplit(upstream_url)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        context.load_verify_locations(clients.file)
        context.verify_mode = ssl.CERT_REQUIRED
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # of refused clients
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls-proxy", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context), self._loop
        ).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End all connections and the thread."""

        async def end() -> None:
            await close_server(self._server)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await abort_transports(self._loop)  # of clients in the middle of their handshake, which have no task

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            up_reader, up_writer = await self._open_upstream()
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, up_writer))
                group.create_task(_pump(up_reader, writer))
        except (OSError, ExceptionGroup):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _open_upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(self._upstream.path)
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        target.write(chunk)
        await target.drain()
    target.close()
