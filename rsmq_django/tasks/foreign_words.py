"""The names of other task queues' methods in this package: the texts of an AttributeError."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..conf.options import nearest

_CALL_IN_WORKFLOW = "write rsmq_django.tasks.call(task, ...) for a step of a chain or group"
#: Of tasks: Celery, Dramatiq, Huey, RQ, procrastinate.
TASK_WORDS = {
    "delay": "send a call with .enqueue(...)",
    "delay_on_commit": "send a call with .enqueue(...), which waits for the commit by itself",
    "send": "send a call with .enqueue(...)",
    "send_with_options": "send a call with .using(queue_name=..., run_after=...).enqueue(...)",
    "defer": "send a call with .enqueue(...)",
    "defer_async": "send a call with .aenqueue(...)",
    "configure": "give options to one call with .using(queue_name=..., run_after=...).enqueue(...)",
    "schedule": "send a delayed call with .using(run_after=timedelta(...)).enqueue(...)",
    "apply_async": "send a call with .enqueue(...), with options .using(run_after=..., queue_name=...).enqueue(...)",
    "apply": "run it here with .call(...)",
    "call_local": "run it here with .call(...)",
    "fn": "run it here with .call(...)",
    "run": "run it here with .call(...), in a worker with .enqueue(...)",
    "s": _CALL_IN_WORKFLOW,
    "si": _CALL_IN_WORKFLOW,
    "signature": _CALL_IN_WORKFLOW,
    "message": _CALL_IN_WORKFLOW,
    "map": "send many calls with .enqueue_many([...]), as one workflow with map_tasks(task, [...])",
    "starmap": "send many calls with .enqueue_many([...])",
    "chunks": "send many calls with .enqueue_many([...])",
    "retry": "raise rsmq_django.tasks.Retry(after_s=...) inside the task",
    "request": "ask for current_task() of rsmq_django.tasks inside the task, or declare it with takes_context=True",
    "update_state": "call current_task().progress(...) of rsmq_django.tasks inside the task",
    "AsyncResult": "read a result with .get_result(id)",
}
_ATTEMPTS = "give max_attempts=..., which counts the first attempt, too"
_LATER = "delay a call with .using(run_after=timedelta(...)).enqueue(...)"
_TIME_LIMIT = "give timeout_s=..., which interrupts the task, or hard_timeout_s=..., which ends its process; in seconds"
_WAITS = "give backoff=fixed(seconds) or exponential(first_s=..., max_s=...) of rsmq_django.tasks"
_AGE = "give expires_in_s=..."
_FOLLOWS = "combine calls with chain() or group() of rsmq_django.tasks, which have on_failure=..."
_PERIODIC = "write @cron(...) or @every(...) of rsmq_django.tasks above @task"
_ID = "enqueue() makes the ids; unique=Unique(...) finds equal calls"
#: Options of tasks and calls whose equivalent has no similar name, or another meaning.
OPTION_WORDS = {
    "acks_late": "leave it out: a call is always acknowledged after its run",
    "bind": "declare it with takes_context=True, or ask for current_task() inside the task",
    "countdown": _LATER,
    "cron": _PERIODIC,
    "default_retry_delay": _WAITS,
    "delay": _LATER,
    "depends_on": _FOLLOWS,
    "eta": _LATER,
    "every": _PERIODIC,
    "ignore_result": "give result_ttl_s=0",
    "job_id": _ID,
    "link": _FOLLOWS,
    "link_error": _FOLLOWS,
    "lock": "give limits=[Concurrency(1)] of rsmq_django.tasks",
    "max_age": _AGE,
    "max_backoff": _WAITS,
    "max_retries": _ATTEMPTS,
    "min_backoff": _WAITS,
    "name": "a task is named by its dotted path; give its earlier paths as aliases=[...]",
    "on_failure": _FOLLOWS,
    "on_success": _FOLLOWS,
    "queueing_lock": 'give unique=Unique(scope="pending") of rsmq_django.tasks',
    "rate_limit": "give limits=[Rate(...)] of rsmq_django.tasks",
    "retries": _ATTEMPTS,
    "retry": _ATTEMPTS,
    "retry_backoff": _WAITS,
    "retry_backoff_max": _WAITS,
    "retry_delay": _WAITS,
    "retry_jitter": _WAITS,
    "retry_kwargs": _ATTEMPTS,
    "run_after": _LATER,
    "schedule": _PERIODIC,
    "soft_time_limit": _TIME_LIMIT,
    "task_id": _ID,
    "throws": "give give_up_on=(...)",
    "time_limit": _TIME_LIMIT,
    "ttl": _AGE,
}
#: Of results.
RESULT_WORDS = {
    "get": "wait for its end with .wait(timeout_s), then look at .return_value",
    "await": "await its end with .await_end(timeout_s)",
    "get_result": "call .refresh() and look at .return_value",
    "result": "call .refresh() and look at .return_value",
    "value": "call .refresh() and look at .return_value",
    "state": "call .refresh() and look at .status",
    "ready": "call .refresh() and look at .is_finished",
    "done": "call .refresh() and look at .is_finished",
    "successful": "call .refresh() and compare .status with TaskResultStatus.SUCCESSFUL",
    "failed": "call .refresh() and compare .status with TaskResultStatus.FAILED",
    "revoke": "cancel it with rsmq_django.tasks.cancel(result.id)",
    "cancel": "cancel it with rsmq_django.tasks.cancel(result.id)",
    "forget": "it goes by itself after result_ttl_s",
    "traceback": "call .refresh() and look at .errors",
    "task_id": "its id is .id",
    "args_list": "its arguments are .args and .kwargs",
}
CALLED = (
    "a task is not called: {path}.enqueue(...) sends it to a worker, {path}.call(...) runs it here and returns what "
    "the function returns"
)


def no_option(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for an option that there is not, with the equivalent or the nearest name."""
    hint = f": {OPTION_WORDS[name]}" if name in OPTION_WORDS else f". {nearest(name, known)}"
    return TypeError(f"{owner} has no option {name!r}{hint}")


def missing_attribute(value: object, name: str, words: dict[str, str], what: str) -> AttributeError:
    """Return the error for a missing attribute of a task or result, with the equivalent or the nearest name."""
    if name in words:
        return AttributeError(f"{what} has no {name!r}: {words[name]}")
    known = [each for each in dir(type(value)) if not each.startswith("_")]
    close = difflib.get_close_matches(name, known, n=1) if not name.startswith("_") else []
    hint = f". Did you mean {close[0]!r}?" if close else ""
    return AttributeError(f"{what} has no attribute {name!r}{hint}")
