"""Processes are killed between commit and send, between send and note, and at any moment: each task is sent once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connections

from rsmq_django.outbox.models import OutboxMessage
from rsmq_django.queues import ensure_queue, get_queue
from tests.outbox.conftest import LEDGER, Site
from tests.outbox.shop import tasks
from tests.postgres_server import PostgresCluster
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.site.journal import Journal

pytestmark = [pytest.mark.slow, pytest.mark.long]

KILLED = -signal.SIGKILL
SMALL = ("--processes", "1", "--threads", "4")

ENQUEUE = """
from django.contrib.auth.models import Group
from django.db import transaction
from tests.outbox.shop import tasks
with transaction.atomic():
    for number in range({count}):
        Group.objects.create(name=f"{prefix}-{{number}}")
        tasks.write.enqueue(f"{prefix}-{{number}}")
"""
DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def waiting() -> int:
    return OutboxMessage.objects.using(LEDGER).filter(sent_at=None).count()


def stop(worker: Any) -> None:
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.output


def test_process_that_dies_right_after_its_commit_loses_nothing(site: Site, journal: Journal):
    site.python(ENQUEUE.format(prefix="a", count=5) + DIE, expect=KILLED)
    assert waiting() == 5

    worker = site.start("rsmq_worker", *SMALL)

    wait_until(lambda: sorted(journal.names("ran")) == names("a", 5))
    assert Group.objects.using(LEDGER).count() == 5
    stop(worker)
    assert waiting() == 0


def test_process_that_dies_right_before_its_commit_leaves_nothing(site: Site, journal: Journal):
    site.python(ENQUEUE.format(prefix="a", count=5) + "    " + DIE, expect=KILLED)

    assert waiting() == 0
    assert not Group.objects.using(LEDGER).exists()


def test_relay_that_dies_between_send_and_note_sends_nothing_twice(site: Site, journal: Journal):
    site.python(ENQUEUE.format(prefix="a", count=5))
    site.python(
        "import os, signal\n"
        "from rsmq_django.outbox.relay import Relay\n"
        "Relay._note_sent = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Relay().relay_waiting()",
        expect=KILLED,
    )
    assert get_queue("default").attributes().messages == 5
    assert waiting() == 5

    worker = site.start("rsmq_worker", *SMALL)

    wait_until(lambda: waiting() == 0)
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    stop(worker)
    assert sorted(journal.names("ran")) == names("a", 5)
    assert get_queue("default").attributes().total_sent == 5


def test_relays_that_are_killed_at_any_moment_send_each_message_once_and_in_order(site: Site, server: PrivateServer):
    queue, rounds, count = ensure_queue("default"), 3, 1500
    for number in range(rounds):
        relay = site.start("rsmq_outbox", "relay")
        wait_until(lambda: "relaying the outbox" in relay.output)  # noqa: B023
        before = queue.attributes().total_sent
        tasks.write.enqueue_many([[f"{number}-{n}"] for n in range(count)])
        wait_until(lambda: queue.attributes().total_sent > before)  # noqa: B023
        relay.send(signal.SIGKILL)
        relay.wait()

    site.start("rsmq_outbox", "relay", "--once").wait()

    ids = sorted(server.redis.zrange("rsmq:default", 0, -1))
    expected = list(OutboxMessage.objects.using(LEDGER).order_by("pk").values_list("task_id", flat=True))
    assert [message_id.decode()[-22:] for message_id in ids] == expected
    assert queue.attributes().total_sent == rounds * count
    assert waiting() == 0


def test_worker_that_dies_with_its_relay_is_replaced(site: Site, journal: Journal):
    worker = site.start("rsmq_worker", *SMALL)
    wait_until(lambda: "to relay the outbox" in worker.output)
    relay_pid = int(worker.output.split(" to relay the outbox")[0].rsplit(" ", 1)[1])

    os.kill(relay_pid, signal.SIGKILL)
    site.python(ENQUEUE.format(prefix="a", count=3))

    wait_until(lambda: sorted(journal.names("ran")) == names("a", 3))
    assert "which relays the outbox, has ended; another one takes over" in worker.output
    stop(worker)


def test_signal_to_the_whole_process_group_logs_no_error(site: Site):
    worker = site.start("rsmq_worker", *SMALL)
    wait_until(lambda: "to relay the outbox" in worker.output)
    relay_pid = int(worker.output.split(" to relay the outbox")[0].rsplit(" ", 1)[1])

    os.kill(relay_pid, signal.SIGTERM)  # it may end before the supervisor gets the signal
    wait_until(lambda: f"process {relay_pid}, which relays the outbox, has stopped" in worker.output)
    worker.send_to_all(signal.SIGTERM)

    assert worker.wait() == 0
    assert "ERROR" not in worker.output


def test_relay_ends_when_its_supervisor_is_killed(site: Site):
    worker = site.start("rsmq_worker", *SMALL)
    wait_until(lambda: "to relay the outbox" in worker.output)
    relay_pid = int(worker.output.split(" to relay the outbox")[0].rsplit(" ", 1)[1])

    worker.send(signal.SIGKILL)
    worker.wait()

    wait_until(lambda: not Path(f"/proc/{relay_pid}").exists() or "Z" in stat_of(relay_pid))


def stat_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def test_worker_that_empties_queues_relays_first(site: Site, journal: Journal):
    site.python(ENQUEUE.format(prefix="a", count=3))

    assert site.start("rsmq_worker", "--burst", *SMALL).wait() == 0

    assert sorted(journal.names("ran")) == names("a", 3)


def test_task_that_dies_in_its_transaction_has_its_effect_once(site: Site, journal: Journal, tmp_path: Path):
    flag = tmp_path / "flag"
    site.python(
        "from tests.outbox.shop import tasks\n"
        f"tasks.add_group_and_die_once.enqueue('team', {str(flag)!r})\n"
        "tasks.add_group.enqueue_many([[str(n)] for n in range(20)])"
    )

    worker = site.start("rsmq_worker", *SMALL)

    expected = {"team", *map(str, range(20))}
    wait_until(lambda: set(Group.objects.using(LEDGER).values_list("name", flat=True)) == expected)
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    stop(worker)
    assert journal.names("ran").count("team") == 2


# -- PostgreSQL alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_postgres_wakes_the_relay(site: Site, journal: Journal, monkeypatch: pytest.MonkeyPatch):
    site.environment["RSMQ_TEST_OUTBOX_POLL_INTERVAL_S"] = "3600"
    worker = site.start("rsmq_worker", *SMALL)
    wait_until(lambda: is_listening("ledger"))

    site.python(ENQUEUE.format(prefix="a", count=2))

    # The table is looked at only once an hour here.
    wait_until(lambda: sorted(journal.names("ran")) == names("a", 2))
    stop(worker)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_relay_continues_after_an_outage_of_the_database(site: Site, journal: Journal, cluster: PostgresCluster):
    worker = site.start("rsmq_worker", *SMALL)
    wait_until(lambda: is_listening("ledger"))

    connections[LEDGER].close()
    cluster.end_connections("ledger")
    site.python(ENQUEUE.format(prefix="a", count=2))

    wait_until(lambda: sorted(journal.names("ran")) == names("a", 2))
    assert "outbox: " in worker.output
    stop(worker)


def is_listening(name: str) -> bool:
    """Say whether a relay has looked at everything and waits; the last thing that it looks at is the inbox."""
    idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state = 'idle' AND query LIKE %s"
    with connections[LEDGER].cursor() as cursor:
        cursor.execute(idle, [name, "%rsmq_outbox_inboxentry%"])
        return bool(cursor.fetchone()[0])
