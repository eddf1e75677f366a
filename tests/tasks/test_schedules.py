"""Schedules at run time: added, changed, paused, removed, run now, listed; mistakes are reported at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core import checks
from django.core.management import CommandError, call_command

from rsmq_django import schedules
from rsmq_django.core.errors import ScheduleConflict, ScheduleNotFound
from rsmq_django.core.transport.call import load_script
from rsmq_django.tasks import Task, Unique, cron, every
from rsmq_django.tasks.schedule import UnusableSchedule
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.tasks.schedules import ENTRIES, STATE, let_pass, new_scheduler, own_declarations, sent_ids  # noqa: F401
from tests.worker.workshop import Configure, declare

pytestmark = pytest.mark.usefixtures("mid_minute")


@pytest.fixture
def greet(project: Configure) -> Task[..., Any]:
    """A task in the queue "default"."""
    project(default={}, slow={})

    @declare
    def greet(name: str, loud: bool = False) -> None: ...

    return greet  # type: ignore[no-any-return]


# -- The life of an entry ------------------------------------------------------------------------------------------


def test_entry_is_added_changed_and_removed(greet: Task, server: PrivateServer):
    added = schedules.add("hello", greet, cron="0 7 * * *", time_zone="Europe/Berlin", args=["Ada"])
    changed = schedules.change("hello", every_s=900, args=["Grace"], queue="slow")
    schedules.remove("hello")

    assert (added.when, added.is_declared, added.queue_name) == ("0 7 * * * (Europe/Berlin)", False, "default")
    assert (changed.when, changed.schedule.args, changed.queue_name) == ("every 15 min", ("Grace",), "slow")
    assert schedules.entries() == []
    assert server.redis.exists(ENTRIES, STATE, "rsmq::schedule") == 0, "nothing is left behind"


def test_change_of_arguments_keeps_the_next_time(greet: Task):
    before = schedules.add("hello", greet, every_s=900, args=["Ada"])

    after = schedules.change("hello", args=["Grace"])

    assert after.next_at == before.next_at


def test_tick_that_fires_while_its_schedule_is_changed_fires_once(
    greet: Task, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    schedules.add("hello", greet, every_s=3600, args=["Ada"])
    let_pass(server, "hello", seconds=3600)
    real = schedules._change_call

    def fire_in_between(*args: Any) -> Any:
        new_scheduler().fire_due()
        return real(*args)

    monkeypatch.setattr(schedules, "_change_call", fire_in_between)
    schedules.change("hello", args=["Grace"])
    new_scheduler().fire_due()

    assert len(sent_ids(server)) == 1


def test_option_goes_back_to_its_default(greet: Task):
    schedules.add("hello", greet, every_s=900, args=["Ada"], jitter_s=30, missed="all")

    entry = schedules.change("hello", jitter_s=None, missed=None)

    assert (entry.schedule.jitter_s, entry.schedule.missed) == (0, "once")


def test_paused_entry_has_no_next_time_until_it_is_resumed(greet: Task):
    before = schedules.add("hello", greet, every_s=31_536_000, args=["Ada"])

    schedules.pause("hello")
    paused = schedules.get("hello")
    schedules.pause("hello")
    new_scheduler().fire_due()
    schedules.resume("hello")
    schedules.resume("hello")

    assert (paused.is_paused, paused.next_at) == (True, None)
    assert (schedules.get("hello").is_paused, schedules.get("hello").next_at) == (False, before.next_at)


CHANGES: dict[str, Callable[[Any], object]] = {
    "put": lambda task: schedules.add("another", task, every_s=900, args=["Ada"]),
    "put of a change": lambda task: schedules.change("hello", every_s=60),
    "pause": lambda task: schedules.pause("hello"),
    "plan": lambda task: schedules.resume("paused"),
    "remove": lambda task: schedules.remove("hello"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_whose_reply_was_lost_is_no_conflict(project: Configure, server: PrivateServer, change: str):
    @declare
    def greet(name: str) -> None: ...

    with FaultProxy(server.url) as proxy:
        project(default={}, url=proxy.url)
        for name in ("hello", "paused"):
            schedules.add(name, greet, every_s=900, args=["Ada"])
        schedules.pause("paused")
        before = {each.name: each for each in schedules.entries()}
        script = load_script(f"tasks/schedule/{change.partition(' ')[0]}").sha1.encode()
        server.redis.script_load(load_script(f"tasks/schedule/{change.partition(' ')[0]}").source)
        seen = proxy.times_seen(script)
        proxy.lose_reply_to(script)

        CHANGES[change](greet)

        assert proxy.times_seen(script) == seen + 2
        assert {each.name: each for each in schedules.entries()} != before


def test_change_does_not_resume(greet: Task):
    schedules.add("hello", greet, every_s=900, args=["Ada"])
    schedules.pause("hello")

    assert schedules.change("hello", every_s=60).is_paused


def test_run_now_sends_the_task_and_leaves_the_times_alone(greet: Task, server: PrivateServer):
    before = schedules.add("hello", greet, every_s=31_536_000, args=["Ada"], kwargs={"loud": True}, queue="slow")
    schedules.pause("hello")

    result = schedules.run_now("hello")

    assert sent_ids(server, "slow") == [result.id]
    assert (result.args, result.kwargs) == (["Ada"], {"loud": True})
    schedules.resume("hello")
    assert schedules.get("hello").next_at == before.next_at


async def test_everything_has_an_async_form(greet: Task, server: PrivateServer):
    await schedules.aadd("hello", greet, every_s=900, args=["Ada"])
    await schedules.achange("hello", every_s=60)
    await schedules.apause("hello")
    assert (await schedules.aget("hello")).is_paused
    await schedules.aresume("hello")
    result = await schedules.arun_now("hello")
    assert [entry.name for entry in await schedules.aentries()] == ["hello"]
    await schedules.aremove("hello")

    assert await schedules.aentries() == []
    assert sent_ids(server) == [result.id]


# -- Mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "neither EVERY_S nor CRON"),
        ({"every_s": 60, "cron": "* * * * *"}, "both EVERY_S and CRON"),
        ({"every_s": 0.5}, "It must be seconds from 1 to"),
        ({"every_s": float("nan")}, "It must be seconds from 1 to"),
        ({"cron": "61 * * * *"}, "It must be a cron expression"),
        ({"cron": "* * * * *", "time_zone": "Mars/Base"}, "It must be the name of a time zone"),
        ({"every_s": 60, "missed": "never"}, "It must be 'skip' or 'once' or 'all'"),
        ({"every_s": 60, "evry": 1}, "Did you mean 'EVERY_S'?"),
        ({"every_s": 60, "args": [object()]}, "It must be a list that JSON can hold"),
        ({"every_s": 60, "args": ["half a pair \ud83d"]}, "It must be a list that JSON can hold"),
        ({"every_s": 60, "kwargs": {1: 2}}, "It must be a dictionary that JSON can hold"),
        ({"every_s": 60, "kwargs": {"nobody": 1}}, "arguments do not fit"),
        ({"every_s": 60, "queue": "nowhere"}, "Queue 'nowhere' is not in RSMQ"),
        ({"every_s": 60, "args": ["x" * 65_536]}, "bytes, queue 'default' allows 65536; pass ids instead"),
    ],
)
def test_mistake_is_refused_with_a_remedy(greet: Task, options: dict[str, Any], complaint: str):
    with pytest.raises(ValueError, match="schedule 'hello'") as refused:
        schedules.add("hello", greet, **({"args": ["Ada"]} | options))

    assert complaint in str(refused.value)
    assert schedules.entries() == []


def test_unknown_task_is_refused(greet: Task):
    with pytest.raises(
        UnusableSchedule, match="no task 'tests.tasks.test_schedules.gret' is declared here: module .* Did you mean"
    ):
        schedules.add("hello", "tests.tasks.test_schedules.gret", every_s=60)


def test_task_that_takes_batches_is_scheduled_with_the_arguments_of_one_call(project: Configure, server: PrivateServer):
    @declare(batch=100)
    def index(calls: list[Any]) -> None: ...

    schedules.add("index", index, every_s=60, kwargs={"page": 7})
    result = schedules.run_now("index")

    assert (sent_ids(server), result.kwargs) == ([result.id], {"page": 7})


class Colour:
    """A class in the manner of Pydantic, whose code has a mistake."""

    @classmethod
    def model_validate(cls, value: dict[str, Any]) -> Any:
        """Fail with an error of any kind."""
        raise LookupError("no table of colours")

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return no fields."""
        return {}


