"""What a writer of a queue puts into ids, names and bodies stays inside one line of the log, and moves no cursor."""

import ast
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

import rsmq_django
from rsmq_django.core.log_lines import get_logger
from rsmq_django.queues import get_client
from rsmq_django.telemetry.logs import JsonFormatter
from tests.worker.workshop import declare, send_raw, work

PACKAGE = Path(rsmq_django.__file__).parent
FORGED = "2026-11-22 10:00:00 ERROR shop.payments: all is paid"
EVIL = f"x\x1b[2J\r\n{FORGED}\x07\u202e"


@pytest.fixture(autouse=True)
def everything(project: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="rsmq_django")


def written(records: list[logging.LogRecord]) -> list[str]:
    """Return the lines that a plain handler and one with JSON write."""
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    return [
        line for record in records for line in f"{plain.format(record)}\n{JsonFormatter().format(record)}".split("\n")
    ]


def check(records: list[logging.LogRecord]) -> None:
    lines = written(records)
    assert records and not [line for line in lines if not line.isprintable()]
    assert not [line for line in lines if line.startswith(FORGED[:20])]


def send_with_id(message_id: str, body: bytes) -> None:
    """Store a message as a program may that writes to Redis by itself."""
    server = get_client("default").connection
    send_raw("first")
    for command in (
        ("HSET", "rsmq:default:Q", message_id, body),
        ("ZADD", "rsmq:default", int(time.time() * 1000), message_id),
    ):
        server.ask(command)


def test_message_id_stays_inside_its_line(caplog: pytest.LogCaptureFixture):
    send_with_id(EVIL, b"no json")
    work()

    check(caplog.records)
    assert "all is paid" in caplog.text, "it is written, and cannot be taken for a line of its own"
    assert EVIL not in {getattr(record, "rsmq_message_id", "") for record in caplog.records}


def test_text_of_an_exception_is_indented_below_its_line(caplog: pytest.LogCaptureFixture):
    @declare(max_attempts=1)
    def failing():
        raise ValueError(EVIL.replace("\r", ""))

    failing.enqueue()
    work()

    check(caplog.records)
    assert any(line == f"  {FORGED}\\x07\\u202e" for line in written(caplog.records))


def test_traceback_of_a_logged_exception_is_indented(caplog: pytest.LogCaptureFixture):
    class Silent(Exception):
        def __str__(self) -> str:
            raise SystemExit

    logger = get_logger("rsmq_django.test")
    for error in (ValueError(EVIL), Silent()):
        try:
            raise error
        except Exception:
            logger.exception("it failed: %s", EVIL, extra={"rsmq_queue": EVIL, "rsmq_attempt": 1})

    check(caplog.records)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_takes_its_logger_from_there(path: Path):
    allowed = {
        "core/log_lines.py": 1,
        "tasks/compat.py": 1,
        "tasks/running.py": 1,
        "management/commands/rsmq_worker.py": 5,
    }

    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "getLogger"
    ]

    assert len(calls) <= allowed.get(str(path.relative_to(PACKAGE)), 0)


def test_plain_records_are_unchanged(caplog: pytest.LogCaptureFixture):
    values: tuple[Any, ...] = ("ada", 7)
    get_logger("rsmq_django.test").info("%s has %d", *values)

    assert caplog.records[0].args == values


def test_no_argument_is_logged_with_any_outcome_of_its_call(caplog: pytest.LogCaptureFixture):
    @declare(max_attempts=1)
    def login(user, password="hunter2"):  # noqa: S107
        raise ValueError("refused")

    login.enqueue("ada", "hunter2")
    path = login.module_path
    for call in (
        {"task": path, "args": ["hunter2"] * 3},
        {"task": path, "kwargs": {"user": "ada", "pin": "hunter2"}},
        {"task": "no.such", "args": ["hunter2"]},
        {"task": path, "args": "hunter2"},
        {"task": path, "v": 9, "args": ["hunter2"]},
        {"signed": json.dumps({"task": path, "args": ["hunter2"]}), "signature": "00"},
    ):
        send_raw(json.dumps(call))
    work()

    assert "failed for good" in caplog.text and "hunter2" not in caplog.text
    assert not [record for record in caplog.records if "hunter2" in str(vars(record))]
