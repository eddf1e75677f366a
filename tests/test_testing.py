"""The testing kit in a project: the tests of its page, and further cases."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.test import SimpleTestCase, override_settings
from redis.credentials import UsernamePasswordCredentialProvider

from rsmq_django import schedules
from rsmq_django.core.topic import TopicMessage
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import (
    Task,
    bridge_topic,
    consumer,
    current_task,
    every,
    fixed,
    map_tasks,
    schedule,
    topic_task,
)
from rsmq_django.tasks.batch import BatchCall
from rsmq_django.testing import Kit, private_queues, private_server_url
from rsmq_django.topics import get_topic, publish
from tests.documentation import ROOT, Project
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import declare, own_registries, patient_workers  # noqa: F401

INTEGRATION = "shop/test_integration.py::test_with_the_server_of_the_settings"


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
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "testing.md", "redis://nowhere.invalid")
    queues = "RSMQ['QUEUES'] = {'default': {}, 'mail': {}, 'sensor-raw': {}}\n"
    project.write("settings.py", (tmp_path / "settings.py").read_text() + queues)

    said = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "shop", "--deselect", INTEGRATION)

    assert "6 passed" in said


def test_every_connection_leads_to_the_private_server_and_keeps_its_queues_apart(kit: Kit):
    seen: list[str] = []
    declared = declare(lambda name: seen.append(name))
    declared.using(queue_name="far").enqueue("far")

    assert [call.queue_name for call in kit.enqueued()] == ["far"]
    kit.run("default")
    assert seen == []

    kit.run()
    assert seen == ["far"]


@pytest.mark.parametrize(
    ("connection", "queue"),
    [
        ({"OPTIONS": {"username": "shop", "password": "s3cret"}}, {}),
        ({"CREDENTIAL_PROVIDER": UsernamePasswordCredentialProvider("shop", "s3cret")}, {}),
        ({"DURABILITY": {"REPLICAS": 1}}, {}),
        ({}, {"DURABILITY": {"REPLICAS": 1}}),
    ],
)
def test_users_and_replicas_of_the_projects_server_are_not_those_of_the_private_one(
    settings: Any, connection: dict[str, Any], queue: dict[str, Any]
):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": "redis://nowhere.invalid", **connection}},
        "QUEUES": {"default": queue},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }

    with private_queues() as kit:
        declare(lambda: None).enqueue()

        assert [run.succeeded for run in kit.run()] == [True]


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


def test_a_task_that_sends_itself_forever_fails_the_test(kit: Kit, monkeypatch: pytest.MonkeyPatch):
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


def test_other_enqueued_calls_are_listed_in_the_failure(kit: Kit):
    declared = declare(lambda number, *, colour: None)
    declared.using(priority=7).enqueue(1, colour="red")

    assert kit.assert_enqueued(declared, 1, colour="red").priority == 7
    with pytest.raises(
        AssertionError, match=r"\(2, colour='red'\) is not enqueued; enqueued calls:\n .*\(1, colour='red'\)"
    ):
        kit.assert_enqueued(declared, 2, colour="red")
    with pytest.raises(AssertionError, match=r"\(1, colour='red'\) is enqueued"):
        kit.assert_not_enqueued(declared)


def test_arguments_are_compared_in_their_encoded_form(kit: Kit):
    declared = declare(lambda pair: None)
    declared.enqueue((1, 2))

    kit.assert_enqueued(declared, (1, 2))


# -- Commits ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def kit_on_commit(kit: Kit, settings: Any, db: None) -> Kit:
    """The kit, in a project that sends at the commit, which the test's transaction never reaches."""
    settings.RSMQ = {**settings.RSMQ, "TASKS": {}}
    return kit


def test_a_call_that_waits_for_an_open_transaction_is_explained(kit_on_commit: Kit):
    declared = declare(lambda: None)
    with transaction.atomic():
        declared.enqueue()

        kit_on_commit.assert_not_enqueued(declared)
        with pytest.raises(AssertionError, match="is not enqueued .an open transaction has on_commit hooks"):
            kit_on_commit.assert_enqueued(declared)

    kit_on_commit.assert_enqueued(declared)


