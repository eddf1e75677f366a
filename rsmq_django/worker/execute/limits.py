"""Selects the messages just received that may run now: the limits of their tasks must all have a free slot.

The others are postponed and ask again later; no attempt is counted. A slot of a concurrency limit belongs to the lease
of its message, so it needs no renewal, and a worker that dies cannot keep it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connections

from ...core import Client, RsmqError
from ...core.keys import RELIABLE_PARTS, queue_keys, reliable_keys
from ...core.log_lines import get_logger
from ...core.transport.call import Argument, Call
from ...tasks.limits import Limit, keys_of_limit
from ..delivery import RELIABLE, AttemptState
from ..outcomes import Postponed
from .execution import Execution

logger = get_logger(__name__)

#: A message without a free slot asks again after FIRST_WAIT_S, then after twice as long each time.
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 2.0
#: The wait when Redis could not be asked.
WAIT_AFTER_ERROR_S = 1.0
#: The check of a message can show that other queues have to be read first, each time more of them.
MOST_ROUNDS = 3


@dataclass(slots=True)
class LimitAnswer:
    """The reply of the limits for one message."""

    may_run: bool
    wait_s: float = 0.0
    #: False when the reply was lost: a slot may be taken nevertheless.
    is_sure: bool = True
    #: Queues to read before the next check.
    queues_to_read: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LimitCheck:
    """A message of a limited task, and the queues that have to be read for it."""

    execution: Execution
    queues: list[str]
    keys: list[tuple[str, str]]

    @property
    def call(self) -> Call[LimitAnswer]:
        """Return the call that checks the limits and takes the slots."""
        handler, delivery = self.execution.handler, self.execution.delivery
        assert handler is not None
        namespace = delivery.work_queue.queue.client.namespace
        keys = [key for both in self.keys for key in both]
        for name in self.queues:
            keys += _keys_of_leases(namespace, name)
        lease_ms = round(delivery.work_queue.lease_s * 1000)
        args: list[Argument] = [*delivery.receipt, lease_ms, round(_least_wait_s(self.execution) * 1000)]
        args.append(len(handler.options.limits))
        for limit in handler.options.limits:
            args += limit.words()
        # Without a subject, an error names the keys: the key of a limit is as likely to be damaged as the queue's.
        return Call("tasks/limits/take", tuple(keys), (*args, *self.queues), _read)


def admit(client: Client, arrived: Sequence[Execution]) -> list[Execution]:
    """Return the messages that may run now, in order; the others are settled as postponed."""
    # A message without attempts left, cancelled or expired does not run: it needs no slot.
    limited = [each for each in arrived if each.handler is not None and each.handler.options.limits and each.will_run]
    if not limited:
        return list(arrived)
    refused = set()
    for execution, answer in _check(client, limited):
        if not answer.may_run:
            refused.add(execution)
            if answer.is_sure:
                execution.places = ()
            _postpone(execution, answer.wait_s)
    return [execution for execution in arrived if execution not in refused]


def _keys_of_leases(namespace: str, name: str) -> tuple[str, str]:
    """Return the keys in which the leases of a queue are; `name` as in WorkQueue.name_in_limits."""
    if name.startswith(RELIABLE):
        parts = dict(zip(RELIABLE_PARTS, reliable_keys(namespace, name.rpartition(":")[2]), strict=True))
        return parts["delivered"], parts["history"]
    keys = queue_keys(namespace, name)
    return keys.messages, keys.settings


def find_places(execution: Execution) -> None:
    """Find the limits in which a message of another process may hold slots; free() frees them."""
    if execution.handler is not None and execution.handler.options.limits:
        _keys(execution)
        # A function given as `by` may have connected to a database, and this process forks.
        if any(callable(limit.by) for limit in execution.handler.options.limits):
            connections.close_all()


def free(attempt: AttemptState) -> Call[int]:
    """Return the call that frees the slots of a message whose run has ended."""
    message_id, receive_count = attempt.delivery.receipt
    return Call("tasks/limits/free", attempt.places, (message_id, receive_count), int, repeatable=True)


def _check(client: Client, limited: Sequence[Execution]) -> list[tuple[Execution, LimitAnswer]]:
    answers: list[tuple[Execution, LimitAnswer]] = []
    checks = [LimitCheck(each, [each.delivery.work_queue.name_in_limits], _keys(each)) for each in limited]
    for _ in range(MOST_ROUNDS):
        open_checks = []
        for check, answer in zip(checks, _answers(client, checks), strict=True):
            if answer.queues_to_read:
                check.queues += answer.queues_to_read
                open_checks.append(check)
            else:
                answers.append((check.execution, answer))
        checks = open_checks
        if not checks:
            return answers
    return [*answers, *((check.execution, LimitAnswer(False, LONGEST_WAIT_S)) for check in checks)]


def _answers(client: Client, checks: Sequence[LimitCheck]) -> list[LimitAnswer]:
    try:
        replies: list[Any] = client.run_many([check.call for check in checks])
    except RsmqError as error:
        replies = [error] * len(checks)
    answers = []
    for check, reply in zip(checks, replies, strict=True):
        if isinstance(reply, RsmqError):
            logger.warning("limits of %s: %s; the call checks them again in a moment", check.execution.path, reply)
            wait_s = WAIT_AFTER_ERROR_S * random.uniform(0.5, 1.0)  # noqa: S311 - keeps no secret
            reply = LimitAnswer(False, wait_s, is_sure=False)
        answers.append(reply)
    return answers


def _keys(execution: Execution) -> list[tuple[str, str]]:
    """Return the keys of all limits of a call, and note those in which it may hold a slot from now on."""
    handler, delivery = execution.handler, execution.delivery
    assert handler is not None
    namespace = delivery.work_queue.queue.client.namespace
    takes_context = handler.task is not None and handler.task.takes_context

    def keys_of(limit: Limit) -> tuple[str, str]:
        return keys_of_limit(
            limit, namespace, handler.path, handler.func, execution.args, execution.kwargs, takes_context=takes_context
        )

    keys = []
    for limit in handler.options.limits:
        try:
            keys.append(keys_of(limit))
        except BaseException:  # a function given as `by` may raise anything; the limit applies nevertheless
            logger.exception("limit key function of %s failed; call counted under the fallback key", handler.path)
            keys.append(keys_of(replace(limit, by=None)))
    pairs = zip(handler.options.limits, keys, strict=True)
    # Also when the reply is lost: the slot may be taken then.
    execution.places = tuple(counted for limit, (counted, _lane_rotation) in pairs if limit.holds_places)
    return keys


def _postpone(execution: Execution, wait_s: float) -> None:
    logger.debug("%s is postponed by %.1f s by its limits [%s]", execution.path, wait_s, execution.delivery.message.id)
    execution.sink.settle(execution, Postponed(wait_s, has_run=False))


def _least_wait_s(execution: Execution) -> float:
    """Return the wait without an answer from Redis: longer each time, and random to spread the load."""
    delivery = execution.delivery
    times_before = min(delivery.message.receive_count - delivery.attempt, 10)
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**times_before) * random.uniform(0.5, 1.0))  # noqa: S311


def _read(reply: list[Any]) -> LimitAnswer:
    verdict, *rest = reply
    if verdict == 1:
        return LimitAnswer(True)
    if verdict == 0:
        return LimitAnswer(False, rest[0] / 1000)
    return LimitAnswer(False, queues_to_read=[name.decode("utf-8", "surrogateescape") for name in rest])
