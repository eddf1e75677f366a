"""Plain messages: read on the short path, they become what reading them the long way makes of them."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from rsmq_django.core import Message
from rsmq_django.queues import get_queue
from rsmq_django.tasks import current_task
from rsmq_django.tasks.compat import task_finished, task_started
from rsmq_django.worker.delivery import Delivery
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.execute.plain import read_all
from tests.worker.workshop import Configure, declare, new_worker, queue_source, the_dead_letter, work

ID = "pLq0aaaaaaaaaaaaaaaaaa"
KEY = "a key of the tests with 32 letters"


def run(a: Any, b: Any = 2, *, c: Any = 3) -> None:
    """Do nothing."""


def written(args: str = "[1]", kwargs: str = "{}", *, name: str = "", task_id: str = ID, end: str = "}") -> bytes:
    """Return a body as a sender writes it."""
    return f'{{"task":"{name or PATH}","id":"{task_id}","args":{args},"kwargs":{kwargs}{end}'.encode()


PATH = f"{__name__}.run"

PLAIN = {
    "no argument by name": written("[1]"),
    "arguments by name": written("[1]", '{"b":2,"c":"x"}'),
    "all by name": written("[]", '{"a":{"args":[],"kwargs":{}}}'),
    "text with quotation marks": written(json.dumps(['a","id":"b","args":[],"kwargs":{}}'])),
    "text that is not ASCII": written('["\u00fc\U0001f600"]'),
    "alias": written(name="shop.old"),
    "blanks within the arguments": written("[ 1 , 2 ]"),
}

OTHER = {
    "too few arguments": written("[]"),
    "too many arguments": written("[1,2,3]"),
    "unknown name": written("[1]", '{"d":1}'),
    "meta": written("[1]", "{}", end=',"meta":{"max_attempts":3}}'),
    "unknown version": written("[1]", "{}", end=',"v":2}'),
    "task given twice": written("[1]", "{}", end=',"task":"other"}'),
    "arguments given twice": written("[1]", "{}", end=',"args":[4]}'),
    "something behind": written("[1]", "{}", end="}}"),
    "blank behind": written("[1]", "{}", end="} "),
    "cut": written("[1]", "{}", end=""),
    "cut in the arguments": written("[1", "")[:-20],
    "arguments are an object": written('{"a":1}'),
    "names are a list": written("[1]", "[]"),
    "no JSON": written("[1,]"),
    "deep": written("[" * 100_000 + "]" * 100_000),
    "not UTF-8": written("[1]").replace(b"[1]", b'["\xff"]'),
    "short id": written(task_id="7"),
    "long id": written(task_id="7" * 63),
    "too long id": written(task_id="7" * 64),
    "id of other characters": written(task_id="order 7 of 2026 (again)"[:22]),
    "id with an escape": written(task_id="\\u0041aaaaaaaaaaaaaaaa"),
    "id that is a number": written().replace(f'"{ID}"'.encode(), b"7777777777777777777777"),
    "escape in the name": written(name=PATH.replace("run", "r\\u0075n")),
    "unknown task": written(name="nothing.of.this"),
    "blank in front": b" " + written(),
    "empty": b"",
}


def delivery_of(body: bytes, worker: Any, *, attempt: int = 1, crashes: int = 0) -> Delivery:
    (work_queue,) = queue_source(worker).queues
    message = Message("a" * 32, body, attempt, 1_700_000_000_000)
    return Delivery(work_queue, message, attempt, 0.0, "1 default", crashes)


def read_of(execution: Execution) -> dict[str, Any]:
    """Return what reading a message has found."""
    names = ("path", "handler", "meta", "max_attempts", "keep_result_s", "is_async", "hard_timeout_s", "acks_each")
    found = {name: getattr(execution, name) for name in (*names, "may_run", "envelope", "task_id", "takes_from")}
    found["error"] = execution.unreadable and (execution.unreadable.reason, str(execution.unreadable))
    if execution.unreadable is None:
        found |= {"args": execution.args, "kwargs": execution.kwargs}
    return found


@pytest.mark.parametrize("name", PLAIN | OTHER)
def test_short_path_reads_what_the_long_one_reads(project: Configure, name: str):
    declare(aliases=["shop.old"], max_attempts=7, hard_timeout_s=50)(run)
    worker = new_worker()
    source, body = queue_source(worker), (PLAIN | OTHER)[name]

    # In front and behind: what a message has in common with others is found once.
    bodies = [written(), body, written("[2]")]
    read = read_all([delivery_of(each, worker) for each in bodies], sink=source, notifier=worker.notifier)

    expected = [Execution(delivery_of(each, worker), source, worker.notifier) for each in bodies]
    assert [read_of(each) for each in read] == [read_of(each) for each in expected]
    assert [each.is_plain for each in read[:2]] == [True, name in PLAIN]


@pytest.mark.parametrize(
    "options",
    [{"batch": 3}, {"ack": "each"}, {"once": True}],
    ids=lambda options: next(iter(options)),
)
def test_call_of_a_task_with_such_an_option_is_not_plain(project: Configure, options: dict[str, Any]):
    declare(**options)(run)
    worker = new_worker()

    (read,) = read_all([delivery_of(written(), worker)], sink=queue_source(worker), notifier=worker.notifier)

    assert read.unreadable is None
    assert not read.is_plain


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_call_of_a_task_with_a_time_limit_is_plain(project: Configure, is_async: bool):
    async def arun(a: Any) -> None: ...

    declare(timeout_s=5)(arun if is_async else run)
    worker = new_worker()
    delivery = delivery_of(written(name=f"{__name__}.{arun.__qualname__}" if is_async else PATH), worker)

    (read,) = read_all([delivery], sink=queue_source(worker), notifier=worker.notifier)

    assert read.unreadable is None and read.is_plain
    assert (read.time_limit is None) == is_async  # the event loop has its own


@pytest.mark.parametrize("history", [{"attempt": 2}, {"crashes": 1}], ids=lambda history: next(iter(history)))
def test_message_with_a_history_is_not_plain(project: Configure, history: dict[str, int]):
    declare(run)
    worker = new_worker()
    delivery = delivery_of(written(), worker, **history)

    (read,) = read_all([delivery], sink=queue_source(worker), notifier=worker.notifier)

    assert not read.is_plain


def test_message_of_a_signed_queue_is_not_plain(configure: Configure):
    configure(default={"SIGNING_KEYS": [KEY]})
    declare(run)
    worker = new_worker()

    (read,) = read_all([delivery_of(written(), worker)], sink=queue_source(worker), notifier=worker.notifier)

    assert not read.is_plain
    assert read.unreadable is not None
    assert read.unreadable.reason == "unsigned"


def test_unsigned_message_for_a_task_of_a_signed_queue_is_not_plain(configure: Configure):
    configure(default={}, sealed={"SIGNING_KEYS": [KEY]})
    declare(queue_name="sealed")(run)
    worker = new_worker("default")

    (read,) = read_all([delivery_of(written(), worker)], sink=queue_source(worker), notifier=worker.notifier)

    assert not read.is_plain
    assert read.unreadable is not None
    assert read.unreadable.reason == "unsigned"


def test_function_of_a_task_that_was_declared_anew_is_called(project: Configure, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    def first() -> None:
        calls.append("old")

    def second() -> None:
        calls.append("new")

    second.__name__ = "first"
    declare(first).enqueue()
    work()
    monkeypatch.setattr(import_module("rsmq_django.tasks.task"), "_tasks", {})
    declare(second).enqueue()
    work()

    assert calls == ["old", "new"]


def test_plain_message_that_fails_is_retried_and_then_dead(project: Configure):
    attempts: list[int] = []

    def fails() -> None:
        attempts.append(current_task().attempt)
        raise OSError("no")

    declare(max_attempts=2, backoff=lambda attempt, error: 0)(fails).enqueue()
    work()

    assert attempts == [1, 2]
    assert the_dead_letter()[1]["reason"] == "attempts_used_up"


def test_receivers_of_signals_get_plain_messages(project: Configure):
    got: list[str] = []

    def on_started(**_: Any) -> None:
        got.append("started")

    def on_finished(*, task_result: Any, **_: Any) -> None:
        got.append(task_result.status.name)

    def runs() -> None:
        got.append("runs")

    task_started.connect(on_started)
    task_finished.connect(on_finished)
    try:
        declare(runs).enqueue()
        work()
    finally:
        task_started.disconnect(on_started)
        task_finished.disconnect(on_finished)

    assert got == ["started", "runs", "SUCCESSFUL"]


def test_value_of_a_plain_message_is_kept(project: Configure):
    def answers() -> int:
        return 7

    result = declare(answers).enqueue()
    work()

    result.refresh()
    assert result.return_value == 7
    assert get_queue("default").attributes().messages == 0
