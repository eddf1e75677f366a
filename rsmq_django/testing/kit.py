"""The methods for tests: run messages, pass time, read queues, assert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.test.utils import override_settings
from django.utils.module_loading import autodiscover_modules

from ..conf.settings import get_settings
from ..core.transport.call import Call
from ..tasks.call_key import bound_arguments
from ..tasks.envelope import Envelope, decode
from ..tasks.task import find_task, registered_tasks
from ..tasks.typed_arguments import as_sent
from .commits import commit, hooks_that_run_once, is_anything_early, is_anything_waiting
from .enqueued import DeadLetter, Enqueued, all_clients, all_queues, calls_in, clients_of, stored_in
from .firing import fire
from .running import Run, bursts_on, send_from_outbox
from .server import settings_on_private_server
from .topics import TopicRun, pass_time_of_topics, run_topics

#: Limit for tasks that endlessly send themselves again.
MOST_RUNS = 10_000


@contextmanager
def private_queues() -> Iterator[Kit]:
    """Replace all Redis servers of the settings with an empty private server until the block ends."""
    with override_settings(RSMQ=settings_on_private_server()), private_kit() as kit:
        yield kit


@contextmanager
def private_kit() -> Iterator[Kit]:
    """Empty the private server, and run on_commit hooks of the test until the block ends."""
    kit = Kit()
    kit.empty()
    with hooks_that_run_once():
        yield kit


class Kit:
    """The methods for tests with queues."""

    # -- Running ------------------------------------------------------------------------------------------------------

    def run(self, *queue_names: str) -> list[Run]:
        """Run all ready messages, including messages that they send, one by one in this thread; return the runs.

        Without names, from all queues of the settings, in a worker's order. Delayed messages and retries become ready
        with `pass_time()`. Hooks of a TestCase's transaction run first, see commit(). A failing task raises nothing
        here, as in a worker: check the runs. Raises AssertionError when the number of runs exceeds a limit.
        """
        autodiscover_modules("tasks")
        runs: list[Run] = []
        bursts = bursts_on(queue_names)
        while commit() or send_from_outbox() or any(burst.turn(runs) for burst in bursts):
            if len(runs) > MOST_RUNS:
                raise AssertionError(f"still not done after {MOST_RUNS} runs; the last one was of {runs[-1].task}")
        return runs

    async def arun(self, *queue_names: str) -> list[Run]:
        """Return the runs of run()."""
        return await sync_to_async(self.run)(*queue_names)

    def run_topics(self, *topic_names: str) -> list[TopicRun]:
        """Deliver the messages of topics to their functions and queues; return the calls of functions.

        Without names, for all topics with consumers. Retries become due with `pass_time()`. A failing function raises
        nothing here, as in a worker: check the runs. Messages that went to a queue are run by run().
        """
        autodiscover_modules("tasks")
        commit()
        return run_topics(topic_names)

    async def arun_topics(self, *topic_names: str) -> list[TopicRun]:
        """Return the calls of run_topics()."""
        return await sync_to_async(self.run_topics)(*topic_names)

    def fire(self, schedule: Any) -> Enqueued:
        """Enqueue the call of a schedule as its next tick would; by its name, or by a task with only one schedule.

        The schedule may be paused. Returns the call. Raises AssertionError for an unknown schedule.
        """
        autodiscover_modules("tasks")
        commit()
        task_id = fire(schedule if isinstance(schedule, str) else _path_of(schedule))
        return next(call for call in self.enqueued() if call.id == task_id)

    def commit(self) -> int:
        """Run the on_commit hooks of a TestCase's transaction, and return how many ran.

        These are hooks of `transaction.on_commit()` whose blocks have ended, including those that send calls. The
        methods that read or run messages do this first. Each hook runs once, also with
        captureOnCommitCallbacks(execute=True).
        """
        return commit()

    def pass_time(self, time_passed: timedelta | float) -> None:
        """Advance the time of all messages (by a timedelta or seconds): delays, retries and leases.

        The clock does not change: `now()` and keys that expire in Redis are unaffected.
        """
        seconds = time_passed.total_seconds() if isinstance(time_passed, timedelta) else time_passed
        milliseconds = round(seconds * 1000)
        for queue in all_queues():
            keys = (queue.keys.messages,)
            queue.client.run(Call("queue/testing/pass_time", keys, (milliseconds,), int))
        pass_time_of_topics(milliseconds)

    def empty(self) -> None:
        """Delete everything on the private server."""
        for client in all_clients():
            client.connection.exchange([("FLUSHDB",)])

    # -- Reading ------------------------------------------------------------------------------------------------------

    def enqueued(self, task: Any = None) -> list[Enqueued]:
        """Return the enqueued calls of one task or of all, ordered by queue and by the time they become ready."""
        path = None if task is None else _path_of(task)
        commit()
        send_from_outbox()
        calls = [call for name in get_settings().queues for call in calls_in(name)]
        return [call for call in calls if path in (None, call.task)]

    def bodies(self, queue_name: str) -> list[bytes]:
        """Return the bodies of all messages of a queue, for queues without tasks."""
        commit()
        clients = clients_of(queue_name)
        return [stored.body for client in clients for _, stored in stored_in(client, queue_name)]

    def dead_letters(self, queue_name: str | None = None) -> list[DeadLetter]:
        """Return the dead letters of one dead-letter queue, or of all."""
        settings = get_settings()
        own = (task.options.named_dead_letters for task in registered_tasks().values())
        names = dict.fromkeys(filter(None, [*(queue.dead_letter for queue in settings.queues.values()), *own]))
        return [
            DeadLetter(stored.id, stored.body, stored.failure())
            for name in ([queue_name] if queue_name else names)
            for client in clients_of(name)
            for _, stored in stored_in(client, name)
        ]

    # -- Asserting ----------------------------------------------------------------------------------------------------

    def assert_enqueued(self, task: Any, *args: Any, **kwargs: Any) -> Enqueued:
        """Return the enqueued call of this task with exactly these arguments, positional or by name.

        Raises AssertionError with the enqueued calls if there is none.
        """
        path, calls = _path_of(task), self.enqueued()
        for call in calls:
            if call.task == path and _same(call, args, kwargs):
                return call
        others = "".join(f"\n  {call.task}{_shown(call.args, call.kwargs)}" for call in calls) or " nothing"
        hint = "" if any(call.task == path for call in calls) else _hint()
        raise AssertionError(f"{path}{_shown(args, kwargs)} is not enqueued{hint}; enqueued calls:{others}")

    def assert_not_enqueued(self, task: Any) -> None:
        """Raise AssertionError if a call of this task is enqueued, with any arguments."""
        for call in self.enqueued(task):
            raise AssertionError(f"{call.task}{_shown(call.args, call.kwargs)} is enqueued")


def _path_of(task: Any) -> str:
    return task if isinstance(task, str) else str(task.module_path)


def _same(call: Enqueued, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    task = find_task(call.task)
    if task is not None:
        args, kwargs = as_sent(task, args, kwargs)
    sent = Envelope(call.task, call.id, list(args), dict(kwargs)).encode()  # after a round trip through JSON
    wanted = decode(sent, message_id=call.message_id)
    if (call.args, call.kwargs) == (wanted.args, wanted.kwargs):
        return True
    try:
        return _by_name(call) == _by_name(wanted)
    except TypeError:  # the function does not accept these arguments
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
    if is_anything_early():
        return " (an on_commit hook is older than the kit: request the fixture rsmq before fixtures that enqueue)"
    return " (an open transaction has on_commit hooks)" if is_anything_waiting() else ""
