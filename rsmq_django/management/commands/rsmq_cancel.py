"""`./manage.py rsmq_cancel`: cancel tasks by their ids."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...core import RsmqError
from ...core.texts import printable
from ...tasks.cancellation import cancel
from ...tasks.compat import TaskResultDoesNotExist


class Command(BaseCommand):
    """The management command."""

    help = (
        "Cancels unfinished tasks: messages in a queue are deleted, running tasks are asked to stop. "
        'With "-" the ids are read from standard input, one per line. Exit status: 1 if one had finished or is unknown.'
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("ids", nargs="+", metavar="ID", help="task id, which is the id of its result")

    def handle(self, *args: Any, **options: Any) -> None:
        """Cancel the tasks one by one."""
        ids = [line.strip() for line in sys.stdin if line.strip()] if options["ids"] == ["-"] else options["ids"]
        late = 0
        for task_id in ids:
            try:
                is_cancelled = cancel(task_id)
            except TaskResultDoesNotExist as error:
                self.stderr.write(printable(str(error)))
                late += 1
                continue
            except RsmqError as error:
                raise CommandError(str(error)) from error
            self.stdout.write(f"{printable(task_id)} {'cancelled' if is_cancelled else 'had finished'}")
            late += not is_cancelled
        if late:
            raise CommandError(f"{late} of {len(ids)} tasks could not be cancelled")
