"""What programs find in the log: fields beside the text, and JSON lines made of them."""

import json
import logging
import sys
from typing import Any

import pytest

from rsmq_django.telemetry.logs import JsonFormatter
from tests.worker.workshop import declare, send_raw, work


@pytest.fixture(autouse=True)
def everything(project: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="rsmq_django.worker.report.notifications")


def outcomes(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if hasattr(record, "rsmq_event")]


def test_success_has_its_fields(caplog: pytest.LogCaptureFixture):
    @declare
    def send_receipt(order_id):
        pass

    result = send_receipt.enqueue(order_id="hunter2")
    work()

    (record,) = outcomes(caplog)
    assert record.rsmq_event == "succeeded"
    assert (record.rsmq_queue, record.rsmq_attempt, record.rsmq_max_attempts) == ("default", 1, 5)
    assert record.rsmq_task.endswith(".send_receipt")
    assert record.rsmq_task_id == result.id
    assert record.rsmq_run_ms >= 0
    assert "hunter2" not in str(vars(record))


def test_failures_are_logged_with_the_next_step(caplog: pytest.LogCaptureFixture):
    @declare(max_attempts=2, backoff=lambda attempt: 0)
    def failing():
        raise ValueError("no")

    failing.enqueue()
    work(threads=1)  # two could tell of the second attempt first

    first, last = outcomes(caplog)
    assert (first.rsmq_event, first.rsmq_error_type, first.rsmq_retry_in_s) == ("retried", "builtins.ValueError", 0)
    assert (last.rsmq_event, last.rsmq_reason, last.rsmq_attempt) == ("dead", "attempts_used_up", 2)


def test_message_that_is_not_a_call_has_fields_without_a_task(caplog: pytest.LogCaptureFixture):
    message_id = send_raw("no json")
    work()

    (record,) = outcomes(caplog)
    assert (record.rsmq_event, record.rsmq_task, record.rsmq_message_id) == ("dead", "", message_id)


def test_formatter_writes_one_json_object_per_record(caplog: pytest.LogCaptureFixture):
    send_raw("no json\n\x1b[2J")
    work()

    line = JsonFormatter().format(outcomes(caplog)[0])

    fields = json.loads(line)
    assert "\n" not in line
    assert (fields["level"], fields["event"], fields["reason"]) == ("error", "dead", "undecodable")
    assert fields["time"].endswith("+00:00")


def test_formatter_adds_the_traceback_of_an_exception():
    try:
        raise KeyError("x")
    except KeyError:
        record = logging.getLogger("shop").makeRecord(
            "shop", logging.ERROR, "f.py", 1, "broke %s", ("it",), sys.exc_info()
        )

    fields = json.loads(JsonFormatter().format(record))

    assert fields["message"] == "broke it"
    assert fields["traceback"].endswith("KeyError: 'x'")


def test_traceback_of_a_dead_letter_is_a_field_and_not_a_part_of_the_message(caplog: pytest.LogCaptureFixture):
    @declare(max_attempts=1)
    def failing():
        raise ValueError("no paint left")

    failing.enqueue()
    work()

    fields = json.loads(JsonFormatter().format(outcomes(caplog)[0]))

    assert "Traceback" not in fields["message"] and "no paint left" in fields["message"]
    assert fields["traceback"].startswith("Traceback (most recent call last):\n")
    assert fields["traceback"].endswith("ValueError: no paint left")
