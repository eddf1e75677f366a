"""Retrying dead letters at a rate: each is due a step after the one before it, and can be returned before it is due."""

import json
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import BrokenQueue, InvalidValue
from rsmq_django.core.keys import retries_key
from rsmq_django.core.queue.browse import StoredMessage, page
from rsmq_django.core.queue.moves import move
from rsmq_django.core.queue.retry_plans import (
    PART,
    RetryPlan,
    begin,
    cancel,
    each_part,
    go_on,
    plans_of,
    read_plan,
    return_part,
    settle_part,
)
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer


@pytest.fixture
def home(client: Client) -> Queue:
    """The queue that the dead letters came from."""
    home = Queue("home", client)
    home.create()
    return home


def bury(server: PrivateServer, dead: Queue, number: int, **fields: Any) -> list[str]:
    """Have dead letters that each have a result record."""
    ids = dead.send_many([f"letter {at}".encode() for at in range(number)])
    for at, message_id in enumerate(ids):
        record = {
            "reason": "gave_up",
            "queue": "home",
            "task": "shop.pay",
            "task_id": f"t{at}",
            "traceback": "T" * 500,
        }
        server.redis.hset(f"rsmq::dead:{dead.name}", message_id, json.dumps(record | {"died_ms": 1e12, **fields}))
        result = {"status": "FAILED", "queue": "home", "message": message_id, "finished_ms": 1000000000000}
        server.redis.hset(f"rsmq::result:t{at}", mapping=result)
    return ids


def stored(queue: Queue) -> list[StoredMessage]:
    return queue.client.run(page("rsmq", queue.name, count=1000, body_bytes=100, with_failures=True)).messages


def planned(dead: Queue, *, rate: float = 10, limit: int | None = None, sends: bool = True) -> str:
    plan_id = begin(dead.client, dead.name, rate=rate, to_look_at=dead.attributes().messages, limit=limit)
    for _plan in go_on(dead.client, plan_id, lambda message: True) if sends else ():
        pass
    return plan_id


def now(client: Client, plan_id: str) -> RetryPlan:
    plan = read_plan(client, plan_id)
    assert plan is not None
    for _count in each_part(settle_part, client, plan):
        pass
    found = read_plan(client, plan_id)
    assert found is not None
    return found


def pass_time(server: PrivateServer, plan_id: str, *queues: Queue, seconds: float) -> None:
    """Let time pass for the messages of a plan, by moving when they are due."""
    for key in (f"rsmq::retry:{plan_id}:open", *(f"rsmq:{queue.name}" for queue in queues)):
        for member, _score in server.redis.zrange(key, 0, -1, withscores=True):
            server.redis.zincrby(key, -seconds * 1000, member)


