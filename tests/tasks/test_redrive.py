"""Redriving dead letters: filters, effects, and the history of earlier failures."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from rsmq_django.cli.failures import ExitCode
from rsmq_django.core.errors import InvalidValue, QueueNotFound
from rsmq_django.core.queue.dead_letters import LONGEST_TEXT, MOST_LIVES, lives_of
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.redrive import redrive
from rsmq_django.tasks import TaskContext, fixed
from rsmq_django.tasks.compat import task_backends
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, dead_letters, declare, the_dead_letter, work


class Patient:
    """A task that fails as often as the test wants."""

    def __init__(self, *, max_attempts: int = 2) -> None:
        self.attempts: list[int] = []
        self.error: type[Exception] | None = ConnectionError

        def operate(context: TaskContext, number: int = 0) -> str:
            self.attempts.append(context.attempt)
            if self.error is not None:
                raise self.error(f"in life {number}, attempt {context.attempt}")
            return "well"

        self.task = declare(operate, max_attempts=max_attempts, backoff=fixed(0), takes_context=True)


def run(*words: str) -> str:
    output = io.StringIO()
    call_command("rsmq_redrive", *words, stdout=output, stderr=output)
    return output.getvalue()


# -- History -----------------------------------------------------------------------------------------------------------


def test_result_keeps_the_attempts_and_errors_from_before_a_redrive(project: Configure, server: PrivateServer):
    patient = Patient()
    result = patient.task.enqueue()
    work()
    patient.error = OSError
    assert redrive("default-dead").moved == {"default": 1}
    work()
    patient.error = None
    assert redrive("default-dead").moved == {"default": 1}
    work()

    result.refresh()
    assert patient.attempts == [1, 2, 1, 2, 1]
    kinds = [error.exception_class for error in result.errors]
    assert kinds == [ConnectionError, ConnectionError, OSError, OSError]
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", "well", 5)
    assert len(set(result.worker_ids)) == 3
    assert server.redis.keys("rsmq::released:*") == []


def test_failure_record_has_earlier_failures(project: Configure, server: PrivateServer):
    patient = Patient()
    patient.task.enqueue()
    work()
    redrive("default-dead")
    patient.error = OSError
    work()

    _, record = the_dead_letter()

    assert (record["error"], record["attempts"]) == ("builtins.OSError", 2)
    (life,) = record["history"]
    assert (life["error"], life["reason"], life["attempts"], life["message"]) == (
        "builtins.ConnectionError",
        "attempts_used_up",
        2,
        "in life 0, attempt 2",
    )
    assert life["died_ms"] < record["died_ms"]
    assert "traceback" not in life
    assert server.redis.keys("rsmq::released:*") == [b"rsmq::released:default-dead"]


def test_redriven_message_that_crashes_keeps_its_history(project: Configure, server: PrivateServer):
    patient = Patient(max_attempts=1)
    patient.task.enqueue()
    for _ in range(3):
        work()
        redrive("default-dead")
    work()

    _, record = the_dead_letter()

    assert [life["attempts"] for life in record["history"]] == [1, 1, 1]


def test_only_the_last_failures_are_kept_in_a_short_form():
    record = {"reason": "gave_up", "message": "x" * 9999, "traceback": "y" * 9999, "attempts": 3, "worker": None}
    for _ in range(2 * MOST_LIVES):
        record["history"] = json.loads(lives_of(json.dumps(record).encode()))

    assert len(record["history"]) == MOST_LIVES
    assert record["history"][-1] == {"reason": "gave_up", "message": "x" * LONGEST_TEXT, "attempts": 3}


@pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b'"text"', b"\xff", b"[" * 100_000])
def test_record_in_another_format_has_no_history(garbage: bytes):
    assert lives_of(garbage) == ""


@pytest.mark.parametrize("history", ["text", 7, [1, "a", None], {"a": 1}])
def test_history_in_another_format_is_left_out(history: Any):
    assert lives_of(json.dumps({"reason": "crashed", "history": history}).encode()) == '[{"reason":"crashed"}]'


# -- Which and how -----------------------------------------------------------------------------------------------------


@pytest.fixture
def buried(project: Configure) -> list[str]:
    """Task ids of dead letters: of a ConnectionError and of a ValueError, in this order."""
    project()
    ids = []
    for error in (ConnectionError, ValueError):
        patient = Patient(max_attempts=1)
        patient.error = error
        ids.append(patient.task.enqueue().id)
        work()
    return ids


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ({}, [0, 1]),
        ({"error": "ConnectionError"}, [0]),
        ({"error": "builtins.Val*"}, [1]),
        ({"task": "oper?te"}, [0, 1]),
        ({"task": "other"}, []),
        ({"reason": "attempts_used_up", "limit": 1}, [0]),
        ({"since": dt.timedelta(hours=1)}, [0, 1]),
        ({"until": dt.timedelta(hours=1)}, []),
        ({"until": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, []),
    ],
)
def test_requested_messages_are_removed_and_the_rest_stays(
    buried: list[str], choice: dict[str, Any], chosen: list[int]
):
    told: list[int] = []

    redriven = redrive("default-dead", on_progress=told.append, **choice)

    assert redriven.moved.total() == len(chosen) == max(told, default=0)
    assert len(dead_letters()) == 2 - len(chosen)
    assert {result_id for result_id in buried if _waits(result_id)} == {buried[index] for index in chosen}


def _waits(task_id: str) -> bool:
    return bool(task_backends["default"].get_result(task_id).status == "READY")


@pytest.mark.parametrize("choice", [{"limit": -1}, {"rate": 0}, {"rate": -1.0}], ids=str)
def test_number_below_the_least_is_refused_and_changes_nothing(buried: list[str], choice: dict[str, Any]):
    with pytest.raises(InvalidValue, match=f"{next(iter(choice))} is .*; it must be"):
        redrive("default-dead", **choice)

    assert len(dead_letters()) == 2


def test_redrive_to_another_queue(project: Configure):
    project(default={}, later={})
    Patient(max_attempts=1).task.enqueue()
    work()

    assert redrive("default-dead", to="later").moved == {"later": 1}
    assert get_queue("later").attributes().messages == 1


def test_queues_that_do_not_go_together_are_refused(project: Configure):
    project()
    with pytest.raises(ImproperlyConfigured, match="'defualt-dead' is not in RSMQ"):
        redrive("defualt-dead")
    with pytest.raises(QueueNotFound):
        redrive("default-dead")


# -- The command -------------------------------------------------------------------------------------------------------


def test_command_goes_through_all_dead_letter_queues(project: Configure):
    project(default={}, mail={})
    Patient(max_attempts=1).task.enqueue()
    work()

    assert run("--task", "operate") == "redriven 1 message from default-dead: 1 to default\n" + (
        "redriven 0 messages from mail-dead\n"
    )


def test_dry_run_groups_the_messages_to_move_and_changes_nothing(buried: list[str]):
    shown = run("default-dead", "--dry-run")

    assert "COUNT  TO" in shown and "\x1b" not in shown
    assert "builtins.ConnectionError" in shown and "builtins.ValueError" in shown
    assert shown.endswith("would redrive 2 messages from default-dead: 2 to default\n")
    assert len(dead_letters()) == 2


def test_redrive_of_an_original_queue_is_a_mistake_in_the_command_line(buried: list[str]):
    with pytest.raises(CommandError) as raised:
        run("default-dead", "default")

    text = "default is not a dead-letter queue: its dead letters are in default-dead"
    assert (str(raised.value), raised.value.returncode) == (text, ExitCode.USAGE)
    assert len(dead_letters()) == 2


def test_command_takes_filters_a_limit_and_a_rate(buried: list[str]):
    done = run("default-dead", "--error", "*Error", "--since", "1h", "--limit", "1", "--rate", "1000")

    assert done == "redriven 1 message from default-dead: 1 to default\n"


def test_matching_messages_that_stay_are_an_error(project: Configure):
    project()
    ensure_queue("default-dead").send("nobody knows where from")

    with pytest.raises(CommandError, match="1 message not moved from default-dead: 1 without a record of their origin"):
        run("default-dead")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["defualt-dead"], "queue not found: defualt-dead"),
        (["default-dead"], "queue not found: default-dead"),
        (["--since", "yesterday"], "'yesterday' is neither an age such as 30m"),
        (["--rate", "0"], "0.0 is not in the range x>0"),
        (["--limit", "-1"], "-1 is not in the range x>=1"),
    ],
)
def test_mistake_is_explained_in_one_line(project: Configure, words: list[str], complaint: str):
    project()
    with pytest.raises(CommandError, match=complaint):
        run(*words)


def test_project_without_any_dead_letter_has_nothing_to_redrive(project: Configure):
    project()

    assert run() == ""


def test_command_for_programs_prints_one_object_per_queue(project: Configure, buried: list[str]):
    project(default={}, mail={})
    ensure_queue("mail-dead")

    done = [json.loads(line) for line in run("default-dead", "mail-dead", "--json").splitlines()]

    assert done == [
        {"redriven": 2, "targets": {"default": 2}, "stayed": {}},
        {"redriven": 0, "targets": {}, "stayed": {}},
    ]
