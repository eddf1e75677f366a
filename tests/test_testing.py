"""The testing kit, used as a project uses it: its page's own tests, and what they do not show."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import Task, current_task
from rsmq_django.tasks.batch import BatchCall
from rsmq_django.testing import Kit, private_queues, private_server_url
from tests.support import wait_until
from tests.test_docs import ROOT, Project
from tests.worker.workshop import declare, own_registries  # noqa: F401


@pytest.fixture
def kit(settings: Any, request: pytest.FixtureRequest) -> Kit:
    """The kit, in a project that sends at once."""
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": "redis://nowhere.invalid"}, "far": {"URL": "redis://nowhere.invalid"}},
        "QUEUES": {"default": {}, "far": {"CONNECTION": "far"}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }
    kit: Kit = request.getfixturevalue("rsmq")
    return kit


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    project = Project(tmp_path, ROOT / "docs" / "testing.md", "redis://nowhere.invalid")
    queues = "RSMQ['QUEUES'] = {'default': {}, 'mail': {}, 'sensor-raw': {}}\n"
    project.write("settings.py", (tmp_path / "settings.py").read_text() + queues)

    said = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "shop")

    assert "5 passed" in said


def test_every_connection_leads_to_the_private_server_and_keeps_its_queues_apart(kit: Kit):
    seen: list[str] = []
    declared = declare(lambda name: seen.append(name))
    declared.using(queue_name="far").enqueue("far")

    assert [call.queue_name for call in kit.enqueued()] == ["far"]
    kit.run("default")
    assert seen == []

    kit.run()
    assert seen == ["far"]


def test_functions_that_take_batches_get_batches(kit: Kit):
    seen: list[list[int]] = []

    @declare(batch=3, max_attempts=1)
    def note(calls: list[BatchCall]) -> list[Any]:
        seen.append([call.args[0] for call in calls])
        return [ValueError("odd") if call.args[0] % 2 else None for call in calls]

    ids = note.enqueue_many([[number] for number in range(4)])

    runs = kit.run()

    assert seen == [[0, 1, 2], [3]]
    assert [(run.id, run.succeeded) for run in runs] == list(zip(ids, [True, False, True, False], strict=True))


def test_a_test_begins_with_empty_queues(settings: Any):
    settings.RSMQ = {**settings.RSMQ, "TASKS": {"ENQUEUE_ON_COMMIT": False}}
    for _ in range(2):
        with private_queues() as kit:
            assert kit.enqueued() == []
            declare(lambda: None).enqueue()


def test_tasks_that_a_task_sends_run_too_in_any_queue(kit: Kit):
    seen: list[int] = []

    def count_down(number: int) -> None:
        seen.append(number)
        if number:
            declared.using(queue_name="far" if number % 2 else "default").enqueue(number - 1)

    declared: Task[..., Any] = declare(count_down)
    declared.enqueue(5)

    runs = kit.run()

    assert seen == [5, 4, 3, 2, 1, 0]
    assert all(run.succeeded for run in runs)


def test_a_task_that_sends_itself_for_ever_fails_the_test(kit: Kit, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.testing.kit.MOST_RUNS", 20)
    declared: Task[..., Any] = declare(lambda: declared.enqueue())
    declared.enqueue()

    with pytest.raises(AssertionError, match="not done after 20 runs"):
        kit.run()


def test_delays_pass_when_time_does(kit: Kit):
    seen: list[str] = []
    declared = declare(lambda: seen.append("ran"))
    declared.using(run_after=timedelta(hours=1)).enqueue()

    assert kit.run() == []
    assert kit.enqueued(declared)[0].due_in_s == pytest.approx(3600, abs=60)

    kit.pass_time(timedelta(hours=1))
    kit.run()

    assert seen == ["ran"]


async def test_async_tasks_run_in_an_async_test(kit: Kit):
    async def paint(colour: str) -> str:
        return colour

    declared = declare(paint)
    await declared.aenqueue("red")

    (run,) = await kit.arun()

    assert run.succeeded


def test_arguments_by_position_and_by_name_are_the_same_call(kit: Kit):
    declared = declare(lambda number, colour="red": None)
    declared.enqueue(7)

    for args, kwargs in [((7,), {}), ((), {"number": 7}), ((7, "red"), {}), ((7,), {"colour": "red"})]:
        assert kit.assert_enqueued(declared, *args, **kwargs).args == [7]
    with pytest.raises(AssertionError, match="is not enqueued"):
        kit.assert_enqueued(declared, 7, colour="blue")
    with pytest.raises(AssertionError, match="is not enqueued"):
        kit.assert_enqueued(declared, nmber=7)


def test_queues_that_others_take_from_are_left_to_them(kit: Kit, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "far": {"FOR_OTHERS": True}}}
    ensure_queue("far").send(b"for a program in another language")

    assert kit.run() == []

    assert kit.bodies("far") == [b"for a program in another language"]


def test_what_is_enqueued_instead_is_shown(kit: Kit):
    declared = declare(lambda number, *, colour: None)
    declared.using(priority=7).enqueue(1, colour="red")

    assert kit.assert_enqueued(declared, 1, colour="red").priority == 7
    with pytest.raises(AssertionError, match=r"\(2, colour='red'\) is not enqueued; what is:\n .*\(1, colour='red'\)"):
        kit.assert_enqueued(declared, 2, colour="red")
    with pytest.raises(AssertionError, match=r"\(1, colour='red'\) is enqueued"):
        kit.assert_not_enqueued(declared)


def test_arguments_are_compared_as_they_travel(kit: Kit):
    declared = declare(lambda pair: None)
    declared.enqueue((1, 2))

    kit.assert_enqueued(declared, (1, 2))


@pytest.mark.django_db
def test_a_call_that_waits_for_a_commit_is_explained(settings: Any):
    with private_queues() as kit:
        declared = declare(lambda: None)
        declared.enqueue()

        with pytest.raises(AssertionError, match="captureOnCommitCallbacks"):
            kit.assert_enqueued(declared)


@pytest.mark.django_db
def test_a_task_sees_the_rows_of_the_test(kit: Kit, django_user_model: Any):
    names: list[str] = []
    declared = declare(lambda: names.extend(user.username for user in django_user_model.objects.all()))
    django_user_model.objects.create(username="ada")
    declared.enqueue()

    kit.run()

    assert names == ["ada"]


def test_raw_messages_are_seen_as_they_are(kit: Kit):
    with private_queues():
        from rsmq_django.queues import ensure_queue

        ensure_queue("default").send_many([b"\x00\xff", b"text"])

        assert kit.bodies("default") == [b"\x00\xff", b"text"]
        assert kit.enqueued() == []


def test_a_dead_server_fails_the_test_instead_of_hanging(kit: Kit, settings: Any):
    declare(lambda: None).enqueue()
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "unix:///nowhere/at/all"}}}

    with pytest.raises(AssertionError, match="does not answer"):
        kit.run()
    assert get_queue("default") is not None


@pytest.mark.slow
def test_nothing_remains_of_the_private_server(tmp_path: Path) -> None:
    project = Project(tmp_path, ROOT / "docs" / "testing.md", "redis://nowhere.invalid")
    said = project.python(
        "import os; from rsmq_django.testing import private_server_url\n"
        "print(private_server_url(), os.getpid())\n"
        "import rsmq_django.embedded as e; print(next(iter(e._held)))"
    )

    url, directory = said.split()[0], said.split()[2]

    assert url.startswith("unix://") and url != private_server_url()
    assert not Path(directory).exists()
    wait_until(lambda: subprocess.run(["pgrep", "-f", directory], capture_output=True).stdout == b"")


def test_the_test_itself_is_no_task_after_a_run(kit: Kit):
    declare(lambda: None).enqueue()
    kit.run()

    with pytest.raises(RuntimeError, match="no task runs here"):
        current_task()


def test_dead_letters_are_found_in_the_queue_that_their_task_names(settings: Any, kit: Kit):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "special": {}}}
    assert kit.dead_letters() == []
    declare(dead_letter_queue="special", max_attempts=1)(lambda: 1 / 0).enqueue()

    kit.run("default")

    assert len(kit.dead_letters()) == 1


def test_a_queue_that_is_called_like_a_band_has_no_priority(settings: Any, kit: Kit):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default-p1": {}}}
    declare(queue_name="default-p1")(lambda: None).enqueue()

    assert [call.priority for call in kit.enqueued()] == [0]
