"""The page of one message: its content by permission, and its actions."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.core import Queue
from tests.admin.conftest import MESSAGES
from tests.admin.pages import bytes_read_by, text_of, told
from tests.redis_server import PrivateServer

TRACEBACK = 'Traceback (most recent call last):\n  File "tasks.py", line 7, in pay\nValueError: no, password=hunter2'


def url_of(queue: Queue, message_id: str, page: str = "change") -> str:
    return f"{MESSAGES}{quote(f'{queue.name}/{message_id}')}/{page}/"


def bury(server: PrivateServer, dead: Queue, body: bytes = b'{"task": "shop.tasks.pay", "id": "t7"}') -> str:
    """Put a dead letter with its result record into the queue, as a worker does."""
    message_id = dead.send(body)
    record = {"reason": "gave_up", "queue": "mail", "task": "shop.tasks.pay", "task_id": "t7", "attempts": 2}
    record |= {"error": "builtins.ValueError", "message": "no, token: abc", "traceback": TRACEBACK, "worker": "web1"}
    server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps(record | {"died_ms": 1795190076663}))
    errors: dict[Any, Any] = {f"error:{n}": json.dumps(["builtins.ValueError", TRACEBACK]) for n in (1, 2)}
    workers: dict[Any, Any] = {"worker:1": "web1", "worker:2": "web2"}
    record_of_task: dict[Any, Any] = {"status": "FAILED", "queue": "mail", "message": message_id, "dead": "mail-dead"}
    server.redis.hset("rsmq::result:t7", mapping={**errors, **workers, **record_of_task})
    return message_id


def test_a_body_of_json_is_shown_in_lines_and_colours(browser: Browser, mail: Queue):
    message_id = mail.send(b'{"task":"shop.tasks.pay","kwargs":{"order_id":7,"password":"hunter2"}}')

    page = browser.get(url_of(mail, message_id))

    text = page.context["page"].body.text
    assert text.splitlines()[2:4] == ['  "kwargs": {', '    "order_id": 7,']
    assert '"password": •••' in text and b"hunter2" not in page.content
    assert b'<span class="rsmq-number">7</span>' in page.content
    assert "shop.tasks.pay" in text_of(page)


def test_a_body_that_is_not_a_text_is_shown_in_hexadecimal(browser: Browser, mail: Queue):
    page = browser.get(url_of(mail, mail.send(bytes(range(256)))))

    assert "00000040 40 41 42 43" in text_of(page)
    assert page.context["page"].body.kind == "binary"


def test_a_long_body_is_cut_and_can_be_downloaded_whole(browser: Browser, mail: Queue):
    mail.set_attributes(max_size_bytes=-1)
    body = json.dumps({"lines": ["x" * 100] * 1000, "secret": "hunter2"}).encode()
    message_id = mail.send(body)

    page = browser.get(url_of(mail, message_id))
    file = browser.get(url_of(mail, message_id, "body"))

    assert "This is the beginning of 102 KiB" in text_of(page)
    assert len(page.content) < 100_000
    assert json.loads(file.getvalue().decode().replace("•••", "null")) == {"lines": ["x" * 100] * 1000, "secret": None}
    assert file["Content-Disposition"] == 'attachment; filename="body.json"'
    assert (file["Content-Type"], file["X-Content-Type-Options"]) == ("application/octet-stream", "nosniff")


def test_bytes_are_downloaded_unchanged(browser: Browser, mail: Queue):
    body = bytes(range(256)) * 100

    assert browser.get(url_of(mail, mail.send(body), "body")).content == body


def test_the_largest_bodies_are_not_put_into_a_page(browser: Browser, mail: Queue):
    mail.set_attributes(max_size_bytes=-1)
    message_id = mail.send(b"x" * 3_000_000)

    assert "2.9 MiB is too large for this page" in text_of(browser.get(url_of(mail, message_id)))
    assert len(browser.get(url_of(mail, message_id, "body")).getvalue()) == 3_000_000


def test_processes_that_died_of_it_are_counted(browser: Browser, mail: Queue, server: PrivateServer):
    message_id = mail.send(b"x")
    assert "died" not in text_of(browser.get(url_of(mail, message_id)))

    server.redis.hset("rsmq::released:mail", f"{message_id}:crashes", 2)

    assert "2 processes crashed while running this message." in text_of(browser.get(url_of(mail, message_id)))


def test_the_worker_and_its_lease_are_shown(browser: Browser, mail: Queue, server: PrivateServer):
    mail.send(b"x")
    message = mail.receive(visibility_timeout_s=90)
    server.redis.zadd("rsmq::workers", {"web1-4711": 1})
    server.redis.hset("rsmq::worker:web1-4711", "7 mail", f"\nother 1\n{message.id} 1")

    page = browser.get(url_of(mail, message.id))

    assert "In flight visible again in 1 min" in text_of(page) and "Leased by web1-4711" in text_of(page)
    assert b"data-rsmq-until=" in page.content


def test_a_signed_call_has_its_task_id_and_attempts(browser: Browser, mail: Queue, server: PrivateServer):
    call = {"task": "shop.tasks.pay", "id": "t7", "args": [], "kwargs": {}}
    message_id = mail.send(json.dumps({"signed": json.dumps(call), "signature_v2": "00" * 32}).encode())
    error = json.dumps(["builtins.ValueError", TRACEBACK])
    record = {"status": "READY", "queue": "mail", "message": message_id, "worker:1": "web1", "error:1": error}
    server.redis.hset("rsmq::result:t7", mapping=record)

    page = browser.get(url_of(mail, message_id))

    assert "Task id t7" in text_of(page) and "/admin/rsmq/result/t7/change/" in page.content.decode()
    assert "Attempt 1 · on web1 · builtins.ValueError" in text_of(page)
    assert "Cancel the task" in page.content.decode()


def test_a_dead_letter_shows_its_failure_and_every_attempt(browser: Browser, dead: Queue, server: PrivateServer):
    text = text_of(browser.get(url_of(dead, bury(server, dead))))

    assert "Reason Not retryable Original queue mail Attempts 2" in text
    assert "no, token: •••" in text and "ValueError: no, password=•••" in text
    assert "Attempt 2 · on web2 · builtins.ValueError" in text and "Attempt 1 · on web1" in text


def test_bodies_and_errors_are_shown_only_to_users_who_may_see_them(
    browser_of: Callable[..., Browser], dead: Queue, server: PrivateServer
):
    message_id = bury(server, dead)
    browser = browser_of("view_message")

    page = browser.get(url_of(dead, message_id))

    assert "You may not see bodies and errors" in text_of(page) and "builtins.ValueError" in text_of(page)
    assert b"Traceback" not in page.content and b"no, token" not in page.content and b"t7&quot;" not in page.content
    assert browser.get(url_of(dead, message_id, "body")).status_code == 403


def test_no_body_is_read_for_users_who_may_not_see_it(
    browser: Browser, browser_of: Callable[..., Browser], mail: Queue, server: PrivateServer
):
    mail.set_attributes(max_size_bytes=-1)
    message_id = mail.send(b"x" * 500_000)
    viewer = browser_of("view_message")

    _, read_bytes = bytes_read_by(server, lambda: browser.get(url_of(mail, message_id)))
    page, quietly_read_bytes = bytes_read_by(server, lambda: viewer.get(url_of(mail, message_id)))

    assert "Size 488 KiB" in text_of(page)
    assert quietly_read_bytes < 20_000 < 500_000 < read_bytes


def test_a_long_call_can_be_cancelled_without_seeing_its_body(
    browser_of: Callable[..., Browser], mail: Queue, server: PrivateServer
):
    call = {"task": "shop.tasks.pay", "id": "t7", "args": ["x" * 5000], "kwargs": {}}
    signed = {"signed": json.dumps(call), "signature_v2": "00" * 32}
    browser = browser_of("view_message", "delete_message")

    for body in (call, signed):
        message_id = mail.send(json.dumps(body).encode())
        server.redis.hset("rsmq::result:t7", mapping={"status": "READY", "queue": "mail", "message": message_id})

        page = browser.get(url_of(mail, message_id))

        assert "Task id t7" in text_of(page) and b"Cancel the task" in page.content


def test_an_argument_is_not_taken_for_the_task_id_by_users_who_may_not_see_it(
    browser_of: Callable[..., Browser], mail: Queue
):
    message_id = mail.send(b'{"task":"shop.tasks.pay","kwargs":{"id":"hunter2"},"args":["' + b"x" * 5000 + b'"]}')

    page = browser_of("view_message").get(url_of(mail, message_id))

    assert "Task shop.tasks.pay" in text_of(page) and b"hunter2" not in page.content


def test_odd_records_are_shown_unchanged(browser: Browser, dead: Queue, server: PrivateServer):
    message_id = dead.send(b"x")
    server.redis.hset("rsmq::dead:mail-dead", message_id, b"<b>\xff no JSON")
    server.redis.hset("rsmq::result:odd", mapping={"error:1": "no JSON", "worker:x": "y", "error:": "z"})
    odd = dead.send(b'{"task": "a.b", "id": "odd"}')

    assert b"&lt;b&gt;\xef\xbf\xbd no JSON" in browser.get(url_of(dead, message_id)).content
    assert "Attempt 1 no JSON" in text_of(browser.get(url_of(dead, odd)))


def test_a_message_without_a_body_is_shown(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.zadd("rsmq:mail", {"phantom": 1})

    assert "No body (orphaned message ID)." in text_of(browser.get(url_of(mail, "phantom")))


def test_a_deleted_message_redirects_to_the_index(browser: Browser, mail: Queue):
    for key in ("mail/gone", "nowhere/x", "mail", "%", "a/b/c/d"):
        assert browser.get(f"{MESSAGES}{quote(key)}/change/").status_code == 302
        assert browser.get(f"{MESSAGES}{quote(key)}/body/").status_code == 404


# -- Acting -----------------------------------------------------------------------------------------------------------


def seen_on(page: Any) -> str:
    return f"{page.context['page'].stored.receive_count} {page.context['original'].key}"


def test_operations_are_done_from_the_page(browser: Browser, mail: Queue, dead: Queue):
    message_id = mail.send(b"x", delay_s=600)
    seen, operate = f"0 mail/{message_id}", url_of(mail, message_id, "operate")

    browser.post(operate, {"action": "run_now", "seen": seen})
    assert mail.attributes().ready_messages == 1
    browser.post(operate, {"action": "delay", "seen": seen, "seconds": "60"})
    assert mail.attributes().ready_messages == 0
    done = browser.post(operate, {"action": "move", "seen": seen, "target": "mail-dead"}, follow=True)

    assert told(done)[-1] == "Move to another queue · mail: 1 of 1 done"
    assert done.redirect_chain[-1][0].endswith("?queue=mail")
    assert dead.attributes().messages == 1
    history = text_of(browser.get(f"/admin/rsmq/message/{quote(f'mail-dead/{message_id}')}/history/"))
    assert "Change history" in history
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Made visible at once", "Delayed by 60 s", "Moved to mail-dead",
    ]  # fmt: skip


def test_deleting_from_the_page_needs_a_confirmation(browser: Browser, mail: Queue):
    message_id = mail.send(b"x")
    operate, data = url_of(mail, message_id, "operate"), {"action": "delete_selected", "seen": f"0 mail/{message_id}"}

    assert "Are you sure?" in text_of(browser.post(operate, data))
    assert mail.attributes().messages == 1
    browser.post(operate, {**data, "post": "yes"})
    assert mail.attributes().messages == 0


def test_nothing_is_done_to_a_message_that_moved_on(browser: Browser, mail: Queue):
    message_id = mail.send(b"x")
    seen = seen_on(browser.get(url_of(mail, message_id)))
    mail.receive()

    data = {"action": "delete_selected", "seen": seen, "post": "yes"}
    done = browser.post(url_of(mail, message_id, "operate"), data, follow=True)

    assert told(done) == ["Delete · mail: 0 of 1 done, 1 has changed meanwhile"]
    assert not LogEntry.objects.exists()


def test_the_page_that_asks_before_a_deletion_compares_too(browser: Browser, mail: Queue):
    message_id = mail.send(b"x")
    address = url_of(mail, message_id, "delete")

    asked = browser.get(address)
    assert "Are you sure?" in text_of(asked) and f"Delete 1 message: mail mail/{message_id}" in text_of(asked)
    shown = dict(asked.context["hidden"])
    mail.receive()

    browser.post(address, shown)
    assert mail.attributes().messages == 1
    browser.post(address, dict(browser.get(address).context["hidden"]))
    assert mail.attributes().messages == 0
    assert LogEntry.objects.get().is_deletion()
    assert browser.get(address).status_code == 302


def test_a_redriven_dead_letter_is_a_new_message(browser: Browser, mail: Queue, dead: Queue, server: PrivateServer):
    message_id = bury(server, dead)

    browser.post(url_of(dead, message_id, "operate"), {"action": "redrive", "seen": f"0 mail-dead/{message_id}"})

    assert mail.receive().body == b'{"task": "shop.tasks.pay", "id": "t7"}'
    assert dead.attributes().messages == 0
    assert server.redis.hget("rsmq::result:t7", "status") == b"READY"


@pytest.mark.parametrize(
    ("action", "codename"),
    [
        ("run_now", "move_message"), ("delay", "move_message"), ("move", "move_message"),
        ("redrive", "redrive_message"), ("delete_selected", "delete_message"),
    ],
)  # fmt: skip
def test_each_operation_has_its_permission(
    browser_of: Callable[..., Browser], dead: Queue, server: PrivateServer, action: str, codename: str
):
    message_id = bury(server, dead)
    others = {"view_message", "view_body", "move_message", "redrive_message", "delete_message"} - {codename}
    data = {"action": action, "post": "yes", "seconds": "5", "target": "mail"}

    refused = browser_of(*others).post(url_of(dead, message_id, "operate"), data)

    assert refused.status_code == 403
    assert dead.attributes().messages == 1
    assert browser_of("view_message").post(url_of(dead, message_id, "delete"), {"post": "yes"}).status_code == 403


def test_unknown_operations_are_refused(browser: Browser, mail: Queue):
    message_id = mail.send(b"x")

    assert browser.get(url_of(mail, message_id, "operate")).status_code == 405
    assert browser.post(url_of(mail, message_id, "operate"), {"action": "explode"}).status_code == 404
