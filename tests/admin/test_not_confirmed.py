"""Calls and messages that too few replicas have confirmed were sent: pages say so, and the history has them."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import task
from rsmq_django.tasks.task import _tasks
from tests.admin.conftest import QUEUES
from tests.admin.pages import told

SAID = (
    "This was carried out, but too few replicas or disks confirmed it in time: a failover may lose it. "
    "Do not repeat it."
)


def remind(room: str = "kitchen") -> None: ...


@pytest.fixture
def mail(settings: Any) -> Queue:
    """A queue whose sends wait for a replica, on a server without one."""
    durability = {"REPLICAS": 1, "TIMEOUT_S": 0.05}
    settings.RSMQ = settings.RSMQ | {"QUEUES": {"mail": {"DURABILITY": durability}}}
    settings.RSMQ["TASKS"] = {"ENQUEUE_ON_COMMIT": False}
    return ensure_queue("mail")


@pytest.fixture
def reminder(mail: Queue) -> Iterator[str]:
    declared = task(queue_name="mail")(remind)
    yield declared.module_path
    _tasks.pop(declared.module_path)


def test_a_message_is_reported_and_logged(browser: Browser, mail: Queue):
    done = browser.post(f"{QUEUES}mail/send/", {"body": "x"}, follow=True)

    assert told(done)[0] == SAID and "was sent to queue mail" in told(done)[1]
    assert LogEntry.objects.get().change_message.startswith("Sent message")
    assert mail.attributes().messages == 1


def test_a_call_is_reported_and_logged(browser: Browser, mail: Queue, reminder: str):
    done = browser.post(f"{QUEUES}mail/enqueue/?task={reminder}", {"argument-room": "hall"}, follow=True)

    assert told(done)[0] == SAID and "was enqueued" in told(done)[1]
    assert LogEntry.objects.get().change_message.startswith("Enqueued")
    assert mail.attributes().messages == 1


def test_a_schedule_that_is_run_by_hand_is_reported_and_logged(browser: Browser, mail: Queue, reminder: str):
    schedules.add("remind", reminder, every_s=900)

    done = browser.post("/admin/rsmq/schedule/remind/operate/", {"action": "run"}, follow=True)

    assert told(done) == [SAID, "Run now: remind"]
    assert LogEntry.objects.get().change_message == "Run by hand"
    assert mail.attributes().messages == 1
