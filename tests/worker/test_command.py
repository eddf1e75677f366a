"""`manage.py rsmq_worker` as a process of its own: what it prints, how it stops, and with which status."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from rsmq_django.core.transport.call import load_script
from rsmq_django.management.commands import rsmq_worker
from rsmq_django.queues import ensure_queue, get_queue
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare

pytestmark = pytest.mark.slow

SMALL = ("--processes", "1", "--threads", "1")
FETCH = load_script("tasks/worker/fetch").sha1.encode()


def ready_messages() -> int:
    return ensure_queue("default").attributes().ready_messages


@pytest.fixture
def logging_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the loggers alone: the command sets their levels for its whole process, which here is that of the tests."""
    monkeypatch.setattr(rsmq_worker, "set_up_logging", lambda verbosity: None)


# -- What it says --------------------------------------------------------------------------------------------------


def test_help_shows_examples_and_explains_the_exit_status(start_worker: StartWorker):
    helping = start_worker("--help")

    assert helping.wait() == 0
    assert "manage.py rsmq_worker --queues urgent,mail   urgent first" in helping.output
    assert "Exit status: 0 if all started tasks finished" in helping.output


def test_it_logs_the_queues_that_it_consumes(project: Configure, start_worker: StartWorker):
    worker = start_worker("--burst", "--worker-id", "painter", *SMALL, queues={"mail": {}, "default": {}})

    assert worker.wait() == 0
    assert "worker painter works on mail, default with 1 process; Ctrl-C stops it" in worker.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--queues", "defualt"), "CommandError: Queue 'defualt' is not in RSMQ['QUEUES'], where"),
        (("--queues", "default-dead"), "CommandError: Queue 'default-dead' holds dead letters. To have workers"),
        (("--threads", "0"), "0 is too small; the minimum is 1"),
        (("--poll-interval", "nan"), "nan is not a number of seconds"),
        (("--poll-interval", "often"), "often is not a number of seconds"),
        (("--max-tasks", "many"), "'many' is not a whole number"),
        (("--exclude-queues", "defualt"), "Queue 'defualt' is not in RSMQ['QUEUES'], where each queue needs an entry."),
        (("--exclude-queues", "default"), "no queue to consume: --exclude-queues excludes all queues"),
        (("--exclude-queues", "default", "--queues", "default"), "--exclude-queues cannot be combined with --queues"),
        (("--backend", "other"), "--backend: The connection 'other' doesn't exist"),
        (("--worker-id", "x" * 65), "it must have 1 to 64 printable characters"),
        (("--thraeds", "4"), "unrecognized arguments: --thraeds 4; did you mean --threads?"),
        (("--no-such-thing",), "unrecognized arguments: --no-such-thing\n"),
        (("--health-port", "http"), "http is not [HOST:]PORT, such as 8080"),
        (("--health-port", "127.0.0.1:99999"), "127.0.0.1:99999 is not [HOST:]PORT"),
    ],
)
@pytest.mark.django_db  # Django's checks ask it
def test_mistake_on_the_command_line_is_explained(
    project: Configure,
    logging_unchanged: None,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    complaint: str,
):
    project(default={})

    with pytest.raises(SystemExit) as ended:
        rsmq_worker.Command().run_from_argv(["manage.py", "rsmq_worker", *arguments])

    assert ended.value.code in (1, 2)
    assert complaint in capsys.readouterr().err


@pytest.mark.django_db
def test_worker_whose_queues_are_all_for_others_reports_that(
    project: Configure, logging_unchanged: None, capsys: pytest.CaptureFixture[str]
):
    project(default={"FOR_OTHERS": True})

    with pytest.raises(SystemExit):
        rsmq_worker.Command().run_from_argv(["manage.py", "rsmq_worker"])

    assert "no queue to consume: all queues of RSMQ['QUEUES'] are FOR_OTHERS" in capsys.readouterr().err


