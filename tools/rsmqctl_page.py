"""Write docs/reference/rsmqctl.md: every operator command with its help and options, from the click commands.

Usage: python -m tools.rsmqctl_page
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import django
from django.conf import settings
from django.core.management import get_commands, load_command_class

from rsmq_django.cli.failures import ExitCode

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "rsmqctl.md"
WIDTH = 120
INTRODUCTION = """\
# rsmqctl: all commands

This page is generated from the commands by `python -m tools.rsmqctl_page`; `--help` prints the same texts.
[The command line](../how-to/command_line.md) is an introduction with examples.

`rsmqctl` needs no Django. `./manage.py rsmqctl` has the same commands for the servers and queues of the settings, and
those marked *manage.py only*. Options of `rsmqctl` itself, such as `--ns`, are given before the command, `--json`
before or after it. Errors are one line on stderr; with `--json` an object with `error` and `message`.
"""


def page() -> str:
    """Return the text of the page."""
    from rsmq_django.cli.app import root
    from rsmq_django.management.cli.tree import project_tree

    tree = project_tree()
    plain = {words for words, _command in leaves(root)}
    lines = [INTRODUCTION, *exit_codes(), *entrances(), "## Options of rsmqctl", "", *options(tree)]
    group = ""
    for words, command in leaves(tree):
        if words.split()[0] != group:
            group = words.split()[0]
            lines += [f"## {group}", ""]
            lines += [] if words == group else description(tree.commands[group])
        lines += [] if words == group else [f"### {words}", ""]
        if words not in plain:
            lines += ["*manage.py only*", ""]
        arguments = [each.metavar or (each.name or "").upper() for each in command.params if _is_argument(each)]
        lines += ["```text", " ".join(["rsmqctl", words, "[OPTIONS]", *arguments]), "```", ""]
        lines += [*description(command), *options(command)]
    return "\n".join(lines).rstrip() + "\n"


def leaves(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group and its groups, with the words that lead to them."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def exit_codes() -> Iterator[str]:
    """Yield the lines of the table of exit codes."""
    yield from ("## Exit codes", "", "| exit code | meaning |", "|---|---|")
    yield from (f"| {code.value} | {code.meaning} |" for code in ExitCode)
    yield ""


def entrances() -> Iterator[str]:
    """Yield the lines of the table of management commands that run a command of the tree."""
    from rsmq_django.management.cli.entrance import OPTIONS_OF_DJANGO, Entrance

    text = textwrap.fill(f"The same commands under names of their own. {OPTIONS_OF_DJANGO}", WIDTH)
    yield from ("## Commands of manage.py", "", text, "")
    yield from ("| `manage.py` | is `manage.py rsmqctl` |", "|---|---|")
    for name, application in sorted(get_commands().items()):
        if application.startswith("rsmq_django"):
            command = load_command_class(application, name)
            if isinstance(command, Entrance) and command.path:
                needs = "" if application == "rsmq_django" else f" (with `{application}` in INSTALLED_APPS)"
                yield f"| `{name}`{needs} | `{' '.join(command.path)}` |"
    yield ""


def description(command: click.Command) -> Iterator[str]:
    """Yield the help of a command as Markdown; paragraphs that click does not wrap are examples."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        elif paragraph:
            yield from (*textwrap.wrap(paragraph.replace("*", "\\*"), WIDTH, break_on_hyphens=False), "")


def options(command: click.Command) -> list[str]:
    """Return the lines of the table of a command's options."""
    shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if not shown:
        return []
    return ["| option | |", "|---|---|", *map(_row, shown), ""]


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    text = option.help or ""
    if isinstance(option.type, click.Choice):
        text += " One of " + ", ".join(f"`{choice}`" for choice in option.type.choices) + "."
    if option.show_default:
        text += f" Default: `{option.default}`."
    needed = " *(required)*" if option.required else ""
    metavar = f" `{option.metavar}`" if option.metavar else ""
    return f"| {names}{metavar}{needed} | {text.replace('|', chr(92) + '|').replace('*', chr(92) + '*').strip()} |"


def _is_argument(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument)


if __name__ == "__main__":
    settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "rsmq_django", "rsmq_django.outbox"])
    django.setup()
    PAGE.write_text(page(), "utf-8")
