"""`manage.py rsmq_doctor` and the others: the commands of `manage.py rsmqctl` under separate names."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class

from rsmq_django import schedules
from rsmq_django.cli.failures import ExitCode
from rsmq_django.management.cli.entrance import OPTIONS_OF_DJANGO, Entrance
from rsmq_django.management.cli.tree import project_tree
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

ROOT = Path(__file__).parent.parent.parent
Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def manage(server: PrivateServer) -> Manage:
    """Run manage.py in a process of its own."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        site = {"DJANGO_SETTINGS_MODULE": "tests.worker.site.settings", "RSMQ_TEST_URL": server.url}
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **site, **more},
        )

    return run


@pytest.fixture(autouse=True)
def _project(settings: Any, server: PrivateServer) -> None:
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}, "QUEUES": {"mail": {}}}


def entrances() -> list[str]:
    found = {name: load_command_class(app, name) for name, app in get_commands().items() if name.startswith("rsmq")}
    return sorted(name for name, command in found.items() if isinstance(command, Entrance) and command.path)


def test_entrances_are_few_lines():
    names = ("cancel", "doctor", "outbox", "redrive", "schedule", "stats")
    assert entrances() == [f"rsmq_{name}" for name in names]
    for name in entrances():
        module = sys.modules[type(load_command_class(get_commands()[name], name)).__module__]
        assert len(Path(str(module.__file__)).read_text("utf-8").splitlines()) < 20


@pytest.mark.parametrize("name", entrances())
def test_entrance_has_the_options_of_the_command_in_the_tree(name: str):
    entrance = load_command_class(get_commands()[name], name)
    assert isinstance(entrance, Entrance)
    found: click.Command = project_tree()
    for word in entrance.path:
        assert isinstance(found, click.Group)
        found = found.commands[word]

    own = {option for parameter in entrance.command.params for option in parameter.opts}
    assert own - {"--connection"} == {option for parameter in found.params for option in parameter.opts}
    assert entrance.command.callback is found.callback


@pytest.mark.parametrize("name", entrances())
def test_help_is_that_of_the_command(name: str, capsys: pytest.CaptureFixture[str]):
    load_command_class(get_commands()[name], name).print_help("manage.py", name)

    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"Usage: manage.py {name} ")
    assert OPTIONS_OF_DJANGO.replace(" ", "") in shown.replace(" ", "")  # lines may break at a hyphen


@pytest.mark.parametrize("words", [["rsmqctl", "queue", "list", "-h"], ["rsmq_outbox", "status", "-h"]], ids=" ".join)
def test_short_option_for_help_works_on_every_level(words: list[str]):
    out = io.StringIO()

    call_command(*words, stdout=out)

    assert "-h, --help" in out.getvalue()


@pytest.mark.parametrize(
    ("words", "error"),
    [(["--deeep"], "No such option"), (["--fail-level", "fatal"], "'fatal' is not one of"), (["--yes"], "needs --rep")],
)
def test_mistake_in_the_options_is_a_command_error_of_code_2(words: list[str], error: str):
    with pytest.raises(CommandError, match=error) as failure:
        call_command("rsmq_doctor", *words)

    assert failure.value.returncode == ExitCode.USAGE


def test_options_may_be_given_by_keyword(server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "gone")
    out = io.StringIO()

    with pytest.raises(CommandError):
        call_command("rsmq_doctor", json=True, connection=["default"], fail_level="warning", deep=False, stdout=out)
    with pytest.raises(TypeError, match="Unknown option"):
        call_command("rsmq_doctor", deeep=True)

    assert json.loads(out.getvalue())["connections"][0]["alias"] == "default"


@pytest.mark.slow
def test_options_of_every_management_command_work(manage: Manage):
    done = manage(
        "rsmq_doctor",
        "--settings=tests.worker.site.settings",
        "--pythonpath",
        ".",
        "-v",
        "2",
        "--no-color",
        "--skip-checks",
        "--json",
        DJANGO_SETTINGS_MODULE="nothing",
    )

    assert done.stderr == "" or done.stderr.startswith('{"error": "unhealthy"')
    assert json.loads(done.stdout)["connections"][0]["alias"] == "default"


@pytest.mark.slow
def test_errors_and_exit_codes_are_those_of_the_table(manage: Manage):
    away = {"RSMQ_TEST_URL": "redis://127.0.0.1:1"}
    failed, wrong = manage("rsmq_redrive", "nowhere"), manage("rsmq_redrive", "--rate", "0")
    unreachable, traced = manage("rsmq_doctor", **away), manage("rsmq_doctor", "--traceback", **away)
    for_programs = manage("rsmq_doctor", "--json", **away)

    assert (failed.returncode, failed.stdout) == (ExitCode.FAILURE, "")
    assert failed.stderr.startswith("CommandError: queue not found: nowhere; ")
    assert wrong.returncode == ExitCode.USAGE
    assert wrong.stderr.startswith("Usage: manage.py rsmq_redrive ")
    assert unreachable.returncode == ExitCode.FAILURE
    assert unreachable.stderr.startswith("CommandError: ") and unreachable.stderr.count("\n") == 1
    assert "Traceback" in traced.stderr
    assert (for_programs.stdout, json.loads(for_programs.stderr)["error"]) == ("", "connectionFailed")


