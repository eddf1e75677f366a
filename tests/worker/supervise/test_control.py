"""Orders to processes of a supervisor: quiet, resume, restart, stop; and what it tells about them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rsmq_django.core import Client
from rsmq_django.core.doctor import examine
from rsmq_django.core.queue.listing import workers
from rsmq_django.core.queue.pause import pause
from rsmq_django.core.stats.history import Window
from rsmq_django.core.tasks.processes import ProcessRecord, give_order, read_processes
from rsmq_django.live.expected import expected_queues
from rsmq_django.live.overview import look_at
from rsmq_django.queues import ensure_queue, get_client
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal

pytestmark = pytest.mark.slow


def records(client: Client) -> dict[str, ProcessRecord]:
    ids = [beat.worker_id for beat in client.run(workers("rsmq"))]
    return client.run(read_processes("rsmq", ids)) if ids else {}


def the_only(client: Client) -> str:
    wait_until(lambda: len(records(client)) == 1)
    return next(iter(records(client)))


def test_a_quiet_process_takes_nothing_until_it_is_resumed(start_worker: StartWorker, journal: Journal):
    start_worker("--processes", "1")
    client, queue = get_client(), ensure_queue("default")
    worker_id = the_only(client)
    client.run(give_order("rsmq", worker_id, "quiet"))
    wait_until(lambda: (told := records(client).get(worker_id)) and told.state == "quiet")

    tasks.write.enqueue("now")
    wait_until(lambda: queue.attributes().ready_messages == 1)
    told = records(client)[worker_id]
    assert told.queues == ("default",) and told.pid and told.memory_bytes
    client.run(give_order("rsmq", worker_id, "resume"))

    wait_until(lambda: journal.names("end"))


def test_a_stopped_process_is_not_replaced_and_the_supervisor_ends(start_worker: StartWorker):
    worker = start_worker("--processes", "1")
    worker_id = the_only(get_client())

    get_client().run(give_order("rsmq", worker_id, "stop"))

    assert worker.wait() == 0


def test_a_restarted_process_is_replaced(start_worker: StartWorker):
    start_worker("--processes", "1")
    client = get_client()
    worker_id = the_only(client)

    client.run(give_order("rsmq", worker_id, "restart"))

    wait_until(lambda: records(client) and worker_id not in records(client))


def test_a_process_of_reliable_queues_reports_them_and_accepts_commands(start_worker: StartWorker):
    worker = start_worker("--processes", "1", "--queues", "orders", reliable='{"orders": {}}')
    worker_id = the_only(get_client())

    told = records(get_client())[worker_id]
    get_client().run(give_order("rsmq", worker_id, "stop"))

    assert (told.queues, told.reliable) == ((), ("orders",))
    assert worker.wait() == 0


def test_a_running_worker_is_known_to_the_doctor_and_the_statistics(start_worker: StartWorker, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "other": {}}}
    start_worker("--processes", "1")
    the_only(get_client())
    get_client().run(pause("rsmq", "default"))
    for name in ("default", "other"):
        ensure_queue(name).send("x")

    views = look_at("default", [], Window.of(time.time() - 3600))
    troubles = {view.name: (view.workers, view.trouble) for view in views}
    findings = {one.subject: one.id for one in examine(get_client(), settings=expected_queues("default"))}

    assert troubles["default"] == (1, ("paused",))
    assert troubles["other"] == (0, ("no worker",))
    assert (findings["default"], findings["other"]) == ("paused-backlog", "unserved")
