"""The list of workers, the page of one, and commands to them."""

import re
from collections.abc import Callable

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.keys import workers_key
from rsmq_django.core.tasks.processes import Order, ProcessRecord, Running, describe, give_order
from rsmq_django.core.tasks.stacks import MAX_STACK_CHARACTERS, read_stacks, tell_stacks
from rsmq_django.core.transport.call import Call
from tests.admin.pages import rows_of, text_of, told
from tests.redis_server import PrivateServer

WORKERS = "/admin/rsmq/worker/"
HOSTILE = '<script>alert(1)</script>"\u202e/x'


def a_worker(
    queue: Queue, worker_id: str = "web-1-42", *, running: tuple[Running, ...] = (), state: str = "working"
) -> str:
    """A worker that a supervisor has told about; returns the address of its page."""
    client = queue.client
    client.run(Call("tasks/worker/beat", (workers_key("rsmq"),), (30_000, worker_id), lambda reply: None))
    record = ProcessRecord("web-1", 42, "1.0", 65_000, 1 << 20, state, ("mail",), running)
    client.run(describe("rsmq", worker_id, record))
    from rsmq_django.live.row_keys import row_key

    return f"{WORKERS}{quote(row_key('default', worker_id))}/"


def test_the_list_shows_the_records_of_supervisors(browser: Browser, mail: Queue):
    a_worker(mail, running=(Running("m1", 12_000), Running("m2", 10)))

    (row,) = rows_of(browser.get(WORKERS))

    assert (row.host, row.pid, row.version, row.state, row.running) == ("web-1", 42, "1.0", "working", 2)
    page = text_of(browser.get(WORKERS))
    assert "1.0 MiB" in page
    assert re.search(r"\b1 min ([5-9]|[1-5]\d) s\b", page) and re.search(r"\b(1[2-9]|[2-5]\d) s\b", page)


def test_of_many_queues_the_list_names_a_few(browser: Browser, mail: Queue):
    a_worker(mail)
    record = ProcessRecord("web-1", 42, "1.0", 65_000, 1 << 20, "working", tuple(f"q{n}" for n in range(100)), ())
    mail.client.run(describe("rsmq", "web-1-42", record))

    assert "q0, q1, q2 and 97 more" in text_of(browser.get(WORKERS))


def test_a_worker_without_a_heartbeat_is_stale(browser: Browser, mail: Queue, server: PrivateServer):
    a_worker(mail)
    server.redis.zadd("rsmq::workers", {"web-1-42": 1})

    (row,) = rows_of(browser.get(WORKERS))

    assert row.state == "silent" and not row.is_alive


def test_a_worker_without_a_record_is_listed(browser: Browser, mail: Queue, server: PrivateServer):
    url = a_worker(mail)
    server.redis.delete("rsmq::process:web-1-42")

    assert [row.state for row in rows_of(browser.get(WORKERS))] == ["unknown"]
    page = browser.get(f"{url}change/")
    assert page.status_code == 200 and not page.context["orders"]


def test_the_page_shows_running_tasks_with_their_run_times(browser: Browser, mail: Queue, server: PrivateServer):
    message_id = mail.send(b'{"task": "shop.tasks.pay", "args": []}')
    assert mail.receive()
    server.redis.hset("rsmq::worker:web-1-42", "1 mail", f"\n{message_id} 1")
    url = a_worker(mail, running=(Running(message_id, 12_000), Running("unknown", 1)))

    page = browser.get(f"{url}change/")

    first, second = page.context["running"]
    assert (first.task, first.queue) == ("shop.tasks.pay", "mail")
    assert re.fullmatch(r"(1[2-9]|[2-5]\d) s", first.runs_for)
    assert (second.task, second.message_key) == ("", "")
    assert f"/admin/rsmq/message/mail_2F{message_id}/change/" in page.content.decode()


@pytest.mark.parametrize("order", ["quiet", "resume", "restart", "stop"])
def test_an_order_is_given_and_logged(browser: Browser, mail: Queue, server: PrivateServer, order: str):
    url = a_worker(mail)

    page = browser.post(f"{url}order/", {"order": order}, follow=True)

    assert server.redis.get("rsmq::order:web-1-42").decode().startswith(f"{order} ")
    assert "1 process" in told(page)[0]
    (entry,) = LogEntry.objects.all()
    assert entry.object_repr == "web-1-42" and "requested" in entry.change_message


