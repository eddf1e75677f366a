"""An outage: one line in the log of each process for each server, however many connections notice it."""

from __future__ import annotations

import logging

import pytest

from rsmq_django.core import Connection
from rsmq_django.core.errors import BrokenQueue, ConnectionFailed, ServerRefused
from rsmq_django.core.transport import backoff as backoff
from rsmq_django.core.transport.backoff import ReconnectBackoff
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.still_clock import StillClock
from tests.worker.workshop import Configure, queue_source, working


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(backoff, "_outages", {})
    caplog.set_level(logging.INFO, logger="rsmq_django")


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_unreachable_server_is_logged_once_for_all_connections(caplog: pytest.LogCaptureFixture):
    server = Connection("redis://cache:6379/0")
    fetches, wake_ups = (
        ReconnectBackoff("fetches", server=server),
        ReconnectBackoff("wake-ups", server=server.with_timeout(0.5)),
    )

    for each in (fetches, wake_ups, fetches, wake_ups):
        each.note(ConnectionFailed("away"))
    for each in (wake_ups, fetches):
        each.over()

    assert lines(caplog, logging.ERROR) == ["fetches: away. Trying again until it works, at least every 5 s."]
    assert len(lines(caplog, logging.INFO)) == 1 and "works again after" in caplog.text


def test_servers_are_separate_and_damage_of_a_queue_is_not_an_outage_of_the_server(caplog: pytest.LogCaptureFixture):
    one, other = Connection("redis://one"), Connection("redis://other")

    ReconnectBackoff("one", server=one).note(ConnectionFailed("away"))
    ReconnectBackoff("other", server=other).note(ConnectionFailed("away"))
    ReconnectBackoff("queue", server=one).note(BrokenQueue("damaged"))

    assert len(lines(caplog, logging.ERROR)) == 3


def test_connections_that_name_no_server_share_no_log_lines(caplog: pytest.LogCaptureFixture):
    for name in ("promotions of one", "promotions of another"):
        ReconnectBackoff(name).note(ConnectionFailed("away"))

    assert len(lines(caplog, logging.ERROR)) == 2


def test_next_outage_is_logged_again_although_the_last_one_ended_with_damage(caplog: pytest.LogCaptureFixture):
    fetches = ReconnectBackoff("fetches", server=Connection("redis://one"))
    fetches.note(ConnectionFailed("away"))
    fetches.note(BrokenQueue("damaged"))
    fetches.over()

    fetches.note(ConnectionFailed("away"))

    assert len(lines(caplog, logging.ERROR)) == 2


def test_next_outage_of_a_server_is_logged_again(caplog: pytest.LogCaptureFixture):
    fetches = ReconnectBackoff("fetches", server=Connection("redis://one"))

    for _ in range(2):
        fetches.note(ConnectionFailed("away"))
        fetches.over()

    assert len(lines(caplog, logging.ERROR)) == len(lines(caplog, logging.INFO)) == 2


def test_server_works_again_when_it_does_for_all_connections(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    StillClock(monkeypatch, backoff)
    server = Connection("redis://one")
    reads, writes = ReconnectBackoff("reads", server=server), ReconnectBackoff("writes", server=server)

    for _ in range(5):  # a server that refuses all writes
        writes.note(ServerRefused("NOREPLICAS"))
        reads.note(ServerRefused("NOREPLICAS"))
        reads.over()
    assert (len(lines(caplog, logging.ERROR)), lines(caplog, logging.INFO)) == (1, [])
    writes.over()

    (line,) = lines(caplog, logging.INFO)
    assert line.startswith("writes: works again after")


def test_connection_that_fails_longer_than_the_others_logs_no_outage_of_its_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    StillClock(monkeypatch, backoff)
    server = Connection("redis://one")
    fetches, wake_ups = ReconnectBackoff("fetches", server=server), ReconnectBackoff("wake-ups", server=server)

    for each in (fetches, wake_ups):
        each.note(ConnectionFailed("away"))
    fetches.over()
    wake_ups.note(ConnectionFailed("away"))
    wake_ups.over()

    assert len(lines(caplog, logging.ERROR)) == len(lines(caplog, logging.INFO)) == 1


def test_connection_that_is_not_used_any_more_does_not_prolong_the_outage(caplog: pytest.LogCaptureFixture):
    server = Connection("redis://one")
    fetches, unused = ReconnectBackoff("fetches", server=server), ReconnectBackoff("unused", server=server)
    for each in (fetches, unused):
        each.note(ConnectionFailed("away"))
    fetches.over()
    assert lines(caplog, logging.INFO) == []

    outage = backoff._outages[server.url]
    outage.failing[unused] -= 2 * backoff.LONGEST_WAIT_S
    fetches.over()

    assert len(lines(caplog, logging.INFO)) == 1


def test_process_logs_one_line_when_its_server_is_unreachable(
    configure: Configure, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        with working() as worker:
            wait_until(lambda: queue_source(worker).is_empty)
            (subscription,) = worker.wakeup._subscriptions
            caplog.clear()

            proxy.refuse()
            proxy.reset_connections()
            wait_until(lambda: queue_source(worker).backoff._failures > 3 and subscription._backoff.is_on)
            errors = lines(caplog, logging.ERROR) + lines(caplog, logging.WARNING)
            proxy.release()
            wait_until(lambda: not queue_source(worker).backoff.is_on and not subscription._backoff.is_on)

    assert len(errors) == 1
    assert "Trying again until it works" in errors[0]
    assert caplog.text.count("works again after") == 1
