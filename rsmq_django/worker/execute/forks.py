"""Ends child processes that a function forked when they leave the function: they would be copies of the worker.

Such a copy shares all sockets and database connections with the worker, has one thread and no main loop, and never
ends. So a child that leaves the function, whether it returns or raises, ends right there: before any code around the
function runs, and without settling anything. Programs that are started (`subprocess`, `multiprocessing`) never leave
the function and are not affected.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn


class _Forks:
    #: Number of forks between the first process and this one: a child of this process has one more.
    count = 0


def _count() -> None:
    _Forks.count += 1


os.register_at_fork(after_in_child=_count)


def call_in_one_process(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of the project; a child process that it forked and that leaves it ends here."""
    count = _Forks.count
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        if _Forks.count != count:
            _end_copy(error)
        raise
    if _Forks.count != count:
        _end_copy(None)
    return value


async def await_in_one_process(awaitable: Awaitable[Any]) -> Any:
    """See call_in_one_process(); for the coroutine of a coroutine function."""
    count = _Forks.count
    try:
        value = await awaitable
    except BaseException as error:
        if _Forks.count != count:
            _end_copy(error)
        raise
    if _Forks.count != count:
        _end_copy(None)
    return value


def _end_copy(error: BaseException | None) -> NoReturn:
    """End this process at once, with the exit status that a Python program would have."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        status = 1
    lines = traceback.format_exception(error) if status and not isinstance(error, SystemExit) else []
    pid = os.getpid()
    lines.append(
        f"a task forked a process that did not end in it: process {pid}, a copy of the worker, ends with status "
        f"{status}; end a forked child with os._exit(), or use subprocess\n"
    )
    # Not by the log: its handlers may have locks and connections of threads that do not exist here.
    with suppress(OSError):
        os.write(2, "".join(lines).encode(errors="replace"))
    os._exit(status & 0xFF)