@pytest.fixture
def site_with_an_error(tmp_path: Path) -> dict[str, str]:
    """Settings that can be read, with a middleware that does not exist."""
    (tmp_path / "wrong_site.py").write_text(
        "from tests.worker.site.settings import *\nRSMQ = {**RSMQ, 'MIDDLEWARE': ['tests.no_such_middleware']}\n"
    )
    return {"DJANGO_SETTINGS_MODULE": "wrong_site", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


@pytest.mark.slow
def test_commands_about_tasks_run_the_system_checks_of_this_package_first(
    manage: Manage, site_with_an_error: dict[str, str]
):
    commands = (["rsmq_doctor"], ["rsmq_stats"], ["rsmq_schedule", "list"])
    refused = [manage(*words, **site_with_an_error) for words in commands]
    skipped, helped = (manage("rsmq_stats", option, **site_with_an_error) for option in ("--skip-checks", "--help"))

    for done in refused:
        assert (done.returncode, done.stdout) == (ExitCode.FAILURE, "")
        assert "tests.no_such_middleware" in done.stderr and "(rsmq.E" in done.stderr
    assert (skipped.returncode, skipped.stderr) == (ExitCode.SUCCESS, "")
    assert (helped.returncode, helped.stderr) == (ExitCode.SUCCESS, "")


def test_entrances_with_system_checks():
    checked = {name for name in entrances() if load_command_class(get_commands()[name], name).requires_system_checks}

    assert checked == {"rsmq_doctor", "rsmq_outbox", "rsmq_schedule", "rsmq_stats"}


def test_redrive_of_an_unknown_queue_suggests_the_nearest_name_of_the_settings(settings: Any, server: PrivateServer):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"DEAD_LETTER": "mail-dead"}}}

    for words in (["mail-ded"], ["mail-ded", "--dry-run"]):
        with pytest.raises(CommandError, match=r"queue not found: mail-ded; .*\. Did you mean 'mail-dead'\?$"):
            call_command("rsmq_redrive", *words)
    with pytest.raises(CommandError) as known:
        call_command("rsmq_redrive", "mail-dead")

    assert "Did you mean" not in str(known.value)


def test_redrive_to_an_unknown_queue_suggests_the_nearest_name_of_the_settings(settings: Any, server: PrivateServer):
    connections = {name: {"URL": server.url, "NAMESPACE": name, "TIMEOUT_S": 15} for name in ("default", "second")}
    queues = {"mail": {"DEAD_LETTER": "mail-dead", "CONNECTION": "second"}}
    settings.RSMQ = {"CONNECTIONS": connections, "QUEUES": queues}

    with pytest.raises(CommandError, match=r"on different connections; .*\. Did you mean 'mail'\?$"):
        call_command("rsmq_redrive", "mail-dead", "--to", "mial")


def test_redrive_of_all_queues_asks_only_servers_with_dead_letter_queues(settings: Any, server: PrivateServer):
    away = {"URL": "redis://127.0.0.1:1"}
    settings.RSMQ = {
        "CONNECTIONS": {**settings.RSMQ["CONNECTIONS"], "away": away},
        "QUEUES": {"mail": {"DEAD_LETTER": "mail-dead"}, "other": {"CONNECTION": "away", "DEAD_LETTER": None}},
    }
    out = io.StringIO()

    call_command("rsmq_redrive", stdout=out)

    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("name", "words"), [("rsmqctl", ("--ns", "other", "message", "redrive", "mail-dead")), ("rsmq_outbox", ("retry",))]
)
def test_keyword_that_the_command_does_not_take_is_an_error(name: str, words: tuple[str, ...]):
    with pytest.raises(TypeError, match="Unknown option for this command: dry_run"):
        call_command(name, *words, dry_run=True)


def test_times_may_be_numbers_of_seconds():
    out = io.StringIO()

    call_command("rsmq_stats", since=3600, stdout=out)
    call_command(
        "rsmq_schedule",
        "add",
        "ping",
        task=write.module_path,
        every_s=30,
        kwargs='{"name": "x"}',
        queue="mail",
        stdout=out,
    )

    assert schedules.get("ping").when == "every 30 s"


def test_words_of_a_command_line_are_passed_on_once(monkeypatch: pytest.MonkeyPatch):
    passed = []
    monkeypatch.setattr(
        "rsmq_django.management.cli.entrance.run", lambda command, words, **options: passed.append(words)
    )

    call_command("rsmqctl", "task", "list")  # which has a parameter `words` of its own

    assert passed == [["task", "list"]]
