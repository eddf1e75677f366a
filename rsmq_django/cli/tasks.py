"""`rsmqctl task list, show, tail`: runs of tasks, from the event log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from ..core import Client, list_queues
from ..core.errors import QueueNotFound
from ..core.keys import result_key
from ..core.queue.bands import split_band
from ..core.queue.browse import StoredMessage, pick
from ..core.queue.listing import MAX_QUEUES, find
from ..core.stats.events import Event, EventKind
from ..core.stats.run_filter import FAILED, RunFilter, group_of
from ..core.stats.runs import Tail, attempts_of, find_runs, read_run
from ..core.transport.call import Call
from .failures import Failed
from .forms import relative
from .options import MOMENT, RsmqctlCommand, complete_queue_name
from .output import TextTable, as_duration, as_text, printable, write_json
from .session import Session

F = TypeVar("F", bound=Callable[..., Any])

#: One value for all kinds of failure.
ALL_FAILURES = "failed"
OUTCOMES = [*(kind.value for kind in EventKind), ALL_FAILURES]
_RUN_ID = re.compile(r"\d+-\d+")


def run_filter_options(function: F) -> F:
    """Add the options that select runs; the command receives them as `wanted`."""
    options = (
        click.option("--tag", metavar="TEXT", help="Of calls with this tag."),
        click.option("--group", metavar="HEX", help="Of this error group, as printed by list --json."),
        click.option("--worker", metavar="ID", help="Of this worker process."),
        click.option(
            "--outcome", "outcomes", type=click.Choice(OUTCOMES), multiple=True, help="Outcome; can be repeated."
        ),
        click.option("--task", metavar="PATH", help="Of this task: its dotted path."),
        click.option("-n", "--name", metavar="QUEUE", shell_complete=complete_queue_name, help="Of this queue."),
        click.argument("words", nargs=-1),
    )
    for option in options:
        function = option(function)
    return function


def wanted_runs(*, name: str | None, outcomes: Sequence[str], words: Sequence[str], **more: Any) -> RunFilter:
    """Return the filter made of the options."""
    kinds = {kind for outcome in outcomes for kind in (FAILED if outcome == ALL_FAILURES else {outcome})}
    return RunFilter(queue=name, kinds=frozenset(kinds), words=tuple(words), **more)


# -- list and tail ----------------------------------------------------------------------------------------------------


@click.command("list", cls=RsmqctlCommand)
@run_filter_options
@click.option("--since", "since_ms", type=MOMENT, metavar="TIME", help="Ended at or after: 30m, 2h, 7d, or a time.")
@click.option("--until", "until_ms", type=MOMENT, metavar="TIME", help="Ended before TIME; same forms as --since.")
@click.option("--before", metavar="RUN", default="+", help="Continue after this run, as printed by an earlier list.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N", help="Maximum number of runs."
)
@click.pass_obj
def list_(
    session: Session,
    /,
    name: str | None,
    since_ms: float | None,
    until_ms: float | None,
    before: str,
    limit: int,
    **choices: Any,
) -> None:
    """List runs of tasks, newest first.

    One line is one attempt. WORDS are searched in ids, errors and arguments, numbers as whole numbers: 7 does not match
    47. The setting EVENTS decides which runs are recorded. With --json, one object per line.

    \b
    rsmqctl task list --outcome failed --since 1d
    rsmqctl task list order-7
    """
    if before != "+" and not _RUN_ID.fullmatch(before):
        raise click.BadParameter(f"{before!r} is not the id of a run", param_hint="--before")
    client = session.client(name)
    choices |= {"since_ms": _whole(since_ms), "until_ms": _whole(until_ms)}
    wanted = wanted_runs(name=name, **choices)
    found = find_runs(client, wanted, before=before, count=limit, dead_letters_of=dead_letters_of)
    show_runs(session, found.runs, _new_table())
    if not session.json and not found.runs:
        click.echo("No matching runs.", err=True)
    if found.older is not None and not session.json:
        cut = f"searched {found.looked_at} runs; " if found.is_cut else ""
        click.echo(f"{cut}--before {found.older} continues the list", err=True)


@click.command(cls=RsmqctlCommand)
@run_filter_options
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, metavar="S", help="Default: every second.")
@click.pass_obj
def tail(session: Session, /, name: str | None, interval: float, **choices: Any) -> None:
    """Show runs as they end, until Ctrl-C.

    Accepts the options of list. WORDS are searched in ids and errors.
    """
    ended = Tail(session.client(name), wanted_runs(name=name, **choices, in_arguments=False))
    table = _new_table()
    try:
        while True:
            show_runs(session, ended.more(), table)
            time.sleep(interval)
    except KeyboardInterrupt:
        pass


def dead_letters_of(run: Event) -> str | None:
    """Return the default dead-letter queue of a queue, where the body of a dead letter is searched."""
    return f"{split_band(run.queue)[0]}-dead" if run.queue else None


def show_runs(session: Session, runs: Sequence[Event], table: TextTable) -> None:
    """Print runs in the chosen format."""
    if session.json:
        for run in runs:
            write_json(as_json(run))
    elif runs:
        now_ms = time.time() * 1000
        table.print([_row(run, now_ms) for run in runs])


def as_json(run: Event) -> dict[str, Any]:
    """Return the JSON object of a run."""
    return {
        "run": run.entry_id,
        "ended": run.at_ms,
        "outcome": run.kind,
        "queue": run.queue,
        "task": run.task,
        "task_id": run.task_id,
        "message_id": run.message_id,
        "attempt": run.attempt,
        "enqueued": run.enqueued_ms,
        "latency_us": run.wait_us,
        "run_us": run.run_us,
        "worker": run.worker,
        "error": run.error_type,
        "error_text": run.error,
        "group": group_of(run),
        "tags": list(run.tags),
    }


def _new_table() -> TextTable:
    return TextTable(
        ["RUN", "ENDED", "OUTCOME", "TASK", "ID", "LATENCY", "TIME", "ERROR"], right=["ENDED", "LATENCY", "TIME"]
    )


def _row(run: Event, now_ms: float) -> list[str]:
    error = f"{run.error_type.rpartition('.')[2]}: {run.error}" if run.error_type else ""
    return [
        run.entry_id,
        relative(run.at_ms, now_ms),
        click.style(printable(run.kind), fg=_colour(run)),
        printable(run.task.rpartition(".")[2]) or "-",
        printable(run.task_id or run.message_id),
        _as_time(run.wait_us),
        _as_time(run.run_us),
        printable(error),
    ]


def _colour(run: Event) -> str | None:
    return "green" if run.kind == EventKind.SUCCEEDED.value else "red" if run.kind in FAILED else "yellow"


def _as_time(time_us: int | None) -> str:
    return "-" if time_us is None else as_duration(time_us / 1_000_000)


def _whole(epoch_ms: float | None) -> int | None:
    return None if epoch_ms is None else int(epoch_ms)


# -- show -------------------------------------------------------------------------------------------------------------


@click.command(cls=RsmqctlCommand)
@click.argument("name", metavar="ID")
@click.pass_obj
def show(session: Session, /, name: str) -> None:
    """Show everything about one run.

    ID is that of a run, a task or a message; for a task, the latest attempt is shown. Arguments are printed if the
    message, the dead letter or the result still exists.
    """
    for client in session.servers().values():
        run = newest_run(client, name)
        if run is not None:
            break
    else:
        raise Failed("runNotFound", f"run not found: {name}; it is older than the event log, or was not recorded")
    attempts, body = attempts_of(client, run).runs, body_of(client, run)
    if session.json:
        call = None if body is None else as_text(body)
        write_json(as_json(run) | {"attempts": [as_json(each) for each in attempts], "body": call})
        return
    for name, value in _facts(run):
        click.echo(f"{click.style(f'{name}:', bold=True)}{' ' * (15 - len(name))}{value}")
    if len(attempts) > 1:
        click.echo()
        show_runs(session, attempts, _new_table())
    if body is not None:
        click.echo("\n" + "\n".join(map(printable, _readable(body).splitlines())))


def newest_run(client: Client, name: str) -> Event | None:
    """Return the run with this id, or the newest run of the task or message with this id."""
    if _RUN_ID.fullmatch(name) and (found := read_run(client, name)) is not None:
        return found
    for about in (RunFilter(task_id=name), RunFilter(message_id=name)):
        if runs := find_runs(client, about, count=1).runs:
            return runs[0]
    return None


def body_of(client: Client, run: Event) -> bytes | None:
    """Return the body of a run's message from the queue, dead letter or result that still has it."""
    for name in filter(None, (run.queue, dead_letters_of(run))):
        try:
            for message in client.run(pick(client.namespace, name, [run.message_id])).messages:
                return message.body
        except QueueNotFound:
            continue
    return read_record(client, run.task_id).get("body") if run.task_id else None


