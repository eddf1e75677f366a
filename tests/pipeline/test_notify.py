"""Messages about burn alarms: one when an alarm begins and one when it ends, tried again until they are delivered."""

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import django
import pytest
from django.core import mail

from rsmq_django.pipeline import notify as notifying
from rsmq_django.pipeline.history import slo_alarms, slo_burns
from rsmq_django.pipeline.models import PipelineRun, SloAlarm, SloBurn
from rsmq_django.pipeline.notify import Notified, notify
from rsmq_django.spark.errors import PipelineError
from tests.redis_server import PrivateServer

from .conftest import NOON

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)


class Webhook(HTTPServer):
    """A server that keeps what it gets, and answers with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WebhookHandler)
        self.got: list[Any] = []
        self.status = 204

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/secret-word"


class WebhookHandler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 204:
            self.server.got.append((self.headers["Content-Type"], json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append("a redirect was followed")
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the standard library
        pass


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    server = Webhook()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def project(settings: Any, webhook: Webhook) -> None:
    pipeline = {"OBJECTIVES": {"mail": {"success": 0.999}}, "ALARM_EMAIL": ["ops@example.org"]}
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0"}},
        "PIPELINE": pipeline | {"ALARM_WEBHOOK": webhook.url},
    }
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}


def burns(at: dt.datetime, *, queue: str = "mail", **rates: float) -> None:
    """Have the burn rates of windows: _1h=20.0."""
    for window, rate in rates.items():
        SloBurn.objects.create(
            day=at.date(), at=at, queue=queue, objective="success", window=window[1:], total=100, bad=2, target=0.999,
            burn_rate=rate, budget_left=0.25,
        )  # fmt: skip


def events_of(webhook: Webhook) -> list[tuple[str, str, str]]:
    return [(content["event"], content["severity"], content["window"]) for _kind, content in webhook.got]


def test_one_message_is_sent_when_an_alarm_begins_and_one_when_it_ends(webhook: Webhook):
    burns(NOON, _1h=20.0, _6h=7.0, _3d=0.5)
    first, again = notify(), notify()
    burns(NOON + HOUR, _1h=2.0, _6h=6.5, _3d=0.6)
    still = notify()
    burns(NOON + 2 * HOUR, _1h=1.0, _6h=1.0, _3d=0.6)
    ended, after = notify(), notify()

    assert [first, again, still, ended, after] == [
        Notified(1, 2),
        Notified(1, 0),
        Notified(1, 0),
        Notified(0, 2),
        Notified(0, 0),
    ]
    assert events_of(webhook) == [("begin", "page", "1h"), ("end", "page", "1h")]
    kind, begin = webhook.got[0]
    assert kind == "application/json"
    assert (begin["queue"], begin["objective"], begin["burn_rate"], begin["limit"]) == ("mail", "success", 20.0, 14.4)
    assert (begin["began_at"], begin["ended_at"]) == (NOON.isoformat(), None)
    assert webhook.got[1][1]["ended_at"] == (NOON + 2 * HOUR).isoformat()
    assert [message.subject for message in mail.outbox] == [
        "page: the error budget of success of queue mail burns too fast",
        "page: the error budget of success of queue mail no longer burns too fast",
    ]
    assert [message.to for message in mail.outbox] == 2 * [["ops@example.org"]]
    assert "In the 1h before 2026-11-18 12:00 UTC it burned 20.0 times as fast as it may" in mail.outbox[0].body
    assert "from 2026-11-18 12:00 UTC to 2026-11-18 14:00 UTC" in mail.outbox[1].body


def test_alarm_of_days_is_another_one_than_that_of_hours(webhook: Webhook):
    burns(NOON, _1h=1.0, _3d=1.5)
    notify()
    burns(NOON + HOUR, _1h=20.0, _3d=1.5)
    notify()

    assert events_of(webhook) == [("begin", "ticket", "3d"), ("begin", "page", "1h")]


def test_message_that_was_not_delivered_is_recorded_and_sent_by_a_later_run(webhook: Webhook):
    webhook.status = 500
    burns(NOON, _1h=20.0)
    with pytest.raises(PipelineError, match="webhook: HTTPError: HTTP Error 500"):
        notify()
    (alarm,) = slo_alarms()
    assert (alarm.unsent, len(mail.outbox)) == ("begin:webhook", 1)
    assert "HTTP Error 500" in alarm.error

    burns(NOON + HOUR, _1h=1.0)
    with pytest.raises(PipelineError):
        notify()
    assert (slo_alarms()[0].unsent, len(mail.outbox)) == ("begin:webhook end:webhook", 2)
    webhook.status = 204
    notify()

    assert events_of(webhook) == [("begin", "page", "1h"), ("end", "page", "1h")], "in their order"
    assert ((alarm := slo_alarms()[0]).unsent, alarm.error) == ("", "")
    assert notify() == Notified(0, 0)


# -- Two runs at once -------------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Done once, while the first message to the webhook is sent."""
    steps: list[Callable[[], None]] = []
    send = notifying.post_to_webhook

    def post(alarm: SloAlarm, event: str) -> None:
        if steps:
            steps.pop()()
        send(alarm, event)

    monkeypatch.setattr(notifying, "post_to_webhook", post)
    return steps


