"""In which order messages run: by priority within a queue, by weight or strictly between queues, not while paused."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from rsmq_django.core import list_queues
from rsmq_django.core.errors import BrokenQueue
from rsmq_django.queues import ensure_queue, get_client, get_queue, pause_queue, resume_queue
from rsmq_django.tasks import Postpone, Retry, consumer
from rsmq_django.tasks.compat import task_backends
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare, new_worker, queue_source, send_raw, the_dead_letter, work, working

# -- Priorities ----------------------------------------------------------------------------------------------------


def test_ready_messages_run_by_priority_and_by_age_within_one(project: Configure):
    seen: list[tuple[int, int]] = []
    declared = declare(lambda priority, number: seen.append((priority, number)))
    sent = [(priority, number) for number in range(3) for priority in (0, -100, 7, 100, -1)]
    for priority, number in sent:
        declared.using(priority=priority).enqueue(priority, number)

    work(threads=1)

    assert seen == sorted(sent, key=lambda call: (-call[0], call[1]))


def test_a_delayed_message_keeps_its_priority(project: Configure):
    seen: list[str] = []
    declared = declare(lambda name: seen.append(name))
    for name, priority in (("low", -5), ("urgent", 5), ("plain", 0)):
        prepared = declared.using(priority=priority)
        prepared.enqueue(name)
        get_queue(f"default-{'p5' if priority > 0 else 'm5'}" if priority else "default").receive()  # hidden for 30 s

    for name in ("default", "default-p5", "default-m5"):
        pass_time(get_queue(name), seconds=31)
    work(threads=1)

    assert seen == ["urgent", "plain", "low"]


def test_a_retried_message_keeps_its_priority(project: Configure):
    seen: list[str] = []

    def stubborn(name: str) -> None:
        seen.append(name)
        if len(seen) == 1:
            raise Retry(after_s=0)

    declared = declare(stubborn)
    declared.using(priority=5).enqueue("urgent")
    declared.enqueue_many([["plain"]] * 50)

    work(threads=1)

    assert seen.index("urgent", 1) < 50, "it waited for all messages of lower priority"


def test_a_priority_used_for_the_first_time_is_found_by_a_worker_that_runs(project: Configure):
    ran = threading.Event()
    declared = declare(lambda: ran.set())

    with working(poll_interval_s=600):
        declared.enqueue()
        assert ran.wait(60)
        ran.clear()
        declared.using(priority=33).enqueue()

        assert ran.wait(60), "only the next look after ten minutes would find it"


def test_a_message_of_any_priority_dies_into_the_same_dead_letter_queue(project: Configure):
    declare(max_attempts=1)(lambda: 1 / 0).using(priority=9).enqueue()

    work()

    _, record = the_dead_letter()
    assert record["queue"] == "default-p9"


def test_result_of_a_task_with_a_priority_can_be_read(project: Configure):
    result = declare(lambda: 42).using(priority=9).enqueue()

    work()

    assert task_backends["default"].get_result(result.id).return_value == 42


def test_a_consumer_handles_its_queue_in_every_priority(project: Configure):
    seen: list[bytes] = []
    consumer("default")(lambda message: seen.append(message.body))
    send_raw(b"plain")
    ensure_queue("default-p1").send(b"urgent")

    work(threads=1)

    assert seen == [b"urgent", b"plain"]


def test_a_deleted_band_causes_no_error(project: Configure):
    ran = threading.Event()
    declared = declare(lambda: ran.set())
    declared.using(priority=5).enqueue()
    with working():
        assert ran.wait(60)
        ran.clear()
        get_queue("default-p5").delete_queue()

        declared.using(priority=5).enqueue()

        assert ran.wait(60)


def test_a_band_that_was_deleted_under_a_worker_is_not_created_again(project: Configure):
    ran = threading.Event()
    declared = declare(lambda: ran.set())
    declared.using(priority=5).enqueue()
    with working():
        assert ran.wait(60)
        get_queue("default-p5").delete_queue()

        for _ in range(2):
            ran.clear()
            declared.enqueue()
            assert ran.wait(60)

    assert list_queues(get_client()) == ["default", "default-dead"]


def test_no_queue_is_in_the_list_twice(configure: Configure):
    configure(default={}, mail={"WEIGHT": 3})
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    declared.using(priority=1).enqueue_many([[number] for number in range(5)])

    worker = new_worker("default", "default-p1", "default", "mail", until_empty=True)
    worker.run()

    source = queue_source(worker)
    names = [work_queue.name for work_queue in source.queues]
    assert (sorted(seen), sorted(names)) == ([0, 1, 2, 3, 4], ["default", "default-p1", "mail"])


# -- Weights -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 8])
def test_served_shares_follow_the_weights_under_backlog(configure: Configure, threads: int):
    weights = {"urgent": 6, "mail": 4, "slow": 2}
    configure(**{name: {"WEIGHT": weight} for name, weight in weights.items()})
    seen: list[str] = []
    declared = declare(queue_name="mail", result_ttl_s=0)(lambda name: seen.append(name))
    for name in weights:
        declared.using(queue_name=name).enqueue_many([[name]] * 1200)

    work(threads=threads)

    shares = Counter(seen[:1200])
    for name, weight in weights.items():
        assert shares[name] == pytest.approx(100 * weight, rel=0.1)
    assert len(seen) == 3600


def test_a_queue_without_weight_counts_one_beside_those_with(configure: Configure):
    configure(mail={"WEIGHT": 3}, slow={})
    seen: list[str] = []
    declared = declare(queue_name="mail", result_ttl_s=0)(lambda name: seen.append(name))
    for name in ("mail", "slow"):
        declared.using(queue_name=name).enqueue_many([[name]] * 400)

    work(threads=1)

    assert Counter(seen[:400])["mail"] == pytest.approx(300, rel=0.1)


def test_priorities_apply_within_a_weighted_queue(configure: Configure):
    configure(mail={"WEIGHT": 1}, slow={"WEIGHT": 1})
    seen: list[str] = []
    declared = declare(queue_name="mail")(lambda name: seen.append(name))
    for name, options in (("low", {"priority": -1}), ("plain", {}), ("urgent", {"priority": 1})):
        declared.using(**options).enqueue_many([[name]] * 20)
    declared.using(queue_name="slow").enqueue_many([["other"]] * 60)

    work(threads=1)

    assert [name for name in seen if name != "other"] == ["urgent"] * 20 + ["plain"] * 20 + ["low"] * 20


# -- Pauses --------------------------------------------------------------------------------------------------------


def test_nothing_runs_from_a_paused_queue_until_it_is_resumed(configure: Configure):
    configure(mail={}, slow={})
    seen: list[str] = []
    declared = declare(queue_name="mail")(lambda name: seen.append(name))
    pause_queue("mail")
    declared.enqueue("paused")
    declared.using(priority=5).enqueue("paused, urgent")
    declared.using(queue_name="slow").enqueue("other")

    work()  # a paused queue does not keep it from ending
    assert seen == ["other"]

    resume_queue("mail")
    work()
    assert sorted(seen) == ["other", "paused", "paused, urgent"]


def test_pauses_that_cannot_be_read_are_logged_and_stop_no_fetch(
    project: Configure, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    server.redis.set("rsmq::paused", "of another program")
    result = declare(lambda: "done").enqueue()

    work()

    result.refresh()
    assert result.return_value == "done"
    assert "key 'rsmq::paused': it is not a set, so no queue counts as paused; delete it" in caplog.text
    with pytest.raises(BrokenQueue, match=r"key 'rsmq::paused' has the wrong type"):
        pause_queue("default")


def test_resuming_wakes_a_worker_that_sleeps(project: Configure):
    ran = threading.Event()
    declared = declare(lambda: ran.set())
    pause_queue("default")
    with working(poll_interval_s=600):
        declared.enqueue()
        assert not ran.wait(0.3)

        resume_queue("default")

        assert ran.wait(60)


@pytest.mark.slow
def test_a_pause_applies_to_all_workers_including_later_ones(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    from tests.worker.site.tasks import write

    queues: dict[str, dict[str, int]] = {"default": {}, "other": {}}
    project(**queues)
    start_worker("--processes", "2", queues=queues)
    write.enqueue("before")
    wait_until(lambda: journal.names("end") == ["before"])
    pause_queue("default")

    for number in range(20):
        write.enqueue(f"paused-{number}")
    start_worker("--processes", "1", queues=queues)
    write.using(queue_name="other").enqueue_many([[f"other-{number}"] for number in range(50)])
    wait_until(lambda: len(journal.names("end")) == 51)
    assert not [name for name in journal.names("start") if name.startswith("paused")]

    resume_queue("default")
    wait_until(lambda: len(journal.names("end")) == 71)


# -- What comes back at once ---------------------------------------------------------------------------------------


def test_a_task_postponed_by_nothing_runs_again_before_its_worker_ends(project: Configure):
    runs: list[int] = []

    def postponed_often() -> None:
        runs.append(len(runs))
        if len(runs) < 20:
            raise Postpone(0)

    declare(postponed_often).enqueue()

    work(until_empty=False, until_drained=True)

    assert len(runs) == 20