def read_record(client: Client, task_id: str) -> dict[str, bytes]:
    """Return the result record of a task; empty if there is none."""

    def read(reply: list[bytes]) -> dict[str, bytes]:
        return {name.decode("utf-8", "replace"): value for name, value in zip(reply[::2], reply[1::2], strict=True)}

    return client.run(Call("HGETALL", (result_key(client.namespace, task_id),), (), read, repeatable=True))


def find_message(client: Client, message_id: str) -> tuple[str, StoredMessage] | None:
    """Return the name of the queue that has a message, and the message."""
    names = list_queues(client)
    for at in range(0, len(names), MAX_QUEUES):
        for name in client.run(find(client.namespace, names[at : at + MAX_QUEUES], message_id)):
            for message in client.run(pick(client.namespace, name, [message_id], body_bytes=0)).messages:
                return name, message
    return None


def _facts(run: Event) -> Iterator[tuple[str, str]]:
    now_ms = time.time() * 1000
    yield "run", run.entry_id
    yield "outcome", click.style(printable(run.kind), fg=_colour(run))
    for name in ("task", "queue"):
        yield name, printable(getattr(run, name)) or "-"
    yield "task id", printable(run.task_id) or "-"
    yield "message id", printable(run.message_id)
    yield "attempt", str(run.attempt or "-")
    for name, epoch_ms in (("enqueued", run.enqueued_ms), ("ended", run.at_ms)):
        yield name, "-" if epoch_ms is None else f"{_moment(epoch_ms)}, {relative(epoch_ms, now_ms)}"
    yield "latency", _as_time(run.wait_us)
    yield "run time", _as_time(run.run_us)
    yield "worker", printable(run.worker) or "-"
    if run.tags:
        yield "tags", printable(", ".join(run.tags))
    if run.error_type:
        yield "error", click.style(printable(f"{run.error_type}: {run.error}"), fg="red")
        yield "error group", str(group_of(run))


def _moment(epoch_ms: float) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)


def _readable(body: bytes) -> str:
    text = as_text(body)
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