def test_run_that_begins_while_another_one_sends_sends_no_message_twice(
    webhook: Webhook, meanwhile: list[Callable[[], None]]
):
    def begin() -> None:
        notify()

    burns(NOON, _1h=20.0, _3d=2.0)
    meanwhile.append(begin)

    notify()

    assert sorted(events_of(webhook)) == [("begin", "page", "1h"), ("begin", "ticket", "3d")]
    assert len(mail.outbox) == 2 and [alarm.unsent for alarm in slo_alarms()] == ["", ""]


def test_alarm_that_ends_while_another_run_sends_its_begin_is_told_of_afterwards(
    webhook: Webhook, meanwhile: list[Callable[[], None]]
):
    def end() -> None:
        burns(NOON + HOUR, _1h=1.0)
        notify()

    burns(NOON, _1h=20.0)
    meanwhile.append(end)
    notify()
    assert notify() == Notified(0, 2)

    assert events_of(webhook) == [("begin", "page", "1h"), ("end", "page", "1h")]


def test_alarm_that_another_run_begins_with_newer_rates_begins_once(webhook: Webhook, monkeypatch: pytest.MonkeyPatch):
    burns(NOON, _1h=20.0)

    def after_another_run() -> list[SloBurn]:
        about = {"queue": "mail", "objective": "success", "severity": "page", "window": "1h"}
        SloAlarm.objects.create(**about, began_at=NOON + HOUR / 4, burn_rate=21.0, budget_left=0.2)
        return slo_burns()

    monkeypatch.setattr(notifying, "slo_burns", after_another_run)

    assert notify() == Notified(1, 0)
    assert SloAlarm.objects.count() == 1


@pytest.mark.parametrize("after_s", [notifying.CLAIM_S + 1, -notifying.CLAIM_S - 1], ids=["later", "clock set back"])
def test_messages_of_a_run_that_died_are_sent_when_its_claim_is_over(
    webhook: Webhook, meanwhile: list[Callable[[], None]], after_s: float
):
    def die() -> None:
        raise SystemExit

    burns(NOON, _1h=20.0)
    meanwhile.append(die)
    with pytest.raises(SystemExit):
        notify()
    assert notify() == Notified(1, 0)
    (alarm,) = slo_alarms()
    assert alarm.unsent.startswith("sending:") and alarm.messages == ["begin:email", "begin:webhook"]

    alarm.unsent = f"sending:{int(time.time() - after_s)} begin:webhook"
    alarm.save()

    assert notify() == Notified(1, 1)
    assert events_of(webhook) == [("begin", "page", "1h")]


# -- Without new events -----------------------------------------------------------------------------------------------


def ran(step: str, at: dt.datetime, *, error: str = "") -> None:
    PipelineRun.objects.create(
        run_id=f"{step} {at}", step=step, started_at=at, seconds=1, rows_in=0, rows_out=0, lost=0, error=error,
        exit_code=0,
    )  # fmt: skip


@pytest.fixture
def idle(settings: Any, server: PrivateServer) -> None:
    """A project without events since noon."""
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}}


@pytest.mark.parametrize(("rates", "hours"), [({"_1h": 20.0}, 1), ({"_1h": 20.0, "_6h": 7.0}, 6), ({"_3d": 2.0}, 72)])
def test_alarm_ends_when_its_windows_are_over_and_no_event_has_come(
    webhook: Webhook, idle: None, rates: dict[str, float], hours: int
):
    burns(NOON, **rates)
    notify()
    ran("rollup", NOON + hours * HOUR - HOUR / 6)
    ran("analyse", NOON + hours * HOUR - HOUR / 6)
    assert notify() == Notified(1, 0), "it may still burn"
    ran("rollup", NOON + hours * HOUR)
    ran("analyse", NOON + hours * HOUR)

    assert [notify(), notify()] == [Notified(0, 2), Notified(0, 0)]

    assert [event for event, *_ in events_of(webhook)] == ["begin", "end"]
    assert slo_alarms()[0].ended_at == NOON + hours * HOUR


def an_event_that_is_not_archived(server: PrivateServer, settings: Any) -> None:
    server.redis.xadd("rsmq::events", {"event": "succeeded"}, id="1-1")


def a_server_without_an_answer(server: PrivateServer, settings: Any) -> None:
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0"}}}


def a_rollup_that_failed(server: PrivateServer, settings: Any) -> None:
    ran("rollup", NOON + 3 * HOUR, error="no memory")


def no_analysis(server: PrivateServer, settings: Any) -> None:
    PipelineRun.objects.filter(step="analyse").delete()


