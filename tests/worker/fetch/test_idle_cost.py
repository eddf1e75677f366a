"""What a message costs a worker that waits: one fetch."""

from __future__ import annotations

from rsmq_django.queues import get_queue
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.script_calls import ScriptCalls
from tests.worker.workshop import Configure, declare, working

MESSAGES = 10


def test_after_its_outcome_nothing_is_fetched(project: Configure, server: PrivateServer):
    declared = declare(lambda: None)
    with working(poll_interval_s=60) as worker:
        declared.enqueue()
        wait_until(lambda: get_queue("default").attributes().messages == 0 and worker.wakeup._is_asleep)

        with ScriptCalls(server, "tasks/worker/fetch") as fetches:
            for _ in range(MESSAGES):
                declared.enqueue()
                wait_until(lambda: get_queue("default").attributes().messages == 0 and worker.wakeup._is_asleep)

    assert fetches.count < 2 * MESSAGES  # one each; a publish that is read late may cost another