def test_orders_are_given_to_all_that_are_selected(browser: Browser, mail: Queue, server: PrivateServer):
    a_worker(mail, "w1"), a_worker(mail, "w2"), a_worker(mail, "w3")

    browser.post(WORKERS, {"action": "quiet", "_selected_action": ["default/w1", "default/w3"]})

    assert [server.redis.exists(f"rsmq::order:w{n}") for n in (1, 2, 3)] == [1, 0, 1]
    assert LogEntry.objects.count() == 2


def test_commands_given_before_the_connection_was_lost_are_reported_and_logged(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    a_worker(mail, "web-1")
    a_worker(mail, "web-2")

    def give(namespace: str, worker_id: str, order: Order) -> Call[bool]:
        if worker_id == "web-2":
            raise ConnectionFailed("gone")
        return give_order(namespace, worker_id, order)

    monkeypatch.setattr("rsmq_django.admin.workers.give_order", give)
    page = browser.post(WORKERS, {"action": "stop", "_selected_action": ["default/web-1", "default/web-2"]})

    assert page.status_code == 503
    assert told(page) == ["Stop gracefully: 1 process. web-1. Workers receive commands within five seconds."]
    assert LogEntry.objects.get().object_id == "default/web-1"


def test_a_command_to_a_process_that_has_ended_is_reported_and_not_logged(
    browser: Browser, mail: Queue, server: PrivateServer
):
    url = a_worker(mail)
    server.redis.zrem("rsmq::workers", "web-1-42")

    told_later = told(browser.post(f"{url}order/", {"order": "stop"}, follow=True))
    assert told_later == ["worker with ID “default/web-1-42” doesn’t exist. Perhaps it was deleted?"]
    assert not LogEntry.objects.exists()


def test_orders_need_their_permission_a_post_and_a_token(
    browser_of: Callable[..., Browser], mail: Queue, server: PrivateServer
):
    url = a_worker(mail)
    viewer, controller = browser_of("view_worker"), browser_of("view_worker", "control_worker")

    assert viewer.post(f"{url}order/", {"order": "stop"}).status_code == 403
    assert viewer.get(f"{url}change/").context["orders"] == []
    assert controller.get(f"{url}order/").status_code == 405
    assert controller.post(f"{url}order/", {"order": "dance"}).status_code == 404
    strict = Browser(enforce_csrf_checks=True)
    strict.cookies = controller.cookies
    assert strict.post(f"{url}order/", {"order": "stop"}).status_code == 403
    viewer.post(WORKERS, {"action": "stop", "_selected_action": ["default/web-1-42"]})
    assert not server.redis.exists("rsmq::order:web-1-42")
    assert controller.post(f"{url}order/", {"order": "stop"}).status_code == 302


def test_hostile_names_stay_text(browser: Browser, mail: Queue, server: PrivateServer):
    url = a_worker(mail, HOSTILE, running=(Running(HOSTILE, 5),))
    server.redis.hset(f"rsmq::process:{HOSTILE}", mapping={"host": HOSTILE, "version": HOSTILE, "queues": HOSTILE})

    for page in (browser.get(WORKERS), browser.get(f"{url}change/")):
        assert page.status_code == 200
        assert b"<script>alert" not in page.content and "\u202e" not in page.content.decode()


def test_reliable_queues_of_a_process_are_shown(browser: Browser, mail: Queue):
    url = a_worker(mail)
    record = ProcessRecord("web-1", 42, "1.0", 5, 1 << 20, "working", ("mail",), (), reliable=("orders",))
    mail.client.run(describe("rsmq", "web-1-42", record))

    page = browser.get(f"{url}change/")

    assert "Reliable queues orders" in text_of(page)
    assert "/admin/rsmq/reliablequeue/orders/change/" in page.content.decode()
    assert [row.queues for row in rows_of(browser.get(WORKERS, {"q": "orders"}))] == ["mail, orders"]


def test_without_workers_the_list_shows_how_to_start_one(browser: Browser, mail: Queue):
    page = text_of(browser.get(WORKERS))

    assert "No worker is running. Start one: manage.py rsmq_worker" in page
    a_worker(mail)

    assert "No worker is running" not in text_of(browser.get(WORKERS))


def test_running_tasks_show_arguments_without_secrets_and_progress(
    browser: Browser, browser_of: Callable[..., Browser], mail: Queue, server: PrivateServer
):
    body = b'{"task": "shop.tasks.pay", "id": "t7", "args": [], "kwargs": {"order": 7, "token": "hunter2"}}'
    message_id = mail.send(body)
    assert mail.receive()
    server.redis.hset("rsmq::worker:web-1-42", "1 mail", f"\n{message_id} 1")
    progress = '{"done": 30, "total": 120, "note": "page 3"}'
    server.redis.hset("rsmq::result:t7", mapping={"status": "RUNNING", "progress": progress})
    url = a_worker(mail, running=(Running(message_id, 12_000),))

    page = browser.get(f"{url}change/")
    narrow = browser_of("view_worker").get(f"{url}change/")

    (row,) = page.context["running"]
    assert "order=7" in row.arguments and row.progress == "30 of 120 (25 %), page 3"
    assert "hunter2" not in page.content.decode()
    (row,) = narrow.context["running"]
    assert (row.task, row.arguments, row.progress) == ("shop.tasks.pay", "", "")
    assert "Show stacks" in text_of(page) and "Show stacks" not in text_of(narrow)


@pytest.mark.parametrize(
    "progress",
    ["[" * 100_000, '{"done": 1%s}' % ("0" * 5000), "\udc80", "[]", '{"total": 3}'],
    ids=["deep", "longer than Python reads", "no text", "list", "nothing done"],
)
def test_progress_of_another_program_breaks_no_page(
    browser: Browser, mail: Queue, server: PrivateServer, progress: str
):
    message_id = mail.send(b'{"task": "shop.tasks.pay", "id": "t7"}')
    assert mail.receive()
    server.redis.hset("rsmq::worker:web-1-42", "1 mail", f"\n{message_id} 1")
    server.redis.hset("rsmq::result:t7", "progress", progress.encode("utf-8", "surrogateescape"))
    url = a_worker(mail, running=(Running(message_id, 12_000),))

    page = browser.get(f"{url}change/")

    assert page.status_code == 200
    assert [row.progress for row in page.context["running"]] == [""]


def test_stacks_are_requested_and_shown_without_secrets(browser: Browser, mail: Queue, server: PrivateServer):
    url = a_worker(mail, running=(Running("m1", 12_000),))
    mail.client.run(tell_stacks("rsmq", "web-1-42", {"m1": "an old one"}))

    asked = browser.post(f"{url}stacks/", follow=True)
    assert server.redis.get("rsmq::stacks-wanted:web-1-42") and server.redis.ttl("rsmq::stacks-wanted:web-1-42") > 0
    assert "no reply yet" in text_of(asked) and "an old one" not in text_of(asked)
    mail.client.run(tell_stacks("rsmq", "web-1-42", {"m1": 'File "pay.py", line 7\n  pay(token="hunter2")\n'}))
    answered = browser.get(f"{url}change/?stacks=1")

    assert 'File "pay.py", line 7' in text_of(answered) and "hunter2" not in answered.content.decode()
    assert 0 < server.redis.ttl("rsmq::stacks:web-1-42") <= 60


def test_stacks_are_shown_only_to_users_who_may_see_bodies(
    browser_of: Callable[..., Browser], mail: Queue, server: PrivateServer
):
    url = a_worker(mail, running=(Running("m1", 12_000),))
    mail.client.run(tell_stacks("rsmq", "web-1-42", {"m1": "File pay.py"}))

    assert browser_of("view_worker").post(f"{url}stacks/").status_code == 403
    assert browser_of("view_body").post(f"{url}stacks/").status_code == 403
    assert "File pay.py" not in browser_of("view_worker", "view_queue").get(f"{url}change/").content.decode()
    assert not server.redis.exists("rsmq::stacks-wanted:web-1-42")


def test_stacks_of_very_many_tasks_are_cut(mail: Queue):
    stacks = {f"m{number}": "x" * 20_000 for number in range(50)}

    mail.client.run(tell_stacks("rsmq", "w1", stacks))

    found = mail.client.run(read_stacks("rsmq", "w1"))
    assert len(found) == 8 and {len(text) for text in found.values()} == {MAX_STACK_CHARACTERS}


@pytest.mark.parametrize(("done", "total"), [("1" + "0" * 400, "5"), ("1e400", "1e400"), ("NaN", "5"), ("5", "1e-300")])
def test_progress_of_any_numbers_is_shown(browser: Browser, mail: Queue, server: PrivateServer, done: str, total: str):
    message_id = mail.send(b'{"task": "shop.tasks.pay", "id": "t7", "args": [], "kwargs": {}}')
    server.redis.hset("rsmq::worker:web-1-42", "1 mail", f"\n{message_id} 1")
    server.redis.hset("rsmq::result:t7", "progress", f'{{"done": {done}, "total": {total}}}')
    url = a_worker(mail, running=(Running(message_id, 10),))

    page = browser.get(f"{url}change/")

    (row,) = page.context["running"]
    assert row.progress
