"""The base class of `manage.py rsmq_doctor` and the other management commands that run a click command.

Django reads the options that all management commands have (--settings, --traceback, --no-color, -v ...), the click
command all others. An error is a CommandError with an exit code of cli.failures.ExitCode.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TextIO, cast

import click
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...checks import TAG
from ...cli.app import report, root
from ...cli.failures import Failed, PipeClosed, WrongUsage
from ...cli.options import JSON_OPTION
from ...cli.output import printable
from ...cli.session import Session
from ...core.transport.handshake import set_process_role
from .project import CONNECTION_OPTION
from .tree import project_session, project_tree, run

OPTIONS_OF_DJANGO = (
    "--settings, --pythonpath, --traceback, --no-color, --force-color, --verbosity and --skip-checks work as for other "
    "management commands."
)
HELP_OPTIONS = frozenset(root.context_settings["help_option_names"])
#: The system checks of commands that depend on more of the project than its connections; --skip-checks skips them.
CHECKS = (TAG,)
#: The words of the command line that are for the click command; no command has a parameter of this name.
WORDS = "words for click"
NOT_GIVEN: tuple[Any, ...] = (None, False, [], ())


class Entrance(BaseCommand):
    """A management command that runs one command of `manage.py rsmqctl`."""

    requires_system_checks: tuple[str, ...] = ()
    #: The names that lead to the command: ("task", "cancel").
    path: ClassVar[tuple[str, ...]]
    #: Whether the command accepts --connection.
    has_connections: ClassVar[bool] = False
    _called_from_command_line: bool

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.command = self._find_command()
        # So that call_command() accepts options by keyword.
        self.stealth_options = tuple(name for each in _leaves(self.command) for name in _parameters(each))

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that reads Django's options and leaves the other words to the click command."""
        parser = super().create_parser(prog_name, subcommand, add_help=False, allow_abbrev=False, **kwargs)
        if not self.requires_system_checks:
            parser.add_argument("--skip-checks", action="store_true")  # accepted, though no checks run
        self._prog_name = parser.prog.strip()

        def parse_args(args: Sequence[str] | None = None, namespace: object = None) -> Namespace:
            options, words = parser.parse_known_args(args)
            setattr(options, WORDS, words)
            options.skip_checks |= not HELP_OPTIONS.isdisjoint(words)
            return options

        parser.parse_args = parse_args  # type: ignore[method-assign,assignment]
        return parser

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the help of the click command."""
        self.run_from_argv([prog_name, subcommand, "--help"])

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the click command."""
        session = project_session()
        if self._called_from_command_line:
            set_process_role("cli")
        leaf = _leaf(self.command, options[WORDS])
        self._refuse_unknown(leaf, options)
        words = [*options[WORDS], *_words_of(leaf, options)]
        color = True if options["force_color"] else False if options["no_color"] else None
        with contextlib.nullcontext() if self._called_from_command_line else self._captured():
            try:
                run(self.command, words, prog_name=self._prog_name, session=session, color=color)
            except Failed as failure:
                self.end(failure, session)

    def end(self, failure: Failed, session: Session) -> NoReturn:
        """End with an error as users of `manage.py` and callers of call_command() expect it."""
        if self._called_from_command_line and (session.json or isinstance(failure, WrongUsage | PipeClosed)):
            sys.exit(report(failure, session))
        raise CommandError(printable(failure.text), returncode=failure.code) from failure

    def _refuse_unknown(self, leaf: click.Command, options: Mapping[str, Any]) -> None:
        """Raise TypeError for a keyword of another command: dry_run must not be ignored."""
        known = _parameters(leaf)
        unknown = [name for name in self.stealth_options if name not in known and options.get(name) not in NOT_GIVEN]
        if unknown:
            raise TypeError(f"Unknown option for this command: {', '.join(sorted(set(unknown)))}")

    @contextlib.contextmanager
    def _captured(self) -> Iterator[None]:
        """Redirect the output to the streams that a program has passed to call_command()."""
        for stream in (self.stdout, self.stderr):
            stream.ending = ""  # click writes its own line endings
        with (
            contextlib.redirect_stdout(cast("TextIO", self.stdout)),
            contextlib.redirect_stderr(cast("TextIO", self.stderr)),
        ):
            yield

    def _find_command(self) -> click.Command:
        found: click.Command = project_tree()
        for name in self.path:
            assert isinstance(found, click.Group)
            found = found.commands[name]
        command = copy.copy(found)
        command.params = [*found.params, *([CONNECTION_OPTION] if self.has_connections else [])]
        command.context_settings = root.context_settings
        command.epilog = OPTIONS_OF_DJANGO if self.path else None
        return command


def _leaf(command: click.Command, words: Sequence[str]) -> click.Command:
    """Return the command that the first words name."""
    if isinstance(command, click.Group) and words and words[0] in command.commands:
        return _leaf(command.commands[words[0]], words[1:])
    return command


def _leaves(command: click.Command) -> list[click.Command]:
    if isinstance(command, click.Group):
        return [leaf for each in command.commands.values() for leaf in _leaves(each)]
    return [command]


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters of a command by the names under which call_command() accepts them."""
    return {
        name.lstrip("-").replace("-", "_"): each
        for each in (*command.params, JSON_OPTION)
        for name in (each.name or "", *each.opts)
    }


def _words_of(command: click.Command, options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line for options that call_command() was given by keyword."""
    words: list[str] = []
    for name, parameter in _parameters(command).items():
        given = options.get(name)
        values = given if isinstance(given, list | tuple) else [] if given is None or given is False else [given]
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words += [parameter.opts[-1]] if values else []
        elif isinstance(parameter, click.Option):
            words += [f"{parameter.opts[-1]}={_word_for(parameter, value)}" for value in values]
        else:
            words += map(str, values)
    return words


def _word_for(option: click.Option, value: Any) -> str:
    """Return a value as a word; a number for a time is a number of seconds."""
    return f"{value}{getattr(option.type, 'unit_of_numbers', '') if isinstance(value, int | float) else ''}"
