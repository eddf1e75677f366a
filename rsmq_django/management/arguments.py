"""What the commands that are written with argparse add to Django's parser."""

from __future__ import annotations

import difflib
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

_UNKNOWN = "unrecognized arguments: "


class SuggestingCommand(BaseCommand):
    """A management command whose errors about unknown options name the nearest ones."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return Django's parser, which also says "did you mean"."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        fail = parser.error

        def error(message: str) -> Any:
            return fail(message + _nearest_options(parser, message))

        parser.error = error  # type: ignore[method-assign]
        return parser


def _nearest_options(parser: CommandParser, message: str) -> str:
    known = list(parser._option_string_actions)
    unknown = [word.partition("=")[0] for word in message.partition(_UNKNOWN)[2].split() if word.startswith("-")]
    near = [*dict.fromkeys(name for word in unknown for name in difflib.get_close_matches(word, known, n=1))]
    return f"; did you mean {', '.join(near)}?" if near else ""