def test_any_error_of_a_class_of_the_project_makes_an_entry_unusable(project: Configure):
    @declare
    def paint(colour: Colour) -> None: ...

    with pytest.raises(UnusableSchedule, match="arguments do not fit .*paint: LookupError: no table of colours"):
        schedules.add("paint", paint, every_s=60, args=[{}])


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_name_in_use_on_another_connection_is_refused(
    settings: Any, project: Configure, server: PrivateServer, is_async: bool
):
    project(default={}, far={"CONNECTION": "other"})
    other = {**settings.RSMQ["CONNECTIONS"]["default"], "NAMESPACE": "other"}
    settings.RSMQ = settings.RSMQ | {"CONNECTIONS": settings.RSMQ["CONNECTIONS"] | {"other": other}}

    @declare
    def here() -> None: ...

    @declare(queue_name="far")
    def there() -> None: ...

    schedules.add("nightly", there, every_s=60)

    with pytest.raises(ScheduleConflict, match="'nightly' already exists, on the connection 'other'"):
        await schedules.aadd("nightly", here, every_s=60) if is_async else schedules.add("nightly", here, every_s=60)

    assert [entry.connection for entry in schedules.entries()] == ["other"]
    assert not server.redis.exists(ENTRIES)


def test_unique_task_is_refused(greet: Task):
    @declare(unique=Unique())
    def tidy() -> None: ...

    with pytest.raises(UnusableSchedule, match="schedule a task that enqueues it"):
        schedules.add("hello", tidy, every_s=60)


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines", None, 7])
def test_impossible_name_is_refused(greet: Task, name: Any):
    with pytest.raises(ValueError, match="invalid name"):
        schedules.add(name, greet, every_s=60)