def test_task_with_a_misspelt_queue_is_a_mistake_in_one_line(
    project: Configure,
    logging_unchanged: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    project(mail={})

    def pay() -> None: ...

    monkeypatch.setattr(rsmq_worker, "autodiscover_modules", lambda _name: declare(pay, queue_name="mial"))

    with pytest.raises(SystemExit) as ended:
        rsmq_worker.Command().run_from_argv(["manage.py", "rsmq_worker", "--skip-checks"])

    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("CommandError: Task ") and said.count("\n") == 1
    assert ": Queue 'mial' is not in RSMQ['QUEUES'], where each queue needs an entry." in said
    assert said.endswith(" Did you mean 'mail'?\n")


def test_mistake_is_reported_in_one_line(start_worker: StartWorker):
    worker = start_worker("--health-file", "/no/such/directory/file")

    assert worker.wait() == 1
    assert "CommandError: cannot start: [Errno 2]" in worker.output
    assert "Traceback" not in worker.output


def test_seconds_taken_for_milliseconds_end_it_with_an_explanation(project: Configure, start_worker: StartWorker):
    ensure_queue("default").set_attributes(visibility_timeout_s=30_000)

    worker = start_worker(*SMALL)

    assert worker.wait() == 1
    assert "VISIBILITY_TIMEOUT_S = 30000, the settings say 30: one of them is in milliseconds" in worker.output
    assert "Traceback" not in worker.output


# -- What it does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:wrong@127.0.0.1:{port}/0", "refused the user or password"),
        ("redis://nobody:wrong@127.0.0.1:{port}/0", "refused the user or password"),
        ("redis://127.0.0.1:{port}/999", "has no database 999"),
    ],
    ids=["password", "user", "database"],
)
def test_wrong_password_or_database_ends_it_at_the_start(
    project: Configure, start_worker: StartWorker, server: PrivateServer, url: str, said: str
):
    with FaultProxy(server.url) as proxy:
        worker = start_worker(*SMALL, url=url.format(port=proxy.port))

        assert worker.wait() == 1

    assert worker.output.startswith("CommandError: ") and said in worker.output
    assert "wrong" not in worker.output, "the password is masked"
    assert worker.output.count("\n") == 1


@pytest.mark.parametrize(
    ("address", "said"),
    [("redis://:wrong@{host}/0", "refused the user or password"), ("redis://{host}/999", "has no database 999")],
    ids=["password", "database"],
)
def test_wrong_password_or_database_that_only_a_topic_uses_ends_it_at_the_start(
    project: Configure, start_worker: StartWorker, server: PrivateServer, address: str, said: str
):
    with FaultProxy(server.url) as proxy:
        url = address.format(host=f"127.0.0.1:{proxy.port}")
        connections = json.dumps({"events": {"URL": url}})
        worker = start_worker(*SMALL, connections=connections, topic="orders", topic_connection="events")

        assert worker.wait() == 1

    assert worker.output.startswith("CommandError: ") and said in worker.output
    assert worker.output.count("\n") == 1


