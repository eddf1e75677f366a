"""Work of operators with a real browser: find a problem, understand it, repair it."""

import json
import re
from collections.abc import Callable

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from tests.browser.chromium import Visitor
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks

pytestmark = pytest.mark.browser
SITE_QUEUES: dict[str, dict[str, object]] = {"default": {}, "mail": {}}


def test_the_stuck_message_is_found_and_freed(root: Visitor, mail: Queue):
    mail.send_many([f"letter {number}".encode() for number in range(50)])
    stuck = mail.receive(visibility_timeout_s=3600)

    root.open("/admin/")
    root.click("Queues", role="link")
    root.click("mail no worker", role="link")
    root.follow(root.page.locator("dd a[href*=in_flight]"))
    assert "1 message" in root.text()
    root.follow(root.page.locator("#result_list tbody th a").first)
    assert stuck.id in root.text() and "no worker of this project" in root.text()
    root.click("Run now")

    root.wait_for_text("1 of 1 done")
    assert mail.attributes().ready_messages == 50
    assert LogEntry.objects.get().user.username == "root"


def test_why_a_task_died_can_be_read(root: Visitor, start_worker: StartWorker, server: PrivateServer):
    tasks.toil.enqueue("slow", "long")  # type: ignore[arg-type]  # which is what kills it
    start_worker("--no-startup-delay", queues=SITE_QUEUES)
    wait_until(lambda: server.redis.exists("rsmq::dead:default-dead"))

    root.open("/admin/rsmq/message/?state__exact=dead")
    root.follow(root.page.locator("#result_list tbody th a").first)

    text = root.text()
    assert "Failure" in text and "builtins.TypeError" in text
    assert "Traceback (most recent call last)" in text and "time.sleep(for_s)" in text


def test_dead_letters_that_died_alike_are_redriven_together(root: Visitor, server: PrivateServer):
    ensure_queue("default")
    dead = ensure_queue("default-dead")
    for number in range(3):
        record = {"reason": "gave_up", "queue": "default", "task": "shop.pay", "error": "builtins.TypeError"}
        died = dead.send(b'{"task": "shop.pay", "id": "t%d"}' % number)
        record["message"] = f"order {number} has no price"
        server.redis.hset("rsmq::dead:default-dead", died, json.dumps(record))
    dead.send(b"of another kind")

    root.open("/admin/rsmq/queue/default-dead/change/")
    root.follow(root.page.locator(".rsmq-tools").get_by_role("link", name="Failures"))
    root.follow(root.page.get_by_role("row", name=re.compile("TypeError")).get_by_role("button", name="Retry…"))
    root.click("Yes, I’m sure")

    root.wait_for_text("3 of 3 done")
    assert (ensure_queue("default").attributes().messages, dead.attributes().messages) == (3, 1)


def test_a_queue_is_paused_purged_and_resumed(root: Visitor, mail: Queue, server: PrivateServer):
    mail.send_many([b"x"] * 5)

    root.open("/admin/rsmq/queue/mail/change/")
    root.click("Pause")
    root.wait_for_text("paused: no messages are received")
    root.click("Purge", role="link")
    root.page.get_by_label("name").first.fill("mail")
    root.follow(root.page.locator("input.rsmq-dangerous, .submit-row input[type=submit]").first)
    root.wait_for_text("5 messages were removed from queue mail.")
    root.click("Resume")
    root.wait_for_text("Queue mail is resumed.")

    assert not server.redis.exists("rsmq::paused")
    assert LogEntry.objects.count() == 3


def test_a_task_is_sent_by_form_and_run_by_a_worker(root: Visitor, mail: Queue, start_worker: StartWorker):
    root.open("/admin/rsmq/queue/mail/change/")
    root.click("Enqueue a task", role="link")
    root.click("tests.worker.site.tasks.write", role="link")
    root.page.get_by_label("name").fill("Ada Lovelace")
    root.click("Enqueue")
    root.wait_for_text("was enqueued")
    task_id = re.search(r"Task (\S+) was enqueued", root.text())[1]

    start_worker("--batch", "--no-startup-delay", queues=SITE_QUEUES).wait()
    root.open(f"/admin/rsmq/result/{task_id}/change/")

    assert "Succeeded" in root.text() and '"Ada Lovelace"' in root.text()


def test_numbers_move_while_a_worker_runs(root: Visitor, mail: Queue, start_worker: StartWorker):
    for number in range(20):
        tasks.write.using(queue_name="mail").enqueue(f"letter {number}")
    root.open("/admin/rsmq/queue/mail/change/")
    assert "20, the oldest for" in root.text()

    worker = start_worker("--no-startup-delay", "--queues", "mail", queues=SITE_QUEUES)
    wait_until(lambda: ensure_queue("mail").attributes().messages < 20 or worker.process.poll() is not None)

    def is_done() -> bool:
        root.page.reload()
        return "Messages\n0\n" in root.text()

    wait_until(is_done)
    assert ensure_queue("mail").attributes().messages == 0


def test_a_user_without_permission_sees_nothing(
    visitor: Callable[..., Visitor], user_of: Callable[..., User], mail: Queue
):
    mail.send(b"between us")
    nobody = visitor(expects_refusals=True).log_in(user_of())

    nobody.open("/admin/")
    assert "Queues" not in nobody.text()
    for path in ("queue/", "queue/mail/change/", "queue/mail/purge/", "message/", "message/?q=between", "worker/"):
        assert nobody.open(f"/admin/rsmq/{path}").status == 403, path
        assert "mail" not in nobody.text() and "between" not in nobody.text()


def test_a_viewer_sees_states_but_no_bodies(visitor: Callable[..., Visitor], user_of: Callable[..., User], mail: Queue):
    mail.send(b"between us")
    looker = visitor().log_in(user_of("view_queue", "view_message"))

    looker.open("/admin/rsmq/message/?queue=mail")
    assert "between us" not in looker.text()
    looker.follow(looker.page.locator("#result_list tbody th a").first)

    assert "You may not see bodies" in looker.text() and "between us" not in looker.text()
    assert looker.page.get_by_role("button", name="Delete").count() == 0
