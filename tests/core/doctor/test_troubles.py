"""Queues that need attention: decided from a few numbers of each, for the doctor and the admin."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core.doctor.finding import ExpectedQueue
from rsmq_django.core.doctor.troubles import (
    ORDER,
    Service,
    Trouble,
    attempt_calls,
    backlogs_outside,
    dead_letter_queues,
    depth_calls,
    troubles_of,
)
from rsmq_django.core.queue.listing import MAX_DEPTHS
from rsmq_django.core.stats.depth import Depth
from rsmq_django.core.stats.moments import MAX_QUEUES

MAIL = ExpectedQueue(is_worked_on=True, dead_letter="mail-dead", target_s=60)


def depth(messages: int, *, ready: int = 0, oldest_s: float | None = None) -> Depth:
    return Depth(ready=ready, hidden=messages - ready, oldest_ready_s=oldest_s)


def troubles(
    expected: dict[str, ExpectedQueue] | None = None,
    *,
    served: tuple[str, ...] = ("mail",),
    paused: tuple[str, ...] = (),
    attempts: dict[str, tuple[int, int]] | None = None,
    **depths: Depth,
) -> list[Trouble]:
    named = {name.replace("_", "-"): each for name, each in depths.items()}
    return troubles_of(expected or {"mail": MAIL}, Service(named, served, paused, attempts or {}))


def kinds(found: list[Trouble]) -> list[tuple[str, str, int]]:
    return [(each.id, each.queue, each.count) for each in found]


def test_a_queue_without_messages_or_with_a_short_backlog_is_in_order():
    assert troubles() == []
    assert troubles(mail=depth(9, ready=9, oldest_s=60)) == []
    assert troubles(served=(), mail=depth(9)) == [], "delayed or held: nothing waits for a worker"


def test_a_backlog_is_late_when_its_first_message_is_ready_for_longer_than_the_target():
    assert troubles(mail=depth(9, ready=7, oldest_s=60.1)) == [Trouble("late", "mail", 7, 60.1, 60)]


def test_a_backlog_without_a_worker_is_unserved_and_may_be_late_as_well():
    assert kinds(troubles(served=(), mail=depth(1, ready=1))) == [("unserved", "mail", 1)]
    assert kinds(troubles(served=(), mail=depth(3, ready=2, oldest_s=99))) == [
        ("unserved", "mail", 2),
        ("late", "mail", 2),
    ]


def test_a_backlog_of_a_paused_queue_is_neither_late_nor_unserved():
    found = troubles(served=(), paused=("mail",), mail=depth(3, ready=2, oldest_s=99))

    assert found == [Trouble("paused-backlog", "mail", 2, 99)]
    assert troubles(paused=("mail",), mail=depth(3)) == []


def test_the_priorities_of_a_queue_count_together_unless_the_settings_name_them():
    depths = {"mail": depth(2, ready=1, oldest_s=5), "mail_p5": depth(4, ready=3, oldest_s=70)}

    assert troubles(**depths) == [Trouble("late", "mail", 4, 70, 60)]
    own = {"mail": MAIL, "mail-p5": ExpectedQueue(is_worked_on=True, target_s=600)}
    assert troubles(own, served=("mail", "mail-p5"), **depths) == []


@pytest.mark.parametrize(
    ("ended", "failed", "is_failing"), [(10, 3, True), (12, 3, True), (13, 3, False), (9, 9, False), (10, 0, False)]
)
def test_a_queue_is_failing_when_a_quarter_of_enough_attempts_failed(ended: int, failed: int, is_failing: bool):
    found = troubles(attempts={"mail": (ended, failed)})

    assert found == ([Trouble("failing", "mail", failed, limit=ended)] if is_failing else [])


def test_dead_letters_are_reported_unless_workers_consume_them():
    dead = {"mail_dead": depth(2), "other_dead": depth(5)}

    assert kinds(troubles(**dead)) == [("dead-letters", "mail-dead", 2)]
    assert troubles(mail_dead=depth(0)) == []
    known = {"mail": MAIL, "mail-dead": ExpectedQueue()}
    assert kinds(troubles(known, **dead)) == [("dead-letters", "mail-dead", 2)]
    worked_on = {"mail": MAIL, "mail-dead": ExpectedQueue(is_worked_on=True, dead_letter="last")}
    assert troubles(worked_on, **dead) == []
    assert dead_letter_queues(worked_on) == {"last"}
    assert dead_letter_queues({"mail": ExpectedQueue()}) == set()


def test_a_queue_that_others_work_on_is_not_judged():
    expected = {"mail": ExpectedQueue(target_s=1)}

    assert troubles(expected, served=(), attempts={"mail": (99, 99)}, mail=depth(9, ready=9, oldest_s=99)) == []


def outside(*served: str, **depths: Depth) -> list[tuple[str, str, int]]:
    expected = {"mail": MAIL, "sensors": ExpectedQueue()}
    named = {name.replace("_", "-"): each for name, each in depths.items()}
    return kinds(backlogs_outside(expected, Service(named, ("mail", *served), (), {})))


def test_an_old_backlog_of_a_queue_outside_the_settings_is_found():
    old = depth(3, ready=2, oldest_s=61)

    assert outside(old_name=old, old_name_p10=old) == [("not-in-settings", "old-name", 4)]
    assert outside("old-name", old_name=old) == [], "another project consumes it"
    assert outside(old_name=depth(3, ready=3, oldest_s=60)) == [], "another program may consume it"
    assert outside(old_name=depth(3)) == []
    assert outside(mail=old, mail_p10=old, mail_dead=old, sensors=old) == [], "they are in the settings"


def test_queues_that_need_attention_come_first():
    expected = {
        name: ExpectedQueue(is_worked_on=True, dead_letter="dead", target_s=60) for name in ("a", "b", "c", "d")
    }
    found = troubles(
        expected,
        served=("a", "b", "d"),
        paused=("a",),
        attempts={"d": (10, 10), "b": (20, 20)},
        a=depth(1, ready=1),
        b=depth(1, ready=1, oldest_s=99),
        c=depth(1, ready=1),
        dead=depth(1),
    )

    assert [(each.id, each.queue) for each in found] == [
        ("unserved", "c"),
        ("late", "b"),
        ("failing", "b"),
        ("failing", "d"),
        ("dead-letters", "dead"),
        ("paused-backlog", "a"),
    ]
    assert [each.rank for each in found] == [0, 1, 2, 2, 3, 4] and len(ORDER) == 5


@pytest.mark.parametrize(("count", "calls"), [(0, 0), (1, 1), (MAX_DEPTHS, 1), (MAX_DEPTHS + 1, 2)])
def test_depths_are_read_in_as_many_calls_as_needed(count: int, calls: int):
    assert len(depth_calls("rsmq", [f"q{number}" for number in range(count)])) == calls


def test_attempts_are_read_only_of_queues_that_are_worked_on():
    expected: dict[str, Any] = {f"q{number}": ExpectedQueue(is_worked_on=True) for number in range(MAX_QUEUES + 1)}
    expected["other"] = ExpectedQueue()

    assert len(attempt_calls("rsmq", expected, [*expected, "unknown"], 0.0)) == 2
    assert attempt_calls("rsmq", expected, ["other", "unknown"], 0.0) == []
