"""Output formats of messages: JSON, table rows and descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from ..core import Message
from ..core.queue.browse import FailureRecord, State, StoredMessage
from .output import TextTable, as_duration, as_size, as_text, message_fields, printable

COLOURS = {State.READY: "green", State.DELAYED: "cyan", State.IN_FLIGHT: "yellow"}


# -- For programs -----------------------------------------------------------------------------------------------------


def received_as_json(message: Message | StoredMessage) -> dict[str, Any]:
    """Return a message in the format of the original rsmqctl: `ts` is the time of the first receive in ms."""
    body = message_fields(message.body)
    first = {"id": message.id, "message": body.pop("message"), "rc": message.receive_count}
    return first | {"ts": message.first_received_ms, **body}


def as_json(message: StoredMessage, now_ms: float) -> dict[str, Any]:
    """Return the fields of `receive`, plus state, times and size."""
    fields = received_as_json(message) | {
        "state": word(message, now_ms),
        "sent": message.sent_ms,
        "visible": message.visible_at_ms,
        "size": message.size_bytes,
    }
    if message.failure_json:
        # A failure record of another program is printed as text.
        fields["failure"] = json.loads(message.failure_json) if message.failure() else as_text(message.failure_json)
    return fields


def word(message: StoredMessage, now_ms: float) -> str:
    """Return the state in the spelling of --state."""
    return message.state(now_ms).value.replace(" ", "-")


# -- For people: rows -------------------------------------------------------------------------------------------------


def new_table(*, are_dead: bool) -> TextTable:
    """Return the table for messages, or the one for dead letters, with failure columns instead of bodies."""
    if are_dead:
        return TextTable(["ID", "FAILED", "REASON", "TASK", "ERROR"], right=["FAILED"])
    return TextTable(["ID", "STATE", "VISIBLE", "RC", "SIZE", "BODY"], right=["VISIBLE", "RC", "SIZE"])


def row(message: StoredMessage, now_ms: float) -> list[str]:
    """Return the cells of a message."""
    is_cut = len(message.body) < (message.size_bytes or 0)
    return [
        printable(message.id),
        _coloured_state(message, now_ms),
        relative(message.visible_at_ms, now_ms),
        str(message.receive_count),
        "none" if message.size_bytes is None else as_size(message.size_bytes),
        printable(as_text(message.body, is_cut=is_cut)) + ("…" if is_cut else ""),
    ]


def dead_row(message: StoredMessage, now_ms: float) -> list[str]:
    """Return the cells of a dead letter."""
    failure = message.failure()
    if failure is None:
        return [printable(message.id), "", "", "", click.style("no failure record", fg="yellow")]
    died = "" if failure.died_ms is None else relative(failure.died_ms, now_ms)
    error = f"{failure.error.rpartition('.')[2]}: {failure.message}"
    return [printable(message.id), died, *map(printable, (failure.reason, failure.task.rpartition(".")[2], error))]


def relative(then_ms: float, now_ms: float) -> str:
    """Return "3m ago" or "in 29s"."""
    seconds = (then_ms - now_ms) / 1000
    return f"in {as_duration(seconds)}" if seconds > 0 else f"{as_duration(-seconds)} ago"


def _coloured_state(message: StoredMessage, now_ms: float) -> str:
    return click.style(word(message, now_ms), fg=COLOURS[message.state(now_ms)])


# -- For people: one message ------------------------------------------------------------------------------------------


def description(message: StoredMessage, now_ms: float) -> Iterator[str]:
    """Return the lines of a message's full description."""
    facts = {
        "id": printable(message.id),
        "state": _coloured_state(message, now_ms),
        "visible": _at(message.visible_at_ms, now_ms),
        "sent": _at(message.sent_ms, now_ms),
        "receive count": str(message.receive_count),
        "first received": _at(message.first_received_ms, now_ms),
        "size": "no body" if message.size_bytes is None else f"{message.size_bytes} bytes",
    }
    yield from _facts(facts)
    failure = message.failure()
    if failure is not None:
        yield ""
        yield from _facts(_failure_facts(failure, now_ms))
        yield from (f"  {printable(line)}" for line in failure.traceback.splitlines())
    elif message.failure_json:
        yield from _facts({"failure record": printable(as_text(message.failure_json))})
    if message.body:
        yield ""
        yield from map(printable, _readable(message.body).splitlines())


def _failure_facts(failure: FailureRecord, now_ms: float) -> dict[str, str]:
    return {
        "failed": _at(failure.died_ms, now_ms),
        "reason": printable(failure.reason),
        "queue": printable(failure.queue),
        "task": printable(failure.task),
        "task id": printable(failure.task_id),
        "attempts": str(failure.attempts),
        "worker": printable(failure.worker),
        "error": click.style(printable(f"{failure.error}: {failure.message}"), fg="red"),
    }


def _facts(facts: dict[str, str]) -> Iterator[str]:
    for name, value in facts.items():
        yield f"{click.style(f'{name}:', bold=True)}{' ' * (15 - len(name))}{value}"


def _at(epoch_ms: float | None, now_ms: float) -> str:
    if epoch_ms is None:
        return "-"
    try:
        time = datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)  # written by a client that uses another unit
    return f"{time}, {relative(epoch_ms, now_ms)}"


def _readable(body: bytes) -> str:
    """Return a JSON body with line breaks, any other body unchanged."""
    text = as_text(body)
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) if text[0] in "{[" else text
    except (ValueError, RecursionError):
        return text
