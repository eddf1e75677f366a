"""Shell completion: a script for each shell, and queue names from the server."""

from collections.abc import Callable

import pytest

from rsmq_django.core import Client, Queue
from tests.cli.conftest import Result
from tests.support import wait_until

pytestmark = pytest.mark.slow

Run = Callable[..., Result]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell_names_the_command(rsmqctl: Run, shell: str):
    printed = rsmqctl("completion", shell)

    assert printed.exit_code == 0
    assert "_RSMQCTL_COMPLETE" in printed.output


def complete(script: Run, words: str, **more: str) -> list[str]:
    number = str(len(words.split(" ")) - 1)
    asked = script(_RSMQCTL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number, **more)
    assert (asked.exit_code, asked.errors) == (0, "")
    return [line.partition(",")[2] for line in asked.output.splitlines() if line]


def test_commands_and_options_are_completed(script: Run):
    assert complete(script, "rsmqctl que") == ["queue"]
    assert complete(script, "rsmqctl message re") == ["receive", "redrive"]
    assert "--dry-run" in complete(script, "rsmqctl queue purge --")


def test_queue_names_are_completed_from_the_server(script: Run, client: Client):
    for name in ("mail", "mail-dead", "sms"):
        Queue(name, client).create()
    Queue("mailbox", Client(client.connection, namespace="other")).create()

    # Whoever presses Tab does not wait: half a second for the server, which a busy machine may take for itself.
    wait_until(lambda: complete(script, "rsmqctl message send -n ma") == ["mail", "mail-dead"])
    wait_until(lambda: complete(script, "rsmqctl message move -n mail --to s") == ["sms"])
    wait_until(lambda: complete(script, "rsmqctl --ns other queue describe --name ") == ["mailbox"])


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "nonsense", "redis://x:y#z@h"])
def test_completion_without_a_server_prints_nothing(script: Run, url: str):
    assert complete(script, "rsmqctl message send -n ma", REDIS_URL=url) == []
