"""How long a process waits: for a server that is away, for the outbox, for functions that were interrupted."""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.transport import backoff as backoff
from rsmq_django.core.transport.backoff import ReconnectBackoff
from rsmq_django.outbox import batch_size as batch_size
from rsmq_django.outbox import relay_process as relay_process
from rsmq_django.outbox.batch_size import BatchSize
from rsmq_django.outbox.relay_process import RelayProcess, StopRequest
from rsmq_django.tasks.retry import TaskTimeout
from rsmq_django.worker import delivery
from rsmq_django.worker.delivery import TimeLimit
from rsmq_django.worker.execute import interrupt
from rsmq_django.worker.execute.interrupt import Interruptions
from rsmq_django.worker.fetch.wakeup import Wakeup
from rsmq_django.worker.stopping import STOP_SIGNALS, Stopping
from tests.worker.still_clock import StillClock

# -- A server that is away ---------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr(backoff, "_outages", {})
    return StillClock(monkeypatch, backoff, batch_size, delivery, interrupt)


def waits_of(trouble: ReconnectBackoff, clock: StillClock, *at_most_s: float) -> list[float]:
    waits = []
    for most_s in at_most_s:
        trouble.note(ConnectionFailed("no route"), at_most_s=most_s)
        waits.append(trouble.next_try_at - clock.now)
    return waits


