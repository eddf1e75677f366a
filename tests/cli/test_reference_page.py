"""docs/reference/rsmqctl.md is what tools/rsmqctl_page.py makes of the commands."""

from __future__ import annotations

import click
import pytest

from rsmq_django.cli.failures import ExitCode
from rsmq_django.management.cli.tree import project_tree
from tools.rsmqctl_page import PAGE, leaves, page


def test_reference_of_the_commands_is_up_to_date():
    assert PAGE.read_text("utf-8") == page(), "run python -m tools.rsmqctl_page"


def test_reference_has_every_exit_code():
    for code in ExitCode:
        assert f"| {code.value} | {code.meaning} |" in page()


@pytest.mark.parametrize("words", [words for words, _command in leaves(project_tree())])
def test_every_command_explains_itself_in_a_sentence(words: str):
    command = dict(leaves(project_tree()))[words]

    assert (command.help or "").split("\n")[0].endswith(".")
    assert all(each.help for each in command.params if isinstance(each, click.Option))
