"""`rsmqctl`: the root command, and the only place where errors become error lines and exit codes."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Sequence

import click

from .. import __version__
from ..core import RsmqError
from ..core.limits import TIME_UNITS, TimeUnit
from ..core.transport.factories import masked
from .acl import acl
from .completion import completion
from .diagnosis import doctor
from .failures import ExitCode, Failed, Interrupted, PipeClosed, WrongUsage, name_of, text_of
from .messages import message
from .options import JSON_OPTION, VERBOSE_OPTION, RsmqctlGroup
from .output import printable
from .queues import queue
from .reliable import reliable
from .session import Session, console_session
from .task_group import task
from .topic import topic


@click.group(cls=RsmqctlGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-r", "--redis-url", "--url", "url", metavar="URL", help="The server, for example redis://localhost:6379/0."
)
@click.option("--ns", metavar="TEXT", help="The namespace of the queues; 'rsmq' unless configured otherwise.")
@click.option(
    "--vt-unit",
    type=click.Choice(TIME_UNITS),
    help="Unit in which queues store their times: s, or ms for queues shared with rsmq_async.",
)
@click.version_option(__version__, message="%(version)s")
@click.pass_obj
def root(session: Session, /, url: str | None, ns: str | None, vt_unit: TimeUnit | None) -> None:
    """Inspect and manage RSMQ queues.

    The server comes from -r, else from the environment variable REDIS_URL, else it is redis://localhost:6379;
    `manage.py rsmqctl` uses the project's settings. Keep passwords in the variable or the settings: other users of the
    machine can see a command's arguments.
    """
    session.namespace = ns or session.namespace
    session.vt_unit = vt_unit or session.vt_unit
    if url:
        session.url = url
        if masked(url) != url and sys.stderr.isatty():
            click.secho("The password is visible to other users; REDIS_URL hides it.", fg="yellow", err=True)


root.params += [JSON_OPTION, VERBOSE_OPTION]
root.add_command(queue)
root.add_command(message)
root.add_command(task)
root.add_command(reliable)
root.add_command(topic)
root.add_command(doctor)
root.add_command(acl)
root.add_command(completion)


def main(arguments: Sequence[str] | None = None, *, prog_name: str = "rsmqctl", session: Session | None = None) -> int:
    """Run a command line and return its exit code."""
    session = session or console_session()
    try:
        run(root, arguments, prog_name=prog_name, session=session)
    except Failed as failure:
        return report(failure, session)
    return ExitCode.SUCCESS


def run(
    command: click.Command,
    arguments: Sequence[str] | None,
    *,
    prog_name: str,
    session: Session,
    color: bool | None = None,
) -> None:
    """Run a command line. Raises Failed, with an exit code, for every error that its user can cause."""
    try:
        command.main(
            None if arguments is None else list(arguments),
            prog_name=prog_name,
            standalone_mode=False,
            obj=session,
            color=color if _may_colour() else False,
        )
        sys.stdout.flush()
    except click.UsageError as error:
        raise WrongUsage(error) from error
    except click.ClickException as error:
        raise Failed("fileError", error.format_message()) from error
    except RsmqError as error:
        raise Failed(name_of(error), text_of(error)) from error
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise Interrupted from error
        raise Failed("aborted", "aborted; nothing was changed") from error
    except PipeClosed:
        _forget_stdout()
        raise
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        _forget_stdout()
        raise PipeClosed from error


def report(failure: Failed, session: Session) -> ExitCode:
    """Print one line about a failure on stderr, and return the exit code."""
    if session.verbose and not isinstance(failure, WrongUsage | PipeClosed):
        click.echo("".join(traceback.format_exception(failure.__cause__ or failure)), err=True, nl=False)
    if not failure.text:
        pass
    elif session.json:
        click.echo(json.dumps({"error": failure.name, "message": failure.text}), err=True)
    elif isinstance(failure, WrongUsage):
        failure.error.show()
    else:
        start = click.style("Error:", fg="red") if _may_colour() else "Error:"
        click.echo(f"{start} {printable(failure.text)}", err=True)
    return failure.code


def _may_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _forget_stdout() -> None:
    """Redirect stdout to /dev/null: its reader closed the pipe (`| head`), and Python's flush at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
