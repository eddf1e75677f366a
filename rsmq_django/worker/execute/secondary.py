"""Secondary consumers of a raw queue: they run after the primary consumer, at each of its attempts, and decide nothing.

They run within the same call, so within its time limit and under the same lease, with the same argument. Their
exceptions are logged and do not change the outcome of the primary consumer. An interruption (time limit, cancellation,
stop of the worker) ends all of them: consumers that have not started are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from ...core.log_lines import get_logger
from ...tasks.interrupts import TaskCancelled
from ...tasks.registry import Consumer
from ...tasks.retry import TaskTimeout
from .forks import await_in_one_process, call_in_one_process

logger = get_logger(__name__)

INTERRUPTIONS = (TaskTimeout, TaskCancelled, asyncio.CancelledError)


def followed_by(primary: Consumer, followers: Sequence[Consumer]) -> Callable[..., Any]:
    """Return a function that calls the primary consumer and then the others, whether it returns or raises."""
    if iscoroutinefunction(primary.func):
        return _afollowed_by(primary, followers)

    @wraps(primary.func)
    def call_all(received: Any) -> Any:
        error = None
        try:
            answer = call_in_one_process(primary.func, [received], {})
        except INTERRUPTIONS:
            raise
        except BaseException as raised:
            error = raised
        for follower in followers:
            try:
                call_in_one_process(follower.func, [received], {})
            except BaseException as failure:
                if _ends_all(failure, follower, primary):
                    break
        if error is not None:
            raise error
        return answer

    return call_all


def _afollowed_by(primary: Consumer, followers: Sequence[Consumer]) -> Callable[..., Any]:
    """See followed_by()."""

    @wraps(primary.func)
    async def call_all(received: Any) -> Any:
        error = None
        try:
            answer = await await_in_one_process(primary.func(received))
        except INTERRUPTIONS:
            raise
        except BaseException as raised:
            error = raised
        for follower in followers:
            try:
                await await_in_one_process(follower.func(received))
            except BaseException as failure:
                if _ends_all(failure, follower, primary):
                    break
        if error is not None:
            raise error
        return answer

    return call_all


def _ends_all(failure: BaseException, follower: Consumer, primary: Consumer) -> bool:
    """Log the exception of a secondary consumer; return whether it ends all of them."""
    text = "%s failed after %s, which alone decides the outcome: this is not retried"
    logger.error(text, follower.module_path, primary.module_path, exc_info=failure)
    return isinstance(failure, INTERRUPTIONS)
