"""What a worker tells: Django's signals about tasks, ours about messages, and one log line for each outcome."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

from rsmq_django.core import Queue
from rsmq_django.signals import message_dead_lettered
from rsmq_django.tasks import TaskContext, TaskResultStatus, compat, consumer, fixed
from rsmq_django.tasks.backend import RSMQBackend
from rsmq_django.tasks.compat import HAS_NATIVE_TASKS, task_finished, task_started
from rsmq_django.worker.report.notifications import Notifier
from tests.worker.workshop import Configure, declare, send_raw, work


@contextmanager
def hearing(signal: Signal) -> Iterator[list[dict[str, Any]]]:
    """Listen to a signal within the block."""
    heard: list[dict[str, Any]] = []

    def listen(**arguments: Any) -> None:
        heard.append(arguments)

    signal.connect(listen)
    try:
        yield heard
    finally:
        signal.disconnect(listen)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_start_and_end_are_signalled_with_the_class_of_the_backend(project: Configure, is_async: bool):
    async def aproduce(number: int) -> int:
        return number * 2

    sent = declare(aproduce if is_async else lambda number: number * 2).enqueue(21)

    with hearing(task_started) as started, hearing(task_finished) as finished:
        work(worker_id="painter")

    ((first,), (last,)) = started, finished
    assert first["sender"] is last["sender"] is RSMQBackend
    assert first["task_result"].id == last["task_result"].id == sent.id
    assert last["task_result"].status == TaskResultStatus.SUCCESSFUL
    assert (last["task_result"].return_value, last["task_result"].args) == (42, [21])
    assert last["task_result"].worker_ids == ["painter"]
    assert last["task_result"].started_at <= last["task_result"].finished_at


def test_listener_at_the_start_sees_a_running_task(project: Configure):
    seen = []

    def look(task_result: Any, **_: Any) -> None:
        seen.append((task_result.status, task_result.finished_at, task_result.attempts))

    declare(lambda: None).enqueue()
    task_started.connect(look)

    work()

    task_started.disconnect(look)
    assert seen == [(TaskResultStatus.RUNNING, None, 1)]


def test_each_attempt_starts_and_only_the_last_one_is_the_end(project: Configure):
    def fail() -> None:
        raise OSError("no paint left")

    declare(max_attempts=3, backoff=fixed(0))(fail).enqueue()

    with hearing(task_started) as started, hearing(task_finished) as finished:
        work()

    (end,) = finished
    assert [told["task_result"].attempts for told in started] == [1, 2, 3]
    assert end["task_result"].status == TaskResultStatus.FAILED
    assert end["task_result"].errors[-1].exception_class is OSError
    assert "no paint left" in end["task_result"].errors[-1].traceback


def test_context_and_listeners_share_one_result(project: Configure):
    results: list[Any] = []

    def note(context: TaskContext) -> None:
        results.append(context.task_result)

    declare(takes_context=True)(note).enqueue()

    with hearing(task_started) as started, hearing(task_finished) as finished:
        work()

    assert results[0] is started[0]["task_result"] is finished[0]["task_result"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_dead_letter_is_logged_with_its_reason(project: Configure, is_async: bool):
    async def afail() -> None:
        raise OSError

    def fail() -> None:
        raise OSError

    declared = declare(max_attempts=1)(afail if is_async else fail)
    declared.enqueue()

    with hearing(message_dead_lettered) as heard:
        work()

    (told,) = heard
    assert told["sender"] is Queue
    assert (told["queue_name"], told["reason"], told["task_path"]) == (
        "default",
        "attempts_used_up",
        declared.module_path,
    )
    assert told["message"].body.startswith(b'{"task"')


def test_message_without_a_task_has_no_task_signal(project: Configure):
    send_raw(b"plain text")

    with hearing(task_started) as started, hearing(task_finished) as finished, hearing(message_dead_lettered) as dead:
        work()

    assert (started, finished) == ([], [])
    assert [(told["reason"], told["task_path"]) for told in dead] == [("undecodable", "")]


def test_raw_messages_are_no_tasks(project: Configure):
    consumer("default")(lambda message: None)
    send_raw(b"hello")

    with hearing(task_started) as started, hearing(task_finished) as finished:
        work()

    assert (started, finished) == ([], [])


# -- Django's own receivers, which write to a log ----------------------------------------------------------------------

FRAMEWORK = "django.tasks" if HAS_NATIVE_TASKS else "django_tasks"
TOLD_WHETHER_SILENT = """
import sys
import django
from django.conf import settings
apps = ["django.contrib.contenttypes", "rsmq_django", *sys.argv[1:]]
settings.configure(INSTALLED_APPS=apps, RSMQ={"CONNECTIONS": {"default": {"URL": "redis://localhost:1"}}})
django.setup()
from rsmq_django.worker.report.notifications import Notifier
notifier = Notifier("painter")
notifier.find_listeners()
print(notifier.is_silent)
"""


class Lines(logging.Handler):
    """Collects the lines of a logger."""

    def __init__(self, level: int = logging.NOTSET, dropped_by: logging.Filter | None = None) -> None:
        super().__init__(level)
        self.lines: list[str] = []
        if dropped_by is not None:
            self.addFilter(dropped_by)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(f"{record.levelname} {record.getMessage().rpartition('state=')[2]}")


@contextmanager
def logging_tasks_to(*handlers: logging.Handler, level: int = logging.INFO) -> Iterator[None]:
    """Let the receivers of Django write to these handlers only."""
    logger = logging.getLogger(FRAMEWORK)
    before = logger.level, logger.propagate
    logger.propagate = False
    logger.setLevel(level)
    for each in handlers:
        logger.addHandler(each)
    try:
        yield
    finally:
        for each in handlers:
            logger.removeHandler(each)
        logger.propagate = before[1]
        logger.setLevel(before[0])


def is_silent() -> bool:
    notifier = Notifier("painter")
    notifier.find_listeners()
    return notifier.is_silent


def test_successes_are_no_news_in_a_project_without_logging_settings():
    backport = [] if HAS_NATIVE_TASKS else [FRAMEWORK]
    told = subprocess.run([sys.executable, "-c", TOLD_WHETHER_SILENT, *backport], capture_output=True, text=True)

    assert told.stdout.split() == ["True"], told.stderr


@pytest.mark.parametrize(
    ("handler", "debug", "expected"),
    [
        (None, False, True),
        (Lines(), False, False),
        (Lines(logging.WARNING), False, True),
        (Lines(dropped_by=RequireDebugTrue()), False, True),
        (Lines(dropped_by=RequireDebugTrue()), True, False),
        (Lines(dropped_by=RequireDebugFalse()), True, True),
        (Lines(dropped_by=RequireDebugFalse()), False, False),
        (Lines(dropped_by=logging.Filter("a filter that may let it pass")), False, False),
    ],
    ids=[
        "no handler",
        "any line",
        "warnings",
        "debug only, off",
        "debug only, on",
        "production only, debug",
        "production only",
        "unknown filter",
    ],
)
def test_worker_is_silent_while_no_log_takes_successes(
    project: Configure, settings: Any, handler: Lines | None, debug: bool, expected: bool
):
    settings.DEBUG = debug

    with logging_tasks_to(*([] if handler is None else [handler])):
        assert is_silent() is expected


def test_handlers_of_parents_are_asked(project: Configure, monkeypatch: pytest.MonkeyPatch):
    parent, child = logging.Logger("parent"), logging.getLogger(FRAMEWORK)
    monkeypatch.setattr(child, "parent", parent)

    with logging_tasks_to():
        child.propagate = True
        assert is_silent()
        parent.addHandler(Lines())
        assert not is_silent()


def test_tools_that_replace_the_methods_of_loggers_get_each_line(project: Configure, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    monkeypatch.setattr(logging.Logger, "callHandlers", lambda logger, record: seen.append(record.getMessage()))
    declared = declare(lambda: None)
    declared.enqueue()

    with logging_tasks_to(Lines(logging.CRITICAL)):
        work()

    assert [line.rpartition("=")[2] for line in seen if declared.module_path in line] == ["RUNNING", "SUCCESSFUL"]


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_failures_are_logged_by_django_when_successes_are_not(project: Configure, level: int):
    def fail() -> None:
        raise OSError("no paint left")

    handler = Lines(logging.ERROR)
    declare(lambda: None).enqueue()
    declare(max_attempts=1)(fail).enqueue()

    with logging_tasks_to(handler, level=level):
        work()

    assert handler.lines == ["ERROR FAILED"]


# -- Our log -----------------------------------------------------------------------------------------------------------


def test_failure_is_logged_with_the_next_step(project: Configure, caplog):
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise OSError(f"attempt {len(attempts)}")

    declared = declare(max_attempts=2, backoff=fixed(0))(fail)
    declared.enqueue()

    work()

    # The second attempt, on another thread, may be told of before the first one is.
    told = [record for record in caplog.records if record.name.endswith("notifications")]
    retry, end = sorted(told, key=lambda record: record.levelno)
    path = declared.module_path
    assert retry.levelno == logging.WARNING
    assert retry.getMessage().startswith(f"{path} failed on attempt 1 of 2, retry in 0.0 s: OSError: attempt 1 [")
    assert end.levelno == logging.ERROR
    assert end.getMessage().startswith(
        f"{path} failed for good (attempts_used_up) on attempt 2, moved to its dead-letter queue: OSError: attempt 2 ["
    )
    assert end.exc_text is not None and end.exc_text.startswith("Traceback")
    assert "Traceback" in logging.Formatter().format(end)


def test_success_is_logged_only_at_debug_level(project: Configure, caplog):
    declared = declare(lambda: None)
    declared.enqueue()
    with caplog.at_level(logging.INFO, "rsmq_django"):
        work()
    assert [r for r in caplog.records if r.name.endswith("notifications")] == []

    declared.enqueue()
    with caplog.at_level(logging.DEBUG, "rsmq_django"):
        work()

    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("notifications")]
    assert line.startswith(f"{declared.module_path} succeeded on attempt 1 [")


def test_django_logs_a_failure_where_its_log_of_successes_is_off(project: Configure, caplog: pytest.LogCaptureFixture):
    def spoil() -> None:
        raise KeyError("paint")

    declare(max_attempts=1)(spoil).enqueue()
    declare(lambda: None).enqueue()

    with caplog.at_level(logging.ERROR, logger=compat._signals_logger.name):
        work()

    told = [record for record in caplog.records if record.name == compat._signals_logger.name]
    assert [record.getMessage().rpartition("=")[2] for record in told] == ["FAILED"]
