"""The options of `rsmq_worker`, in groups, and their values."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from ..worker.health import MAX_AGE_S


def add_worker_arguments(parser: CommandParser) -> None:
    """Declare the options; options without a default use RSMQ["WORKER"]."""
    _add_sources(parser.add_argument_group("queues and topics"))
    _add_concurrency(parser.add_argument_group('concurrency (default: RSMQ["WORKER"])'))
    _add_shutdown(parser.add_argument_group("shutdown"))
    _add_replacement(parser.add_argument_group("replacement of processes, against leaks"))
    _add_monitoring(parser.add_argument_group("monitoring"))
    _add_development(parser.add_argument_group("development, and options of other workers"))


def _add_sources(group: Any) -> None:
    group.add_argument(
        "--queues",
        "--queue-name",
        metavar="A,B",
        default="",
        help="queues in order of priority; default: all without FOR_OTHERS",
    )
    group.add_argument("--exclude-queues", metavar="A,B", default="", help="all queues except these")
    group.add_argument("--backend", metavar="ALIAS", help="only queues that this entry of TASKS allows")
    group.add_argument("--topics", metavar="A,B", help="topics; default: all with declared topic tasks")
    group.add_argument("--no-topics", action="store_true", help="consume queues only")


def _add_concurrency(group: Any) -> None:
    group.add_argument(
        "--processes", type=_at_least(1), metavar="N", help="number of worker processes; default: number of cores"
    )
    group.add_argument(
        "--threads",
        type=_at_least(1),
        metavar="N",
        help="maximum number of functions that run at a time in each process",
    )
    group.add_argument(
        "--async-tasks",
        type=_at_least(1),
        metavar="N",
        help="maximum number of coroutines that run at a time in each process",
    )
    group.add_argument(
        "--poll-interval",
        "--interval",
        type=_seconds,
        metavar="S",
        help="maximum time between polls; messages sent by rsmq-django wake the worker at once",
    )


def _add_shutdown(group: Any) -> None:
    group.add_argument("--batch", action="store_true", help="stop when no message is ready")
    group.add_argument(
        "--burst", action="store_true", help="stop when no message is left, including delayed messages and retries"
    )
    group.add_argument("--shutdown-timeout", type=_seconds, metavar="S", help="time for running tasks to finish")
    group.add_argument("--no-relay", action="store_true", help="do not send messages from the outbox")
    group.add_argument(
        "--no-scheduler", action="store_true", help="do not run schedules (implied by --batch and --burst)"
    )


def _add_replacement(group: Any) -> None:
    group.add_argument("--max-tasks", type=_at_least(1), metavar="N", help="replace a process after N messages")
    group.add_argument(
        "--max-tasks-jitter",
        type=_at_least(0),
        metavar="N",
        help="up to N messages more, at random, so that not all are replaced at once; default: --max-tasks / 10",
    )
    group.add_argument(
        "--max-memory", type=_at_least(1), metavar="MB", help="replace a process that uses more than MB megabytes"
    )


def _add_monitoring(group: Any) -> None:
    group.add_argument("--worker-id", type=_worker_id, metavar="NAME", help="worker name in results; default: random")
    group.add_argument(
        "--pid-file", type=Path, metavar="PATH", help="pid file; a second worker with the same file does not start"
    )
    group.add_argument(
        "--health-file",
        type=Path,
        metavar="PATH",
        help="health report, written every second; python -m rsmq_django.worker.health PATH checks it",
    )
    group.add_argument(
        "--health-port",
        type=_address,
        metavar="[HOST:]PORT",
        help="answer GET /health with 200 or 503, and GET /live; default host: 127.0.0.1",
    )
    group.add_argument(
        "--health-max-age",
        type=_seconds,
        metavar="S",
        default=MAX_AGE_S,
        help="a process is healthy if it has polled successfully in the last S seconds; default: 60",
    )


def _add_development(group: Any) -> None:
    group.add_argument(
        "--reload",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="restart when a source file changes; default: if DEBUG is on; never with --batch and --burst",
    )
    group.add_argument(
        "--no-startup-delay",
        action="store_true",
        help="no effect (this worker has no start delay); accepted for compatibility with db_worker",
    )


def _at_least(least: int) -> Any:
    def whole_number(text: str) -> int:
        try:
            number = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is too small; the minimum is {least}")
        return number

    return whole_number


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (number := float(text)) < 1e9:
            return number
    raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")


def _worker_id(text: str) -> str:
    if not 1 <= len(text) <= 64 or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid name: it must have 1 to 64 printable characters")
    return text


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not [HOST:]PORT, such as 8080 or 0.0.0.0:8080")
    return host.strip("[]") or "127.0.0.1", int(port)