def test_worker_waits_for_an_unreachable_server_at_the_start(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    tasks.write.enqueue("late")
    with FaultProxy(server.url) as proxy:
        proxy.refuse()
        worker = start_worker(*SMALL, url=proxy.url)
        wait_until(lambda: "Trying again until it works" in worker.output)

        proxy.release()

        wait_until(lambda: journal.names("end") == ["late"])


def test_burst_runs_everything_and_ends_well(project: Configure, start_worker: StartWorker, journal: Journal):
    project(default={}, mail={})
    results = [tasks.write.using(queue_name=name).enqueue(name) for name in ("default", "mail")]

    worker = start_worker("--burst", "--processes", "2", queues={"default": {}, "mail": {}})

    assert worker.wait() == 0
    assert sorted(journal.names("end")) == ["default", "mail"]
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == ["default", "mail"]


def test_batch_leaves_what_is_not_ready(project: Configure, start_worker: StartWorker, journal: Journal):
    tasks.write.enqueue("held")
    get_queue("default").receive()
    tasks.write.enqueue("ready")

    worker = start_worker("--batch", *SMALL)

    assert worker.wait() == 0
    assert journal.names("end") == ["ready"]


def test_process_is_replaced_after_its_maximum_number_of_messages(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    names = [str(number) for number in range(5)]
    tasks.toil.enqueue_many([[name, 0] for name in names])

    worker = start_worker("--max-tasks", "2", "--batch", *SMALL)

    assert worker.wait() == 0
    assert journal.names("end") == names
    pids = [pid for _, pid in journal.lines("start")]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] != pids[0]


def test_processes_are_not_all_replaced_after_the_same_number_of_messages(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    tasks.toil.enqueue_many([[str(number), 0] for number in range(200)])

    worker = start_worker("--max-tasks", "10", "--max-tasks-jitter", "20", "--batch", *SMALL)

    assert worker.wait() == 0
    messages_of_a_process = Counter(pid for _, pid in journal.lines("start")).values()
    assert all(number <= 30 for number in messages_of_a_process)
    assert len(set(list(messages_of_a_process)[:-1])) > 1


@pytest.mark.parametrize(
    ("arguments", "works_on"),
    [
        (("--queue-name", "*", "--exclude-queues", "mail"), "default, slow"),
        (("--exclude-queues", "mail,slow"), "default"),
        (("--backend", "default"), "default, mail, slow"),
        (("--queue-name", "slow", "--no-startup-delay", "--interval", "0.1", "--no-reload"), "slow"),
    ],
)
def test_command_lines_of_db_worker_choose_the_same_queues(
    project: Configure, start_worker: StartWorker, arguments: tuple[str, ...], works_on: str
):
    worker = start_worker(*arguments, "--batch", *SMALL, queues={"default": {}, "mail": {}, "slow": {}})

    assert worker.wait() == 0
    assert f" works on {works_on} with" in worker.output


def test_start_line_names_ten_queues_and_counts_the_others(project: Configure, start_worker: StartWorker):
    queues: dict[str, dict[str, object]] = {name: {} for name in ("default", "mail", "slow", *"abcdefghi")}

    worker = start_worker("--batch", *SMALL, queues=queues)

    assert worker.wait() == 0
    assert " works on default, mail, slow, a, b, c, d, e, f, g and 2 more with 1 process" in worker.output


def test_named_queues_only(project: Configure, start_worker: StartWorker, journal: Journal):
    project(default={}, mail={})
    for name in ("default", "mail"):
        tasks.write.using(queue_name=name).enqueue(name)

    worker = start_worker("--queues", "mail", "--burst", *SMALL, queues={"default": {}, "mail": {}})

    assert worker.wait() == 0
    assert journal.names("end") == ["mail"]


@pytest.mark.parametrize(("max_age_s", "second"), [("0", "closed"), ("600", "open")])
def test_database_connections_live_as_long_as_the_settings_say(
    project: Configure, start_worker: StartWorker, journal: Journal, tmp_path, max_age_s: str, second: str
):
    tasks.look_at_database.enqueue("first")
    tasks.look_at_database.enqueue("second")

    worker = start_worker("--burst", *SMALL, database=str(tmp_path / "db"), conn_max_age=max_age_s)

    assert worker.wait() == 0
    assert journal.lines("database") == [["first", "closed"], ["second", second]]


# -- How it stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_first_signal_lets_the_running_task_end_and_releases_the_others(
    project: Configure, start_worker: StartWorker, journal: Journal, number: signal.Signals
):
    tasks.wait_at_gate.enqueue_many([[str(n)] for n in range(5)])
    worker = start_worker(*SMALL)
    wait_until(lambda: journal.names("start"))

    worker.send_to_all(number) if number == signal.SIGINT else worker.send(number)

    wait_until(lambda: ready_messages() == 4)
    wait_until(lambda: f"{number.name}: tasks may run" in worker.output)
    journal.open_gate()
    assert worker.wait() == 0
    assert journal.names("end") == journal.names("start") == ["0"]
    assert get_queue("default").attributes().messages == 4


def test_second_signal_gives_the_running_task_back_without_counting_the_attempt(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    tasks.wait_at_gate.enqueue("slow")
    worker = start_worker(*SMALL)
    wait_until(lambda: journal.names("start"))
    worker.send(signal.SIGTERM)
    wait_until(lambda: "tasks may run" in worker.output)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1
    assert ready_messages() == 1
    journal.open_gate()
    assert start_worker("--burst", *SMALL).wait() == 0
    assert [line[:2] for line in journal.lines("start")] == [["slow", "1"], ["slow", "1"]]


def test_running_function_is_not_released(project: Configure, start_worker: StartWorker, journal: Journal):
    tasks.hog_loop.enqueue("hog")
    first = start_worker(*SMALL)
    wait_until(lambda: "hog" in journal.names("start"))
    tasks.tick.enqueue("slow")
    wait_until(lambda: journal.names("tick"))
    second = start_worker(*SMALL)
    wait_until(lambda: "started process" in second.output)

    first.send(signal.SIGTERM)
    wait_until(lambda: "tasks may run for" in first.output)
    first.send(signal.SIGTERM)

    wait_until(lambda: journal.names("start").count("slow") == 2)
    assert first.wait() == 1
    journal.open_gate()
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    pids = [line[2] for line in journal.lines() if line[1] == "slow"]
    assert pids == sorted(pids, key=[pids[0], pids[-1]].index), "the first one had ended when the second one began"
    assert len(set(pids)) == 2


def test_stop_during_an_outage_ends_soon_and_logs_that_an_outcome_is_unknown(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    tasks.wait_at_gate.enqueue("slow")
    with FaultProxy(server.url) as proxy:
        worker = start_worker(*SMALL, "--shutdown-timeout", "10000", url=proxy.url)
        wait_until(lambda: journal.names("start"))
        proxy.refuse()
        proxy.reset_connections()
        journal.open_gate()
        wait_until(lambda: journal.names("end"))

        worker.send(signal.SIGTERM)

        assert worker.wait() == 1
    assert "1 outcome could not be reported to Redis; the message of each runs again later" in worker.output


def test_stop_of_a_worker_without_messages_during_an_outage_is_a_success(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    tasks.write.enqueue("first")
    with FaultProxy(server.url) as proxy:
        worker = start_worker(*SMALL, "--shutdown-timeout", "10000", url=proxy.url)
        wait_until(lambda: journal.names("end") and server.redis.zcard("rsmq:default") == 0)
        fetches = proxy.times_seen(FETCH)
        wait_until(lambda: proxy.times_seen(FETCH) > fetches)  # so it has read the reply to its outcome
        proxy.refuse()
        proxy.reset_connections()
        wait_until(lambda: "Trying again until it works" in worker.output)

        worker.send(signal.SIGTERM)

        assert worker.wait() == 0


def test_signal_to_the_whole_process_group_logs_no_error(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    tasks.wait_at_gate.enqueue("slow")
    worker = start_worker("--processes", "3", "--threads", "1")
    wait_until(lambda: journal.names("start"))

    worker.send_to_all(signal.SIGTERM)
    wait_until(lambda: "tasks may run for" in worker.output)
    journal.open_gate()

    assert worker.wait() == 0
    assert "ERROR" not in worker.output and "WARNING" not in worker.output


def test_task_that_does_not_end_in_time_is_released(project: Configure, start_worker: StartWorker, journal: Journal):
    tasks.wait_at_gate.enqueue("slow")
    worker = start_worker("--shutdown-timeout", "0", *SMALL)
    wait_until(lambda: journal.names("start"))

    worker.send(signal.SIGTERM)

    assert worker.wait() == 1
    assert ready_messages() == 1


def test_idle_worker_stops_at_once(project: Configure, start_worker: StartWorker, journal: Journal):
    worker = start_worker(*SMALL, "--poll-interval", "60")
    tasks.write.enqueue("first")
    wait_until(lambda: journal.names("end"))

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
