"""What other programs write into "meta" stops no worker, whatever it is, and no message disappears because of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.tasks import tagged
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, dead_letters, declare, send_raw, the_dead_letter, work

MUCH = 10**400


def send_with_meta(meta: Any) -> None:
    """Send a call of the task `note` as a program in another language would."""
    send_raw(json.dumps({"task": f"{__name__}.note", "args": [1], "meta": meta}))


@pytest.fixture
def seen(project: Configure) -> list[int]:
    """What the task `note` was called with."""
    found: list[int] = []

    def note(number: int) -> None:
        found.append(number)

    declare(note)
    return found


@pytest.mark.parametrize(
    "meta",
    [
        {"tags": 7},
        {"tags": None},
        {"tags": "mail"},
        {"tags": {"a": 1}},
        {"tags": [7, None, ["x"], {"a": 1}, "", "\ud800", "x" * 1000]},
        {"tags": [f"tag {number}" for number in range(5000)]},
        {"unique": 7},
        {"unique": ""},
        {"unique": "\ud800"},
        {"unique": "x" * 10_000},
        {"unique": {"a": 1}},
        {"expires_in_s": float("nan")},
        {"expires_in_s": float("inf")},
        {"expires_in_s": MUCH},
        {"expires_in_s": "soon"},
        {"expires_in_s": [1]},
        {"context": 7},
        {"context": ["language"]},
        {"trace": 7},
        {"trace": "\ud800"},
        {},
    ],
    ids=lambda meta: repr(meta)[:40],
)
def test_a_call_with_odd_meta_runs_and_ends_as_any_other(seen: list[int], meta: Any, server: PrivateServer):
    send_with_meta(meta)
    send_with_meta({})

    work()

    assert (seen, get_queue("default").attributes().messages, dead_letters()) == ([1, 1], 0, [])


@pytest.mark.parametrize("seconds", [-1, -MUCH, float("-inf"), -1e308])
def test_a_call_that_expired_before_it_was_sent_is_a_dead_letter(seen: list[int], seconds: float):
    send_with_meta({"expires_in_s": seconds})

    work()

    assert (seen, the_dead_letter()[1]["reason"]) == ([], "expired")


def test_lock_and_tag_keys_of_another_type_do_not_block_the_work(
    seen: list[int], server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    server.redis.set("rsmq::tag:mail", "text")
    server.redis.set("rsmq::unique:abc", "text")
    for _ in range(3):
        send_with_meta({"tags": ["mail"], "unique": "abc"})

    work()

    assert seen == [1, 1, 1]
    assert "Trying again" not in caplog.text
    assert "cleanup failed" in caplog.text


def test_a_call_of_an_unknown_task_leaves_its_tags(project: Configure, server: PrivateServer):
    task: Any = declare(tags=["mail"])(lambda: None)
    task.enqueue()
    from rsmq_django.tasks.task import _tasks

    _tasks.clear()

    work()

    assert the_dead_letter()[1]["reason"] == "unknown_task"
    assert tagged("mail") == []
