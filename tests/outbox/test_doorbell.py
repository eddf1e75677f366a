"""The command and the listener of the outbox: old rows are deleted, and the relay sleeps and wakes."""

from __future__ import annotations

import os
import select
import signal
import threading
from datetime import timedelta
from io import StringIO
from typing import Any, cast

import pytest
from django.core.management import call_command
from django.db import connections
from django.utils import timezone

from rsmq_django.outbox.listening import RowListener
from rsmq_django.outbox.relay import Relay
from rsmq_django.tasks import Task
from tests.outbox.conftest import LEDGER, Site
from tests.outbox.test_outbox import rows
from tests.support import wait_until
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare


@pytest.fixture
def greet(with_outbox: Configure) -> Task[..., Any]:
    return cast("Task[..., Any]", declare(lambda name: None))


def test_prune_is_a_command(with_outbox: Configure, greet: Task, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "OUTBOX": {"KEEP_SENT_S": 3600}}
    greet.enqueue_many([["old"], ["new"]])
    Relay().relay_waiting()
    rows().filter(pk=rows().first().pk).update(sent_at=timezone.now() - timedelta(hours=2))

    out = StringIO()
    call_command("rsmq_outbox", "prune", stdout=out)

    assert out.getvalue() == "deleted 1 message that had been sent, and 0 inbox entries\n"
    assert rows().count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_relay_is_a_command_that_a_signal_ends_well(site: Site, journal: Journal, number: signal.Signals):
    relay = site.start("rsmq_outbox", "relay")
    wait_until(lambda: "relaying the outbox; Ctrl-C stops it" in relay.output)
    assert relay.process.poll() is None

    relay.send(number)

    assert relay.wait() == 0, relay.output


# -- What wakes the relay ------------------------------------------------------------------------------------------


def test_relay_sleeps_until_its_time_is_over_or_it_is_stopped(with_outbox: Configure):
    row_listener = RowListener(LEDGER)
    row_listener.listen()
    reader, writer = os.pipe()

    row_listener.wait(0.01, watched=[reader])  # comes back by itself
    threading.Timer(0.2, os.write, (writer, b"stop")).start()
    row_listener.wait(60, watched=[reader])

    assert select.select([reader], [], [], 0)[0], "it slept until then"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("seconds", "sleeps_s"), [(5, 5), (0.5, 0.5), (-3, 0)])
def test_relay_sleeps_for_the_time_that_is_left_and_not_at_all_when_none_is(
    monkeypatch: pytest.MonkeyPatch, seconds: float, sleeps_s: float
):
    slept = []

    def sleep(*arguments: Any) -> tuple[list[int], list[int], list[int]]:
        slept.append(arguments)
        return [], [], []

    monkeypatch.setattr("rsmq_django.outbox.listening.select.select", sleep)

    RowListener(LEDGER).wait(seconds, watched=[7])

    assert slept == [([7], [], [], sleeps_s)]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_relay_listens_once_on_each_connection(with_outbox: Configure, monkeypatch: pytest.MonkeyPatch):
    import psycopg

    listening = []
    monkeypatch.setattr(psycopg.Connection, "add_notify_handler", lambda driver, handler: listening.append(driver))
    row_listener = RowListener(LEDGER)

    row_listener.listen()
    row_listener.listen()
    connections[LEDGER].close()
    row_listener.listen()

    assert len(listening) == len(set(listening)) == 2


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_new_row_wakes_the_relay_and_wakes_it_once(with_outbox: Configure, greet: Task):
    row_listener = RowListener(LEDGER)
    row_listener.listen()
    descriptor = row_listener._listening.fileno()

    def enqueue_elsewhere() -> None:
        greet.enqueue("wake up")
        connections[LEDGER].close()

    thread = threading.Thread(target=enqueue_elsewhere)
    thread.start()
    thread.join()
    assert select.select([descriptor], [], [], 60)[0]

    row_listener.wait(60)

    assert select.select([descriptor], [], [], 0)[0] == [], "what was said is read, or nobody could sleep"
    reader, writer = os.pipe()
    os.write(writer, b"x")
    row_listener.wait(60, watched=[reader])  # it looks at what is watched: nothing has rung since
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_row_that_came_before_the_relay_sleeps_keeps_it_awake(
    with_outbox: Configure, greet: Task, monkeypatch: pytest.MonkeyPatch
):
    row_listener = RowListener(LEDGER)
    row_listener.listen()
    greet.enqueue("early")
    Relay().relay_waiting()  # a query makes the driver read what was said

    monkeypatch.setattr("rsmq_django.outbox.listening.select.select", lambda *_: pytest.fail("it sleeps"))
    row_listener.wait(60)

    assert not row_listener._has_rung
