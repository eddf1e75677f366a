"""A message whose process died while it ran runs alone the next time: when, for how long, and what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.worker.execute import quarantine as module
from rsmq_django.worker.execute.quarantine import ALONE_S, CHECK_EVERY_S, WAIT_FOR_OTHERS_S, Quarantine
from tests.worker.still_clock import StillClock


class Pool:
    """Takes what it is given and runs nothing."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.is_idle = True

    def submit(self, name: str) -> None:
        self.submitted.append(name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    return StillClock(monkeypatch, module)


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def quarantine(clock: StillClock, pool: Pool) -> Any:
    return Quarantine(pool)  # type: ignore[arg-type]


def test_messages_are_not_delayed_without_suspects(quarantine: Any, pool: Pool):
    quarantine.advance(is_quiet=True)

    assert (quarantine.is_wanted(), quarantine.next_check_at(), pool.submitted) == (False, None, [])


def test_a_suspect_runs_when_it_is_quiet_and_the_next_one_after_it(quarantine: Any, pool: Pool, clock: StillClock):
    quarantine.submit("a")
    quarantine.submit("b")
    quarantine.advance(is_quiet=False)
    assert pool.submitted == [] and quarantine.is_wanted()
    assert quarantine.next_check_at() == clock.now + CHECK_EVERY_S

    quarantine.advance(is_quiet=True)
    assert pool.submitted == ["a"]
    quarantine.advance(is_quiet=False)
    assert pool.submitted == ["a"]
    quarantine.advance(is_quiet=True)
    assert pool.submitted == ["a", "b"]


def test_a_suspect_keeps_its_process_for_a_while_unless_it_has_ended(quarantine: Any, pool: Pool, clock: StillClock):
    quarantine.submit("a")
    quarantine.advance(is_quiet=True)

    pool.is_idle = False
    assert quarantine.is_wanted()
    pool.is_idle = True
    assert not quarantine.is_wanted()
    pool.is_idle = False
    clock.now += ALONE_S - 0.001
    assert quarantine.is_wanted()
    clock.now += 0.001
    assert not quarantine.is_wanted()


def test_a_suspect_that_has_waited_long_enough_runs_in_parallel_with_others(
    quarantine: Any, pool: Pool, clock: StillClock
):
    quarantine.submit("a")
    clock.now += 4
    quarantine.submit("b")
    clock.now += WAIT_FOR_OTHERS_S - 4
    quarantine.advance(is_quiet=False)
    assert pool.submitted == []

    clock.now += 0.001
    quarantine.advance(is_quiet=False)
    assert pool.submitted == ["a"]
    clock.now += WAIT_FOR_OTHERS_S
    quarantine.advance(is_quiet=False)
    assert pool.submitted == ["a"], "the time of the next one begins with the one before it"
    clock.now += 0.001
    quarantine.advance(is_quiet=False)
    assert pool.submitted == ["a", "b"]


def test_suspects_that_wait_are_taken_back(quarantine: Any):
    quarantine.submit("a")
    quarantine.submit("b")

    assert (quarantine.take_back(), quarantine.take_back(), quarantine.is_wanted()) == (["a", "b"], [], False)
