"""The server's time in a worker: as exact as the replies that tell it."""

from __future__ import annotations

import time

import pytest

from rsmq_django.worker.report.clock import ServerClock


@pytest.mark.parametrize("ahead_ms", [-5_000_000.0, 5_000_000.0])
def test_clock_follows_a_server_whose_time_is_another_one(ahead_ms: float):
    clock = ServerClock()
    asked_at = time.monotonic()

    clock.set(time.time() * 1000 + ahead_ms, asked_at=asked_at)

    assert clock.now_ms() == pytest.approx(time.time() * 1000 + ahead_ms, abs=10_000)


def test_reply_that_was_read_late_does_not_set_the_clock_back():
    clock = ServerClock()
    before = clock.offset_ms

    clock.set(time.time() * 1000 - 60_000, asked_at=time.monotonic() - 70)

    assert clock.offset_ms == before
