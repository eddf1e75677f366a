"""Adding, changing and deleting schedules in the admin, their next ticks, and the outcomes of the last ones."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.admin.schedule_forms import ScheduleForm
from rsmq_django.admin.schedule_ticks import last_ticks, next_ticks
from rsmq_django.core import Queue
from rsmq_django.tasks import every, task
from rsmq_django.tasks.schedule import _declared, tick_ids
from rsmq_django.tasks.schedule_listing import ListedSchedule
from rsmq_django.tasks.task import _tasks
from tests.admin.pages import text_of, told
from tests.redis_server import PrivateServer

LIST = "/admin/rsmq/schedule/"
PAGE = f"{LIST}remind/"


def remind(room: str, *, times: int = 1, password: str = "") -> None: ...


@pytest.fixture
def reminder(mail: Queue) -> Iterator[str]:
    """The path of a task."""
    declared = task(queue_name="mail")(remind)
    yield declared.module_path
    _tasks.pop(declared.module_path)


@pytest.fixture
def added(reminder: str) -> str:
    """A schedule that was added at run time."""
    schedules.add("remind", reminder, cron="30 3 * * MON-FRI", time_zone="Europe/Berlin", args=["kitchen"])
    return reminder


def filled(**words: Any) -> dict[str, Any]:
    """Return what a browser sends: the fields with what stands in them."""
    fields = {"name": "remind", "time_zone": "Europe/Berlin", "missed": "once", "missed_after_s": "60", "jitter_s": "0"}
    return fields | {"argument-room": "kitchen"} | words


def shown_fields(page: Any) -> dict[str, str]:
    return {
        field.html_name: "" if field.value() is None else str(field.value())
        for form in page.context["forms"]
        for field in form
    }


def test_a_schedule_is_added_with_the_arguments_of_its_task(browser: Browser, reminder: str):
    chosen = browser.get(f"{LIST}add/")
    assert reminder in text_of(chosen)

    done = browser.post(f"{LIST}add/?task={reminder}", filled(cron="30 3 * * MON-FRI"), follow=True)

    assert told(done) == ["Schedule remind was added: weekdays at 03:30, Europe/Berlin."]
    schedule = schedules.get("remind").schedule
    assert schedule is not None and schedule.cron == "30 3 * * MON-FRI" and schedule.time_zone == "Europe/Berlin"
    assert (list(schedule.args), dict(schedule.kwargs or {})) == ([], {"room": "kitchen"})
    assert LogEntry.objects.get().change_message == "Added"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"cron": "nonsense"}, "not a valid cron expression"),
        ({"cron": "0 0 30 2 *"}, "it never matches a time"),
        ({}, "either a cron expression or a number of seconds"),
        ({"cron": "0 4 * * *", "every_s": "60"}, "either a cron expression or a number of seconds"),
        ({"cron": "0 4 * * *", "time_zone": "Europe/Atlantis"}, "Unknown time zone"),
        ({"every_s": "60", "name": "a\u0007b"}, ""),
        ({"every_s": "60", "queue": "no such queue!"}, "queue"),
        ({"every_s": "60", "argument-room": ""}, "This field is required"),
    ],
)
def test_invalid_option_is_refused_with_the_reason(browser: Browser, reminder: str, words: Any, said: str):
    page = browser.post(f"{LIST}add/?task={reminder}", filled(**words))

    assert page.status_code == 200 and said in text_of(page)
    assert schedules.entries() == [] and not LogEntry.objects.exists()


def test_a_page_of_two_forms_says_once_that_there_are_errors(browser: Browser, reminder: str):
    page = browser.post(f"{LIST}add/?task={reminder}", filled(**{"cron": "nonsense", "argument-room": ""}))

    said = text_of(page)
    assert "not a valid cron expression" in said and "This field is required" in said
    assert said.count("Please correct the errors below.") == 1


def test_a_name_that_is_taken_is_refused(browser: Browser, added: str):
    page = browser.post(f"{LIST}add/?task={added}", filled(every_s="60"))

    assert "already exists" in text_of(page)
    assert schedules.get("remind").schedule.cron == "30 3 * * MON-FRI"  # type: ignore[union-attr]


def test_a_changed_schedule_keeps_its_other_values(browser: Browser, added: str):
    fields = shown_fields(browser.get(f"{PAGE}edit/"))
    assert fields["argument-room"] == "kitchen"

    done = browser.post(f"{PAGE}edit/", fields | {"cron": "0 4 * * *"}, follow=True)

    assert told(done) == ["Schedule remind was changed: daily at 04:00, Europe/Berlin."]
    schedule = schedules.get("remind").schedule
    assert schedule is not None and schedule.cron == "0 4 * * *" and schedule.task == added
    assert LogEntry.objects.get().change_message == "Changed: cron"


def test_a_cron_expression_is_replaced_by_a_period(browser: Browser, added: str):
    fields = shown_fields(browser.get(f"{PAGE}edit/"))

    browser.post(f"{PAGE}edit/", fields | {"cron": "", "every_s": "90"})

    assert schedules.get("remind").when == "every 90 s"


def test_a_change_that_another_user_made_meanwhile_is_not_overwritten(browser: Browser, added: str):
    fields = shown_fields(browser.get(f"{PAGE}edit/"))
    schedules.change("remind", cron="0 5 * * *")

    page = browser.post(f"{PAGE}edit/", fields | {"cron": "0 4 * * *"})

    assert "changed by another user" in text_of(page)
    assert schedules.get("remind").schedule.cron == "0 5 * * *"  # type: ignore[union-attr]


def test_secret_arguments_stay_hidden_and_are_kept(browser: Browser, added: str):
    schedules.change("remind", kwargs={"password": "hunter2"})
    page = browser.get(f"{PAGE}edit/")
    assert "hunter2" not in page.content.decode() and "hunter2" not in browser.get(f"{PAGE}change/").content.decode()

    browser.post(f"{PAGE}edit/", shown_fields(page) | {"cron": "0 4 * * *"})

    assert schedules.get("remind").schedule.kwargs["password"] == "hunter2"  # type: ignore[index, union-attr]


def test_a_schedule_is_deleted_after_a_question_that_names_it(browser: Browser, added: str):
    asked = browser.post(f"{PAGE}delete/")
    assert f"Delete schedule remind: {added}, weekdays at 03:30, Europe/Berlin" in text_of(asked)
    assert schedules.get("remind")

    done = browser.post(f"{PAGE}delete/", {"post": "yes"}, follow=True)

    assert told(done) == ["Schedule remind was deleted."] and schedules.entries() == []
    assert LogEntry.objects.get().change_message == "Deleted"


def test_a_schedule_that_has_changed_since_the_question_is_not_deleted(browser: Browser, added: str):
    seen = re.findall(r'name="seen" value="([^"]+)"', browser.get(f"{PAGE}delete/").content.decode())[0]
    schedules.change("remind", cron="0 5 * * *")

    page = browser.post(f"{PAGE}delete/", {"post": "yes", "seen": seen})

    assert told(page) == ["The schedule was changed by another user. Open it again."]
    assert "daily at 05:00" in text_of(page) and schedules.get("remind")


def test_schedules_of_the_code_are_not_changed_or_deleted(browser: Browser, reminder: str):
    every(minutes=5, name="declared", args=["kitchen"])(_tasks[reminder])
    try:
        pages = [browser.get(f"{LIST}declared/{page}/", follow=True) for page in ("edit", "delete")]
        deleted = browser.post(f"{LIST}declared/delete/", {"post": "yes"}, follow=True)
        page = browser.get(f"{LIST}declared/change/")
    finally:
        _declared.pop("declared")

    assert all("declared in the code" in told(each)[0] for each in [*pages, deleted])
    assert "/declared/edit/" not in page.content.decode() and "/declared/delete/" not in page.content.decode()


@pytest.mark.parametrize(
    ("codename", "page"),
    [("add_schedule", f"{LIST}add/"), ("change_schedule", f"{PAGE}edit/"), ("delete_schedule", f"{PAGE}delete/")],
)
def test_each_of_these_needs_its_permission(
    browser_of: Callable[..., Browser], added: str, codename: str, page: str
):  # fmt: skip
    others = {"add_schedule", "change_schedule", "delete_schedule", "view_body", "view_schedule"} - {codename}

    assert browser_of(*others).get(page).status_code == 403
    assert browser_of("view_schedule", "view_body", codename).get(page).status_code == 200


def test_arguments_are_shown_only_to_users_who_may_see_bodies(browser_of: Callable[..., Browser], added: str):
    viewer = browser_of("view_schedule", "change_schedule")

    assert "kitchen" not in text_of(viewer.get(f"{PAGE}change/"))
    assert viewer.get(f"{PAGE}edit/").status_code == 403


def test_a_schedule_of_a_signed_queue_is_signed_when_it_is_added_and_changed(
    browser: Browser, reminder: str, settings: Any
):
    settings.RSMQ = settings.RSMQ | {"QUEUES": {"default": {}, "mail": {"SIGNING_KEYS": ["k" * 32]}}}

    browser.post(f"{LIST}add/?task={reminder}", filled(cron="0 4 * * *"))
    assert schedules.get("remind").problem == ""
    fields = shown_fields(browser.get(f"{PAGE}edit/"))
    browser.post(f"{PAGE}edit/", fields | {"cron": "0 5 * * *"})

    assert schedules.get("remind").problem == "" and schedules.run_now("remind").id


# -- Ticks ------------------------------------------------------------------------------------------------------------


def entry_of(name: str, **changes: Any) -> ListedSchedule:
    from dataclasses import replace

    return replace(schedules.get(name), **changes)


def test_the_next_ten_ticks_are_shown_on_the_clock_of_the_zone_over_a_clock_change(added: str):
    schedules.change("remind", cron="30 2 * * *")
    entry = entry_of("remind", next_at=datetime(2026, 3, 27, 1, 30, tzinfo=UTC))

    ticks = next_ticks(entry)

    assert len(ticks) == 10
    assert [tick.on_its_clock for tick in ticks[:4]] == [
        "2026-03-27 02:30:00 CET",
        "2026-03-28 02:30:00 CET",
        "2026-03-29 03:00:00 CEST",  # there is no 02:30 on that day
        "2026-03-30 02:30:00 CEST",
    ]


def test_the_page_shows_when_it_runs_next(browser: Browser, added: str):
    page = browser.get(f"{PAGE}change/")

    assert len(page.context["next_ticks"]) == 10
    text = text_of(page)
    assert "weekdays at 03:30, Europe/Berlin" in text and "30 3 * * MON-FRI" in text
    assert "Time in the schedule’s zone" in text and 'room="kitchen"' in text
    assert "weekdays at 03:30" in text_of(browser.get(LIST))


def test_the_last_runs_are_found_by_their_ticks(browser: Browser, added: str, server: PrivateServer):
    entry = entry_of("remind", last_planned_at=datetime(2026, 11, 20, 2, 30, tzinfo=UTC))
    assert entry.schedule is not None
    planned_ms = [round(datetime(2026, 11, day, 2, 30, tzinfo=UTC).timestamp() * 1000) for day in (20, 19)]
    first, second = tick_ids(entry.schedule, "rsmq", planned_ms)
    server.redis.hset(f"rsmq::result:{first}", mapping={"status": "FAILED", "attempted_ms": 0, "finished_ms": 2500})
    server.redis.hset(f"rsmq::result:{second}", mapping={"status": "SUCCESSFUL"})
    server.redis.hset("rsmq::schedule:state", "planned_ms:remind", planned_ms[0])

    found = last_ticks(entry)
    page = browser.get(f"{PAGE}change/")

    assert [(tick.task_id, tick.state, tick.run_time) for tick in found] == [
        (first, "failed", "2.5 s"),
        (second, "done", ""),
    ]
    assert re.search(rf'href="/admin/rsmq/result/{first}/change/"', page.content.decode())
    assert f'href="/admin/rsmq/run/?task={added}"' in page.content.decode()


def test_a_schedule_without_runs_reports_that(browser: Browser, added: str):
    assert "No runs yet" in text_of(browser.get(f"{PAGE}change/"))


def test_invalid_schedule_entry_has_no_ticks_and_can_be_deleted(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.hset("rsmq::schedule:entries", "broken", "{nonsense")

    page = browser.get(f"{LIST}broken/change/")
    assert page.status_code == 200 and "next_ticks" not in page.context
    assert browser.get(f"{LIST}broken/edit/").status_code == 302

    browser.post(f"{LIST}broken/delete/", {"post": "yes"})

    assert schedules.entries() == []


def test_a_change_made_between_the_read_and_the_change_is_not_overwritten(
    browser: Browser, added: str, monkeypatch: pytest.MonkeyPatch
):
    fields = shown_fields(browser.get(f"{PAGE}edit/"))
    real = ScheduleForm.options

    def late(form: ScheduleForm) -> dict[str, Any]:
        schedules.change("remind", cron="0 5 * * *")
        return real(form)

    monkeypatch.setattr(ScheduleForm, "options", late)

    page = browser.post(f"{PAGE}edit/", fields | {"cron": "0 4 * * *"})

    assert "changed by another user" in text_of(page)
    assert schedules.get("remind").schedule.cron == "0 5 * * *"  # type: ignore[union-attr]