@pytest.mark.django_db
def test_a_call_from_before_the_kit_is_explained(settings: Any, request: pytest.FixtureRequest):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://nowhere.invalid"}}}
    declared = declare(lambda: None)
    declared.enqueue()
    kit = request.getfixturevalue("rsmq")

    with pytest.raises(
        AssertionError, match="older than the kit: request the fixture rsmq before fixtures that enqueue"
    ):
        kit.assert_enqueued(declared)


def test_a_task_of_a_test_that_never_commits_is_run(kit_on_commit: Kit):
    seen: list[str] = []
    second = declare(lambda: seen.append("second"))

    @declare
    def first() -> None:
        seen.append("first")
        transaction.on_commit(second.enqueue)

    with transaction.atomic():
        first.enqueue()

    kit_on_commit.run()

    assert seen == ["first", "second"]


def test_calls_of_a_rolled_back_block_do_not_run(kit_on_commit: Kit):
    seen: list[str] = []
    declared = declare(lambda word: seen.append(word))
    with suppress(ZeroDivisionError), transaction.atomic():
        declared.enqueue("rolled back")
        _ = 1 / 0
    with transaction.atomic():
        declared.enqueue("kept")

    kit_on_commit.run()

    assert seen == ["kept"]


def test_calls_that_a_hook_rolls_back_do_not_run(kit_on_commit: Kit):
    seen: list[str] = []
    declared = declare(lambda word: seen.append(word))

    def hook() -> None:
        with suppress(ZeroDivisionError), transaction.atomic():
            declared.enqueue("rolled back")
            _ = 1 / 0
        declared.enqueue("kept")

    transaction.on_commit(hook)

    kit_on_commit.run()

    assert seen == ["kept"]


def test_hooks_of_a_commit_run_once_also_when_the_test_captures_them(
    kit_on_commit: Kit, django_capture_on_commit_callbacks: Any
):
    seen: list[str] = []
    declared = declare(lambda: seen.append("task"))
    with django_capture_on_commit_callbacks(execute=True):
        declared.enqueue()
        transaction.on_commit(lambda: seen.append("hook"))

    kit_on_commit.run()
    kit_on_commit.run()

    assert seen == ["hook", "task"]


@pytest.mark.django_db
def test_a_map_is_sent_in_a_test_that_never_commits_and_refused_in_a_block_of_the_code(kit_on_commit: Kit):
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))

    transaction.on_commit(lambda: map_tasks(declared, [1, 2]))
    kit_on_commit.run()
    map_tasks(declared, [3])
    kit_on_commit.run()

    assert seen == [1, 2, 3]
    with transaction.atomic(), pytest.raises(TransactionManagementError, match="map_tasks"):
        map_tasks(declared, [4])


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_the_test_itself_is_left_to_the_test(kit: Kit, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "TASKS": {}}
    declared = declare(lambda: None)
    with transaction.atomic():
        declared.enqueue()
        assert kit.run() == []

    assert [run.succeeded for run in kit.run()] == [True]


@pytest.fixture
def kit_with_outbox(kit: Kit, settings: Any) -> Kit:
    """The kit, in a project with an outbox on one of its queues."""
    settings.RSMQ = {
        **settings.RSMQ,
        "QUEUES": {"default": {"OUTBOX": True}, "far": {"CONNECTION": "far"}},
        "TASKS": {},
    }
    return kit


@pytest.mark.parametrize("commits", [pytest.param(False, marks=pytest.mark.django_db), True])
def test_a_call_in_the_outbox_waits_for_the_end_of_the_block_too(
    kit_with_outbox: Kit, request: pytest.FixtureRequest, commits: bool
):
    if commits:
        request.getfixturevalue("transactional_db")
    declared = declare(lambda word: word)
    with transaction.atomic():
        declared.enqueue("kept")
        kit_with_outbox.assert_not_enqueued(declared)
        assert kit_with_outbox.run() == []
    with suppress(ZeroDivisionError), transaction.atomic():
        declared.enqueue("rolled back")
        kit_with_outbox.assert_not_enqueued(declared)
        _ = 1 / 0

    assert [call.args for call in kit_with_outbox.enqueued(declared)] == [["kept"]]
    assert [run.succeeded for run in kit_with_outbox.run()] == [True]


