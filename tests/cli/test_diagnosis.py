"""`doctor` and `queue repair`: findings for people and programs, repair after confirmation."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from rsmq_django.core import Queue
from tests.cli.conftest import Result, Terminal
from tests.redis_server import PrivateServer

Run = Callable[..., Result]

PHANTOM = "p" * 32


@pytest.fixture
def wounds(queue: Queue, server: PrivateServer) -> None:
    """A queue that was created half, a phantom, and a listed queue of which nothing exists."""
    server.redis.hset("rsmq:half:Q", "vt", 30)
    server.redis.zadd("rsmq:jobs", {PHANTOM: server.redis.time()[0] * 1000 - 60_000})
    server.redis.sadd("rsmq:QUEUES", "gone")


def kinds(result: Result) -> set[tuple[str, str]]:
    return {(finding["subject"], finding["id"]) for finding in findings_of(result)}


def findings_of(result: Result) -> list[dict[str, Any]]:
    (report,) = result.json["connections"]
    found: list[dict[str, Any]] = report["findings"]
    return found


WOUNDS = {("half", "half-created"), ("jobs", "phantoms"), ("gone", "missing-queue")}


def test_doctor_reports_problems_with_reasons_and_remedies(rsmqctl: Run, wounds: None):
    seen = rsmqctl("doctor")

    assert seen.exit_code == 1
    assert "error    half: it lacks delay, maxsize (half-created)\n         for some calls" in seen.output
    assert f"examples: {PHANTOM}\n" in seen.output
    assert "         repair: remove it from the list\n" in seen.output
    assert re.fullmatch(r"Error: \d of \d findings are errors; --repair repairs 3 of all\n", seen.errors)


def test_doctor_changes_nothing(rsmqctl: Run, wounds: None, server: PrivateServer):
    before = {key: server.redis.dump(key) for key in server.redis.keys()}

    assert WOUNDS <= kinds(rsmqctl("--json", "doctor", "--deep"))
    assert rsmqctl("queue", "repair", "--dry-run").exit_code == 0

    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before


@pytest.mark.parametrize(
    ("level", "severities"), [("error", {"error"}), ("warning", {"error", "warning"}), (None, {"error"})]
)
def test_exit_code_tells_whether_a_finding_has_reached_the_level(
    rsmqctl: Run, queue: Queue, server: PrivateServer, level: str | None, severities: set[str]
):
    server.redis.sadd("rsmq:QUEUES", "gone")

    seen = rsmqctl("--json", "doctor", *(["--fail-level", level] if level else []))

    assert {finding["severity"] for finding in findings_of(seen) if finding["subject"] == "gone"} == {"warning"}
    assert seen.exit_code == any(finding["severity"] in severities for finding in findings_of(seen))


def test_repair_without_a_terminal_needs_yes(rsmqctl: Run, wounds: None, server: PrivateServer):
    failed = rsmqctl("queue", "repair")

    assert failed.exit_code == 1
    assert failed.errors == "Error: Repair these 3? Cannot ask without a terminal: add --yes\n"
    assert server.redis.sismember("rsmq:QUEUES", "gone")


@pytest.mark.slow
def test_repair_reports_the_repaired_findings(rsmqctl: Run, wounds: None, queue: Queue):
    repaired = rsmqctl("queue", "repair", "--yes")

    assert repaired.exit_code == 0
    assert "repaired jobs: phantoms: 1 changed\n" in repaired.output
    assert rsmqctl("queue", "list").output == '["half", "jobs"]\n'
    assert queue.attributes().messages == 0
    assert not kinds(rsmqctl("--json", "doctor")) & WOUNDS


@pytest.mark.slow
def test_repair_of_one_queue_leaves_the_others(terminal: Callable[..., Terminal], wounds: None, rsmqctl: Run):
    repairing = terminal("queue", "repair", "-n", "jobs")
    repairing.wait_for("Repair this? [y/N]")
    repairing.type("y\n")

    assert repairing.finish() == 0
    assert kinds(rsmqctl("--json", "doctor")) & WOUNDS == WOUNDS - {("jobs", "phantoms")}


@pytest.mark.slow
def test_doctor_repairs_on_request_and_reports_as_json(rsmqctl: Run, wounds: None):
    repaired = rsmqctl("--json", "doctor", "--repair", "--yes")

    (report,) = repaired.json["connections"]
    done = report["repairs"]
    assert {(one["subject"], one["id"], one["failure"]) for one in done} == {(*wound, "") for wound in WOUNDS}
    assert all(one["changed"] for one in done)


def test_repair_of_a_healthy_server_needs_no_confirmation(rsmqctl: Run, queue: Queue):
    assert rsmqctl("queue", "repair").output == "nothing found\n"


def test_doctor_of_a_project_compares_with_its_settings(
    settings: Any, redis_url: str, queue: Queue, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_url, "TIMEOUT_S": 15},
            "other": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "other"},
        },
        "QUEUES": {"jobs": {"VISIBILITY_TIMEOUT_S": 99}, "elsewhere": {"CONNECTION": "other"}},
    }

    def text_of(*words: str) -> str:
        with (tmp_path / "out").open("w+") as output, pytest.raises(SystemExit):
            call_command("rsmqctl", *words, "doctor", "--fail-level", "note", stdout=output)
        return (tmp_path / "out").read_text()

    text = text_of("--connection", "default")
    assert "(differs-from-settings)" in text
    assert "jobs-dead: " not in text, "a dead-letter queue may be unused"
    assert "elsewhere" not in text
    assert "elsewhere: it does not exist yet (not-created)" in text_of()
