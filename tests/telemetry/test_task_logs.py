"""Records and events that are written inside a task say which task it is; others do not."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from rsmq_django.tasks.tracing import trace_id_of
from rsmq_django.telemetry.logs import JsonFormatter
from rsmq_django.telemetry.task_logs import TaskFieldsFilter, add_task_fields
from tests.worker.workshop import configure, declare, own_registries, patient_workers, project, send_raw, work  # noqa: F401

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"

pytestmark = pytest.mark.usefixtures("project")
logger = logging.getLogger("shop.library")


class KeptRecords(logging.Handler):
    """Keeps the records that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def handler() -> Iterator[KeptRecords]:
    handler = KeptRecords()
    handler.addFilter(TaskFieldsFilter())
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_records_inside_a_task_have_its_fields_and_others_have_none(handler: KeptRecords):
    @declare(max_attempts=2, backoff=lambda attempt: 0)
    def send(fails: bool):
        logger.warning("sending")
        if fails and len(handler.records) == 1:
            raise ValueError

    result = send.enqueue(True)
    work()
    logger.warning("outside")

    first, second, outside = handler.records
    assert (first.rsmq_task_id, first.rsmq_attempt, first.rsmq_queue) == (result.id, 1, "default")
    assert first.rsmq_task == send.module_path
    assert second.rsmq_attempt == 2
    assert not [name for name in vars(outside) if name.startswith("rsmq_")]
    assert not hasattr(first, "rsmq_trace_id")


def test_records_of_coroutines_have_the_fields_of_their_own_task(handler: KeptRecords):
    both_run = asyncio.Event()

    @declare
    async def send(number: int):
        if number:
            both_run.set()
        await both_run.wait()
        logger.warning("%d", number)

    sent = [send.enqueue(number) for number in range(2)]
    work()

    assert {int(each.getMessage()): each.rsmq_task_id for each in handler.records} == {
        number: result.id for number, result in enumerate(sent)
    }


def test_trace_that_a_message_names_is_a_field(handler: KeptRecords):
    @declare
    def send():
        logger.warning("sending")

    send_raw(json.dumps({"task": send.module_path, "meta": {"trace": TRACEPARENT}}))
    work()

    assert handler.records[0].rsmq_trace_id == TRACE_ID


@pytest.mark.parametrize("damaged", [None, 7, "", "00-xyz", f"00-{TRACE_ID}\n-b7ad6b7169203331-01"])
def test_damaged_trace_is_no_field(damaged: object):
    assert trace_id_of({"trace": damaged}) == ""


def test_format_that_names_the_fields_works_outside_of_a_task():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(TaskFieldsFilter(outside="-"))
    handler.setFormatter(logging.Formatter("%(rsmq_task_id)s/%(rsmq_attempt)s %(rsmq_trace_id)s %(message)s"))
    logger.addHandler(handler)
    try:
        logger.warning("hello")
    finally:
        logger.removeHandler(handler)

    assert stream.getvalue() == "-/- - hello\n"


def test_fields_of_a_record_are_not_changed(handler: KeptRecords):
    @declare
    def send():
        logger.warning("sending", extra={"rsmq_attempt": "mine"})

    send.enqueue()
    work()

    assert handler.records[0].rsmq_attempt == "mine"
    assert json.loads(JsonFormatter().format(handler.records[0]))["queue"] == "default"


def test_events_of_structlog_have_the_fields_too():
    seen: list[dict[str, Any]] = []

    def keep(_logger: object, _method_name: str, event: dict[str, Any]) -> str:
        seen.append(dict(event))
        return "kept"

    own = structlog.wrap_logger(structlog.PrintLogger(io.StringIO()), processors=[add_task_fields, keep])

    @declare
    def send():
        own.warning("sending", queue="mine")

    result = send.enqueue()
    work()
    own.warning("outside")

    inside, outside = seen
    assert (inside["task"], inside["task_id"], inside["attempt"]) == (send.module_path, result.id, 1)
    assert inside["queue"] == "mine"
    assert outside == {"event": "outside"}


@pytest.mark.slow
def test_filter_can_be_named_in_the_logging_of_the_settings():
    program = """
from django.conf import settings
settings.configure(INSTALLED_APPS=["rsmq_django"], RSMQ={}, LOGGING={
    "version": 1,
    "filters": {"task": {"()": "rsmq_django.telemetry.task_logs.TaskFieldsFilter", "outside": "-"}},
    "formatters": {"line": {"format": "%(rsmq_task_id)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "filters": ["task"], "formatter": "line"}},
    "root": {"handlers": ["console"]},
})
import django; django.setup()
import logging; logging.getLogger("shop").warning("hello")
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "- hello\n")
