"""The queues of a worker: which come first, what happens when one is missing, different, or damaged."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.core import list_queues
from rsmq_django.core.errors import BrokenQueue
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import consumer, current_task
from rsmq_django.worker.fetch.queues import SettingsMismatch
from rsmq_django.worker.supervise import maintenance as lengths
from rsmq_django.worker.supervise.maintenance import SAMPLE_EVERY_S, SLICE_EVERY_S, DepthSampler
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.still_clock import StillClock
from tests.worker.workshop import Configure, declare, new_worker, queue_source, run_exchanges, send_raw, work, working

# -- Which queues --------------------------------------------------------------------------------------------------


def test_worker_without_names_works_on_all_configured_queues(project: Configure):
    project(mail={}, reports={})
    seen: list[str] = []
    declared = declare(queue_name="mail")(lambda name: seen.append(name))
    declared.enqueue("mail")
    declared.using(queue_name="reports").enqueue("reports")

    work()

    assert sorted(seen) == ["mail", "reports"]


def test_worker_leaves_other_queues_alone(project: Configure):
    project(mail={}, reports={})
    declare(queue_name="reports")(lambda: None).enqueue()

    work("mail")

    assert get_queue("reports").attributes().messages == 1


def test_queue_for_others_is_created_and_left_alone(project: Configure):
    project(default={}, **{"for-node": {"FOR_OTHERS": True}})
    declare(lambda: None).enqueue()

    work()

    assert "for-node" in list_queues(get_client())
    send_raw(b"for a program in another language", "for-node")
    work()
    assert get_queue("for-node").attributes().total_received == 0


def test_queue_for_others_is_worked_on_when_it_is_named(project: Configure):
    project(default={}, **{"for-node": {"FOR_OTHERS": True}})
    seen: list[bytes] = []
    consumer("for-node")(lambda message: seen.append(message.body))
    send_raw(b"7", "for-node")

    work("for-node")

    assert seen == [b"7"]


def test_dead_letters_are_worked_on_when_their_queue_is_listed(project: Configure):
    project(default={"MAX_ATTEMPTS": 1}, **{"default-dead": {}})
    seen: list[bytes] = []
    consumer("default-dead")(lambda message: seen.append(message.body))
    declare(lambda: 1 / 0).enqueue()

    work()

    assert len(seen) == 1 and seen[0].startswith(b'{"task"')


def test_dead_letters_stay_until_a_worker_consumes_their_queue(project: Configure):
    with pytest.raises(ImproperlyConfigured, match="'default-dead' holds dead letters.*list it.*'default-dead-dead'"):
        new_worker("default-dead")


@pytest.mark.parametrize("order", [("urgent", "mail"), ("mail", "urgent")])
def test_messages_of_the_first_queue_come_first(project: Configure, order: tuple[str, ...]):
    project(mail={}, urgent={})
    seen: list[str] = []
    declared = declare(queue_name="mail")(lambda name: seen.append(name))
    for name in ("mail", "urgent", "mail", "urgent"):
        declared.using(queue_name=name).enqueue(name)

    work(*order, threads=1)

    assert seen == sorted(seen, key=order.index)


def test_messages_of_one_queue_come_in_the_order_they_were_sent(project: Configure):
    seen: list[int] = []
    declare(lambda number: seen.append(number)).enqueue_many([[number] for number in range(500)])

    work(threads=1)

    assert seen == list(range(500))


def test_one_worker_serves_several_connections(settings, redis_url):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_url, "TIMEOUT_S": 15},
            "far": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "far"},
        },
        "QUEUES": {"default": {}, "distant": {"CONNECTION": "far"}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }
    seen: list[str] = []
    declared = declare(lambda name: seen.append(name))
    declared.enqueue("near")
    declared.using(queue_name="distant").enqueue("far")

    work()

    assert sorted(seen) == ["far", "near"]
    assert list_queues(get_client("far")) == ["distant", "distant-dead"]


# -- Missing queues ------------------------------------------------------------------------------------------------


def test_queues_and_their_dead_letter_queues_are_created_as_the_settings_say(project: Configure):
    project(mail={"VISIBILITY_TIMEOUT_S": 7, "DEAD_LETTER": "sorry"}, graveyard={})
    declare(queue_name="mail", dead_letter_queue="graveyard")(lambda: None)

    work("mail")

    assert list_queues(get_client()) == ["graveyard", "mail", "sorry"]
    assert get_queue("mail").attributes().visibility_timeout_s == 7
    assert get_queue("sorry").attributes().max_size_bytes == -1  # what fitted its queue must fit here


def test_queue_that_a_worker_creates_has_the_time_of_its_creation(project: Configure, server: PrivateServer):
    begun_s, _ = server.redis.time()

    work()

    ended_s, _ = server.redis.time()
    attributes = get_queue("default").attributes()
    assert begun_s <= attributes.created_s == attributes.modified_s <= ended_s


def test_queue_that_was_deleted_under_a_worker_is_created_again(project: Configure, caplog):
    seen: list[bytes] = []
    consumer("default")(lambda message: seen.append(message.body))
    with working():
        send_raw(b"before")
        wait_until(lambda: seen == [b"before"])

        get_queue("default").delete_queue()

        wait_until(lambda: list_queues(get_client()) == ["default", "default-dead"])
        get_queue("default").send(b"after")
        wait_until(lambda: seen == [b"before", b"after"])

    assert "queue default is missing or damaged" in caplog.text


def test_message_deleted_with_its_queue_while_it_ran_does_no_harm(project: Configure):
    seen: list[int] = []
    deleted: list[int] = []

    def delete_queue() -> None:
        get_queue("default").delete_queue()
        deleted.append(1)

    declare(delete_queue).enqueue()
    with working(threads=1):
        wait_until(lambda: deleted and list_queues(get_client()) == ["default", "default-dead"])
        declare(lambda: seen.append(1)).enqueue()
        wait_until(lambda: seen)

    assert seen == [1]


# -- Other attributes than the settings' ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "option"),
    [
        ({"visibility_timeout_s": 31}, "VISIBILITY_TIMEOUT_S = 31, the settings say 30"),
        ({"delay_s": 1}, "DELAY_S = 1, the settings say 0"),
        ({"max_size_bytes": 2048}, "MAX_SIZE_BYTES = 2048, the settings say 65536"),
    ],
)
def test_stored_attribute_that_differs_is_reported_and_used(project: Configure, caplog, stored, option):
    ensure_queue("default").set_attributes(**stored)

    work()

    assert f"queue default is stored with {option}" in caplog.text
    attributes = get_queue("default").attributes()
    assert {name: getattr(attributes, name) for name in stored} == stored


def test_equal_attributes_are_not_worth_a_word(project: Configure, caplog):
    ensure_queue("default")

    work()

    assert caplog.messages == []


@pytest.mark.parametrize(("setting", "stored"), [(30, 30_000), (30_000, 30)])
def test_seconds_taken_for_milliseconds_stop_the_worker_before_it_takes_a_message(
    project: Configure, setting: int, stored: int
):
    project(default={"VISIBILITY_TIMEOUT_S": setting})
    send_raw(b"hello")
    get_queue("default").set_attributes(visibility_timeout_s=stored)

    with pytest.raises(SettingsMismatch, match=f"VISIBILITY_TIMEOUT_S = {stored}, the settings say {setting}"):
        work()

    assert get_queue("default").attributes().hidden_messages == 0


def test_lease_is_as_long_as_the_stored_visibility_timeout(project: Configure, server: PrivateServer):
    ensure_queue("default").set_attributes(visibility_timeout_s=500)
    leases: list[float] = []

    def look() -> None:
        ((_, until_ms),) = server.redis.zrange("rsmq:default", 0, 0, withscores=True)
        leases.append(until_ms / 1000 - server.redis.time()[0])

    declare(look).enqueue()

    work()

    assert 490 < leases[0] <= 501


# -- Damaged queues ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["rsmq:broken", "rsmq:broken:Q", "rsmq::released:broken", "rsmq:broken-dead:Q", "rsmq:QUEUES"]
)
def test_queue_with_a_key_of_the_wrong_type_does_not_stop_the_others(
    project: Configure, server: PrivateServer, key: str
):
    project(broken={}, mail={})
    result = declare(queue_name="mail")(lambda: "done").enqueue()
    server.redis.set(key, "of some other program")

    new_worker(max_tasks=1).run()

    result.refresh()
    assert result.return_value == "done"
    assert server.redis.get(key) == b"of some other program"


def test_cancellation_key_of_another_type_is_reported_and_does_not_block_cancellations(
    project: Configure, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    seen: list[int] = []
    may_end = threading.Event()

    def note(number: int) -> None:
        may_end.wait(60)
        seen.append(number)

    noted = declare(note)
    server.redis.set("rsmq::cancelled", "of some other program")

    with working(async_tasks=1, threads=1) as worker:
        noted.enqueue(0)
        wait_until(lambda: len(queue_source(worker).leases))  # what is not held cannot be asked about
        queue_source(worker).suspect_cancellations()
        wait_until(lambda: "key 'rsmq::cancelled' has the wrong type" in caplog.text)
        may_end.set()
        for number in (1, 2):
            noted.enqueue(number)
            queue_source(worker).suspect_cancellations()
        wait_until(lambda: seen == [0, 1, 2])

        assert not queue_source(worker).backoff.is_on


@pytest.mark.parametrize("field", ["vt", "delay", "maxsize"])
@pytest.mark.parametrize("value", ["abc", "", "-1", "nan", "inf", "1e400"])
def test_queue_with_an_impossible_attribute_does_not_stop_the_others(
    project: Configure, server: PrivateServer, field: str, value: str
):
    project(broken={}, mail={})
    result = declare(queue_name="mail")(lambda: "done").enqueue()
    ensure_queue("broken")
    server.redis.hset("rsmq:broken:Q", field, value)

    new_worker(max_tasks=1).run()

    result.refresh()
    assert result.return_value == "done"


def test_message_whose_past_cannot_be_read_is_left_alone(project: Configure, server: PrivateServer, caplog):
    seen: list[bytes] = []
    consumer("default")(lambda message: seen.append(message.body))
    message_id = send_raw(b"again")
    get_queue("default").receive(visibility_timeout_s=0)
    server.redis.set("rsmq::released:default", "of another program")

    with working(poll_interval_s=0.01):
        wait_until(lambda: caplog.text.count("queue default is missing or damaged") > 1)
        receives = server.redis.hget("rsmq:default:Q", f"{message_id}:rc")
        server.redis.delete("rsmq::released:default")
        wait_until(lambda: seen)

    assert receives == b"1", "no attempt is used up by looking"


@pytest.mark.parametrize("count", ["abc", "", "-3", "1.5", "9" * 5000])
def test_impossible_count_of_a_message_counts_as_none(project: Configure, server: PrivateServer, count: str):
    seen: list[int] = []
    consumer("default")(lambda message: seen.append(current_task().attempt))
    message_id = send_raw(b"again")
    get_queue("default").receive(visibility_timeout_s=0)
    server.redis.hset("rsmq::released:default", mapping={message_id: count, f"{message_id}:crashes": count})

    new_worker(max_tasks=1).run()

    assert seen == [2]


def test_queue_that_was_repaired_is_worked_on_again(project: Configure, server: PrivateServer):
    result = declare(lambda: "done").enqueue()
    server.redis.hset("rsmq:default:Q", "vt", "abc")
    with working() as worker:
        wait_until(lambda: queue_source(worker).is_empty is False)

        server.redis.hset("rsmq:default:Q", "vt", "30")

        wait_until(lambda: get_queue("default").attributes().messages == 0)
    result.refresh()

    assert result.return_value == "done"


def test_message_without_a_body_is_passed_over(project: Configure, server: PrivateServer):
    ensure_queue("default")
    server.redis.zadd("rsmq:default", {"x" * 32: 1})
    result = declare(lambda: "done").enqueue()

    work()

    result.refresh()
    assert result.return_value == "done"


def test_damaged_queue_does_not_keep_the_lengths_of_others_from_being_noted(
    configure: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    configure(broken={}, good={})
    send_raw(b"1", "good")
    server.redis.set("rsmq:broken", "of another program")
    server.redis.hset("rsmq:broken:Q", "vt", 30)
    monkeypatch.setattr(lengths, "SAMPLED_AT_A_TIME", 1)
    noted = DepthSampler(get_client(), ["broken", "good"], now_ms=lambda: time.time() * 1000)

    for _ in range(2):
        with suppress(BrokenQueue):
            run_exchanges(get_client(), noted.sample_slice())

    assert any(server.redis.hget(key, "=messages") == b"1" for key in server.redis.scan_iter("rsmq::stats:good:*"))


def samples(sampler: DepthSampler, server: PrivateServer) -> bool:
    """Run one slice, and return whether depths were sampled."""
    for key in server.redis.scan_iter("rsmq::stats:*"):
        server.redis.delete(key)
    run_exchanges(get_client(), sampler.sample_slice())
    return any(server.redis.scan_iter("rsmq::stats:*"))


def test_one_of_several_supervisors_samples_the_same_queues(configure: Configure, server: PrivateServer):
    configure(mail={}, reports={})
    send_raw(b"1", "mail")
    send_raw(b"1", "reports")
    first, second, other = (
        DepthSampler(get_client(), names, now_ms=lambda: time.time() * 1000)
        for names in (["mail", "reports"], ["mail", "reports"], ["reports"])
    )

    assert [samples(each, server) for each in (first, second, first, other)] == [True, False, False, True]

    for claim in server.redis.keys("rsmq::sampling:*"):
        assert 0 < server.redis.pttl(claim) < SAMPLE_EVERY_S * 1000
        server.redis.delete(claim)
    assert [samples(each, server) for each in (second, first)] == [True, False]


def test_depths_are_sampled_also_if_nobody_can_say_that_it_does(configure: Configure, server: PrivateServer):
    configure(mail={})
    send_raw(b"1", "mail")
    server.redis.execute_command("ACL SETUSER", "default", "-set")
    sampler = DepthSampler(get_client(), ["mail"], now_ms=lambda: time.time() * 1000)

    try:
        assert samples(sampler, server)
    finally:
        server.redis.execute_command("ACL SETUSER", "default", "+set")


def test_depths_of_very_many_queues_are_sampled_in_slices_with_pauses(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    clock = StillClock(monkeypatch, lengths)
    sampler = DepthSampler(get_client(), [f"q{number}" for number in range(600)], now_ms=lambda: 1e12)

    def sampled(*, took_s: float) -> tuple[int, float]:
        """Return how many queues a slice has, and when the next one is due."""
        exchanges = sampler.sample_slice()
        calls = next(exchanges)
        if len(calls) == 1:  # the question whether another supervisor does it
            calls = exchanges.send([True])
        replies = get_client().run_many(calls)
        clock.now += took_s
        with pytest.raises(StopIteration) as end:
            exchanges.send(replies)
        clock.now += (pause_s := end.value.value)
        return len(calls), pause_s

    assert sampled(took_s=0.125) == (250, SLICE_EVERY_S - 0.125)
    assert sampled(took_s=1.0) == (250, 0.0)
    assert sampled(took_s=0.125) == (100, SAMPLE_EVERY_S - SLICE_EVERY_S - 1.0 - 0.125)
    assert sampled(took_s=20.0) == (250, 0.0)