@pytest.mark.parametrize(
    "doubt", [an_event_that_is_not_archived, a_server_without_an_answer, a_rollup_that_failed, no_analysis]
)
def test_alarm_goes_on_while_it_is_not_sure_that_no_event_has_come(
    webhook: Webhook, idle: None, server: PrivateServer, settings: Any, doubt: Callable[[PrivateServer, Any], None]
):
    burns(NOON, _1h=20.0)
    notify()
    for step in ("rollup", "analyse"):
        ran(step, NOON + 2 * HOUR)
    doubt(server, settings)

    assert notify() == Notified(1, 0)


def test_alarm_that_ended_by_the_clock_begins_anew_with_new_events(webhook: Webhook, idle: None):
    burns(NOON, _1h=20.0)
    notify()
    for step in ("rollup", "analyse"):
        ran(step, NOON + HOUR)
    notify()
    burns(NOON + 5 * HOUR, _1h=20.0)

    assert notify() == Notified(1, 2)
    assert [event for event, *_ in events_of(webhook)] == ["begin", "end", "begin"]


# -- Settings and messages --------------------------------------------------------------------------------------------


def test_redirect_is_not_followed(webhook: Webhook):
    webhook.status = 302
    burns(NOON, _1h=20.0)

    with pytest.raises(PipelineError, match="HTTP Error 302"):
        notify()

    assert webhook.got == []


def test_webhook_that_does_not_answer_takes_one_timeout_for_all_alarms_and_its_address_is_not_shown(
    webhook: Webhook, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def refuse(alarm: SloAlarm, event: str) -> None:
        asked.append(alarm)
        raise ValueError(f"cannot open {webhook.url}")

    monkeypatch.setattr(notifying, "post_to_webhook", refuse)
    burns(NOON, _1h=20.0, _3d=2.0)

    with pytest.raises(PipelineError) as raised:
        notify()

    assert (len(asked), len(mail.outbox)) == (1, 2)
    assert "secret-word" not in str(raised.value) + "".join(alarm.error for alarm in slo_alarms())
    assert "cannot open 127.0.0.1" in str(raised.value)


def test_message_to_the_administrators(settings: Any):
    settings.ADMINS = ["root@example.org"] if django.VERSION >= (6, 0) else [("root", "root@example.org")]
    settings.RSMQ = {**settings.RSMQ, "PIPELINE": {**settings.RSMQ["PIPELINE"], "ALARM_EMAIL": "admins"}}
    burns(NOON, _1h=20.0)

    notify()

    assert [message.to for message in mail.outbox] == [["root@example.org"]]


def test_message_to_the_administrators_waits_until_there_are_some(settings: Any):
    settings.RSMQ = {**settings.RSMQ, "PIPELINE": {**settings.RSMQ["PIPELINE"], "ALARM_EMAIL": "admins"}}
    settings.ADMINS = []
    burns(NOON, _1h=20.0)

    with pytest.raises(PipelineError, match="the setting ADMINS is empty"):
        notify()
    assert not mail.outbox
    settings.ADMINS = ["root@example.org"] if django.VERSION >= (6, 0) else [("root", "root@example.org")]

    assert (notify().sent, len(mail.outbox)) == (1, 1)


def test_objective_that_is_not_in_the_settings_has_no_alarm(webhook: Webhook, settings: Any):
    burns(NOON, queue="zoo", _1h=20.0)
    burns(NOON, _1h=20.0)
    assert notify() == Notified(1, 2)

    settings.RSMQ = {
        **settings.RSMQ, "PIPELINE": {**settings.RSMQ["PIPELINE"], "OBJECTIVES": {"mail": {"wait_p95_ms": 9}}}
    }  # fmt: skip

    assert notify() == Notified(0, 2)
    assert events_of(webhook) == [("begin", "page", "1h"), ("end", "page", "1h")]


def test_alarm_that_ended_long_ago_is_removed():
    burns(NOON, _1h=1.0)
    ages = {"queue": "mail", "objective": "success", "severity": "page", "window": "1h", "burn_rate": 20}
    for days in (89, 91):
        ended_at = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
        SloAlarm.objects.create(began_at=ended_at - HOUR, ended_at=ended_at, budget_left=0.5, **ages)

    notify()

    assert [(dt.datetime.now(dt.UTC) - alarm.began_at).days for alarm in slo_alarms()] == [89]


def test_run_notifies_last_and_fails_only_in_that_step(pipeline: Any, webhook: Webhook, settings: Any, server: Any):
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}}
    burns(NOON, _1h=20.0)
    assert "notify: 1 burn rate beyond the limit" in pipeline("run", dry_run=True)[1].splitlines()

    code, said = pipeline("notify")
    webhook.status = 500
    burns(NOON + HOUR, _1h=1.0)
    failed, reason = pipeline("notify")

    assert (code, said.split()[:5]) == (0, ["notify", "1", "in", "2", "out"])
    assert (failed, "the next run tries again" in reason) == (1, True)
