"""The list of queues, the page of one, and its actions."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.queue.browse import page
from rsmq_django.queues import ensure_queue, pause_queue
from rsmq_django.tasks import task
from rsmq_django.tasks.task import _tasks
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import rows_of, text_of, told
from tests.redis_server import PrivateServer

FORM = {"visibility_timeout_s": 30, "delay_s": 0, "max_size_bytes": 65536}


def page_of(queue: Queue, name: str = "change") -> str:
    return f"{QUEUES}{queue.name.replace('-', '-')}/{name}/"


def bodies_in(queue: Queue) -> list[bytes]:
    return [m.body for m in queue.client.run(page("rsmq", queue.name, body_bytes=1000)).messages]


# -- The list ---------------------------------------------------------------------------------------------------------


def test_the_list_shows_the_messages_of_queues(browser: Browser, mail: Queue, dead: Queue):
    mail.send_many([b"x"] * 3)
    mail.send(b"x", delay_s=60)

    rows = {row.name: row for row in rows_of(browser.get(QUEUES))}

    assert (rows["mail"].ready, rows["mail"].hidden, rows["mail"].messages) == (3, 1, 4)
    assert not rows["mail"].holds_dead_letters


def test_a_queue_of_dead_letters_is_part_of_the_row_of_its_queue(browser: Browser, mail: Queue, dead: Queue):
    dead.send(b"x")

    page = browser.get(QUEUES)

    assert [(row.name, row.dead) for row in rows_of(page)] == [("mail", 1)] and "1 queue" in text_of(page)
    assert "/admin/rsmq/queue/mail-dead/change/" in browser.get(f"{QUEUES}mail/change/").content.decode()
    assert [row.name for row in rows_of(browser.get(QUEUES, {"q": "dead"}))] == ["mail-dead"]

    mail.delete_queue()

    assert [row.name for row in rows_of(browser.get(QUEUES))] == ["mail-dead"]


def test_queues_are_ordered_filtered_and_found(browser: Browser, mail: Queue, dead: Queue):
    ensure_queue("default")
    mail.send_many([b"x"] * 3)
    column = browser.get(QUEUES).context["cl"].list_display.index("ready_messages")

    assert [row.name for row in rows_of(browser.get(QUEUES, {"o": f"-{column}"}))][0] == "mail"
    assert [row.name for row in rows_of(browser.get(QUEUES, {"holds_dead_letters__exact": 1}))] == ["mail-dead"]
    assert [row.name for row in rows_of(browser.get(QUEUES, {"q": "MAIL"}))] == ["mail", "mail-dead"]


def test_queues_of_other_programs_are_listed_and_can_be_viewed(browser: Browser, mail: Queue, server: PrivateServer):
    names = ["a b", "x\n[ERROR]", "{t}", "a*", "a:b", "ü", "50%", "a/b", "<script>alert(1)</script>", "x\x00y"]
    server.redis.sadd("rsmq:QUEUES", *names)
    for name in names:
        server.redis.hset(f"rsmq:{name}:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536, name[:1] * 32: "body"})
        server.redis.zadd(f"rsmq:{name}", {name[:1] * 32: 1})

    rows = rows_of(browser.get(QUEUES))

    assert {row.name for row in rows} == {*names, "mail"}
    for row in rows:
        shown = browser.get(QUEUES + quoted(row.key) + "/change/")
        assert shown.status_code == 200 and b"<script>alert" not in shown.content
        assert len(rows_of(browser.get(MESSAGES, {"queue": row.key}))) == (row.name != "mail")
        for message in rows_of(browser.get(MESSAGES, {"queue": row.key})):
            assert browser.get(MESSAGES + quoted(message.key) + "/change/").status_code == 200


def quoted(key: str) -> str:
    from django.contrib.admin.utils import quote

    return quote(key)


def test_a_broken_queue_hides_no_other(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "broken")
    server.redis.set("rsmq:broken", "text")

    assert {(row.name, row.is_broken) for row in rows_of(browser.get(QUEUES))} == {("broken", True), ("mail", False)}
    assert "wrong type" in text_of(browser.get(QUEUES + "broken/change/"))
    assert rows_of(browser.get(MESSAGES)) == []


# -- Attributes -------------------------------------------------------------------------------------------------------


def test_attributes_are_changed_by_form_and_logged(browser: Browser, mail: Queue):
    browser.post(page_of(mail), {**FORM, "visibility_timeout_s": 90})

    assert mail.attributes().visibility_timeout_s == 90
    assert "Visibility timeout" in LogEntry.objects.get().get_change_message()


def test_a_value_that_another_user_has_changed_meanwhile_is_kept(browser: Browser, mail: Queue):
    inputs = r'<input type="(?:number|hidden)" name="([^"]+)" value="([^"]*)"'
    shown = dict(re.findall(inputs, browser.get(page_of(mail)).content.decode()))
    mail.set_attributes(delay_s=7)

    browser.post(page_of(mail), {**shown, "visibility_timeout_s": 90})

    assert "Delay" not in LogEntry.objects.get().get_change_message()
    assert (mail.attributes().delay_s, mail.attributes().visibility_timeout_s) == (7, 90)


@pytest.mark.parametrize("wrong", [{"delay_s": -1}, {"visibility_timeout_s": "x"}, {"max_size_bytes": 5}])
def test_wrong_attributes_are_refused(browser: Browser, mail: Queue, wrong: dict[str, Any]):
    refused = browser.post(page_of(mail), FORM | wrong)

    assert refused.status_code == 200 and refused.context["errors"]
    assert mail.attributes().max_size_bytes == 65536


def test_attributes_need_a_permission_of_their_own(browser_of: Callable[..., Browser], mail: Queue):
    browser = browser_of("view_queue")

    assert b'<input type="number"' not in browser.get(page_of(mail)).content
    assert browser.post(page_of(mail), {**FORM, "delay_s": 9}).status_code == 403
    assert mail.attributes().delay_s == 0


# -- Sending ----------------------------------------------------------------------------------------------------------


def test_a_message_is_sent(browser: Browser, mail: Queue):
    done = browser.post(page_of(mail, "send"), {"body": "line one\r\nline two ü", "delay_s": ""}, follow=True)

    assert "was sent" in told(done)[0]
    assert bodies_in(mail) == ["line one\nline two ü".encode()]
    assert "line one" not in LogEntry.objects.get().change_message


def test_a_body_that_is_too_long_is_reported(browser: Browser, mail: Queue):
    refused = browser.post(page_of(mail, "send"), {"body": "x" * 70_000, "delay_s": ""})

    assert "body is 70000 bytes, queue 'mail' allows 65536" in text_of(refused)


@pytest.fixture
def charge() -> Iterator[Any]:
    """A task with arguments of several kinds."""

    def charge(order_id: int, *, note: str = "none", amounts: list[float] | None = None, gift: bool = False) -> None:
        """Do nothing."""

    charge.__module__, charge.__qualname__ = "shop.tasks", "charge"
    declared = task(queue_name="mail")(charge)
    yield declared
    _tasks.pop(declared.module_path)


def test_a_task_is_enqueued_by_a_form_made_of_its_signature(
    browser: Browser, mail: Queue, charge: Any, django_capture_on_commit_callbacks: Any
):
    assert "shop.tasks.charge" in text_of(browser.get(page_of(mail, "enqueue")))
    url = page_of(mail, "enqueue") + "?task=shop.tasks.charge"
    assert "order_id" in text_of(browser.get(url)) and "Empty = 'none'" in text_of(browser.get(url))

    with django_capture_on_commit_callbacks(execute=True):
        browser.post(url, {"argument-order_id": "7", "argument-amounts": "[1.5, 2]", "argument-gift": "true"})

    (body,) = bodies_in(mail)
    call = json.loads(body)
    assert (call["task"], call["args"]) == ("shop.tasks.charge", [])
    assert call["kwargs"] == {"order_id": 7, "amounts": [1.5, 2], "gift": True}
    assert LogEntry.objects.get().change_message == f"Enqueued shop.tasks.charge as task {call['id']}"


def test_a_task_is_enqueued_with_the_priority_of_a_band(
    browser: Browser, mail: Queue, charge: Any, django_capture_on_commit_callbacks: Any
):
    urgent = Queue("mail-p10", mail.client, realtime=True)
    urgent.create()

    with django_capture_on_commit_callbacks(execute=True):
        browser.post(page_of(urgent, "enqueue") + "?task=shop.tasks.charge", {"argument-order_id": "7"})

    assert len(bodies_in(urgent)) == 1 and not bodies_in(mail)


@pytest.mark.parametrize("wrong", [{}, {"order_id": "x"}, {"order_id": "7", "amounts": "[1,"}])
def test_arguments_that_do_not_fit_are_refused(browser: Browser, mail: Queue, charge: Any, wrong: dict[str, str]):
    data = {f"argument-{name}": value for name, value in wrong.items()}

    refused = browser.post(page_of(mail, "enqueue") + "?task=shop.tasks.charge", {"delay_s": "", **data})

    assert "Please correct" in text_of(refused)
    assert bodies_in(mail) == []


def test_refusal_of_the_backend_is_shown_in_the_form(browser: Browser, mail: Queue, charge: Any, settings: Any):
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": ["default"]}}

    refused = browser.post(page_of(mail, "enqueue") + "?task=shop.tasks.charge", {"argument-order_id": "7"})

    assert refused.status_code == 200 and "mail" in text_of(refused) and "Please correct" in text_of(refused)
    assert bodies_in(mail) == []


def test_only_declared_tasks_can_be_chosen(browser: Browser, mail: Queue, charge: Any):
    page = browser.post(page_of(mail, "enqueue") + "?task=os.system", {"argument-command": "id"})

    assert "Choose a task" in text_of(page)
    assert bodies_in(mail) == []


# -- Purging, pausing, deleting ---------------------------------------------------------------------------------------


def purge(browser: Browser, queue: Queue, **data: Any) -> Any:
    seen = browser.get(page_of(queue, "purge")).context["forms"][0].initial["total_sent"]
    return browser.post(page_of(queue, "purge"), {"total_sent": seen, **data}, follow=True)


def test_purging_wants_the_name(browser: Browser, mail: Queue):
    mail.send_many([b"x"] * 5)

    assert "not the name" in text_of(purge(browser, mail, name="mial"))
    assert mail.attributes().messages == 5
    assert told(purge(browser, mail, name="mail")) == ["5 messages were removed from queue mail."]
    assert mail.attributes().messages == 0
    assert LogEntry.objects.get().change_message == "Purged 5 messages"


def test_a_single_message_is_not_called_messages(browser: Browser, mail: Queue):
    mail.send(b"x")

    assert "This removes 1 message of the queue mail, even if" in text_of(browser.get(page_of(mail, "purge")))
    assert told(purge(browser, mail, name="mail")) == ["1 message was removed from queue mail."]
    assert LogEntry.objects.get().change_message == "Purged 1 message"


def test_messages_sent_meanwhile_are_purged_only_on_request(browser: Browser, mail: Queue):
    mail.send(b"x")
    seen = {"total_sent": 0, "name": "mail"}

    refused = browser.post(page_of(mail, "purge"), seen)
    assert "Nothing was removed" in text_of(refused)
    assert b'name="total_sent" value="1"' in refused.content, "the page has been brought up to date"

    browser.post(page_of(mail, "purge"), {**seen, "also_newer": "on"})
    assert mail.attributes().messages == 0


def test_a_queue_is_paused_and_resumed(browser: Browser, mail: Queue, server: PrivateServer):
    assert browser.get(page_of(mail, "pause")).status_code == 405
    browser.post(page_of(mail, "pause"), {"action": "pause"})

    assert server.redis.smembers("rsmq::paused") == {b"mail"}
    assert "paused: no messages are received" in text_of(browser.get(page_of(mail)))
    assert [row.name for row in rows_of(browser.get(QUEUES, {"is_paused__exact": 1}))] == ["mail"]

    browser.post(page_of(mail, "pause"), {"action": "resume"})
    assert not server.redis.exists("rsmq::paused")


def test_a_separate_queue_with_the_name_of_a_lane_is_paused_by_its_own_name(
    browser: Browser, server: PrivateServer, settings: Any
):
    settings.RSMQ = settings.RSMQ | {"QUEUES": {"express-lane1": {}}}
    ensure_queue("express-lane1")

    pause_queue("express-lane1")

    assert [row.name for row in rows_of(browser.get(QUEUES, {"is_paused__exact": 1}))] == ["express-lane1"]


def test_deleting_a_queue_shows_its_number_of_messages(browser: Browser, mail: Queue, server: PrivateServer):
    mail.send_many([b"x"] * 5)

    assert "mail: 5 messages" in text_of(browser.get(page_of(mail, "delete")))
    browser.post(page_of(mail, "delete"), {"post": "yes"})

    assert not server.redis.exists("rsmq:mail", "rsmq:mail:Q")
    assert LogEntry.objects.get().is_deletion()


def test_several_queues_are_deleted_by_the_stock_action(browser: Browser, mail: Queue, dead: Queue):
    chosen = {"action": "delete_selected", "_selected_action": ["mail", "mail-dead"]}

    assert "Are you sure" in text_of(browser.post(QUEUES, chosen))
    browser.post(QUEUES, {**chosen, "post": "yes"})

    assert rows_of(browser.get(QUEUES)) == []


def test_the_history_has_only_queues_that_were_deleted_before_the_connection_was_lost(
    browser: Browser, mail: Queue, dead: Queue, monkeypatch: pytest.MonkeyPatch
):
    real = Queue.delete_queue

    def delete(queue: Queue) -> None:
        if queue.name == "mail-dead":
            raise ConnectionFailed("gone")
        real(queue)

    monkeypatch.setattr(Queue, "delete_queue", delete)
    chosen = {"action": "delete_selected", "_selected_action": ["mail", "mail-dead"], "post": "yes"}
    page = browser.post(QUEUES, chosen)

    assert page.status_code == 503 and told(page) == ["Deleted: mail"]
    assert [entry.object_id for entry in LogEntry.objects.all()] == ["mail"]


PAGES = {
    "send": ("send_message", {"body": "x"}),
    "enqueue": ("send_message", {}),
    "purge": ("purge_queue", {"name": "mail", "total_sent": "1"}),
    "pause": ("pause_queue", {"action": "pause"}),
    "redrive": ("redrive_message", {}),
    "failures": ("view_message", {"action": "delete_selected", "failure": "x"}),
    "delete": ("delete_queue", {"post": "yes"}),
}


@pytest.mark.parametrize("name", PAGES)
def test_each_page_has_its_permission(
    browser_of: Callable[..., Browser], mail: Queue, server: PrivateServer, name: str
):
    codename, data = PAGES[name]
    mail.send(b"x")
    others = {"view_queue", "view_message", *(codename for codename, _ in PAGES.values())} - {codename}
    without = browser_of(*others)
    before = server.redis.dbsize(), mail.attributes()

    assert without.get(page_of(mail, name)).status_code == 403
    assert without.post(page_of(mail, name), data).status_code == 403
    assert (server.redis.dbsize(), mail.attributes()) == before
    assert browser_of("view_queue", codename).get(page_of(mail, name)).status_code in (200, 405)


def test_reading_changes_nothing(browser: Browser, mail: Queue, dead: Queue, server: PrivateServer):
    mail.send(b"x")
    dead.send(b"y")
    before = {key: server.redis.dump(key) for key in server.redis.keys()}
    key = browser.get(MESSAGES).context["cl"].result_list[0].key

    for url in (
        QUEUES, MESSAGES, "/admin/rsmq/worker/", "/admin/rsmq/result/",
        *(page_of(queue, name) for queue in (mail, dead) for name in ("change", "history", *PAGES)),
        *(f"{MESSAGES}{quoted(key)}/{name}/" for name in ("change", "history", "delete", "operate", "body")),
        MESSAGES + "bulk/",
    ):  # fmt: skip
        assert browser.get(url).status_code in (200, 405), url

    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before


# -- Dead letters -----------------------------------------------------------------------------------------------------


def bury(server: PrivateServer, dead: Queue, **fields: Any) -> str:
    """Put a dead letter into the queue, as a worker does."""
    record = {"reason": "gave_up", "queue": "mail", "task": "shop.tasks.pay", "error": "builtins.ValueError"}
    message_id = dead.send(b"body")
    server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps(record | {"message": "", **fields}))
    return message_id


def test_dead_letters_are_grouped_by_failure(browser: Browser, mail: Queue, dead: Queue, server: PrivateServer):
    for number in range(5):
        bury(server, dead, message=f"Flight {number} is gone")
    bury(server, dead, error="builtins.KeyError", message="'gate'", traceback="Traceback ...")
    dead.send(b"no record")

    page = browser.get(page_of(dead, "failures"))

    groups = page.context["groups"].groups
    assert [(group.number, group.error, group.pattern) for group in groups][0] == (
        5, "builtins.ValueError", "Flight # is gone",
    )  # fmt: skip
    assert sorted(group.number for group in groups) == [1, 1, 5]


def test_a_group_is_redriven_whole(browser: Browser, mail: Queue, dead: Queue, server: PrivateServer):
    for number in range(5):
        bury(server, dead, message=f"Flight {number} is gone")
    bury(server, dead, error="builtins.KeyError")
    group = browser.get(page_of(dead, "failures")).context["groups"].groups[0]

    asked = browser.post(page_of(dead, "failures"), {"action": "redrive", "failure": group.fingerprint})
    assert f'<li><a href="{QUEUES}mail-dead/change/">mail-dead</a></li>' in asked.content.decode()
    browser.post(MESSAGES + "bulk/", {"token": asked.context["token"]})

    assert (mail.attributes().messages, dead.attributes().messages) == (5, 1)


def test_dead_letters_are_redriven_by_filter_and_limit(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer
):
    for _ in range(5):
        bury(server, dead)
    bury(server, dead, task="shop.tasks.ship")

    asked = browser.post(page_of(dead, "redrive"), {"task": "pay", "error": "Value*", "limit": "3", "target": ""})
    browser.post(MESSAGES + "bulk/", {"token": asked.context["token"]})

    assert (mail.attributes().messages, dead.attributes().messages) == (3, 3)


def test_dead_letters_can_be_redriven_elsewhere(browser: Browser, mail: Queue, dead: Queue):
    ensure_queue("default")
    dead.send(b"without a record")

    asked = browser.post(page_of(dead, "redrive"), {"task": "", "error": "", "limit": "", "target": "default"})
    browser.post(MESSAGES + "bulk/", {"token": asked.context["token"]})

    assert ensure_queue("default").attributes().messages == 1


def test_pausing_a_priority_band_pauses_its_queue(browser: Browser, mail: Queue, server: PrivateServer):
    band = Queue("mail-p5", mail.client, realtime=True)
    band.create()

    done = browser.post(page_of(band, "pause"), {"action": "pause"}, follow=True)

    assert server.redis.smembers("rsmq::paused") == {b"mail"}
    assert told(done) == ["Queue mail is paused."]
