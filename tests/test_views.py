"""`rsmq_django.views.health`: what load balancers and Kubernetes get from a web process."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from rsmq_django import views
from rsmq_django.live import server_checks
from rsmq_django.views import health
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

PASSWORD = "pa55word"
ALIASES = ("default", "other")


@pytest.fixture
def proxy(server: PrivateServer, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The server of the connection `default`, behind a proxy; `other` reaches it directly. There is time for both."""
    monkeypatch.setattr(views, "HEALTH_WITHIN_S", 30.0)
    monkeypatch.setattr(server_checks, "SOCKET_TIMEOUT_S", 30.0)
    with FaultProxy(server.url) as proxy:
        connections = {"default": {"URL": proxy.url, "TIMEOUT_S": 30}, "other": {"URL": server.url, "TIMEOUT_S": 30}}
        settings.RSMQ = {"CONNECTIONS": connections}
        yield proxy
        proxy.release()
        wait_until(lambda: all(thread.name != "rsmq-health" for thread in threading.enumerate()))


def check_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "CHECK_EVERY_S", 0.0)


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def get(**kwargs: Any) -> HttpResponse:
    return health(RequestFactory().get("/health"), **kwargs)


def answer() -> tuple[int, Any]:
    response = get()
    return response.status_code, json.loads(response.content)


def test_servers_that_answer_are_healthy_and_no_cache_keeps_that(proxy: FaultProxy):
    response = get()

    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert "no-store" in response["Cache-Control"]
    assert answer() == (200, {"status": "ok", "connections": {"default": "ok", "other": "ok"}})
    assert health(RequestFactory().post("/health")).status_code == 405


def test_server_that_is_gone_is_named_until_it_is_back(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch):
    check_each_time(monkeypatch)
    proxy.refuse()
    proxy.reset_connections()

    assert answer() == (503, {"status": "unavailable", "connections": {"default": "unreachable", "other": "ok"}})
    assert get(connections=["other"]).status_code == 200

    proxy.release()
    wait_until(lambda: answer()[0] == 200)


def test_answer_does_not_wait_for_a_server_that_says_nothing(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(views, "HEALTH_WITHIN_S", 0.01)
    check_each_time(monkeypatch)
    proxy.hold_replies()

    for _ in range(3):
        assert get(connections=["default"]).status_code == 503

        assert [thread.name for thread in threading.enumerate()].count("rsmq-health") == 1, "it waits, and no other"


def test_many_requests_are_one_look_at_the_server(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_checks, "CHECK_EVERY_S", 3600.0)
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(get().status_code)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == [200] * 20
    assert proxy.times_seen(b"PING") == 1
    check_each_time(monkeypatch)
    get()
    assert proxy.times_seen(b"PING") == 2


@pytest.mark.parametrize("reply", [b"-LOADING Redis is loading the dataset in memory\r\n", b"-NOAUTH nobody\r\n"])
def test_server_that_answers_with_an_error_is_not_healthy(proxy: FaultProxy, reply: bytes):
    proxy.answer_instead(b"PING", reply, times=10)

    code, said = answer()

    assert (code, said["connections"]["default"]) == (503, "refused")


def test_nothing_that_the_answer_or_the_log_says_is_secret(settings: Any, caplog: pytest.LogCaptureFixture):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": f"redis://user:{PASSWORD}@127.0.0.1:1/0"}}}

    for _ in range(2):
        response = get()

    assert response.status_code == 503
    assert response.content == b'{"status": "unavailable", "connections": {"default": "unreachable"}}'
    lines = [each.getMessage() for each in caplog.records if each.name == server_checks.__name__]
    assert len(lines) == 1, "once, not at each request"
    assert "connection default does not answer a health check" in lines[0]
    assert PASSWORD not in caplog.text


def test_connection_whose_settings_are_wrong_is_not_healthy(proxy: FaultProxy):
    response = get(connections=["unknown"])

    assert response.status_code == 503
    assert b'"unknown": "refused"' in response.content


def test_check_that_got_no_thread_is_not_the_last_one(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch):
    check_each_time(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)

        assert answer() == (503, {"status": "unavailable", "connections": dict.fromkeys(ALIASES, "unreachable")})

    assert answer()[0] == 200


def test_forked_process_waits_for_no_check_of_its_parent(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch):
    proxy.hold_replies()
    monkeypatch.setattr(views, "HEALTH_WITHIN_S", 0.01)
    assert get(connections=["default"]).status_code == 503
    proxy.release()
    monkeypatch.setattr(views, "HEALTH_WITHIN_S", 30.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(get(connections=["default"]).status_code != 200)
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
