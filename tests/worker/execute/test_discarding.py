"""Messages that failed for good are deleted where no dead-letter queue is wanted: told, counted, and never silently."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rsmq_django.core.stats.events import find_events
from rsmq_django.core.stats.history import Window, read_totals
from rsmq_django.core.stats.moments import moment_calls, moments
from rsmq_django.queues import get_client, get_queue
from rsmq_django.signals import message_dead_lettered
from rsmq_django.tasks import DISCARD, call, fixed, get_workflow, group
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, send_raw, work


def fail() -> None:
    raise OSError("no luck")


@pytest.fixture(params=["by the task", "by the queue"])
def options(request: pytest.FixtureRequest, configure: Configure, settings: Any) -> dict[str, Any]:
    """Options of a task whose messages are discarded, with the event log on."""
    is_of_queue = request.param == "by the queue"
    configure(default={"DEAD_LETTER": None} if is_of_queue else {})
    settings.RSMQ = settings.RSMQ | {"EVENTS": {"RECORD": "all"}}
    return {} if is_of_queue else {"dead_letter_queue": DISCARD}


def test_message_that_failed_for_good_is_deleted(
    options: dict[str, Any], server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    dead: list[object] = []
    message_dead_lettered.connect(lambda **told: dead.append(told), weak=False, dispatch_uid="discard")
    result = declare(max_attempts=2, backoff=fixed(0), **options)(fail).enqueue()

    work()
    message_dead_lettered.disconnect(dispatch_uid="discard")

    assert get_queue("default").attributes().messages == 0
    assert not server.redis.exists("rsmq:default-dead", "rsmq::dead:default-dead", "rsmq::released:default")
    result.refresh()
    assert (result.status, len(result.errors)) == ("FAILED", 2)
    assert "failed for good (attempts_used_up) on attempt 2, discarded: OSError: no luck" in caplog.text
    assert dead == []


def test_it_is_counted_and_in_the_event_log(options: dict[str, Any], server: PrivateServer):
    task = declare(max_attempts=1, **options)(fail)
    task.enqueue()

    work()

    client = get_client()
    counts = read_totals(client, ["default"])["default"][task.module_path]
    assert (counts.discarded, counts.dead, counts.failed) == (1, 0, 1)
    assert [event.kind for event in find_events(client)] == ["discarded"]
    calls = moment_calls(client.namespace, ["default"], Window.of(time.time() - 3600))
    found = moments(client.run_many(list(calls.values())))
    assert sum(moment.queues[0].dead for moment in found) == 1, "charts show it with those that failed for good"


def test_middleware_is_informed(options: dict[str, Any], settings: Any):
    told: list[tuple[str, str]] = []

    class Listener:
        def on_dead_letter(self, run: Any, outcome: Any) -> None:
            told.append(("dead", outcome.reason))

        def on_discard(self, run: Any, outcome: Any) -> None:
            told.append(("discarded", outcome.reason))

    settings.RSMQ = settings.RSMQ | {"MIDDLEWARE": [Listener]}
    declare(max_attempts=1, **options)(fail).enqueue()

    work()

    assert told == [("discarded", "attempts_used_up")]


def test_unreadable_message_is_deleted_on_a_queue_that_discards(configure: Configure):
    configure(default={"DEAD_LETTER": None})
    send_raw(b"no task")

    work()

    assert get_queue("default").attributes().messages == 0


def test_task_may_keep_its_dead_letters_where_its_queue_discards_them(configure: Configure):
    configure(default={"DEAD_LETTER": None}, kept={})
    declare(max_attempts=1, dead_letter_queue="kept")(fail).enqueue()

    work("default")

    assert get_queue("kept").attributes().messages == 1


def test_member_of_a_workflow_that_is_discarded_has_failed(options: dict[str, Any]):
    task = declare(max_attempts=1, **options)(fail)
    workflow = group([call(task), call(task)]).enqueue()

    work()

    assert get_workflow(workflow.id).status().failed == 2
    assert get_queue("default").attributes().messages == 0


@pytest.mark.parametrize("given", [7, True, ["default-dead"]])
def test_a_queue_without_dead_letters_is_refused(project: Configure, given: Any):
    with pytest.raises((ValueError, TypeError), match="dead_letter_queue"):
        declare(dead_letter_queue=given)(fail)