def test_name_is_given_once(greet: Task):
    schedules.add("hello", greet, every_s=60, args=["Ada"])

    with pytest.raises(ScheduleConflict, match="already exists"):
        schedules.add("hello", greet, every_s=90, args=["Ada"])
    assert schedules.get("hello").when == "every 1 min"


def test_unknown_name_is_reported(greet: Task):
    for act in (
        schedules.get,
        schedules.remove,
        schedules.pause,
        schedules.resume,
        schedules.run_now,
        schedules.change,
    ):
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'nobody'"):
            act("nobody")


def test_declared_schedule_is_changed_in_the_code_only(greet: Task):
    every(minutes=1, name="hello", args=["Ada"])(greet)
    new_scheduler().fire_due()

    for act in (schedules.remove, lambda name: schedules.change(name, every_s=5)):
        with pytest.raises(ScheduleConflict, match="declared in (the )?code"):
            act("hello")
    with pytest.raises(ScheduleConflict, match="declared in (the )?code"):
        schedules.add("hello", greet, every_s=5, args=["Ada"])
    assert schedules.get("hello").when == "every 1 min"


def test_there_is_a_limit(greet: Task, server: PrivateServer):
    server.redis.hset(ENTRIES, mapping={f"entry-{number}": "{}" for number in range(1000)})

    with pytest.raises(ScheduleConflict, match="at most 1,000"):
        schedules.add("hello", greet, every_s=60, args=["Ada"])


# -- Declaring -----------------------------------------------------------------------------------------------------


def test_decorators_do_not_change_the_task(greet: Task):
    assert every(minutes=1, args=["Ada"])(greet) is greet
    assert cron("0 7 * * *", name="morning", args=["Ada"])(greet) is greet


def test_decorator_below_the_task_is_refused(greet: Task):
    with pytest.raises(ValueError, match="write the schedule above @task, not below it"):

        @every(minutes=1)
        def naked() -> None: ...


def test_wrong_decorator_is_refused_at_the_declaration(greet: Task):
    with pytest.raises(ValueError, match="It must be a cron expression"):
        cron("every morning")(greet)
    with pytest.raises(ValueError, match="It must be seconds from 1 to"):
        every(seconds=0)(greet)


def test_two_tasks_cannot_share_a_name(greet: Task):
    every(minutes=1, name="hello", args=["Ada"])(greet)

    @declare
    def other() -> None: ...

    with pytest.raises(ValueError, match="'hello' is declared for .*greet already"):
        every(minutes=1, name="hello")(other)


# -- System checks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "check_id", "text"),
    [
        ({"CRON": "0 7 * *"}, "rsmq.E003", "['CRON'] is '0 7 * *'"),
        ({"EVERY_S": 60, "TIME_ZONE": "Mars/Base"}, "rsmq.E003", "['TIME_ZONE'] is 'Mars/Base'"),
        ({}, "rsmq.E030", "neither EVERY_S nor CRON"),
        ({"EVERY_S": 60, "QUEUE": "slwo"}, "rsmq.E031", "sends to 'slwo'"),
        ({"EVERY_S": 60, "TASK": "shop.gone"}, "rsmq.E032", "no task 'shop.gone' is declared here"),
        ({"EVERY_S": 60, "ARGS": []}, "rsmq.E032", "missing a required argument: 'name'"),
        ({"EVERY_S": 60, "ARGS": ["x" * 65_536]}, "rsmq.E032", "bytes, queue 'default' allows 65536"),
        ({"EVERY_S": 60, "EVRY": 1}, "rsmq.E002", "unknown option 'EVRY'"),
    ],
)
def test_mistake_in_the_settings_is_found_by_check(greet: Task, settings, options, check_id: str, text: str):
    table = {"TASK": greet.module_path, "ARGS": ["Ada"]} | options
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"hello": table}}

    found = [error for error in checks.run_checks(tags=["rsmq"]) if error.id == check_id]

    assert len(found) == 1
    assert text in found[0].msg
    assert "hello" in found[0].msg


