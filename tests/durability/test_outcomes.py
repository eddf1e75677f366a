"""Workers wait until replicas have the outcomes of tasks, if their queue asks for it; they never stop for that."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rsmq_django.tasks.task import Task
from rsmq_django.worker.lease import confirmation
from tests.durability.conftest import PATIENT_S, SHORT_S, Use
from tests.fault_proxy import FaultProxy
from tests.replicated_server import ReplicatedServer
from tests.support import wait_until
from tests.worker.workshop import declare, new_worker, queue_source, work, working

WAITS = {"REPLICAS": 1, "TIMEOUT_S": PATIENT_S, "ACKNOWLEDGE": True}
NO_TIME = {"REPLICAS": 1, "TIMEOUT_S": SHORT_S, "ACKNOWLEDGE": True}


@pytest.fixture
def double() -> Task[..., Any]:
    def doubling(number: int) -> int:
        return 2 * number

    return declare(doubling)


def status(server: ReplicatedServer, namespace: str, task_id: str) -> str:
    return (server.redis.hget(f"{namespace}::result:{task_id}", "status") or b"").decode()


def waits(server: ReplicatedServer) -> int:
    return int(server.redis.info("commandstats").get("cmdstat_wait", {}).get("calls", 0))


def test_outcome_is_on_the_replica_when_the_exchange_ends(
    use: Use, double: Task, replica: ReplicatedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    use(WAITS)
    ids = [double.using(durability=False).enqueue(number).id for number in range(3)]
    answers: list[Any] = []
    note = confirmation.OutcomeConfirmation.note

    def noting(self: Any, answer: Any) -> None:
        answers.append((answer, sum(status(replica, namespace, task_id) == "SUCCESSFUL" for task_id in ids)))
        note(self, answer)

    monkeypatch.setattr(confirmation.OutcomeConfirmation, "note", noting)
    work()

    assert [answer for answer, _ in answers] == [""] * len(answers)
    assert answers[-1][1] == 3


@pytest.mark.usefixtures("replica")
def test_exchange_waits_once_for_many_outcomes(
    use: Use, double: Task, primary: ReplicatedServer, monkeypatch: pytest.MonkeyPatch
):
    use(WAITS)
    double.using(durability=False).enqueue_many([[number] for number in range(20)])
    worker = new_worker(until_empty=True, threads=1)
    source = queue_source(worker)
    exchanges: list[int] = []
    steps = source._steps

    def noting(*args: Any) -> Any:
        made = steps(*args)
        exchanges.append(sum(isinstance(step, confirmation.ConfirmStep) for step in made[0]))
        return made

    monkeypatch.setattr(source, "_steps", noting)
    before = waits(primary)
    worker.run()

    assert max(exchanges) == 1
    assert waits(primary) - before == sum(exchanges)


@pytest.mark.usefixtures("replica")
def test_queue_that_does_not_ask_for_it_waits_for_no_outcome(use: Use, double: Task, primary: ReplicatedServer):
    use({"REPLICAS": 1, "TIMEOUT_S": PATIENT_S})
    double.using(durability=False).enqueue(1)
    before = waits(primary)
    work()

    assert waits(primary) == before


def test_missing_replica_does_not_stop_the_worker(
    use: Use,
    double: Task,
    primary: ReplicatedServer,
    replica: ReplicatedServer,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
):
    use(NO_TIME)
    calls = [[number] for number in range(20)]
    ids = double.using(durability=False).enqueue_many(calls)
    replica.stand_still()
    work()

    assert {status(primary, namespace, task_id) for task_id in ids} == {"SUCCESSFUL"}
    told = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert len(told) == 1
    assert "outcomes of tasks are stored, but not confirmed: 0 of 1 replica" in told[0]


@pytest.mark.usefixtures("replica")
def test_outcomes_whose_exchange_broke_are_not_said_to_be_stored(
    use: Use, double: Task, primary: ReplicatedServer, namespace: str, caplog: pytest.LogCaptureFixture
):
    with FaultProxy(primary.url) as proxy:
        use(WAITS, url=proxy.url)
        task_id = double.using(durability=False).enqueue(1).id
        # Twice: an exchange that fetches nothing is repeated at once, and then no line says that its reply was lost.
        proxy.lose_reply_to(b"\r\nWAIT\r\n", times=2)
        work()
        seen = proxy.times_seen(b"\r\nWAIT\r\n")

    assert seen > 2 and status(primary, namespace, task_id) == "SUCCESSFUL"
    assert "may have been carried out or not" in caplog.text
    assert "are stored" not in caplog.text and "refused" not in caplog.text


def test_outcomes_that_the_server_refused_are_not_said_to_be_stored(
    use: Use, primary: ReplicatedServer, replica: ReplicatedServer, namespace: str, caplog: pytest.LogCaptureFixture
):
    use(NO_TIME)

    def refused(number: int) -> None:
        primary.redis.config_set("min-replicas-to-write", 5)
        replica.stand_still()

    try:
        task_id = declare(refused).using(durability=False).enqueue(1).id
        with working() as worker:
            wait_until(lambda: queue_source(worker).backoff._failures > 1)
            told = caplog.text
            primary.redis.config_set("min-replicas-to-write", 0)
            replica.go_on()
            wait_until(lambda: status(primary, namespace, task_id) == "SUCCESSFUL")
    finally:
        primary.redis.config_set("min-replicas-to-write", 0)

    assert "NOREPLICAS" in told
    assert "are stored" not in told


@pytest.mark.usefixtures("replica")
def test_after_a_wait_in_vain_there_is_none_for_a_while(
    use: Use, double: Task, primary: ReplicatedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(confirmation, "PAUSE_S", 3600.0)
    use(WAITS)
    task_id = double.using(durability=False).enqueue(1).id
    worker = new_worker(until_empty=True, threads=1)
    noted = queue_source(worker)._confirmation
    assert noted is not None
    noted.note("0 of 1 replica")
    before = waits(primary)
    worker.run()

    assert (waits(primary) - before, status(primary, namespace, task_id)) == (0, "SUCCESSFUL")


def test_unconfirmed_outcomes_are_a_line_a_minute(
    use: Use, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    use(NO_TIME)
    noted = queue_source(new_worker())._confirmation
    assert noted is not None

    for _ in range(3):
        noted.note("0 of 1 replica")
    noted._log_at -= confirmation.LOG_EVERY_S
    noted.note("0 of 1 replica")

    assert caplog.text.count("not confirmed") == 2


def test_worker_says_when_outcomes_are_confirmed_again(
    use: Use,
    double: Task,
    replica: ReplicatedServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(confirmation, "PAUSE_S", 0.0)
    caplog.set_level(logging.INFO, "rsmq_django")
    use(NO_TIME)
    replica.stand_still()

    def waking(number: int) -> None:
        replica.go_on()

    declare(waking).using(durability=False).enqueue(1)
    double.using(durability=False).enqueue(1)
    worker = new_worker(until_empty=True, threads=1)
    noted = queue_source(worker)._confirmation
    assert noted is not None
    noted.note("0 of 1 replica")
    worker.run()

    assert "outcomes of tasks are confirmed again" in caplog.text