def test_a_test_without_a_database_runs_tasks_although_another_queue_has_an_outbox(kit_with_outbox: Kit):
    seen: list[str] = []
    declared = declare(lambda: seen.append("far"), queue_name="far")
    declared.enqueue()

    kit_with_outbox.assert_enqueued(declared)
    kit_with_outbox.run()

    assert seen == ["far"]


class WithoutDatabase(SimpleTestCase):
    RSMQ = {
        "CONNECTIONS": {"default": {"URL": "redis://nowhere.invalid"}},
        "QUEUES": {"default": {}, "ledger": {"OUTBOX": True}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }

    def test_tasks_run_in_a_test_case_without_a_database_too(self) -> None:
        self.enterContext(override_settings(RSMQ=self.RSMQ))
        kit = self.enterContext(private_queues())
        seen: list[str] = []
        declared = declare(lambda: seen.append("default"))
        declared.enqueue()

        kit.run()

        assert seen == ["default"]


# -- Schedules and topics ---------------------------------------------------------------------------------------------


@pytest.fixture
def own_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the schedules of all other tests."""
    monkeypatch.setattr(schedule, "_declared", {})


@pytest.mark.usefixtures("own_schedules")
@pytest.mark.parametrize("by_name", [True, False])
def test_a_schedule_is_fired(kit: Kit, by_name: bool):
    seen: list[tuple[int, str]] = []
    declared = every(hours=1, name="report", args=[7], kwargs={"how": "daily"})(
        declare(lambda n, how: seen.append((n, how)))
    )

    call = kit.fire("report" if by_name else declared)
    kit.run()

    assert (call.task, call.args) == (declared.module_path, [7])
    assert seen == [(7, "daily")]


@pytest.mark.usefixtures("own_schedules")
def test_a_schedule_that_was_added_at_run_time_is_fired_although_it_is_paused(kit: Kit):
    declared = declare(lambda: None)
    schedules.add("now and then", declared, every_s=60)
    schedules.pause("now and then")

    kit.fire("now and then")

    kit.assert_enqueued(declared)


@pytest.mark.usefixtures("own_schedules")
def test_schedules_that_cannot_be_fired_are_explained(kit: Kit):
    declared = declare(lambda: None)
    with pytest.raises(AssertionError, match=r"has no schedule; write @every"):
        kit.fire(declared)
    every(hours=1, name="hourly")(declared)
    every(days=1, name="daily")(declared)

    with pytest.raises(AssertionError, match="there is no schedule 'houry'. Did you mean 'hourly'?"):
        kit.fire("houry")
    with pytest.raises(AssertionError, match="several schedules; fire one by its name: 'daily', 'hourly'"):
        kit.fire(declared)


def test_messages_of_topics_go_to_the_functions_that_follow_them(kit: Kit):
    seen: list[Any] = []

    @topic_task("orders", group="billing", batch=2)
    def bill(messages: list[TopicMessage]) -> None:
        seen.append([message.body for message in messages])

    @topic_task("orders", group="stock")
    async def count(message: TopicMessage) -> None:
        seen.append(message.body)

    publish("orders", "a", "b", "c")

    runs = kit.run_topics()

    assert sorted(map(str, seen)) == ["[b'a', b'b']", "[b'c']", "b'a'", "b'b'", "b'c'"]
    assert {(run.topic, run.group, run.succeeded) for run in runs} == {
        ("orders", "billing", True),
        ("orders", "stock", True),
    }
    assert kit.run_topics() == []


def test_after_the_messages_of_topics_were_run_the_test_itself_is_not_a_task(kit: Kit):
    inside: list[str] = []

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        inside.append(current_task().path)

    @topic_task("orders", group="stock")
    async def count(message: TopicMessage) -> None:
        inside.append(current_task().path)

    publish("orders", "a")

    kit.run_topics()

    assert len(inside) == 2
    with pytest.raises(RuntimeError, match="no task runs here"):
        current_task()


def test_a_function_of_a_topic_that_fails_gets_the_message_again_when_time_has_passed(kit: Kit):
    @topic_task("orders", group="billing", max_deliveries=2, backoff=fixed(60))
    def bill(message: TopicMessage) -> None:
        raise ValueError("no such customer")

    publish("orders", "a")

    (first,) = kit.run_topics("orders")
    assert kit.run_topics("orders") == []
    kit.pass_time(61)
    (second,) = kit.run_topics("orders")
    kit.pass_time(61)

    assert (type(first.error), second.messages[0].deliveries) == (ValueError, 2)
    assert kit.run_topics("orders") == []
    assert [message.body for message in get_topic("orders.dlt").read_range(1, 10).messages] == [b"a"]


def test_a_queue_is_fed_from_a_topic(kit: Kit):
    seen: list[bytes] = []
    bridge_topic("orders", group="billing", queue="far")
    consumer("far")(lambda message: seen.append(message.body))
    publish("orders", "a", connection="far")

    kit.run_topics()
    kit.run()

    assert seen == [b"a"]


def test_a_topic_without_tasks_or_bridges_cannot_be_run(kit: Kit):
    topic_task("orders", group="billing")(lambda message: None)

    with pytest.raises(AssertionError, match="topic 'order' has no consumer. Did you mean 'orders'?"):
        kit.run_topics("order")


@pytest.mark.django_db
def test_a_task_sees_the_rows_of_the_test(kit: Kit, django_user_model: Any):
    names: list[str] = []
    declared = declare(lambda: names.extend(user.username for user in django_user_model.objects.all()))
    django_user_model.objects.create(username="ada")
    declared.enqueue()

    kit.run()

    assert names == ["ada"]


def test_raw_messages_are_shown_unchanged(kit: Kit):
    with private_queues():
        from rsmq_django.queues import ensure_queue

        ensure_queue("default").send_many([b"\x00\xff", b"text"])

        assert kit.bodies("default") == [b"\x00\xff", b"text"]
        assert kit.enqueued() == []


def test_a_dead_server_fails_the_test_instead_of_hanging(kit: Kit, settings: Any):
    declare(lambda: None).enqueue()
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "unix:///nowhere/at/all"}}}

    with pytest.raises(AssertionError, match="does not respond"):
        kit.run()
    assert get_queue("default") is not None


@pytest.mark.slow
def test_nothing_remains_of_the_private_server(tmp_path: Path) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "testing.md", "redis://nowhere.invalid")
    said = project.python(
        "import os; from rsmq_django.testing import private_server_url\n"
        "print(private_server_url(), os.getpid())\n"
        "import rsmq_django.embedded as e; print(next(iter(e._held)))"
    )

    url, directory = said.split()[0], said.split()[2]

    assert url.startswith("unix://") and url != private_server_url()
    assert not Path(directory).exists()
    wait_until(lambda: subprocess.run(["pgrep", "-f", directory], capture_output=True).stdout == b"")


def test_the_test_itself_is_not_in_a_task_after_a_run(kit: Kit):
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


# -- The servers of the settings --------------------------------------------------------------------------------------

FORGETFUL = """
import asyncio, threading
import pytest
from rsmq_django.core import Client, Connection, Queue
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import task

@task(queue_name="mail")
def send_receipt(): ...

client = get_client()  # made before the first test

def test_that_sends():
    send_receipt.enqueue()

def test_that_hides_the_error():
    try:
        ensure_queue("mail")
    except Exception:
        pass

def test_that_sends_on_a_thread():
    thread = threading.Thread(target=lambda: client.connection.exchange([("PING",)]))
    thread.start()
    thread.join()

async def talk():
    await get_queue("mail").asend("x")

def test_that_sends_with_asyncio():
    asyncio.run(talk())

@pytest.fixture
def receipt():
    send_receipt.enqueue()

def test_whose_fixture_sends(receipt):
    pass
"""
CAREFUL = """
import pytest
from django.test import override_settings
from rsmq_django.core import Connection
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.testing import private_queues

@pytest.mark.rsmq_server
def test_with_the_marker():
    ensure_queue("mail")

def test_with_the_fixture(rsmq):
    ensure_queue("mail")

def test_with_private_queues():
    with private_queues():
        ensure_queue("mail")

def test_with_settings_of_its_own(settings):
    url = settings.RSMQ["CONNECTIONS"]["default"]["URL"] + "?db=7"
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": url}}, "QUEUES": {"mail": {}}}
    ensure_queue("mail")

def test_that_uses_no_queue():
    get_client()
"""


@pytest.fixture
def run_tests(tmp_path: Path, server: PrivateServer) -> Callable[..., dict[str, str]]:
    """Return the function that runs the tests of a project; it returns what became of each, and the text for all."""
    (tmp_path / "empty.md").write_text("")
    project = Project(tmp_path, tmp_path / "empty.md", server.url)
    project.write("settings.py", (tmp_path / "settings.py").read_text() + "RSMQ['QUEUES'] = {'mail': {}}\n")

    def run(text: str, *words: str) -> dict[str, str]:
        project.write("shop/test_shop.py", text)
        code = "import sys, pytest; pytest.main(sys.argv[1:])"  # its status is not looked at
        options = ["-q", "-rA", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=short", "--strict-markers"]
        said = project.run("-c", code, *options, *words, "shop/test_shop.py")
        ends = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", said, re.MULTILINE)
        return {name: end for end, name in ends} | {"text": said}

    return run


def test_a_test_that_forgets_the_fixture_fails_and_sends_nothing(
    run_tests: Callable[..., dict[str, str]], server: PrivateServer
):
    outcomes = run_tests(FORGETFUL, "-p", "no:threadexception")

    text = outcomes.pop("text")
    assert outcomes == {
        "test_that_sends": "FAILED",
        "test_that_hides_the_error": "FAILED",
        "test_that_sends_on_a_thread": "FAILED",
        "test_that_sends_with_asyncio": "FAILED",
        "test_whose_fixture_sends": "ERROR",
    }
    assert "Use the fixture `rsmq`" in text and "@pytest.mark.rsmq_server" in text
    assert server.redis.dbsize() == 0


def test_tests_that_say_which_server_they_use_pass(run_tests: Callable[..., dict[str, str]], server: PrivateServer):
    outcomes = run_tests(CAREFUL)

    text = outcomes.pop("text")
    assert set(outcomes.values()) == {"PASSED"} and len(outcomes) == 5, text
    assert server.redis.exists("rsmq:mail:Q") == 1


def test_a_project_can_allow_the_server_of_its_settings(run_tests: Callable[..., dict[str, str]]):
    outcomes = run_tests(FORGETFUL, "-o", "rsmq_allow_server=true")

    text = outcomes.pop("text")
    assert set(outcomes.values()) == {"PASSED"} and len(outcomes) == 5, text


def test_the_embedded_server_of_the_settings_is_refused_as_well(
    run_tests: Callable[..., dict[str, str]], tmp_path: Path
):
    settings = tmp_path / "settings.py"
    settings.write_text(
        settings.read_text() + "RSMQ['CONNECTIONS'] = {'default': {'EMBEDDED': True}}\nBASE_DIR = '.'\n"
    )

    outcomes = run_tests(
        "def test_that_sends():\n    from rsmq_django.queues import ensure_queue\n    ensure_queue('mail')\n"
    )

    assert outcomes["test_that_sends"] == "FAILED"
    assert "the embedded server in" in outcomes["text"]
    assert not (tmp_path / ".rsmq").exists()


def test_without_django_nothing_is_refused(tmp_path: Path, server: PrivateServer):
    (tmp_path / "test_core.py").write_text(
        "from rsmq_django.core import Client, Connection, Queue\n"
        f"def test_core():\n    Queue('mail', Client(Connection({server.url!r}), namespace='rsmq')).create()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-p", "no:cacheprovider", "."]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