def test_good_schedules_pass_the_checks(greet: Task, settings):
    table = {"TASK": greet.module_path, "ARGS": ["Ada"], "CRON": "*/5 8-18 * * MON-FRI", "TIME_ZONE": "Europe/Berlin"}
    settings.RSMQ = settings.RSMQ | {"SCHEDULES": {"hello": table}}

    assert checks.run_checks(tags=["rsmq"]) == []


# -- The command ---------------------------------------------------------------------------------------------------


def rsmq_schedule(*words: str) -> str:
    out = StringIO()
    call_command("rsmq_schedule", *words, stdout=out, no_color=True)
    return out.getvalue()


def test_command_does_what_the_functions_do(greet: Task, server: PrivateServer):
    path = greet.module_path
    said = rsmq_schedule(
        "add", "hello", "--task", path, "--every", "900", "--kwargs", '{"name": "Ada"}', "--queue", "slow"
    )
    assert said.startswith("added hello; next 20")

    listed = rsmq_schedule("list")
    assert "hello  every 15 min  (added at run time)" in listed
    assert f"task {path} on slow" in listed

    assert rsmq_schedule("pause", "hello") == "hello: paused\n"
    assert "next never: it is paused" in rsmq_schedule("list")
    assert rsmq_schedule("resume", "hello") == "hello: resumed\n"
    assert f"enqueued {path} as task " in rsmq_schedule("run", "hello")
    assert len(sent_ids(server, "slow")) == 1
    assert rsmq_schedule("remove", "hello") == "hello: removed\n"
    assert "There are no schedules" in rsmq_schedule("list")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_commands_show_local_times_without_time_zones_too(greet: Task, settings: Any, zone: str):
    add = ("add", "hello", "--task", greet.module_path, "--cron", "30 3 * * *", "--args", '["Ada"]')
    settings.TIME_ZONE = zone
    with_zones = [rsmq_schedule(*add).split(" (in ")[0], rsmq_schedule("list").split(" (in ")[0]]
    rsmq_schedule("remove", "hello")
    settings.USE_TZ = False

    assert [rsmq_schedule(*add).split(" (in ")[0], rsmq_schedule("list").split(" (in ")[0]] == with_zones
    assert " 03:30:00 " in with_zones[1]


def test_command_explains_mistakes_in_one_line(greet: Task):
    with pytest.raises(CommandError, match="there is no schedule 'nobody'"):
        rsmq_schedule("pause", "nobody")
    with pytest.raises(CommandError, match="It must be a cron expression"):
        rsmq_schedule("add", "hello", "--task", greet.module_path, "--cron", "soon")
    with pytest.raises(CommandError, match="is not valid JSON"):
        rsmq_schedule("add", "hello", "--task", greet.module_path, "--every", "5", "--args", "Ada")


def test_list_ends_with_1_when_an_entry_cannot_fire(greet: Task, server: PrivateServer):
    server.redis.hset(ENTRIES, "bad", json.dumps({"task": "shop.gone", "every_s": 60}))
    server.redis.hset(ENTRIES, "worse\x1b[31m", "{}")
    out = StringIO()

    with pytest.raises(CommandError, match="2 of 2 schedules cannot fire") as ended:
        call_command("rsmq_schedule", "list", stdout=out, no_color=True)

    assert ended.value.returncode == 1
    assert "no task 'shop.gone' is declared here" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_changes_for_programs_are_json(greet: Task):
    added = json.loads(
        rsmq_schedule("add", "hello", "--task", greet.module_path, "--every", "900", "--args", '["A"]', "--json")
    )

    assert (added["name"], added["when"]) == ("hello", "every 15 min")
    assert json.loads(rsmq_schedule("pause", "hello", "--json")) == {"name": "hello", "change": "paused"}
    assert json.loads(rsmq_schedule("run", "hello", "--json"))["task"] == greet.module_path


def test_schedule_is_added_with_one_of_its_two_kinds_of_time(greet: Task):
    for words in ([], ["--every", "5", "--cron", "0 7 * * *"]):
        with pytest.raises(CommandError, match="either --every or --cron") as failure:
            rsmq_schedule("add", "hello", "--task", greet.module_path, *words)

        assert failure.value.returncode == 2


def test_list_for_programs_is_json(greet: Task):
    schedules.add("hello", greet, every_s=900, args=["Ada"])

    (entry,) = json.loads(rsmq_schedule("list", "--json"))

    assert (entry["name"], entry["when"], entry["is_paused"], entry["problem"]) == ("hello", "every 15 min", False, "")
    assert entry["next_at"].startswith("20")


def test_cron_without_its_package_is_refused_where_it_is_declared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)

    with pytest.raises(ValueError, match=r"needs the package cronsim: pip install 'rsmq-django\[cron\]'"):
        cron("0 7 * * *")
