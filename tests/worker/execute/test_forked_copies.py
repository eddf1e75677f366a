"""Processes that a function forks.

A child that leaves the function is a copy of the worker: it ends at once and settles nothing. A child that stays in it
can be terminated like every process.
"""

from __future__ import annotations

import signal

import pytest

from rsmq_django.topics import get_topic
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

pytestmark = pytest.mark.slow

SMALL = ("--processes", "1", "--threads", "2")


@pytest.mark.parametrize(("how", "status"), [("returns", "0"), ("raises", "1"), ("exits", "3")])
@pytest.mark.parametrize("function", ["fork", "afork"])
def test_child_that_leaves_the_function_ends_and_the_parents_result_counts(
    project: Configure, start_worker: StartWorker, journal: Journal, function: str, how: str, status: str
):
    result = getattr(tasks, function).enqueue(how)

    worker = start_worker("--burst", *SMALL)

    wait_until(lambda: journal.lines("child-ended") == [[how, status]])
    assert worker.wait() == 0
    result.refresh()
    assert (result.status, result.return_value) == ("SUCCESSFUL", "from the parent")
    assert len(journal.lines("copy")) == 1
    assert "forked a process that did not end in it" in worker.output


def test_child_that_leaves_a_topic_task_ends_and_acknowledges_nothing(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    topic = get_topic("forks")
    topic.publish("fork returns", "next")

    worker = start_worker("--burst", *SMALL, topic="forks")

    wait_until(lambda: journal.lines("child-ended") == [["returns", "0"]])
    assert worker.wait() == 0
    assert journal.lines("message") == [["fork", "returns"], ["next"]]
    assert topic.group("site").status().held == 0


@pytest.mark.parametrize("function", ["terminate_children", "aterminate_children"])
def test_child_that_a_task_terminates_ends_and_the_worker_goes_on(
    project: Configure, start_worker: StartWorker, function: str
):
    result = getattr(tasks, function).enqueue(3)

    worker = start_worker("--burst", *SMALL)

    assert worker.wait() == 0
    result.refresh()
    assert result.return_value == [-signal.SIGTERM] * 3
    assert "SIGTERM" not in worker.output
