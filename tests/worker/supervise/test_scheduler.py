"""Ticks fire once whoever looks, nothing that was missed is forgotten or floods, and one bad entry stops no other."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from rsmq_django import schedules
from rsmq_django.core import Connection
from rsmq_django.core.errors import QueueFull
from rsmq_django.core.tasks.schedules import tick_id
from rsmq_django.core.transport.packing import Command, Reply
from rsmq_django.queues import get_queue
from rsmq_django.tasks import cancel_tagged, cron, every, tagged
from rsmq_django.tasks.middleware import SentCall
from rsmq_django.worker.supervise import scheduler
from tests.redis_server import PrivateServer
from tests.support import pass_time
from tests.tasks.schedules import (  # noqa: F401
    DUE,
    ENTRIES,
    STATE,
    let_pass,
    new_scheduler,
    own_declarations,
    planned_ms,
    sent_ids,
)
from tests.worker.workshop import Configure, declare, work

pytestmark = pytest.mark.usefixtures("mid_minute")


@pytest.fixture
def ran(project: Configure) -> list[str]:
    """A task "tests.worker.supervise.test_scheduler.note", declared in this process, and what it was called with."""
    called: list[str] = []

    @declare
    def note(name: str = "tick") -> None:
        called.append(name)

    return called


NOTE = "tests.worker.supervise.test_scheduler.note"


# -- Firing --------------------------------------------------------------------------------------------------------


def test_tick_becomes_a_task_with_a_derivable_id(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600, args=["Ada"])
    planned = let_pass(server, "hourly", seconds=3600)

    new_scheduler().fire_due()

    assert sent_ids(server) == [tick_id("rsmq", "hourly", planned)]
    work()
    assert ran == ["Ada"]


def test_nothing_fires_before_its_time_and_the_wait_ends_when_it_comes(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600)

    wait_s = new_scheduler().fire_due()

    assert sent_ids(server) == []
    assert 0 < wait_s <= 1


def test_very_many_ticks_take_few_round_trips(ran: list[str], server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    names = [f"hourly {number}" for number in range(150)]
    for name in names:
        schedules.add(name, NOTE, every_s=3600, args=[name])
        let_pass(server, name, seconds=3600)
    server.redis.hset(ENTRIES, "hourly 7", "no definition")
    moving = new_scheduler()
    moving.sync()
    exchange, count = Connection.exchange, list[int]()

    def counting(connection: Connection, commands: Sequence[Command]) -> list[Reply]:
        count.append(len(commands))
        return exchange(connection, commands)

    monkeypatch.setattr(Connection, "exchange", counting)
    moving.fire_due()

    assert len(count) < 10
    work()
    assert sorted(ran) == sorted({*names} - {"hourly 7"})


def test_ticks_for_one_missing_queue_create_it_once_and_fire(ran: list[str], server: PrivateServer):
    for name in ("a", "b"):
        schedules.add(name, NOTE, every_s=3600, args=[name])
        let_pass(server, name, seconds=3600)
    server.redis.delete("rsmq:default:Q", "rsmq:default")

    new_scheduler().fire_due()

    work()
    assert sorted(ran) == ["a", "b"]


def test_next_time_follows_from_the_timetable_and_not_from_the_time_of_the_read(ran: list[str], server: PrivateServer):
    schedules.add("often", NOTE, every_s=7)
    let_pass(server, "often", seconds=7)

    new_scheduler().fire_due()

    assert (planned_ms(server, "often") or 1) % 7000 == 0


def test_one_of_many_simultaneous_processes_fires(ran: list[str], server: PrivateServer):
    for number in range(5):
        schedules.add(f"entry-{number}", NOTE, every_s=3600, args=[str(number)])
        let_pass(server, f"entry-{number}", seconds=3600)
    schedulers = [new_scheduler() for _ in range(6)]
    for each in schedulers:
        each.sync()
    together = threading.Barrier(len(schedulers))

    def look(each) -> None:
        together.wait()
        each.fire_due()

    threads = [threading.Thread(target=look, args=(each,)) for each in schedulers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(sent_ids(server)) == 5
    work()
    assert sorted(ran) == ["0", "1", "2", "3", "4"]


def test_queue_that_does_not_exist_yet_is_created(project: Configure, ran: list[str], server: PrivateServer):
    project(default={}, slow={})
    schedules.add("hourly", NOTE, every_s=3600, queue="slow")
    let_pass(server, "hourly", seconds=3600)

    new_scheduler().fire_due()

    assert len(sent_ids(server, "slow")) == 1


def test_jitter_delays_the_message_and_not_the_tick(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600, jitter_s=3000)
    let_pass(server, "hourly", seconds=3600)

    new_scheduler().fire_due()

    ((message_id, visible_ms),) = server.redis.zrange("rsmq:default", 0, -1, withscores=True)
    sent_ms = int(message_id[:10], 36) / 1000
    assert 0 < visible_ms - sent_ms <= 3_000_000
    assert (planned_ms(server, "hourly") or 1) % 3_600_000 == 0


@pytest.mark.parametrize(("late_s", "runs"), [(30, ["tick"]), (61, [])])
def test_tick_with_jitter_expires_after_its_delay_and_not_before(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, late_s: int, runs: list[str]
):
    ran: list[str] = []
    task = declare(expires_in_s=60)(lambda: ran.append("tick"))
    monkeypatch.setattr(scheduler, "jitter_ms", lambda entry, ids: 3_000_000)
    schedules.add("hourly", task, every_s=3600, jitter_s=3000)
    let_pass(server, "hourly", seconds=3600)
    new_scheduler().fire_due()

    pass_time(get_queue("default"), seconds=3000 + late_s)
    work()

    assert ran == runs


def test_ticks_are_found_and_cancelled_by_the_tags_of_their_task(project: Configure, server: PrivateServer):
    schedules.add("hourly", declare(tags=["prices", "nightly"])(lambda: None), every_s=3600)
    let_pass(server, "hourly", seconds=3600)

    new_scheduler().fire_due()

    assert tagged("prices") == tagged("nightly") == sent_ids(server) != []
    assert cancel_tagged("prices") == 1
    assert sent_ids(server) == tagged("prices") == tagged("nightly") == []


def test_fired_ticks_are_recorded(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600)
    planned = let_pass(server, "hourly", seconds=3600)

    new_scheduler().fire_due()

    entry = schedules.get("hourly")
    assert entry.last_task_id == tick_id("rsmq", "hourly", planned)
    assert round(entry.last_planned_at.timestamp() * 1000) == planned
    assert entry.last_fired_at > entry.last_planned_at
    assert (entry.fired, entry.skipped) == (1, 0)


# -- Missed ticks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fired", "skipped"),
    [
        ({"missed": "skip"}, 1, 58),
        ({"missed": "once"}, 2, 57),
        ({}, 2, 57),
        ({"missed": "all"}, 59, 0),
        ({"missed": "all", "missed_limit": 10}, 11, 48),
        ({"missed": "skip", "missed_after_s": 7200}, 59, 0),
    ],
)
def test_worker_that_was_down_for_an_hour(ran: list[str], server: PrivateServer, options, fired: int, skipped: int):
    # The tick that is due now is not missed: it is the 59 minutes before it.
    schedules.add("minutely", NOTE, every_s=60, **({"missed_after_s": 59} | options))
    planned = let_pass(server, "minutely", seconds=59 * 60)

    new_scheduler().fire_due()

    entry = schedules.get("minutely")
    assert abs(entry.fired - fired) <= 1
    assert entry.fired + entry.skipped == 59
    assert abs(entry.skipped - skipped) <= 1
    ids = [tick_id("rsmq", "minutely", planned + n * 60_000) for n in range(59)]
    assert sent_ids(server) == ids[len(ids) - entry.fired :], "the latest ones, in order"


def test_missed_ticks_are_reported(ran: list[str], server: PrivateServer, caplog: pytest.LogCaptureFixture):
    schedules.add("hourly", NOTE, every_s=3600)
    let_pass(server, "hourly", seconds=10 * 3600)

    new_scheduler().fire_due()

    assert "schedule hourly: not fired when it was due; 1 missed ticks are made up for, " in caplog.text


# -- What the code declares ----------------------------------------------------------------------------------------


def test_declared_entries_appear_when_a_worker_starts(project: Configure, server: PrivateServer, settings):
    @every(minutes=5)
    @declare
    def tidy() -> None: ...

    @cron("30 3 * * *", time_zone="Europe/Berlin", name="nightly", args=[7])
    @declare
    def report(days: int) -> None: ...

    path = "tests.worker.supervise.test_scheduler.tidy"
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"from-settings": {"TASK": path, "EVERY_S": 30}}}
    assert {entry.problem for entry in schedules.entries()} == {"no worker has stored it yet"}

    new_scheduler().fire_due()

    found = {entry.name: entry.when for entry in schedules.entries()}
    assert found == {path: "every 5 min", "nightly": "30 3 * * * (Europe/Berlin)", "from-settings": "every 30 s"}
    assert all(entry.is_declared and entry.next_at and not entry.problem for entry in schedules.entries())


def test_entry_that_is_not_declared_any_more_disappears_and_others_stay(ran: list[str], server, settings):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"old": {"TASK": NOTE, "EVERY_S": 30}}}
    new_scheduler().fire_due()
    schedules.add("by-hand", NOTE, every_s=30)

    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"new": {"TASK": NOTE, "EVERY_S": 30}}}
    new_scheduler().fire_due()

    assert [entry.name for entry in schedules.entries()] == ["by-hand", "new"]
    assert not [field for field in server.redis.hkeys(STATE) if field.endswith(b":old")]


def test_entry_of_another_project_in_the_same_namespace_stays(
    ran: list[str], server: PrivateServer, settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scheduler, "owner", lambda: "shop")
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"theirs": {"TASK": NOTE, "EVERY_S": 30}}}
    new_scheduler().fire_due()

    monkeypatch.setattr(scheduler, "owner", lambda: "warehouse")
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {}}
    new_scheduler().fire_due()

    assert [entry.name for entry in schedules.entries()] == ["theirs"]


def test_paused_entry_stays_paused_when_its_declaration_changes(ran: list[str], server: PrivateServer, settings):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 30}}}
    new_scheduler().fire_due()
    schedules.pause("note")

    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 60}}}
    new_scheduler().fire_due()

    entry = schedules.get("note")
    assert (entry.is_paused, entry.next_at, entry.when) == (True, None, "every 1 min")


def test_new_release_keeps_due_entries(ran: list[str], server: PrivateServer, settings):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 3600, "ARGS": ["old"]}}}
    new_scheduler().fire_due()
    let_pass(server, "note", seconds=3600)

    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 3600, "ARGS": ["new"]}}}
    new_scheduler().fire_due()

    work()
    assert ran == ["new"]


def test_tick_that_a_worker_of_the_old_release_fires_meanwhile_fires_once(
    ran: list[str], server: PrivateServer, settings, monkeypatch: pytest.MonkeyPatch
):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 3600, "ARGS": ["old"]}}}
    old, new = new_scheduler(), new_scheduler()
    old.fire_due()
    let_pass(server, "note", seconds=3600)
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 3600, "ARGS": ["new"]}}}
    real = new._put_calls

    def fire_in_between(*args: Any) -> Any:
        old.fire_due()
        return real(*args)

    monkeypatch.setattr(new, "_put_calls", fire_in_between)
    new.fire_due()

    work()
    assert ran == ["old"]


def test_two_workers_that_start_at_once_agree(ran: list[str], server: PrivateServer, settings):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {f"note-{n}": {"TASK": NOTE, "EVERY_S": 30} for n in range(20)}}
    threads = [threading.Thread(target=new_scheduler().fire_due) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(schedules.entries()) == 20
    assert all(entry.next_at for entry in schedules.entries())


# -- Trouble -------------------------------------------------------------------------------------------------------


def test_entries_with_something_wrong_do_not_stop_the_others(
    ran: list[str], server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    schedules.add("good", NOTE, every_s=3600)
    bad = {
        "a-unknown": json.dumps({"task": "shop.tasks.gone", "every_s": 60}),
        "b-garbage": "\x00{not json",
        "c-list": "[1]",
        "d-options": json.dumps({"task": NOTE, "every_s": -3, "colour": "red"}),
        "e-arguments": json.dumps({"task": NOTE, "every_s": 60, "kwargs": {"nobody": 1}}),
        "f-queue": json.dumps({"task": NOTE, "every_s": 60, "queue": "nowhere"}),
        "g-long": json.dumps({"task": NOTE, "every_s": 60, "args": ["x" * 70_000]}),
        "z\n\x1b[31m": "{}",
    }
    for name, definition in bad.items():
        server.redis.hset(ENTRIES, name, definition)
        server.redis.zadd(DUE, {name: 1_700_000_000_000})
    server.redis.zadd(DUE, {"phantom": 1_700_000_000_000})
    let_pass(server, "good", seconds=3600)
    watching = new_scheduler()

    watching.fire_due()
    wait_s = watching.fire_due()

    assert len(sent_ids(server)) == 1
    assert wait_s > 0, "what cannot fire is not tried without a pause"
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == len(bad) + 1, "each once, however often it is looked at"
    assert "schedule 'a-unknown': no task 'shop.tasks.gone' is declared here" in caplog.text
    problems = {entry.name: entry.problem for entry in schedules.entries()}
    assert all(problems[name] for name in bad if name != "g-long")
    assert problems["good"] == ""


def test_middleware_that_raises_does_not_stop_the_supervisor(
    ran: list[str], server: PrivateServer, settings, caplog: pytest.LogCaptureFixture
):
    class Tenant:
        def sending(self, call: SentCall) -> None:
            raise LookupError("no tenant")  # as a context variable does that nobody has set

    settings.RSMQ = {**settings.RSMQ, "MIDDLEWARE": [Tenant]}
    schedules.add("hourly", NOTE, every_s=3600)
    let_pass(server, "hourly", seconds=3600)

    new_scheduler().fire_due()

    assert sent_ids(server) == []
    assert "schedule 'hourly': LookupError: no tenant; it does not fire here" in caplog.text


@pytest.mark.parametrize("score", [float("-inf"), 1_700_000_000_000.5])
def test_planned_time_that_another_program_wrote_stops_no_other_schedule(
    ran: list[str], server: PrivateServer, score: float
):
    schedules.add("hourly", NOTE, every_s=3600)
    schedules.add("odd", NOTE, every_s=3600, missed="skip", missed_after_s=1)
    let_pass(server, "hourly", seconds=3600)
    server.redis.zadd(DUE, {"odd": score})

    new_scheduler().fire_due()

    assert len(sent_ids(server)) == 1
    assert score < 0 or server.redis.zscore(DUE, "odd") > score, "what can be read as a time goes on from there"


def test_declared_entry_of_an_unknown_task_is_reported_and_the_others_start(
    ran: list[str], server: PrivateServer, settings, caplog: pytest.LogCaptureFixture
):
    table = {"typo": {"TASK": NOTE, "EVERY_S": 30, "KWARGS": {"nmae": "x"}}}
    table |= {"gone": {"TASK": "shop.gone", "EVERY_S": 30}, "good": {"TASK": NOTE, "EVERY_S": 30}}
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": table}

    new_scheduler().fire_due()

    problems = {entry.name: entry.problem for entry in schedules.entries()}
    assert "no task 'shop.gone' is declared here" in problems["gone"]
    assert "unexpected keyword argument 'nmae'" in problems["typo"]
    assert problems["good"] == ""
    assert "schedule 'gone': no task 'shop.gone'" in caplog.text


def test_entries_survive_a_restart_of_redis(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600)
    watching = new_scheduler()
    watching.fire_due()
    planned = let_pass(server, "hourly", seconds=3600)

    server.restart()
    new_scheduler().fire_due()
    watching.fire_due()

    assert sent_ids(server) == [tick_id("rsmq", "hourly", planned)]


def test_declared_entries_are_stored_again_when_redis_has_lost_its_data(
    ran: list[str], server: PrivateServer, settings
):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 3600}}}
    watching = new_scheduler()
    watching.fire_due()

    server.redis.flushall()
    watching.fire_due()

    assert [entry.name for entry in schedules.entries() if entry.next_at] == ["note"]


def test_clock_that_was_ahead_for_a_while_does_not_delay_an_entry_by_that_time(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600)
    right = planned_ms(server, "hourly")
    watching = new_scheduler()
    watching.fire_due()
    # What a look left behind while the server's clock was a day ahead.
    let_pass(server, "hourly", seconds=-86_400)
    assert watching._last_look is not None
    before_ms, looked_at = watching._last_look
    watching._last_look = (before_ms + 86_400_000, looked_at)

    watching.fire_due()

    assert planned_ms(server, "hourly") in (right, right + 3_600_000), "an hour may have ended meanwhile"


def test_worker_that_starts_corrects_a_next_time_that_cannot_be_right(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600)
    schedules.add("lost", NOTE, every_s=3600)
    right = planned_ms(server, "hourly")
    let_pass(server, "hourly", seconds=-86_400)
    server.redis.zrem(DUE, "lost")

    new_scheduler().fire_due()

    for name in ("hourly", "lost"):
        assert planned_ms(server, name) in (right, right + 3_600_000), "an hour may have ended meanwhile"


def test_counts_that_another_program_left_let_an_entry_fire_once(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600, missed_after_s=1)
    let_pass(server, "hourly", seconds=5 * 3600)
    server.redis.hset("rsmq::schedule:state", mapping={"fired:hourly": "often", "skipped:hourly": "1e20"})

    for _ in range(2):
        new_scheduler().fire_due()

    assert len(sent_ids(server)) == 1


def test_declared_entries_that_found_no_memory_are_written_later(ran: list[str], server: PrivateServer, settings):
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"note": {"TASK": NOTE, "EVERY_S": 3600}}}
    watching = new_scheduler()
    server.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(QueueFull):
            watching.fire_due()
    finally:
        server.redis.config_set("maxmemory", 0)

    watching.fire_due()

    assert [entry.name for entry in schedules.entries() if entry.next_at] == ["note"]


def test_nothing_changes_when_the_server_has_no_memory_left(ran: list[str], server: PrivateServer):
    schedules.add("hourly", NOTE, every_s=3600)
    planned = let_pass(server, "hourly", seconds=3600)
    watching = new_scheduler()
    watching.sync()
    server.redis.config_set("maxmemory", 1)
    try:
        watching.fire_due()
        assert planned_ms(server, "hourly") == planned
    finally:
        server.redis.config_set("maxmemory", 0)

    watching.fire_due()

    assert len(sent_ids(server)) == 1
