"""A row is marked as sent when a replica has its message; after a failover rows can be sent again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from rsmq_django.core import Connection
from rsmq_django.outbox import replicas
from rsmq_django.outbox.models import OutboxMessage
from rsmq_django.outbox.relay import Relay
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task
from tests.fault_proxy import FaultProxy
from tests.outbox.conftest import LEDGER
from tests.redis_server import PrivateServer
from tests.replicated_server import ReplicatedServer as Server
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, work


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "primary")
    yield server
    server.kill()


@pytest.fixture
def replica(tmp_path: Path, primary: Server) -> Iterator[Server]:
    server = Server(tmp_path / "replica", "--replicaof", "127.0.0.1", str(primary.port))
    wait_until(lambda: server.redis.info("replication")["master_link_status"] == "up")
    wait_until(lambda: primary.redis.wait(1, 1) == 1)
    yield server
    server.kill()


@pytest.fixture
def configured(with_outbox: Configure, primary: Server) -> Any:
    """The function that lets the project use a server."""

    def configure(server: Server, **options: Any) -> None:
        with_outbox(on_commit=LEDGER, url=server.url, default={"OUTBOX": True}, **options)

    configure(primary)
    return configure


@pytest.fixture
def greet(configured: Any) -> Task[..., Any]:
    def greeting(name: str) -> None: ...

    declared: Task[..., Any] = declare(greeting)
    return declared


def waiting() -> int:
    return OutboxMessage.objects.using(LEDGER).filter(sent_at=None).count()


def messages(server: Server) -> int:
    return int(server.redis.zcard("rsmq:default"))


def resend(*words: str) -> str:
    out = StringIO()
    call_command("rsmq_outbox", "resend", *words, stdout=out)
    return out.getvalue()


def test_row_is_noted_as_sent_when_a_replica_has_its_message(
    greet: Task, primary: Server, replica: Server, caplog: pytest.LogCaptureFixture
):
    relay = Relay()
    greet.enqueue("first")
    wait_until(relay.relay_waiting)

    replica.stand_still()
    greet.enqueue("second")
    assert relay.relay_waiting() == 0
    assert waiting() == 1
    assert "no replica of Connection(" in caplog.text and "has confirmed the write in time" in caplog.text

    replica.go_on()
    wait_until(relay.relay_waiting)
    assert waiting() == 0
    assert (messages(primary), messages(replica)) == (2, 2)  # what was sent twice is stored once


def test_call_that_only_a_dying_primary_knew_of_is_sent_to_its_successor(
    greet: Task, configured: Any, primary: Server, replica: Server, monkeypatch: pytest.MonkeyPatch
):
    relay = Relay()
    greet.enqueue("first")
    relay.relay_waiting()
    replica.stand_still()
    greet.enqueue("second")
    assert relay.relay_waiting() == 0
    assert messages(primary) == 2

    primary.kill()  # with the second one
    replica.go_on()
    replica.take_over()
    configured(replica)
    monkeypatch.setattr(replicas, "WITHOUT_REPLICA_S", 0.0)  # it has lost its replica, too

    relay = Relay()
    wait_until(lambda: relay.relay_waiting() or not waiting())
    assert waiting() == 0
    assert messages(replica) == 2


@pytest.mark.parametrize("looks_while_it_stands_still", [False, True])
def test_row_that_only_a_primary_knows_that_stood_still_during_a_failover_is_sent_to_its_successor(
    greet: Task,
    configured: Any,
    primary: Server,
    replica: Server,
    monkeypatch: pytest.MonkeyPatch,
    looks_while_it_stands_still: bool,
):
    configured(primary, timeout_s=2)
    relay = Relay()
    primary.stand_still()
    replica.take_over()
    greet.enqueue("first")
    if looks_while_it_stands_still:
        assert relay.relay_waiting() == 0
    primary.go_on()
    wait_until(lambda: relay.relay_waiting() or messages(primary))
    assert waiting() == 1

    monkeypatch.setattr(replicas, "WITHOUT_REPLICA_S", 0.0)  # the successor has lost its replica, too
    configured(replica)
    wait_until(Relay().relay_waiting)
    assert (waiting(), messages(replica)) == (0, 1)


def test_server_without_replicas_is_not_waited_for(greet: Task, primary: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replicas, "WAIT_MS", 600_000)
    for number in range(3):
        greet.enqueue(str(number))
        assert Relay().relay_waiting() == 1

    assert waiting() == 0


def test_replica_that_comes_later_is_noticed(
    greet: Task, primary: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replicas, "PROBE_EVERY_S", 0.0)
    relay = Relay()
    greet.enqueue("first")
    assert relay.relay_waiting() == 1

    replica = request.getfixturevalue("replica")
    greet.enqueue("second")
    wait_until(relay.relay_waiting)
    replica.stand_still()
    greet.enqueue("third")

    assert relay.relay_waiting() == 0
    replica.go_on()


def test_server_is_used_without_a_replica_that_was_removed_for_good(
    greet: Task, primary: Server, replica: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    relay = Relay()
    greet.enqueue("first")
    wait_until(relay.relay_waiting)
    replica.kill()
    wait_until(lambda: primary.redis.info("replication")["connected_slaves"] == 0)
    greet.enqueue("second")
    assert relay.relay_waiting() == 0  # it may come back

    monkeypatch.setattr(replicas, "WITHOUT_REPLICA_S", 0.0)

    wait_until(relay.relay_waiting)
    assert waiting() == 0
    assert "has had no replica for a minute" in caplog.text


@pytest.mark.usefixtures("replica")
def test_replica_is_not_reported_as_lost_after_a_time_without_data(
    greet: Task, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    relay = Relay()
    greet.enqueue("first")
    wait_until(relay.relay_waiting)
    monkeypatch.setattr(replicas, "WITHOUT_REPLICA_S", 0.0)
    monkeypatch.setattr(relay._replicas[get_queue("default").client], "_probe_at", 0.0)

    greet.enqueue("second")
    wait_until(relay.relay_waiting)

    assert "no replica" not in caplog.text


def test_row_of_a_durable_queue_is_noted_as_sent_when_it_is_confirmed(
    greet: Task, configured: Any, settings: Any, primary: Server, replica: Server, caplog: pytest.LogCaptureFixture
):
    rsmq = {**settings.RSMQ, "QUEUES": {"default": {"OUTBOX": True, "DURABILITY": {"REPLICAS": 1, "TIMEOUT_S": 0.05}}}}
    settings.RSMQ = rsmq
    relay = Relay()
    greet.enqueue("first")
    replica.stand_still()
    assert relay.relay_waiting() == 0
    assert waiting() == 1
    assert "not confirmed within 0.05 s: 0 of 1 replica" in caplog.text

    replica.go_on()
    wait_until(relay.relay_waiting)
    assert waiting() == 0
    assert (messages(primary), messages(replica)) == (1, 1)


def test_row_stays_while_the_server_forgets_its_scripts_again_and_again(
    greet: Task, primary: Server, replica: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    exchange = Connection.exchange_with_one_node

    def forget_and_exchange(connection: Connection, commands: Any) -> Any:
        primary.redis.script_flush()
        return exchange(connection, commands)

    greet.enqueue("first")
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "exchange_with_one_node", forget_and_exchange)
        assert Relay().relay_waiting() == 0
    assert waiting() == 1
    assert f"has changed its mind {replicas.TRIES} times about who carries out a call" in caplog.text

    wait_until(Relay().relay_waiting)
    assert (waiting(), messages(primary)) == (0, 1)


def test_server_that_is_a_replica_for_a_moment_is_asked_again_whether_it_has_one(
    greet: Task, primary: Server, replica: Server, caplog: pytest.LogCaptureFixture
):
    replica.take_over()
    primary.follow(replica)
    relay = Relay()
    greet.enqueue("first")
    assert relay.relay_waiting() == 0

    primary.take_over()
    replica.follow(primary)
    wait_until(relay.relay_waiting)
    replica.stand_still()
    greet.enqueue("second")
    assert relay.relay_waiting() == 0
    assert waiting() == 1
    assert "+wait" not in caplog.text


def test_server_that_is_loading_its_data_is_asked_again_whether_it_has_a_replica(
    greet: Task, configured: Any, with_outbox: Configure, primary: Server, replica: Server
):
    with FaultProxy(primary.url) as proxy:
        with_outbox(on_commit=LEDGER, url=proxy.url, default={"OUTBOX": True})
        proxy.answer_instead(b"WAIT", b"-LOADING Redis is loading the dataset in memory\r\n" * 2)
        relay = Relay()
        greet.enqueue("first")
        assert relay.relay_waiting() == 0

        wait_until(relay.relay_waiting)
        replica.stand_still()
        greet.enqueue("second")
        assert relay.relay_waiting() == 0
        assert waiting() == 1


@pytest.mark.parametrize("command", ["wait", "info"])
def test_missing_permission_to_look_for_replicas_is_logged_once(
    greet: Task,
    configured: Any,
    with_outbox: Configure,
    primary: Server,
    caplog: pytest.LogCaptureFixture,
    command: str,
):
    primary.redis.execute_command("ACL", "SETUSER", "hasty", "on", ">secret", "~*", "&*", "+@all", f"-{command}")
    with_outbox(
        on_commit=LEDGER, url=primary.url.replace("redis://", "redis://hasty:secret@"), default={"OUTBOX": True}
    )
    relay = Relay()
    for number in range(3):
        greet.enqueue(str(number))
        assert relay.relay_waiting() == 1

    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [f"+{command}" in record.message for record in told] == [True]


# -- Sending again -------------------------------------------------------------------------------------------------


def test_rows_are_sent_again_after_a_failover_that_lost_them(greet: Task, configured: Any, primary: Server):
    began = timezone.now()
    for number in range(5):
        greet.enqueue(str(number))
    Relay().relay_waiting()
    lost = sorted(primary.redis.zrange("rsmq:default", 0, -1))[3:]
    for message in lost:  # as if these two had not reached the replica that took over
        primary.redis.zrem("rsmq:default", message)
        primary.redis.delete("rsmq::result:" + message[10:].decode())
    primary.redis.delete("rsmq::relayed")

    assert resend("--since", began.isoformat()) == "5 messages will be sent again, except calls that Redis knows\n"
    Relay().relay_waiting()

    bodies = [message.body for message in get_queue("default").receive_many(10)]
    assert len(bodies) == len(set(bodies)) == 5
    assert waiting() == 0


def test_calls_that_have_run_are_not_sent_again(configured: Any, primary: Server):
    seen: list[str] = []
    declared = declare(lambda name: seen.append(name))
    declared.enqueue("Ada")
    Relay().relay_waiting()
    work()
    primary.redis.delete("rsmq::relayed")

    assert resend("--since", "10m").startswith("1 message will be sent again")
    Relay().relay_waiting()
    work()

    assert seen == ["Ada"]


def test_only_rows_since_the_time_are_sent_again(greet: Task, configured: Any):
    greet.enqueue("Ada")
    Relay().relay_waiting()
    OutboxMessage.objects.using(LEDGER).update(sent_at=timezone.now() - timedelta(hours=2))

    assert resend("--since", "1h").startswith("0 messages will be sent again")
    assert resend("--since", "3h", "--dry-run") == "1 message would be sent again\n"
    assert waiting() == 0
    assert resend("--since", "3h").startswith("1 message will be sent again")
    assert waiting() == 1


@pytest.mark.parametrize("words", ["yesterday", "-5m", "", "2026-13-01"])
def test_invalid_time_is_refused(greet: Task, words: str):
    with pytest.raises(CommandError, match="--since"):
        resend("--since", words)


def test_time_before_the_oldest_row_that_is_kept_is_reported(greet: Task, settings: Any, server: PrivateServer):
    assert "rows sent more than 1 d ago were already deleted" in resend("--since", "3d")
