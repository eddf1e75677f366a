"""Credential providers: each new socket asks for the password of the moment, and open sockets go on."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from redis.credentials import CredentialProvider

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import ConnectionFailed, InvalidValue, PermissionDenied
from rsmq_django.core.queue.queue import list_call
from rsmq_django.core.transport.handshake import find_provider
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.vault import USER, Vault

AWAITS_CREDENTIALS = pytest.mark.skipif(
    not hasattr(CredentialProvider, "get_credentials_async"), reason="this redis-py has no coroutines of providers"
)


@pytest.fixture
def vault(server: PrivateServer) -> Iterator[Vault]:
    yield Vault(server.redis.execute_command)
    server.redis.execute_command("ACL", "DELUSER", USER)


@pytest.fixture
def connection(server: PrivateServer, vault: Vault) -> Iterator[Connection]:
    connection = Connection(server.url, timeout_s=15, credential_provider=vault)
    yield connection
    connection.close()


def test_open_socket_goes_on_after_a_rotation_and_a_new_one_asks_again(connection: Connection, vault: Vault):
    link = connection._take()  # a socket that is in use
    vault.rotate("second")

    assert connection.exchange([("ACL", "WHOAMI")]) == [USER.encode()]
    assert vault.asked == 2
    connection._idle.append(link)
    assert connection.exchange([("PING",)]) == [b"PONG"]
    assert vault.asked == 2


def test_socket_that_was_cut_connects_again_with_the_new_password(
    connection: Connection, vault: Vault, server: PrivateServer, queue: Queue
):
    ours = Queue("jobs", Client(connection))
    ours.send(b"a")
    vault.rotate("second")
    vault.cut_sockets()
    wait_until(connection._idle[0].wire.is_readable)

    ours.send(b"b")

    assert vault.asked == 2
    assert ours.attributes().messages == 2


def test_subscription_and_other_timeouts_ask_the_provider_too(connection: Connection, vault: Vault):
    listener = connection.listener(["rsmq:rt:jobs"])
    subscriber = connection.subscriber(["rsmq:rt:jobs"])
    patient = connection.with_timeout(30)

    assert patient.exchange([("PING",)]) == [b"PONG"]

    assert vault.asked == 3
    listener.close()
    subscriber.connection_pool.disconnect()
    subscriber.close()
    patient.close()


@AWAITS_CREDENTIALS
async def test_async_sockets_ask_in_a_thread_and_connect_again_with_the_new_password(
    connection: Connection, vault: Vault, server: PrivateServer
):
    client = Client(connection)
    threads: set[int] = set()
    ask = vault.get_credentials

    def noting() -> tuple[str, str]:
        threads.add(threading.get_ident())
        return ask()

    vault.get_credentials = noting  # type: ignore[method-assign]
    assert await client.arun(list_call("rsmq")) == []
    vault.rotate("second")
    asked = vault.asked
    await asyncio.to_thread(vault.cut_sockets)

    assert await client.arun(list_call("rsmq")) == []

    assert vault.asked > asked
    assert threading.get_ident() not in threads
    await connection.aclose()


@AWAITS_CREDENTIALS
async def test_coroutine_of_a_provider_is_preferred_in_async_calls(server: PrivateServer, vault: Vault):
    class AsyncVault(CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            raise AssertionError("asked without a coroutine")

        async def get_credentials_async(self) -> tuple[str, str]:
            return vault.get_credentials()

    connection = Connection(server.url, timeout_s=15, credential_provider=AsyncVault())

    assert await connection.aexchange([("ACL", "WHOAMI")]) == [USER.encode()]
    await connection.aclose()


def test_wrong_password_of_a_provider_is_refused_without_showing_it(connection: Connection, vault: Vault):
    vault.password = "w-r-o-n-g"

    with pytest.raises(PermissionDenied, match="credential provider") as error:
        connection.exchange([("PING",)])
    assert "w-r-o-n-g" not in str(error.value)


class Failing:
    def get_credentials(self) -> tuple[str, str]:
        raise RuntimeError("no token")


class Speechless:
    def get_credentials(self) -> str:
        return "pa55word"


@pytest.mark.parametrize(
    ("provider", "reason"), [(Failing(), "Failing failed: RuntimeError: no token"), (Speechless(), "type str")]
)
async def test_failing_provider_is_a_failed_connection(server: PrivateServer, provider: object, reason: str):
    connection = Connection(server.url, timeout_s=15, credential_provider=provider)

    with pytest.raises(ConnectionFailed, match=reason) as error:
        connection.exchange([("PING",)])
    with pytest.raises(ConnectionFailed, match=reason):
        await connection.aexchange([("PING",)])
    assert "pa55word" not in str(error.value) and "nothing was sent" in str(error.value)


def test_provider_besides_a_password_in_the_url_is_refused():
    with pytest.raises(ValueError, match="besides the credential provider") as error:
        Connection("redis://ann:s3cret@localhost", credential_provider=Failing())
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("given", [f"{__name__}.Failing", Failing, Failing(), lambda: Failing()])
def test_provider_is_a_dotted_path_a_class_a_factory_or_an_object(given: object):
    assert isinstance(find_provider(given), Failing)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("nowhere.Vault", "ModuleNotFoundError"),
        ("Vault", "cannot be created"),
        (f"{__name__}.Missing", "AttributeError"),
        (f"{__name__}.Vault", "TypeError"),
        ("builtins.dict", "without get_credentials"),
    ],
)
def test_provider_that_cannot_be_created_is_refused_with_the_reason(given: str, reason: str):
    with pytest.raises(InvalidValue, match=reason):
        find_provider(given)
