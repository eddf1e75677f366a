"""Connections with TLS on both sides: the client verifies the server's certificate, and the server the client's."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.transport.tls import tls_remedy
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.tls_proxy import Authority, TlsProxy

SECRET = "s3cret-key"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "house")


@pytest.fixture
def proxy(server: PrivateServer, authority: Authority) -> Iterator[TlsProxy]:
    proxy = TlsProxy(server.url, certificate=authority.issue("server"), clients=authority)
    yield proxy
    proxy.close()


@pytest.fixture
def client_options(authority: Authority) -> dict[str, str]:
    """The options of a client that the server accepts."""
    certificate, key = authority.issue("client")
    return {"ssl_ca_certs": str(authority.file), "ssl_certfile": str(certificate), "ssl_keyfile": str(key)}


def connection(proxy: TlsProxy, options: dict[str, str], *, host: str = "localhost") -> Connection:
    return Connection(f"rediss://{host}:{proxy.port}/0?{urlencode(options)}", timeout_s=15)


def refusal(proxy: TlsProxy, options: dict[str, str]) -> str:
    with pytest.raises(ConnectionFailed) as error:
        connection(proxy, options).exchange([("PING",)])
    return str(error.value)


def test_queue_works_over_tls_with_certificates_on_both_sides(
    proxy: TlsProxy, client_options: dict[str, str], queue: Queue
):
    ours = Queue("jobs", Client(connection(proxy, client_options)))

    ours.send(b"x" * 60_000)

    message = ours.receive()
    assert message is not None and message.body == b"x" * 60_000
    ours.client.connection.close()


async def test_async_queue_works_over_tls_with_certificates_on_both_sides(
    proxy: TlsProxy, client_options: dict[str, str], queue: Queue
):
    ours = Queue("jobs", Client(connection(proxy, client_options)))

    await ours.asend(b"x")

    message = await ours.areceive()
    assert message is not None and message.body == b"x"
    await ours.client.connection.aclose()


def test_key_with_a_password_works_and_the_password_is_not_shown(
    proxy: TlsProxy, client_options: dict[str, str], authority: Authority
):
    certificate, key = authority.issue("locked", password=SECRET.encode())
    options = client_options | {"ssl_certfile": str(certificate), "ssl_keyfile": str(key), "ssl_password": SECRET}
    locked = connection(proxy, options)

    assert locked.exchange([("PING",)]) == [b"PONG"]
    assert SECRET not in repr(locked)
    locked.close()


def test_unknown_authority_is_refused_with_host_and_option(
    proxy: TlsProxy, client_options: dict[str, str], tmp_path: Path
):
    text = refusal(proxy, client_options | {"ssl_ca_certs": str(Authority(tmp_path, "stranger").file)})

    assert f"localhost:{proxy.port}" in text and "set ssl_ca_certs" in text and "nothing was sent" in text


def test_certificate_of_a_server_that_has_expired_is_named(
    server: PrivateServer, authority: Authority, client_options: dict[str, str]
):
    proxy = TlsProxy(server.url, certificate=authority.issue("old", has_expired=True), clients=authority)
    try:
        text = refusal(proxy, client_options)
    finally:
        proxy.close()

    assert "server's certificate has expired" in text and "set ssl_ca_certs" not in text


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("certificate verify failed: certificate is not yet valid", "not valid yet"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] ssl/tls alert certificate expired", "in ssl_certfile has expired"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "set ssl_certfile"),
        ("Connection closed by server.", "has not expired"),
    ],
)
def test_refusal_of_a_certificate_says_what_to_do(said: str, remedy: str):
    assert remedy in tls_remedy("rediss://localhost:6380/0", ConnectionError(said))


def test_server_that_expects_tls_is_found_by_a_client_without_it(proxy: TlsProxy):
    with pytest.raises(ConnectionFailed, match=r"If it uses TLS on this port, write rediss://\.$"):
        Connection(f"redis://localhost:{proxy.port}/0", timeout_s=15).exchange([("PING",)])


def test_client_that_expects_tls_of_a_server_without_it_learns_the_scheme(server: PrivateServer):
    with FaultProxy(server.url) as plain, pytest.raises(ConnectionFailed, match=r"Without TLS, write redis://\.$"):
        Connection(plain.url.replace("redis://", "rediss://"), timeout_s=1).exchange([("PING",)])


async def test_unknown_authority_is_refused_in_async_calls_too(
    proxy: TlsProxy, client_options: dict[str, str], tmp_path: Path
):
    options = client_options | {"ssl_ca_certs": str(Authority(tmp_path, "stranger").file)}

    with pytest.raises(ConnectionFailed, match="set ssl_ca_certs"):
        await connection(proxy, options).aexchange([("PING",)])


def test_client_without_a_certificate_learns_which_options_to_set(proxy: TlsProxy, client_options: dict[str, str]):
    text = refusal(proxy, {"ssl_ca_certs": client_options["ssl_ca_certs"]})

    assert "ssl_certfile and ssl_keyfile" in text and f"localhost:{proxy.port}" in text


def test_certificate_of_another_authority_is_refused_by_the_server(
    proxy: TlsProxy, client_options: dict[str, str], tmp_path: Path
):
    certificate, key = Authority(tmp_path, "stranger").issue("client")

    text = refusal(proxy, client_options | {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)})

    assert "set ssl_certfile and ssl_keyfile to one" in text


def test_key_of_another_certificate_is_named(proxy: TlsProxy, client_options: dict[str, str], authority: Authority):
    _, other = authority.issue("other")

    assert "not the private key" in refusal(proxy, client_options | {"ssl_keyfile": str(other)})


@pytest.mark.parametrize("option", ["ssl_certfile", "ssl_keyfile", "ssl_ca_certs"])
def test_missing_file_is_named(proxy: TlsProxy, client_options: dict[str, str], option: str):
    text = refusal(proxy, client_options | {option: "/nowhere/a.pem"})

    assert f"{option} is '/nowhere/a.pem'" in text


def test_another_host_name_is_refused_unless_names_are_not_checked(proxy: TlsProxy, client_options: dict[str, str]):
    with pytest.raises(ConnectionFailed, match="another host name"):
        connection(proxy, client_options, host="127.0.0.1").exchange([("PING",)])

    unchecked = connection(proxy, client_options | {"ssl_check_hostname": "False"})
    assert unchecked.exchange([("PING",)]) == [b"PONG"]
    unchecked.close()


def test_server_whose_certificate_is_not_required_may_have_any_name(proxy: TlsProxy, client_options: dict[str, str]):
    trusting = connection(proxy, client_options | {"ssl_cert_reqs": "none"}, host="127.0.0.1")

    assert trusting.exchange([("PING",)]) == [b"PONG"]
    trusting.close()
