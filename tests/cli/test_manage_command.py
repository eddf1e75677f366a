"""`manage.py rsmqctl`: the same tree, with the project's connections and namespace as its defaults."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from rsmq_django.core import Client, Queue
from tests.redis_server import PrivateServer

ROOT = Path(__file__).parent.parent.parent
Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def manage(server: PrivateServer) -> Manage:
    """Run manage.py in a project without an admin, which starts faster."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker.site.settings",
            "RSMQ_TEST_URL": server.url,
            **more,
        }
        return subprocess.run(
            [sys.executable, "manage.py", *words], capture_output=True, text=True, cwd=ROOT, env=environment
        )

    return run


@pytest.fixture
def project(settings: Any, redis_url: str) -> Any:
    """A project with two connections and a queue on the second."""
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "shop"},
            "other": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "other"},
        },
        "QUEUES": {"mail": {}, "sms": {"CONNECTION": "other"}},
    }
    return settings


def call(*words: str, **options: Any) -> str:
    output = io.StringIO()
    call_command("rsmqctl", *words, stdout=output, **options)
    return output.getvalue()


@pytest.mark.slow
def test_settings_give_server_and_namespace_and_the_environment_does_not(manage: Manage, queue: Queue):
    listed = manage("rsmqctl", "queue", "list", REDIS_URL="redis://127.0.0.1:1")

    assert (listed.returncode, listed.stdout, listed.stderr) == (0, '["jobs"]\n', "")


@pytest.mark.slow
def test_exit_codes_and_errors_are_those_of_the_script(manage: Manage):
    failed = manage("rsmqctl", "queue", "describe", "-n", "nope")
    wrong = manage("rsmqctl", "queue", "describe")

    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("Error: queue not found: nope; ")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Usage: manage.py rsmqctl queue describe ")


@pytest.mark.slow
def test_flags_of_the_script_win_over_the_settings(manage: Manage, server: PrivateServer):
    url = server.url + "?db=1"

    assert manage("rsmqctl", "-r", url, "--ns", "x", "queue", "create", "-n", "q").returncode == 0

    assert manage("rsmqctl", "-r", url, "--ns", "x", "queue", "list").stdout == '["q"]\n'
    assert manage("rsmqctl", "queue", "list").stdout == "[]\n"


@pytest.mark.slow
def test_options_that_django_reads_itself_are_understood(manage: Manage):
    listed = manage(
        "rsmqctl",
        "--settings=tests.worker.site.settings",
        "--pythonpath",
        ".",
        "queue",
        "list",
        DJANGO_SETTINGS_MODULE="nothing",
    )

    assert (listed.returncode, listed.stdout) == (0, "[]\n")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("help", "rsmqctl"), ("rsmqctl", "--help")], ids=" ".join)
def test_help_is_that_of_the_tree(manage: Manage, words: tuple[str, ...]):
    shown = manage(*words)

    assert shown.returncode == 0
    assert shown.stdout.startswith("Usage: manage.py rsmqctl ")
    assert "--connection ALIAS" in shown.stdout
    assert "--pythonpath" not in shown.stdout


def test_queue_is_found_on_the_connection_that_it_is_configured_on(project: Any, redis_url: str):
    call("queue", "create", "-n", "mail")
    call("queue", "create", "-n", "sms")
    call("queue", "create", "-n", "sms-dead")
    call("--connection", "other", "queue", "create", "-n", "unknown")

    assert call("queue", "list") == '["mail"]\n'
    assert call("--connection", "other", "queue", "list") == '["sms", "sms-dead", "unknown"]\n'
    assert call("--ns", "other", "queue", "list") == '["sms", "sms-dead", "unknown"]\n'


def test_unit_of_a_queues_times_is_that_of_the_settings(settings: Any, redis_url: str, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": redis_url, "TIMEOUT_S": 15}},
        "QUEUES": {"rust": {"VT_UNIT": "ms"}},
    }

    call("queue", "create", "-n", "rust", "-t", "30")
    call("queue", "create", "-n", "other", "-t", "30")

    assert server.redis.hget("rsmq:rust:Q", "vt") == b"30000"
    assert server.redis.hget("rsmq:other:Q", "vt") == b"30"


def test_message_does_not_move_between_servers(project: Any, capsys: pytest.CaptureFixture[str]):
    call("queue", "create", "-n", "mail")
    call("queue", "create", "-n", "sms")
    errors = io.StringIO()

    with pytest.raises(SystemExit):
        call("message", "move", "-n", "mail", "--to", "sms", stderr=errors)

    assert "queues mail and sms are on different connections" in errors.getvalue()


def test_unknown_connection_is_one_line_with_the_nearest_name(project: Any):
    errors = io.StringIO()

    with pytest.raises(SystemExit) as stopped:
        call("--connection", "othr", "queue", "list", stderr=errors)

    assert stopped.value.code == 1
    assert errors.getvalue().startswith("Error: Connection 'othr' is not in RSMQ['CONNECTIONS'].")
    assert "'other'" in errors.getvalue()


def test_only_connection_is_the_default_one(settings: Any, redis_url: str, client: Client):
    settings.RSMQ = {"CONNECTIONS": {"main": {"URL": redis_url, "TIMEOUT_S": 15}}, "QUEUES": {}}
    Queue("q", client).create()

    assert call("queue", "list") == '["q"]\n'


def test_wrong_settings_are_reported_without_a_traceback(settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URI": "redis://"}}}
    errors = io.StringIO()

    with pytest.raises(SystemExit):
        call("queue", "list", stderr=errors)

    assert errors.getvalue().startswith("Error: settings.RSMQ cannot be used:")
    assert errors.getvalue().count("\n") == 1


def test_names_of_the_settings_need_no_create(project: Any, client: Client):
    project.RSMQ = {**project.RSMQ, "RELIABLE": {"jobs": {}}, "TOPICS": ["orders"]}

    assert call("reliable", "push", "-n", "jobs", "-m", "a")
    assert call("topic", "publish", "-n", "orders", "-m", "a") == "1\n"
    with pytest.raises(SystemExit, match="1"):
        call("reliable", "push", "-n", "job", "-m", "a")
