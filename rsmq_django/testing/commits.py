"""Runs hooks of `transaction.on_commit()` in a TestCase, which never commits.

A TestCase (and pytest-django's fixture `db`) runs each test in a transaction that is rolled back. A hook counts as
committed when all blocks that the test's code opened around it have ended. Each hook runs once, so that
captureOnCommitCallbacks(execute=True) can be used as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, cast
from unittest.mock import patch

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.log_lines import get_logger

logger = get_logger(__name__)


class _Once:
    """A callable that calls its hook once."""

    def __init__(self, function: Callable[[], object]) -> None:
        update_wrapper(self, function)
        self.is_done = False
        self._function = function

    def __call__(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._function()


@contextmanager
def hooks_that_run_once() -> Iterator[None]:
    """Until the block ends, wrap each hook registered in a TestCase's transaction so that it runs once."""
    register = BaseDatabaseWrapper.on_commit

    def on_commit(self: BaseDatabaseWrapper, func: Callable[[], object], robust: bool = False) -> None:
        register(self, _Once(func) if callable(func) and _count_of_test_blocks(self) else func, robust)

    with patch.object(BaseDatabaseWrapper, "on_commit", on_commit):
        yield


def commit() -> int:
    """Run the hooks registered in the test's transaction, and hooks that they add; return how many."""
    done = 0
    for connection in connections.all(initialized_only=True):
        at = 0
        while at < len(connection.run_on_commit):  # a hook may add more, and a rollback makes a new list
            savepoints, hook, is_robust = cast(
                "tuple[set[Any], Callable[[], object], bool]", connection.run_on_commit[at]
            )
            at += 1
            if isinstance(hook, _Once) and not hook.is_done and _is_committed(savepoints, connection):
                done += 1
                _run(hook, is_robust=is_robust)
    return done


def is_anything_early() -> bool:
    """Return whether a hook was registered in a TestCase's transaction before the kit began; it never runs."""
    return any(
        not isinstance(hook, _Once) and _count_of_test_blocks(each) and _is_committed(savepoints, each)
        for each in connections.all(initialized_only=True)
        for savepoints, hook, *_ in each.run_on_commit
    )


def is_anything_waiting() -> bool:
    """Return whether a hook is registered in an open transaction."""
    hooks = [hook for each in connections.all(initialized_only=True) for _, hook, *_ in each.run_on_commit]
    return any(not isinstance(hook, _Once) or not hook.is_done for hook in hooks)


def is_block_open(database: str) -> bool:
    """Return whether a block is open on a database, apart from those of the TestCase."""
    connection = connections[database]
    return len(connection.atomic_blocks) > _count_of_test_blocks(connection)


def _count_of_test_blocks(connection: BaseDatabaseWrapper) -> int:
    """Return how many open blocks belong to the TestCase; they are the outer ones."""
    return sum(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


def _is_committed(savepoints: set[Any], connection: BaseDatabaseWrapper) -> bool:
    """Return whether all blocks around a hook have ended, except those of the TestCase."""
    # The outermost block has no savepoint.
    return savepoints.isdisjoint(connection.savepoint_ids[_count_of_test_blocks(connection) - 1 :])


def _run(hook: Callable[[], object], *, is_robust: bool) -> None:
    try:
        hook()
    except Exception as error:
        if not is_robust:
            raise
        logger.error("Error calling %r in on_commit() (%s).", hook, error, exc_info=True)
