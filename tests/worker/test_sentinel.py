"""Workers with Sentinel: they follow the primary, whatever happens to the former one."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.cli.app import main
from rsmq_django.core import Connection
from rsmq_django.core.errors import RedisFailure
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.spark.server import Server
from rsmq_django.worker.fetch.primary_watch import PrimaryWatch
from rsmq_django.worker.worker import Worker
from tests.sentinel_topology import SERVICE, SentinelTopology
from tests.support import wait_until
from tests.vault import Vault
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare, working
from tools.acl_page import PAGE as ACL_PAGE


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTopology]:
    topology = SentinelTopology(tmp_path_factory.mktemp("sentinel"))
    yield topology
    topology.stop()


@pytest.fixture
def topology(shared: SentinelTopology, configure: Configure) -> SentinelTopology:
    shared.settle()
    shared.primary.run("FLUSHALL")
    configure(url=shared.url, timeout_s=5)
    ensure_queue("default")
    return shared


@pytest.mark.parametrize("way", ["fail_over", "kill_primary", "hand_over"])
def test_work_goes_on_at_the_new_primary(topology: SentinelTopology, way: str):
    ran: set[int] = set()

    @declare
    def note(number: int) -> None:
        ran.add(number)

    with working():
        note.enqueue(1)
        wait_until(lambda: 1 in ran)
        topology.wait_for_replicas()
        getattr(topology, way)()
        wait_until(lambda: _is_sent(note, 2))
        wait_until(lambda: 2 in ran)


def _is_sent(task: Any, *args: object) -> bool:
    with contextlib.suppress(RedisFailure):
        task.enqueue(*args)
        return True
    return False


def test_idle_worker_leaves_a_former_primary_that_does_not_close_its_sockets(topology: SentinelTopology):
    ran = threading.Event()

    @declare
    def note() -> None:
        ran.set()

    with working(poll_interval_s=3600) as worker:
        wait_until(lambda: [each for each in _watches(worker) if each._listener and each._listener._is_confirmed])
        topology.wait_for_replicas()
        old = topology.primary
        topology.pause_primary()
        try:
            get_client().connection.close()  # this one would wait for the former primary
            wait_until(lambda: _is_sent(note))
            assert ran.wait(60)
        finally:
            old.resume()


def test_worker_with_expiring_passwords_and_the_documented_user_of_the_sentinels_follows_the_primary(
    topology: SentinelTopology, configure: Configure, settings: Any
):
    for sentinel in topology.sentinels:
        sentinel.run("ACL", "SETUSER", "rsmq-asker", "reset", ">ask")
        sentinel.run(*_rule_of_sentinels())
        sentinel.run("ACL", "LOG", "RESET")
    vault = Vault(*(server.run for server in topology.servers))
    url = f"{topology.url}?sentinel_username=rsmq-asker&sentinel_password=ask"
    configure()
    connection = {"URL": url, "TIMEOUT_S": 5, "CREDENTIAL_PROVIDER": vault}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": connection}}
    ran: set[int] = set()

    @declare
    def note(number: int) -> None:
        ran.add(number)

    with working(poll_interval_s=3600) as worker:
        for number in range(3):
            wait_until(lambda number=number: _is_sent(note, number))  # type: ignore[misc]
            wait_until(lambda number=number: number in ran)  # type: ignore[misc]
            vault.rotate(f"password-{number}")
            vault.cut_sockets()
        wait_until(lambda: [each for each in _watches(worker) if each._listener and each._listener._is_confirmed])
        topology.wait_for_replicas()
        old = topology.primary
        topology.pause_primary()
        try:
            wait_until(lambda: _is_sent(note, 3))
            wait_until(lambda: 3 in ran)
        finally:
            old.resume()

    for sentinel in topology.sentinels:
        assert [each[7] for each in sentinel.run("ACL", "LOG")] == []


@pytest.mark.parametrize("right", ["+subscribe", "+sentinel|get-master-addr-by-name", "&+switch-master"])
def test_user_of_the_sentinels_needs_each_of_its_rights(topology: SentinelTopology, right: str):
    sentinel, rule = topology.sentinels[0], _rule_of_sentinels()
    assert right in rule
    sentinel.run("ACL", "SETUSER", "rsmq-asker", "reset", ">ask")
    sentinel.run(*(word for word in rule if word != right))
    url = f"redis+sentinel://{sentinel.address}/{SERVICE}/0?sentinel_username=rsmq-asker&sentinel_password=ask"
    connection = Connection(url, timeout_s=5)

    with pytest.raises(RedisFailure):
        connection.exchange([("PING",)])
        listener, _ = connection.switch_listener()
        wait_until(lambda: listener.drain())


def test_stopped_watch_has_no_socket(topology: SentinelTopology):
    watch = PrimaryWatch(get_client().connection)
    watch.stop()
    watch.reconnect_if_due()
    assert watch.descriptor is not None

    watch.stop()

    assert watch.descriptor is None


def test_watch_passes_over_a_sentinel_that_does_not_answer(topology: SentinelTopology):
    url = f"redis+sentinel://127.0.0.1:1,{topology.sentinels[0].address}/{SERVICE}"
    watch = PrimaryWatch(Connection(url, timeout_s=5))

    wait_until(lambda: watch.reconnect_if_due() is None)

    watch.stop()


def test_worker_without_sentinels_watches_nothing(configure: Configure):
    configure()
    ensure_queue("default")
    with working() as worker:
        wait_until(lambda: worker.wakeup._subscriptions)
        assert not _watches(worker)


def _rule_of_sentinels() -> list[str]:
    (rule,) = re.findall(r"^ACL SETUSER rsmq-asker .*$", ACL_PAGE.read_text("utf-8"), re.MULTILINE)
    return str(rule).split()


def _watches(worker: Worker) -> list[PrimaryWatch]:
    return [each for each in worker.wakeup._subscriptions if isinstance(each, PrimaryWatch)]


def test_supervisor_its_processes_and_spark_follow_the_primary(
    topology: SentinelTopology, start_worker: StartWorker, journal: Journal
):
    worker = start_worker("--processes", "1", "--threads", "1", url=topology.url, timeout_s="5")
    tasks.write.enqueue("before")
    wait_until(lambda: journal.names("end") == ["before"])
    spark = Server(topology.url, namespace="rsmq")
    assert spark.ask_one("EXISTS", "rsmq:default:Q") == 1
    topology.wait_for_replicas()

    topology.kill_primary()

    assert spark.ask_one("EXISTS", "rsmq:default:Q") == 1
    spark.close()
    wait_until(lambda: _is_sent(tasks.write, "after"))
    wait_until(lambda: journal.names("end") == ["before", "after"])
    supervisor = f":{worker.process.pid} "  # in the name of its socket
    wait_until(lambda: supervisor in topology.primary.run("CLIENT", "LIST").decode())
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_command_line_finds_the_primary(topology: SentinelTopology, capsys: pytest.CaptureFixture[str]):
    assert main(["-r", topology.url, "queue", "list"]) == 0
    assert "default" in capsys.readouterr().out

    assert main(["-r", topology.url.replace("mymaster", "other"), "queue", "list"]) == 1
    assert "does not know that name" in capsys.readouterr().err


def test_worker_waits_for_sentinels_that_do_not_know_their_primary_yet(
    topology: SentinelTopology, start_worker: StartWorker, journal: Journal
):
    worker = start_worker("--processes", "1", url=topology.url.replace("mymaster", "new"), timeout_s="5")
    wait_until(lambda: "cannot find the primary of 'new'" in worker.output)
    assert "Correct the name in the URL" in worker.output, "it may be misspelt, too"
    tasks.write.enqueue("a")

    for sentinel in topology.sentinels:
        sentinel.run("SENTINEL", "MONITOR", "new", "127.0.0.1", topology.primary.port, 2)
    try:
        wait_until(lambda: journal.names("end") == ["a"])
    finally:
        for sentinel in topology.sentinels:
            sentinel.run("SENTINEL", "REMOVE", "new")

    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
