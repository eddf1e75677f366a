"""What a test does with its queues: run what waits, let time pass, look, assert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.test.utils import override_settings
from django.utils.module_loading import autodiscover_modules

from ..conf import get_settings
from ..core.call import Call
from ..tasks.call_key import bound_arguments
from ..tasks.envelope import Envelope, decode
from ..tasks.registry import find_task, registered_tasks
from .commits import commit, hooks_that_run_once, is_anything_waiting
from .firing import fire
from .running import Run, bursts_on, send_from_outbox
from .server import settings_on_private_server
from .topics import TopicRun, pass_time_of_topics, run_topics
from .waiting import DeadLetter, Enqueued, all_clients, all_queues, calls_in, get_client_of, stored_in

#: A task that sends itself again would run for ever.
MOST_RUNS = 10_000


@contextmanager
def private_queues() -> Iterator[Kit]:
    """Put an empty private server in the place of all Redis servers of the settings, until the block ends."""
    with override_settings(RSMQ=settings_on_private_server()), private_kit() as kit:
        yield kit


@contextmanager
def private_kit() -> Iterator[Kit]:
    """Empty the private server, to which the settings lead, and make the commits of the test until the block ends."""
    kit = Kit()
    kit.empty()
    with hooks_that_run_once():
        yield kit


class Kit:
    """What a test does with its queues."""

    # -- Running ------------------------------------------------------------------------------------------------------

    def run(self, *queue_names: str) -> list[Run]:
        """Run all ready messages, one after the other in this thread, and those that they send; return the runs.

        Without names, from all queues of the settings, in a worker's order. Delayed messages and retries wait until
        `pass_time()`. What waits for the commit of a TestCase's transaction is done first, see commit(). A failing task
        raises nothing here, as in a worker: look at the runs. Raises AssertionError when there is no end to it.
        """
        autodiscover_modules("tasks")
        runs: list[Run] = []
        bursts = bursts_on(queue_names)
        while commit() or send_from_outbox() or any(burst.turn(runs) for burst in bursts):
            if len(runs) > MOST_RUNS:
                raise AssertionError(f"still not done after {MOST_RUNS} runs; the last one was of {runs[-1].task}")
        return runs

    async def arun(self, *queue_names: str) -> list[Run]:
        """See run()."""
        return await sync_to_async(self.run)(*queue_names)

    def run_topics(self, *topic_names: str) -> list[TopicRun]:
        """Give the messages of topics to the functions and queues that follow them; return the calls of functions.

        Without names, of all topics that are followed. Retries wait until `pass_time()`. A function that fails raises
        nothing here, as in a worker: look at the runs. What went to a queue is run by run().
        """
        autodiscover_modules("tasks")
        commit()
        return run_topics(topic_names)

    async def arun_topics(self, *topic_names: str) -> list[TopicRun]:
        """See run_topics()."""
        return await sync_to_async(self.run_topics)(*topic_names)

    def fire(self, schedule: Any) -> Enqueued:
        """Enqueue the call of a schedule as its next tick does; by its name, or by the task that has only one.

        Whether it is paused or due does not matter. Returns the call. Raises AssertionError for an unknown one.
        """
        autodiscover_modules("tasks")
        commit()
        task_id = fire(schedule if isinstance(schedule, str) else _path_of(schedule))
        return next(call for call in self.enqueued() if call.id == task_id)

    def commit(self) -> int:
        """Run what waits for the commit of a TestCase's transaction, and return how many hooks that were.

        That is, hooks of `transaction.on_commit()` whose blocks have ended, among them those that send calls. Looking
        and running do this first. Each hook runs once, also beside captureOnCommitCallbacks(execute=True).
        """
        return commit()

    def pass_time(self, time_passed: timedelta | float) -> None:
        """Let time (a timedelta, or seconds) pass for all messages: delays, retries and leases come closer.

        The clock itself stands still: `now()` is not concerned, nor is what expires in Redis by itself.
        """
        seconds = time_passed.total_seconds() if isinstance(time_passed, timedelta) else time_passed
        milliseconds = round(seconds * 1000)
        for queue in all_queues():
            keys = (queue.keys.messages,)
            queue.client.run(Call("testing/pass_time", keys, (milliseconds,), int))
        pass_time_of_topics(milliseconds)

    def empty(self) -> None:
        """Delete everything on the private server."""
        for client in all_clients():
            client.connection.exchange([("FLUSHDB",)])

    # -- Looking ------------------------------------------------------------------------------------------------------

    def enqueued(self, task: Any = None) -> list[Enqueued]:
        """Return the calls that wait, of one task or of all, in the order of the queues and of becoming ready."""
        path = None if task is None else _path_of(task)
        commit()
        send_from_outbox()
        calls = [call for name in get_settings().queues for call in calls_in(name)]
        return [call for call in calls if path in (None, call.task)]

    def bodies(self, queue_name: str) -> list[bytes]:
        """Return the bodies of all messages of a queue, for queues that hold no tasks."""
        commit()
        return [stored.body for _, stored in stored_in(get_client_of(queue_name), queue_name)]

    def dead_letters(self, queue_name: str | None = None) -> list[DeadLetter]:
        """Return what failed for good: in one dead-letter queue, or in all."""
        settings = get_settings()
        own = (task.options.named_dead_letters for task in registered_tasks().values())
        names = dict.fromkeys(filter(None, [*(queue.dead_letter for queue in settings.queues.values()), *own]))
        return [
            DeadLetter(stored.id, stored.body, stored.failure())
            for name in ([queue_name] if queue_name else names)
            for _, stored in stored_in(get_client_of(name), name)
        ]

    # -- Asserting ----------------------------------------------------------------------------------------------------

    def assert_enqueued(self, task: Any, *args: Any, **kwargs: Any) -> Enqueued:
        """Return the call of this task with exactly these arguments, by position or by name.

        Raises AssertionError, which shows what waits, when there is none.
        """
        path, calls = _path_of(task), self.enqueued()
        for call in calls:
            if call.task == path and _same(call, args, kwargs):
                return call
        others = "".join(f"\n  {call.task}{_shown(call.args, call.kwargs)}" for call in calls) or " nothing"
        hint = "" if any(call.task == path for call in calls) else _hint()
        raise AssertionError(f"{path}{_shown(args, kwargs)} is not enqueued{hint}; what is:{others}")

    def assert_not_enqueued(self, task: Any) -> None:
        """Raise AssertionError when a call of this task waits, with whatever arguments."""
        for call in self.enqueued(task):
            raise AssertionError(f"{call.task}{_shown(call.args, call.kwargs)} is enqueued")


def _path_of(task: Any) -> str:
    return task if isinstance(task, str) else str(task.module_path)


def _same(call: Enqueued, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    sent = Envelope(call.task, call.id, list(args), dict(kwargs)).encode()  # as they look after JSON
    wanted = decode(sent, message_id=call.message_id)
    if (call.args, call.kwargs) == (wanted.args, wanted.kwargs):
        return True
    try:
        return _by_name(call) == _by_name(wanted)
    except TypeError:  # the function does not take the wanted ones
        return False


def _by_name(call: Enqueued | Envelope) -> dict[str, Any]:
    task = find_task(call.task)
    if task is None or task.options.batch is not None:
        return {"args": call.args, "kwargs": call.kwargs}
    return bound_arguments(task.func, call.args, call.kwargs, takes_context=task.takes_context)


def _shown(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    words = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return f"({', '.join(words)})"


def _hint() -> str:
    return " (something waits for the commit of a transaction that is open)" if is_anything_waiting() else ""
