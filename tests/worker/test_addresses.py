"""Addresses other than host and port, for every program: IPv6, and unix sockets with a database."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.checks import check_project
from rsmq_django.cli.app import main
from rsmq_django.queues import get_client
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, work


def has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def lead_to_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections to ::1 arrive at 127.0.0.1, on a machine without IPv6."""
    resolve = socket.getaddrinfo

    def resolved(host: Any, *args: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == "::1" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture(params=["ipv6", "unix"])
def address(request: pytest.FixtureRequest, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address of database 1 of the server."""
    if request.param == "unix":
        yield f"{server.url}?db=1"
    elif has_ipv6():
        with FaultProxy(server.url, host="::1") as proxy:
            yield f"{proxy.url}/1"
    else:
        lead_to_ipv4(monkeypatch)
        with FaultProxy(server.url) as proxy:
            yield f"redis://[::1]:{proxy.port}/1"


def test_sender_worker_checks_and_command_line_accept_the_address(
    address: str, configure: Configure, capsys: pytest.CaptureFixture[str], server: PrivateServer
):
    configure(url=address)
    done: list[int] = []
    declared = declare(lambda number: done.append(number))

    assert [problem for problem in check_project(None) if problem.id != "rsmq.W006"] == []
    declared.enqueue(7)
    assert main(["-r", address, "queue", "describe", "-n", "default"]) == 0
    assert json.loads(capsys.readouterr().out)["msgs"] == 1
    assert work() and done == [7]
    assert server.redis.dbsize() == 0


def test_error_names_the_address(configure: Configure, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

        assert main(["-r", f"redis://[::1]:{port}/1", "queue", "list"]) != 0

    assert f"redis://[::1]:{port}/1" in capsys.readouterr().err
    configure(url=f"redis://ann:s3cret@[::1]:{port}/1")
    assert "ann:***@[::1]" in repr(get_client().connection)