def test_each_message_is_due_a_step_after_the_one_before_it(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    bury(server, queue, 600)

    plan = now(client, planned(queue, rate=4))

    due = sorted(message.visible_at_ms for message in stored(home))
    assert {round(later - earlier) for earlier, later in zip(due, due[1:], strict=False)} == {250}
    assert [message.body for message in stored(home)] == [b"letter %d" % at for at in range(600)], "in their order"
    assert (plan.state, plan.sent, plan.looked_at, queue.attributes().messages) == ("sent", 600, 600, 0)
    assert 0 < plan.left_s < 150


def test_a_rate_continues_in_the_next_part(client: Client, queue: Queue, home: Queue, server: PrivateServer):
    bury(server, queue, 3)
    plan_id = planned(queue, rate=0.01, sends=False)
    for at in range(3):
        only = f"letter {at}".encode()
        (found,) = [message for message in stored(queue) if message.body == only]
        server.redis.hdel(f"rsmq::retry:{plan_id}", "score", "message", "looked_at")
        server.redis.hset(f"rsmq::retry:{plan_id}", "state", "sending")
        for _plan in go_on(client, plan_id, lambda message: message.id == found.id):  # noqa: B023
            pass

    due = [message.visible_at_ms for message in stored(home)]
    assert [round((each - due[0]) / 1000) for each in due] == [0, 100, 200]


def test_only_matching_dead_letters_from_before_the_plan_are_sent(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    ids = bury(server, queue, 5)
    plan_id = planned(queue, sends=False)
    (late,) = bury(server, queue, 1)
    server.redis.zadd("rsmq:jobs", {late: 9e12})

    for _plan in go_on(client, plan_id, lambda message: message.id != ids[2]):
        pass

    assert {message.id for message in stored(queue)} == {ids[2], late}
    assert now(client, plan_id).sent == 4


def test_a_probe_sends_one(client: Client, queue: Queue, home: Queue, server: PrivateServer):
    bury(server, queue, 5)

    plan = now(client, planned(queue, limit=1))

    assert plan.is_probe and (plan.sent, plan.state, home.attributes().ready_messages) == (1, "sent", 1)
    assert queue.attributes().messages == 4


def test_plan_that_has_sent_its_limit_looks_at_no_further_page(
    client: Client, queue: Queue, home: Queue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.core.queue.retry_plans.MAX_BATCH", 2)
    bury(server, queue, 7)

    (plan,) = go_on(client, planned(queue, limit=2, sends=False), lambda message: True)

    assert (plan.state, plan.sent, plan.looked_at) == ("sent", 2, 2)
    assert home.attributes().messages == 2


def test_two_that_continue_with_a_plan_send_nothing_twice(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    bury(server, queue, 5)
    plan_id = planned(queue, limit=3, sends=False)

    first = go_on(client, plan_id, lambda message: True)
    second = go_on(client, plan_id, lambda message: True)
    assert [len(list(first)), len(list(second))] == [1, 0]

    assert len(stored(home)) == 3 and now(client, plan_id).sent == 3


def test_a_reply_that_is_lost_loses_no_message_and_doubles_none(
    queue: Queue, home: Queue, server: PrivateServer, proxy: FaultProxy
):
    bury(server, queue, 20)
    broken = Client(Connection(proxy.url, timeout_s=5), namespace="rsmq")
    plan_id = begin(broken, "jobs", rate=1, to_look_at=20)
    proxy.lose_reply_to(b":records")

    for _plan in go_on(broken, plan_id, lambda message: True):
        pass

    assert sorted(message.body for message in stored(home)) == sorted(b"letter %d" % at for at in range(20))
    assert now(queue.client, plan_id).sent == 20 and queue.attributes().messages == 0


def test_how_messages_ended_is_counted_once(client: Client, queue: Queue, home: Queue, server: PrivateServer):
    bury(server, queue, 5)
    plan_id = planned(queue, rate=1000)
    pass_time(server, plan_id, home, seconds=10)
    new = [message.id for message in stored(home)]
    server.redis.hset("rsmq::result:t0", "status", "SUCCESSFUL")
    server.redis.hset("rsmq::result:t1", "status", "FAILED")
    server.redis.hset("rsmq::dead:jobs", new[2], "{}")
    for message_id in new[:4]:
        home.delete(message_id)

    for _again in range(2):
        plan = now(client, plan_id)
        assert (plan.succeeded, plan.failed, plan.unknown, plan.open) == (1, 2, 1, 1)
    assert plan.failed_id in new[1:3] and not plan.is_finished


def test_messages_that_are_not_due_become_the_same_dead_letters_again(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    bury(server, queue, PART + 10)
    before = {message.body: (message.failure_json, message.visible_at_ms) for message in stored(queue)}
    results = {name: server.redis.hgetall(name) for name in server.redis.keys("rsmq::result:*")}
    plan_id = planned(queue, rate=0.01)
    pass_time(server, plan_id, home, seconds=450)
    taken = home.receive()
    assert taken is not None

    cancel(client, plan_id)
    plan = now(client, plan_id)
    returned = sum(each_part(return_part, client, plan))

    left = {message.body for message in stored(home)}
    assert len(left) == 5 and returned == PART + 5
    after = {message.body: (message.failure_json, message.visible_at_ms) for message in stored(queue)}
    assert after == {body: before[body] for body in before if body not in left}
    assert home.attributes().hidden_messages == 1 and now(client, plan_id).returned == returned
    for message in stored(queue):
        name = f"rsmq::result:{message.failure().task_id}".encode()  # type: ignore[union-attr]
        assert server.redis.hgetall(name) == results[name] | {b"message": message.id.encode()}
    assert len(server.redis.hgetall("rsmq::released:home")) == 10, "nothing is left of those that went"


def test_a_plan_that_was_cancelled_sends_nothing_more(client: Client, queue: Queue, home: Queue, server: PrivateServer):
    bury(server, queue, 5)
    plan_id = planned(queue, sends=False)
    cancel(client, plan_id)

    assert list(go_on(client, plan_id, lambda message: True)) == []
    assert queue.attributes().messages == 5 and now(client, plan_id).is_finished


def test_a_message_that_was_received_or_rescheduled_stays_where_it_is(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    bury(server, queue, 3)
    plan_id = planned(queue, rate=0.01)
    _first, second, third = [message.id for message in stored(home)]
    server.redis.zincrby("rsmq:home", 1, second)
    cancel(client, plan_id)

    assert sum(each_part(return_part, client, now(client, plan_id))) == 1
    assert [message.body for message in stored(queue)] == [b"letter 2"] and third


def test_plans_of_a_queue_are_listed_and_expire(client: Client, queue: Queue, home: Queue, server: PrivateServer):
    bury(server, queue, 2)
    first, second = planned(queue, limit=1), planned(queue, rate=0.001)

    server.redis.zincrby(retries_key("rsmq", "jobs"), -1, first)  # both may have been made in one millisecond
    assert [plan.id for plan in plans_of(client, "jobs")] == [second, first]
    assert plans_of(client, "home") == [] and read_plan(client, "none") is None
    for key in server.redis.keys("rsmq::retr*"):
        assert 7 * 86_400 - 100 <= server.redis.ttl(key) <= 7 * 86_400 + 1000, key


def test_results_and_the_list_of_plans_are_kept_a_week_longer_than_the_last_message_takes_to_be_due(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    bury(server, queue, 1001)
    week_s = 7 * 86_400

    planned(queue, rate=0.001)
    planned(queue, limit=1, sends=False)

    last_s = 1000 * 1000
    for key in ("rsmq::result:t1000", retries_key("rsmq", "jobs")):
        assert week_s + last_s - 100 <= server.redis.ttl(key) <= week_s + last_s + 1000, key
    assert week_s - 100 <= server.redis.ttl("rsmq::result:t0") <= week_s


@pytest.mark.parametrize("rate", [0, -1, 1e6, float("nan")])
def test_a_rate_that_cannot_be_is_refused(client: Client, queue: Queue, rate: float):
    with pytest.raises(InvalidValue, match="messages a second"):
        begin(client, "jobs", rate=rate, to_look_at=1)


def test_dead_letter_that_names_no_possible_task_does_not_block_the_others(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    ids = bury(server, queue, 3)
    record = json.loads(server.redis.hget(f"rsmq::dead:{queue.name}", ids[1]))
    server.redis.hset(f"rsmq::dead:{queue.name}", ids[1], json.dumps(record | {"task_id": "\ud800"}))

    plan_id = planned(queue, rate=1)
    plan = now(client, plan_id)
    cancel(client, plan_id)
    returned = sum(each_part(return_part, client, plan))

    assert (plan.sent, returned) == (3, 2)


def test_result_of_a_message_that_is_moved_goes_with_it(
    client: Client, queue: Queue, home: Queue, server: PrivateServer
):
    bury(server, queue, 1, task_id="A" * 22)
    server.redis.rename("rsmq::result:t0", f"rsmq::result:{'A' * 22}")
    other = Queue("other", client)
    other.create()
    planned(queue)

    client.run(move("rsmq", "home", "other", stored(home)))

    record = server.redis.hgetall(f"rsmq::result:{'A' * 22}")
    assert (record[b"queue"], record[b"message"]) == (b"other", stored(other)[0].id.encode())


def test_probe_of_a_missing_queue_reports_that(client: Client, queue: Queue, server: PrivateServer):
    bury(server, queue, 1)  # from "home", which nobody has created

    plan = read_plan(client, planned(queue, limit=1))

    assert plan is not None and (plan.sent, plan.missing, plan.is_finished) == (0, 1, True)
    assert len(stored(queue)) == 1


@pytest.mark.parametrize("forged", ["", "many", "nan", "inf", "-inf", "1e400", "-3", "9" * 400])
@pytest.mark.parametrize("field", ["sent", "gap_ms", "next_ms"])
def test_numbers_of_a_plan_that_another_program_wrote_do_not_stop_it(
    client: Client, queue: Queue, home: Queue, server: PrivateServer, field: str, forged: str
):
    bury(server, queue, 3)
    plan_id = planned(queue, limit=1000, sends=False)
    server.redis.hset(f"rsmq::retry:{plan_id}", field, forged)

    plans = list(go_on(client, plan_id, lambda message: True))

    assert (plans[-1].state, plans[-1].sent, home.attributes().messages) == ("sent", 3, 3)
    assert server.redis.ttl(f"rsmq::retry:{plan_id}:open") > 0


@pytest.mark.parametrize("forged", ["", "many", "nan", "9" * 400])
def test_an_unreadable_limit_of_a_plan_counts_as_no_limit(
    client: Client, queue: Queue, home: Queue, server: PrivateServer, forged: str
):
    bury(server, queue, 3)
    plan_id = planned(queue, limit=1, sends=False)
    server.redis.hset(f"rsmq::retry:{plan_id}", "limit", forged)

    plans = list(go_on(client, plan_id, lambda message: True))

    assert (plans[-1].state, plans[-1].sent) == ("sent", 3)


@pytest.mark.parametrize("part", ["buried", "buried:Q", ":dead:buried", ":released:buried", ":released:home"])
def test_nothing_is_lost_when_a_queue_is_damaged_before_messages_of_a_plan_return(
    client: Client, home: Queue, server: PrivateServer, part: str
):
    dead = Queue("buried", client)
    dead.create()
    bury(server, dead, 2)
    plan_id = planned(dead, rate=0.01)
    cancel(client, plan_id)
    before = [message.body for message in stored(home)]
    plan = read_plan(client, plan_id)
    assert plan is not None and len(before) == 2
    server.redis.delete(f"rsmq:{part}")
    server.redis.set(f"rsmq:{part}", "of another program")

    with pytest.raises(BrokenQueue):
        return_part(client, plan)

    assert [message.body for message in stored(home)] == before
    assert server.redis.zcard(f"rsmq::retry:{plan_id}:open") == plan.open
