"""A worker whose user may not listen to channels, as new users of Redis 7 may not: it polls, and says so once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core import Connection
from rsmq_django.core.errors import PermissionDenied
from rsmq_django.core.transport.listener import Listener
from rsmq_django.queues import get_queue, pause_queue, paused_queues, resume_queue
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, working


@pytest.fixture
def without_channels(configure: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A project whose user may use all commands and keys, and no channel."""
    # On a busy machine an answer takes longer than a worker waits for it. That is logged as an outage.
    monkeypatch.setattr("rsmq_django.worker.fetch.wakeup.CONNECT_WITHIN_S", 60)
    server.redis.execute_command("ACL", "SETUSER", "mute", "reset", "resetchannels", "on", ">secret", "~*", "+@all")
    configure(url=server.url.replace("unix://", "unix://mute:secret@"))
    yield
    server.redis.execute_command("ACL", "DELUSER", "mute")


def refused_subscriptions(server: PrivateServer) -> int:
    return int(server.redis.info("commandstats")["cmdstat_subscribe"]["rejected_calls"])


def test_worker_without_permission_for_channels_polls_and_logs_it_once(
    without_channels: None, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    with caplog.at_level(logging.INFO), working(poll_interval_s=0.05) as worker:
        declared.enqueue(0)
        wait_until(lambda: seen == [0] and "POLL_INTERVAL_S" in caplog.text)
        before = refused_subscriptions(server)
        for number in range(1, 20):
            wait_until(lambda: worker.wakeup._is_asleep and worker.sources[0].is_empty)
            declared.enqueue(number)
            wait_until(lambda: number in seen)  # noqa: B023 - asked in the same round
        after = refused_subscriptions(server)

    about = [record for record in caplog.records if "subscription" in record.message]
    assert [record.levelname for record in about] == ["WARNING"]
    assert "POLL_INTERVAL_S" in about[0].message and "&rsmq:*" in about[0].message
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert after == before


def test_worker_that_may_not_run_subscribe_names_the_command(
    without_channels: None, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    server.redis.execute_command("ACL", "SETUSER", "mute", "allchannels", "-subscribe")

    with working(poll_interval_s=0.05):
        wait_until(lambda: "POLL_INTERVAL_S" in caplog.text)

    (about,) = [record.message for record in caplog.records if "subscription" in record.message]
    assert about.endswith("the missing permission is for the command SUBSCRIBE")


def test_worker_listens_when_the_rights_are_given_later(
    without_channels: None, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.fetch.wakeup.WITHOUT_RIGHTS_S", 0.05)
    with working(poll_interval_s=0.05):
        server.redis.execute_command("ACL", "SETUSER", "mute", "&rsmq:*")

        wait_until(lambda: server.redis.pubsub_numsub("rsmq:rt:default") == [(b"rsmq:rt:default", 1)])


def test_worker_whose_login_was_refused_for_a_moment_listens_again_soon_and_names_no_missing_permission(
    without_channels: None, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    refused, listener = threading.Event(), Connection.listener

    def note_refusal(self: Connection, *args: Any, **options: Any) -> Listener:
        try:
            return listener(self, *args, **options)
        except PermissionDenied:
            refused.set()
            raise

    def is_heard() -> bool:
        return bool(server.redis.pubsub_numsub("rsmq:rt:default") == [(b"rsmq:rt:default", 1)])

    monkeypatch.setattr(Connection, "listener", note_refusal)
    monkeypatch.setattr("rsmq_django.worker.fetch.wakeup.WITHOUT_RIGHTS_S", 3600)
    server.redis.execute_command("ACL", "SETUSER", "mute", "allchannels")
    with working(poll_interval_s=0.05):
        wait_until(is_heard)
        server.redis.execute_command("ACL", "SETUSER", "mute", "off")
        server.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        assert refused.wait(90)
        server.redis.execute_command("ACL", "SETUSER", "mute", "on")

        wait_until(is_heard)

    assert "missing permission" not in caplog.text


def test_queue_is_resumed_without_an_error_by_a_user_without_channel_rights(without_channels: None):
    get_queue("default").create()
    assert pause_queue("default") is True

    assert resume_queue("default") is True

    assert paused_queues() == []


def test_a_task_that_runs_too_long_is_released_by_a_worker_without_channel_permissions(
    without_channels: None, caplog: pytest.LogCaptureFixture
):
    release = threading.Event()
    declare(lambda: release.wait(60)).enqueue()
    with working(poll_interval_s=0.05, threads=1) as worker:
        wait_until(lambda: worker.pool.sync_count == 1)
        worker.stop(within_s=0.1)
    release.set()  # not before the worker has ended: what returns until then counts as done

    assert get_queue("default").attributes().hidden_messages == 0
    assert get_queue("default").attributes().messages == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
