"""Defects to be planted into the package. A test of the simulation plants each, and each must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rsmq_django.core.queue import bands
from rsmq_django.core.transport import call as calls
from rsmq_django.core.transport import client
from rsmq_django.worker.execute import execution
from rsmq_django.worker.fetch import queue_selector
from rsmq_django.worker.lease import inflight, leases, pending
from rsmq_django.worker.supervise import scheduler

DEFECTS: dict[str, Callable[[], None]] = {}


def defect(plant: Callable[[], None]) -> Callable[[], None]:
    """Make a defect known under its name."""
    DEFECTS[plant.__name__.replace("_", "-")] = plant
    return plant


def _change_lua(name: str, old: str, new: str) -> None:
    """Replace a text in a Lua file before it is sent to the server."""
    read = calls._lua

    def changed(file: str) -> str:
        text = read(file)
        if file != name:
            return text
        assert old in text, f"{name} has changed: {old!r} is not in it any more"
        return text.replace(old, new)

    vars(calls)["_lua"] = changed


@defect
def receipts_are_not_checked() -> None:
    """Any process that once had a message may settle, renew and release it."""
    _change_lua("parts/fence", "verdicts[n] = -1", "verdicts[n] = 1")


@defect
def undelivered_messages_are_kept() -> None:
    """A message whose fetch got no reply is not given back."""
    inflight.Undelivered.release = lambda self, *_: self.__dict__.update(may_be=False)  # type: ignore[method-assign]


@defect
def renewals_take_messages_back() -> None:
    """A lease is renewed after its end, when another worker has the message."""
    leases.Leases.expire = lambda *_: None  # type: ignore[method-assign]
    _change_lua(
        "queue/change_visibility",
        "check_receipts(messages, settings, 2)",
        "check_receipts(messages, settings, 2) for n, v in ipairs(verdicts) do if v < 0 then verdicts[n] = 1 end end",
    )


@defect
def releases_count_as_attempts() -> None:
    """A message that is given back without a run has used up an attempt."""
    _change_lua("tasks/worker/release", "raise_counter(releases, id, 1)", "")


@defect
def outcomes_are_sent_once() -> None:
    """An outcome is forgotten when the reply to it is lost."""
    pending.PendingSettlements.put_back = lambda *_: None  # type: ignore[method-assign]


@defect
def workers_are_dead_too_soon() -> None:
    """A worker counts as dead after three seconds without a heartbeat."""
    inflight._SILENCE_MS = 3000  # type: ignore[misc]


@defect
def sends_are_repeated() -> None:
    """A call is sent again when the reply to it is lost."""
    client.refuse_to_repeat = lambda *_: None


@defect
def limits_are_not_held() -> None:
    """A limit never has too many calls."""
    _change_lua("tasks/limits/parts/places", 'redis.call("HLEN", key) < most and 0 or nil', "0")


@defect
def equal_calls_are_stored() -> None:
    """A call of a unique task is stored beside an equal one."""
    _change_lua("tasks/enqueue_unique", "if holder and held[2] and holder_message then", "if false then")


@defect
def locks_outlive_their_calls() -> None:
    """A call of a unique task is dropped for one that has gone."""
    _change_lua("tasks/enqueue_unique", 'is_there = redis.call("ZSCORE", KEYS[5], holder_message)', "is_there = now_ms")


@defect
def cancelled_calls_run_on() -> None:
    """A worker does not hear that a call was cancelled."""
    leases.Cancellations.answered = lambda *_: None  # type: ignore[method-assign]


@defect
def cancellations_leave_no_result() -> None:
    """The result of a cancelled call stays as it was."""
    _change_lua("tasks/cancel", 'if redis.call("EXISTS", result) == 1 then', "if false then")


@defect
def callbacks_are_sent_early() -> None:
    """A workflow calls its callback when one of its members has not ended."""
    _change_lua("tasks/workflow/parts/progress", "succeeded + failed >= sent", "succeeded + failed >= sent - 1")


@defect
def workflows_are_not_stopped() -> None:
    """A workflow that is cancelled calls its callback."""
    _change_lua("tasks/workflow/stop", 'if status ~= "running" then', "if status then return 1 end if true then")


@defect
def expired_calls_begin() -> None:
    """A call begins although it is due for too long."""
    execution.Execution._has_expired = lambda *_: False  # type: ignore[method-assign]


@defect
def priorities_are_turned_around() -> None:
    """A worker takes messages of the lowest priority first."""
    vars(queue_selector)["bands_of"] = lambda *names: bands.bands_of(*names)[::-1]


@defect
def ticks_are_fired_by_each() -> None:
    """Each supervisor that has found a tick fires it."""
    _change_lua("tasks/schedule/fire", "math.floor(tonumber(score)) ~= tonumber(planned)", "false")


@defect
def late_ticks_are_dropped() -> None:
    """A tick that is fired two seconds late is left out."""
    known = vars(scheduler)["missed_and_late"]

    def missed_and_late(*args: Any, now_ms: int, **kwargs: Any) -> tuple[list[int], list[int]]:
        missed, late = known(*args, now_ms=now_ms, **kwargs)
        return missed, [at_ms for at_ms in late if at_ms > now_ms - 2000]

    vars(scheduler)["missed_and_late"] = missed_and_late


@defect
def tags_are_not_stored() -> None:
    """Calls are not found by their tags."""
    _change_lua("tasks/parts/tagging", 'redis.call("ZADD", key, unpack(entries))', "")