def test_longest_wait_for_a_server_doubles_up_to_five_seconds(clock: StillClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.core.transport.backoff.random.uniform", lambda least, most: most)

    waits = waits_of(ReconnectBackoff("redis"), clock, *[math.inf] * 8)

    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_wait_for_a_server_is_any_between_a_twentieth_of_a_second_and_the_longest(
    clock: StillClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.core.transport.backoff.random.uniform", lambda least, most: least)

    assert waits_of(ReconnectBackoff("redis"), clock, 60, 60, 0.02) == pytest.approx([0.05, 0.05, 0.01])


def test_outage_lasts_from_its_first_failure_until_a_success(clock: StillClock):
    trouble = ReconnectBackoff("redis")
    lasts = [trouble.lasts_s]
    for _ in range(2):
        trouble.note(ConnectionFailed("no route"))
        clock.now += 2
        lasts.append(trouble.lasts_s)
    trouble.over()

    assert [*lasts, trouble.lasts_s, trouble.next_try_at, trouble.is_on] == [0, 2, 4, 0, 0, False]


def test_failures_of_one_thing_are_logged_at_first_and_then_once_a_minute(
    clock: StillClock, caplog: pytest.LogCaptureFixture
):
    trouble, lines = ReconnectBackoff("the outbox"), []
    for seconds in (0, 59, 1, 59.9, 0.1):
        clock.now += seconds
        trouble.note(ConnectionFailed("no route"))
        lines.append(len(caplog.records))

    assert lines == [1, 1, 2, 2, 3]


# -- Rows of the outbox ------------------------------------------------------------------------------------------------


def test_round_trips_shrink_after_a_time_out_and_grow_a_minute_later(clock: StillClock):
    rows = BatchSize()
    sizes = [(rows.rows, rows.size_bytes)]
    for sent in (400, 100):
        rows.halve(sent)
        sizes.append((rows.rows, rows.size_bytes))
    whole = sizes[0][1]
    clock.now += 59
    rows.grow()
    sizes.append((rows.rows, rows.size_bytes))
    for _ in range(5):
        clock.now += 1
        rows.grow()
        sizes.append((rows.rows, rows.size_bytes))

    assert [count for count, _ in sizes] == [500, 200, 50, 50, 100, 200, 400, 500, 500]
    assert [size for _, size in sizes] == [whole, whole // 2, whole // 4, whole // 4, whole // 2, *[whole] * 4]


def test_row_that_is_sent_alone_gets_more_time_each_time_up_to_a_limit(clock: StillClock):
    rows, patience = BatchSize(), []
    for _ in range(8):
        rows.halve(1)
        patience.append(rows.patience)
    rows.halve(2)
    patience.append(rows.patience)
    clock.now += 60
    for _ in range(8):
        rows.grow()
        patience.append(rows.patience)

    assert patience == [2, 4, 8, 16, 32, 64, 64, 64, 64, 32, 16, 8, 4, 2, 1, 1, 1]


# -- Functions that were interrupted -----------------------------------------------------------------------------------


class Call:
    """A call that ends after it was interrupted `lives` times."""

    def __init__(self, *, lives: int, limit_s: float | None = None) -> None:
        self.lives, self.interrupted = lives, list[type[BaseException]]()
        self.time_limit = None if limit_s is None else TimeLimit(limit_s)

    def interrupt(self, kind: type[BaseException]) -> bool:
        if self.lives == len(self.interrupted):
            return False
        self.interrupted.append(kind)
        return True


def test_function_is_interrupted_each_second_until_it_has_ended(clock: StillClock):
    call, first = Call(lives=3), list[Call]()
    interruptions = Interruptions(first.append)

    interruptions.interrupt(call, KeyboardInterrupt)
    counts = []
    for _ in range(8):
        clock.now += 0.5
        interruptions.repeat([])
        counts.append(len(call.interrupted))

    assert counts == [1, 2, 2, 3, 3, 3, 3, 3]
    assert first == [call] and interruptions.next_at([]) is None


def test_function_is_interrupted_when_its_limit_is_over(clock: StillClock):
    short, long, free = Call(lives=9, limit_s=2), Call(lives=9, limit_s=3), Call(lives=9)
    interruptions = Interruptions[Call](lambda call: None)
    running = [short, long, free]
    assert short.time_limit is not None and long.time_limit is not None
    short.time_limit.begin()
    long.time_limit.begin()

    before = interruptions.next_at([short.time_limit.deadline, long.time_limit.deadline])
    clock.now += 2
    interruptions.repeat(running)
    next_at = interruptions.next_at([short.time_limit.deadline, long.time_limit.deadline])

    assert (before, next_at) == (StillClock.now + 2, StillClock.now + 3)
    assert [call.interrupted for call in running] == [[TaskTimeout], [], []]


# -- Signals of a worker -----------------------------------------------------------------------------------------------


@pytest.fixture
def own_signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, signal.SIGUSR2)}
    descriptor = signal.set_wakeup_fd(-1)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(descriptor)


@pytest.mark.parametrize("way", [Stopping.handle_signals, Stopping.handle_supervisor])
def test_signal_right_before_a_sleep_ends_it(own_signals: None, way: Callable[[Stopping], None]):
    wakeup, came_late = Wakeup(), list[str]()
    stopping = Stopping(wakeup, grace_s=60, shared_state=None)
    way(stopping)

    def end_the_sleep() -> None:
        came_late.append("nothing else has ended the sleep")
        wakeup.wake()

    watch = threading.Timer(30, end_the_sleep)
    watch.start()

    signal.raise_signal(signal.SIGTERM)
    wakeup.sleep(lambda: None, at_most_s=3600)

    watch.cancel()
    wakeup.close()
    assert stopping.by is not None and came_late == []


# -- The process that relays the outbox --------------------------------------------------------------------------------


def test_request_to_end_stays_made_while_the_supervisor_lives(own_signals: None):
    lifeline, held_by_the_supervisor = os.pipe()
    stop = StopRequest(lifeline)
    stop.on_signals(signal.SIGUSR2)

    signal.raise_signal(signal.SIGUSR2)

    assert [stop.is_made, stop.is_made] == [True, True]
    os.close(lifeline)
    os.close(held_by_the_supervisor)


def test_signal_wakes_a_relay_that_sleeps(own_signals: None):
    stop = StopRequest()
    stop.on_signals(signal.SIGUSR2)
    before = select.select(stop.watched, [], [], 0)[0]

    signal.raise_signal(signal.SIGUSR2)

    assert before == [] and select.select(stop.watched, [], [], 60)[0] == stop.watched


def test_relay_process_that_ends_is_started_again_later_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock, relay, waits = StillClock(monkeypatch, relay_process), RelayProcess(), []
    for _ in range(3):
        relay.started(os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(3)"], os.environ))
        while relay.pid is not None:
            relay.check()
        began_at = clock.now
        while not relay.is_due:
            clock.now = round(clock.now + 0.05, 2)
        waits.append(round(clock.now - began_at, 2))

    assert waits == [relay_process.FIRST_WAIT_S * factor for factor in (1, 2, 4)]
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 3
