"""`rsmqctl`: the root command, and the only place where errors become error lines and exit codes.

0 is success, including a receive that found nothing; 1 a failure; 2 a usage error; 130 Ctrl-C.
"""

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
from ..core.connection import masked
from ..core.limits import TIME_UNITS, TimeUnit
from .completion import completion
from .diagnosis import doctor
from .failures import Failed, Interrupted, name_of, text_of
from .messages import message
from .options import JSON_OPTION, VERBOSE_OPTION, RsmqctlGroup
from .output import printable
from .queues import queue
from .reliable import reliable
from .session import Session, console_session
from .task_group import task
from .topic import topic

FAILURE, USAGE, INTERRUPTED = 1, 2, 130


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
root.add_command(completion)


def main(
    arguments: Sequence[str] | None = None,
    *,
    prog_name: str = "rsmqctl",
    session: Session | None = None,
    tree: click.Group = root,
) -> int:
    """Run a command line and return its exit code."""
    session = session or console_session()
    try:
        tree.main(
            None if arguments is None else list(arguments),
            prog_name=prog_name,
            standalone_mode=False,
            obj=session,
            color=None if _may_colour() else False,
        )
        sys.stdout.flush()
    except click.UsageError as error:
        return _report_usage(error, session)
    except click.ClickException as error:
        return _report(session, "fileError", error.format_message())
    except (RsmqError, Failed) as error:
        code = INTERRUPTED if isinstance(error, Interrupted) else FAILURE
        return _report(session, name_of(error), text_of(error), error, code=code)
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _report(session, "interrupted", "interrupted", code=INTERRUPTED)
        return _report(session, "aborted", "aborted; nothing was changed")
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        _forget_stdout()
        return FAILURE
    return 0


def _may_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _report(session: Session, name: str, text: str, error: BaseException | None = None, *, code: int = FAILURE) -> int:
    """Print one line about the error on stderr, and return the exit code."""
    if session.verbose and error is not None:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if session.json:
        click.echo(json.dumps({"error": name, "message": text}), err=True)
    else:
        start = click.style("Error:", fg="red") if _may_colour() else "Error:"
        click.echo(f"{start} {printable(text)}", err=True)
    return code


def _report_usage(error: click.UsageError, session: Session) -> int:
    if session.json:
        return _report(session, "usage", error.format_message(), code=USAGE)
    error.show()
    return USAGE


def _forget_stdout() -> None:
    """Redirect stdout to /dev/null: its reader closed the pipe (`| head`), and Python's flush at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
