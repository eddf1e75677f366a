"""`manage.py rsmqctl task cancel` and `manage.py rsmq_cancel`: cancel tasks by their ids."""

from __future__ import annotations

import sys

import click

from ...cli.failures import Failed
from ...cli.options import RsmqctlCommand
from ...cli.output import printable, write_json
from ...cli.session import Session
from ...tasks.cancellation import cancel as cancel_task
from ...tasks.compat import TaskResultDoesNotExist


@click.command(cls=RsmqctlCommand)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.pass_obj
def cancel(session: Session, /, ids: tuple[str, ...]) -> None:
    """Cancel unfinished tasks.

    Messages in a queue are deleted, running tasks are asked to stop. ID is that of a task, which is the id of its
    result. With "-" the ids are read from standard input, one per line. Exits with 1 if a task had finished or is
    unknown. With --json, one object per line.
    """
    names = [line.strip() for line in sys.stdin if line.strip()] if ids == ("-",) else ids
    left = sum(not cancel_one(session, name) for name in names)
    if left:
        raise Failed("notCancelled", f"{left} of {len(names)} tasks could not be cancelled")


def cancel_one(session: Session, task_id: str) -> bool:
    """Cancel a task, print the result, and return whether it was cancelled."""
    try:
        is_cancelled, problem = cancel_task(task_id), ""
    except TaskResultDoesNotExist as error:
        is_cancelled, problem = False, str(error)
    if session.json:
        write_json({"task_id": task_id, "cancelled": is_cancelled, "error": problem})
    elif problem:
        click.echo(printable(problem), err=True)
    else:
        click.echo(f"{printable(task_id)} {'cancelled' if is_cancelled else 'had finished'}")
    return is_cancelled
