"""`./manage.py rsmqctl ...`: rsmqctl with the project's connections and namespace as defaults.

Django's parser cannot parse its arguments, so all arguments go to `rsmq_django.cli`.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
from collections.abc import Sequence
from typing import Any, TextIO, cast

import click
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandParser

from ...cli.app import main, root
from ...cli.failures import Failed
from ...cli.session import Session
from ...conf import get_settings
from ...core import Client
from ...core.doctor import ExpectedQueue
from ...queues import get_client


class Command(BaseCommand):
    """The management command."""

    help = "Inspects and manages RSMQ queues: 'rsmqctl --help' lists the commands."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the arguments as an rsmqctl command line."""
        sys.exit(run(argv[2:], prog_name=f"{argv[0]} {argv[1]}"))

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the help of rsmqctl."""
        run(["--help"], prog_name=f"{prog_name} {subcommand}")

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that accepts any arguments, for call_command("rsmqctl", "queue", "list")."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        without_words = parser.parse_args([])

        def take_words(args: Sequence[str] = (), namespace: object = None) -> argparse.Namespace:
            return argparse.Namespace(**vars(without_words), words=list(args))

        parser.parse_args = take_words  # type: ignore[method-assign,assignment]
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        """Run a command line given by a program."""
        for stream in (self.stdout, self.stderr):
            stream.ending = ""  # rsmqctl writes its own line endings
        with (
            contextlib.redirect_stdout(cast("TextIO", self.stdout)),
            contextlib.redirect_stderr(cast("TextIO", self.stderr)),
        ):
            code = run(options["words"], prog_name="rsmqctl")
        if code:
            sys.exit(code)


def run(words: Sequence[str], *, prog_name: str) -> int:
    """Run an rsmqctl command line with the project's settings, and return its exit code."""
    session = Session(settings=expected_queues)
    choice: dict[str, str | None] = {}
    session.default_client = lambda queue_name: project_client(queue_name, choice.get("connection"))
    return main(words, prog_name=prog_name, session=session, tree=project_tree(choice))


def project_client(queue_name: str | None, alias: str | None) -> Client:
    """Return the client of the connection, else of the queue's configured connection, else of the default one."""
    try:
        settings = get_settings()
        if alias is None:
            known = settings.queues.get(queue_name or "") or settings.dead_letters.get(queue_name or "")
            alias = known.connection if known else "default"
            if alias not in settings.connections and len(settings.connections) == 1:
                (alias,) = settings.connections
        settings.connection(alias)
        return get_client(alias)
    except ImproperlyConfigured as error:
        raise Failed("improperlyConfigured", str(error)) from error


def expected_queues(client: Client) -> dict[str, ExpectedQueue]:
    """Return the queues that the settings declare for a client."""
    settings = get_settings()
    return {
        queue.name: ExpectedQueue(
            visibility_timeout_s=queue.visibility_timeout_s,
            delay_s=queue.delay_s,
            max_size_bytes=queue.max_size_bytes,
            vt_unit=queue.vt_unit,
        )
        for queue in (*settings.queues.values(), *settings.dead_letters.values())
        if get_client(queue.connection) is client
    }


def project_tree(choice: dict[str, str | None]) -> click.Group:
    """Return the command tree with --connection, and with the options that Django has already parsed."""

    def note(_context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        choice[parameter.name or ""] = value

    text = "A connection of RSMQ['CONNECTIONS']; default: the queue's connection, else 'default'."
    connection = click.Option(["--connection"], metavar="ALIAS", expose_value=False, callback=note, help=text)
    read_by_django = [click.Option([name], hidden=True, expose_value=False) for name in ("--settings", "--pythonpath")]
    tree = copy.copy(root)
    tree.params = [*root.params, connection, *read_by_django]
    return tree
