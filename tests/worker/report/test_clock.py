"""The server's time in a worker: as exact as the replies that tell it."""

from __future__ import annotations

import time

import pytest

from rsmq_django.worker.report.clock import ServerClock
from tests.worker.workshop import Configure, declare, new_worker, queue_source


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


@pytest.mark.parametrize("fails", [False, True])
def test_attempt_ends_no_earlier_than_it_began_when_the_clock_is_corrected_meanwhile(project: Configure, fails: bool):
    worker = new_worker(until_empty=True, threads=1)

    @declare(timeout_s=60, max_attempts=1)
    def correct_the_clock() -> None:
        queue_source(worker).clock.offset_ms -= 60_000
        if fails:
            raise ValueError("none")

    result = correct_the_clock.enqueue()
    worker.run()

    result.refresh()
    assert result.started_at is not None and result.finished_at is not None
    assert result.started_at <= result.finished_at
