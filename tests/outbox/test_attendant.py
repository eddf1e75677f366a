"""The process that relays the outbox: the events that end it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from django.db import DatabaseError, OperationalError, connection

from rsmq_django.outbox.relay_process import StopRequest, said


@pytest.fixture
def handlers_stay() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGUSR2)
    descriptor = signal.set_wakeup_fd(-1)
    yield
    signal.signal(signal.SIGUSR2, handler)
    signal.set_wakeup_fd(descriptor)


def test_process_ends_after_a_signal(handlers_stay: None):
    stop = StopRequest()
    stop.on_signals(signal.SIGUSR2)
    before = stop.is_made

    signal.raise_signal(signal.SIGUSR2)

    assert (before, stop.is_made) == (False, True)


def test_process_ends_when_its_supervisor_ends(handlers_stay: None):
    lifeline, held_by_the_supervisor = os.pipe()
    stop = StopRequest(lifeline)
    before = stop.is_made

    os.close(held_by_the_supervisor)

    assert (before, stop.is_made) == (False, True)
    os.close(lifeline)


@pytest.mark.django_db
def test_missing_table_is_explained():
    with pytest.raises(DatabaseError) as error:
        connection.cursor().execute("SELECT 1 FROM nowhere")

    assert said(error.value).endswith(". If its tables are missing, run `manage.py migrate`.")
    assert said(OperationalError("the server is away\n")) == "the server is away."
