"""Several functions of one raw queue: one decides, the others run behind it and change nothing."""

from __future__ import annotations

import time

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.core import Message
from rsmq_django.queues import get_queue
from rsmq_django.tasks import consumer, fixed
from rsmq_django.tasks.compat import InvalidTask
from tests.worker.workshop import Configure, new_worker, send_raw, the_dead_letter, work


def test_followers_run_after_the_primary_consumer_in_the_order_of_their_declaration(project: Configure):
    seen: list[tuple[str, bytes]] = []

    def first(message: Message) -> None:
        seen.append(("first", message.body))

    def second(message: Message) -> None:
        seen.append(("second", message.body))

    consumer("default", primary=False)(first)
    consumer("default")(lambda message: seen.append(("primary", message.body)))
    consumer("default", primary=False)(second)
    send_raw(b"hello")

    work()

    assert seen == [("primary", b"hello"), ("first", b"hello"), ("second", b"hello")]
    assert get_queue("default").attributes().messages == 0


def test_failures_of_followers_are_logged_and_change_nothing(project: Configure, caplog: pytest.LogCaptureFixture):
    seen: list[str] = []

    def fail(message: Message) -> None:
        raise SystemExit("not mine to say")

    def after(message: Message) -> None:
        seen.append("after")

    consumer("default", max_attempts=3)(lambda message: seen.append("primary"))
    consumer("default", primary=False)(fail)
    consumer("default", primary=False)(after)
    send_raw(b"hello")

    work()

    assert seen == ["primary", "after"]
    assert "fail failed after" in caplog.text and "not mine to say" in caplog.text
    assert get_queue("default-dead").attributes().messages == 0


def test_followers_run_at_each_attempt(project: Configure):
    attempts: list[int] = []

    def fail(message: Message) -> None:
        raise OSError("down")

    consumer("default", max_attempts=3, backoff=fixed(0))(fail)
    consumer("default", primary=False)(lambda message: attempts.append(message.receive_count))
    send_raw(b"hello")

    work()

    assert attempts == [1, 2, 3]
    _, record = the_dead_letter()
    assert (record["error"], record["attempts"]) == ("builtins.OSError", 3)
    assert record["task"].endswith(".fail")


def test_follower_that_takes_too_long_is_stopped_and_the_message_has_succeeded(
    project: Configure, caplog: pytest.LogCaptureFixture
):
    def dawdle(message: Message) -> None:
        while True:
            time.sleep(0.01)

    consumer("default", timeout_s=1)(lambda message: None)
    consumer("default", primary=False)(dawdle)
    send_raw(b"hello")

    work()

    assert "TaskTimeout" in caplog.text
    assert get_queue("default").attributes().messages == 0
    assert get_queue("default-dead").attributes().messages == 0


def test_coroutine_functions_follow_each_other_too(project: Configure):
    seen: list[str] = []

    async def primary(message: Message) -> None:
        seen.append("primary")

    async def fail(message: Message) -> None:
        raise ValueError

    async def follow(message: Message) -> None:
        seen.append("follower")

    consumer("default")(primary)
    consumer("default", primary=False)(fail)
    consumer("default", primary=False)(follow)
    send_raw(b"hello")

    work()

    assert seen == ["primary", "follower"]


def test_followers_of_batches_get_the_batch(project: Configure):
    seen: list[tuple[str, int]] = []

    def follow(messages: list[Message]) -> None:
        seen.append(("follower", len(messages)))

    consumer("default", batch=10)(lambda messages: seen.append(("primary", len(messages))))
    consumer("default", primary=False)(follow)
    for _ in range(3):
        send_raw(b"hello")

    work(threads=1)

    assert seen == [("primary", 3), ("follower", 3)]


def test_queue_without_a_primary_consumer_is_refused_before_a_message_is_taken(project: Configure):
    consumer("default", primary=False)(print)

    with pytest.raises(ImproperlyConfigured, match=r"builtins\.print with primary=False and no primary consumer"):
        new_worker()


def test_options_of_a_follower_are_refused(project: Configure):
    with pytest.raises(ValueError, match="max_attempts is for the primary consumer of 'default'"):
        consumer("default", primary=False, max_attempts=3)


def test_coroutine_functions_and_functions_cannot_follow_each_other(project: Configure):
    async def follow(message: Message) -> None: ...

    consumer("default")(print)

    with pytest.raises(
        InvalidTask, match=r"follow follows builtins\.print on queue 'default'; make both of them async"
    ):
        consumer("default", primary=False)(follow)
