"""Where running tasks are in their code: asked for from outside, answered by the process that runs them."""

from __future__ import annotations

import os
import threading

import pytest

from rsmq_django.core import Client
from rsmq_django.core.queue.listing import workers
from rsmq_django.core.tasks.processes import read_processes
from rsmq_django.core.tasks.stacks import ask_for_stacks, read_stacks
from rsmq_django.queues import get_client
from rsmq_django.worker.execute import stacks as module
from rsmq_django.worker.execute.pool import Pool
from rsmq_django.worker.execute.stacks import StackReporter
from rsmq_django.worker.report.shared_state import SharedState
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal

pytestmark = pytest.mark.slow


def busy_worker(client: Client, count: int) -> str:
    """Return the worker that runs so many tasks."""

    def found() -> str:
        ids = [beat.worker_id for beat in client.run(workers("rsmq"))]
        told = client.run(read_processes("rsmq", ids)) if ids else {}
        return next((worker_id for worker_id, record in told.items() if len(record.running) == count), "")

    wait_until(found)
    return found()


def test_a_process_answers_where_its_functions_and_coroutines_are(start_worker: StartWorker, journal: Journal):
    start_worker("--processes", "1")
    client = get_client()
    tasks.wait_at_gate.enqueue("function")
    tasks.await_gate.enqueue("coroutine")
    worker_id = busy_worker(client, 2)

    assert client.run(ask_for_stacks("rsmq", worker_id)) is True
    wait_until(lambda: client.run(read_stacks("rsmq", worker_id)))
    stacks = client.run(read_stacks("rsmq", worker_id))

    function = next(text for text in stacks.values() if "wait_at_gate" in text)
    coroutine = next(text for text in stacks.values() if "await_gate" in text)
    assert len(stacks) == 2
    assert "in wait_for" in function
    for text in (function, coroutine):
        assert text.startswith(f'  File "{tasks.__file__}"'), "the worker's own frames are left out"
    assert coroutine.index("in await_gate") < coroutine.index("in _gate_opens") < coroutine.index("in sleep")
    journal.open_gate()


def test_process_record_has_the_busy_slots_of_functions_and_of_coroutines(start_worker: StartWorker, journal: Journal):
    start_worker("--processes", "1", "--threads", "3", "--async-tasks", "7")
    client = get_client()
    tasks.wait_at_gate.enqueue("function")
    tasks.wait_at_gate.enqueue("function too")
    tasks.await_gate.enqueue("coroutine")

    def busy() -> dict[str, tuple[int, int]]:
        ids = [beat.worker_id for beat in client.run(workers("rsmq"))]
        (record,) = client.run(read_processes("rsmq", ids)).values() or [None]
        return {each.kind: (each.busy, each.total) for each in record.slots} if record else {}

    wait_until(lambda: busy() == {"function": (2, 3), "coroutine": (1, 7)})
    journal.open_gate()
    wait_until(lambda: busy() == {"function": (0, 3), "coroutine": (0, 7)})


def test_stacks_are_reported_while_a_coroutine_blocks_the_event_loop(start_worker: StartWorker, journal: Journal):
    start_worker("--processes", "1")
    client = get_client()
    tasks.hog_loop.enqueue("hog")
    worker_id = busy_worker(client, 1)

    client.run(ask_for_stacks("rsmq", worker_id))
    wait_until(lambda: client.run(read_stacks("rsmq", worker_id)))

    (stack,) = client.run(read_stacks("rsmq", worker_id)).values()
    assert "in hog_loop" in stack
    journal.open_gate()


def test_no_request_is_sent_to_a_worker_that_has_ended(client: Client):
    assert client.run(ask_for_stacks("rsmq", "w1")) is False
    assert client.run(read_stacks("rsmq", "w1")) == {}


def test_process_still_answers_after_stacks_that_cannot_be_read(
    client: Client, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    found: list[object] = [RuntimeError("changed while it was read"), {"m1": "a stack"}]

    def stacks_of(pool: object) -> object:
        each = found.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    monkeypatch.setattr(module, "stacks_of", stacks_of)
    reader, writer = os.pipe()
    pool = Pool(threads=3, async_tasks=5, wake=lambda: None, on_interruption=lambda each: None, renews_threads=False)
    shared_state = SharedState(8)
    thread = threading.Thread(target=StackReporter(reader, pool, [client], "w1", shared_state)._answer)
    thread.start()
    os.write(writer, b"?")
    wait_until(lambda: len(found) == 1)
    os.write(writer, b"?")
    os.close(writer)
    thread.join()
    os.close(reader)

    assert client.run(read_stacks("rsmq", "w1")) == {"m1": "a stack"}
    assert shared_state.use == ((0, 3), (0, 5))
