"""`./manage.py rsmqctl ...`: rsmqctl with the project's connections and namespace as defaults, and more commands.

It reads all options itself, prints errors as the script rsmqctl does, and ends with the same exit codes.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from django.core.management.base import CommandParser

from ...cli.app import report
from ...cli.failures import Failed
from ...cli.session import Session
from ..cli.entrance import WORDS, Entrance


class Command(Entrance):
    """The management command."""

    help = "Inspects and manages RSMQ queues: 'rsmqctl --help' lists the commands."
    path = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that leaves all words to rsmqctl, which has a -v of its own."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        defaults = vars(parser.parse_args([]))

        def parse_args(args: Sequence[str] = (), namespace: object = None) -> Namespace:
            return Namespace(**{**defaults, WORDS: list(args)})

        parser.parse_args = parse_args  # type: ignore[method-assign,assignment]
        return parser

    def end(self, failure: Failed, session: Session) -> NoReturn:
        """Print the error as the script rsmqctl does."""
        sys.exit(report(failure, session))
