"""What is logged without a setting: failures, and the last successes of each task within a bound of memory."""

import json
import time
from typing import Any

import pytest

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.keys import successes_key
from rsmq_django.core.stats.events import append
from rsmq_django.core.stats.run_filter import RunFilter
from rsmq_django.core.stats.run_search import MOST_TASKS
from rsmq_django.core.stats.runs import find_runs, read_run
from rsmq_django.queues import get_client
from rsmq_django.worker.report import event_log as recent_successes
from rsmq_django.worker.report.event_log import KEPT, MOST_A_SECOND, MOST_TAGS, RecentSuccesses
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, send_raw, work

LINE = "{task}\n" + "i" * 32 + "\n" + "m" * 42 + "\n1\n1795000000000\n1500\n250\n47"


def found(**wanted: Any) -> list[tuple[str, str]]:
    return [(run.task_id, run.kind) for run in find_runs(get_client(), RunFilter(**wanted)).runs]


@pytest.mark.parametrize("result_ttl_s", [0, 60], ids=["without result", "with result"])
def test_runs_are_found_without_any_setting(project: Configure, result_ttl_s: int):
    def pay(amount: int) -> None:
        if amount < 0:
            raise ValueError("no debts")

    each = declare(max_attempts=1, result_ttl_s=result_ttl_s)(pay)
    good = each.enqueue(1)
    work()
    bad = each.enqueue(-1)
    work()

    assert found() == [(bad.id, "dead"), (good.id, "succeeded")]
    assert found(kinds=frozenset({"succeeded"}), task=each.module_path) == [(good.id, "succeeded")]
    assert found(kinds=frozenset({"dead"})) == [(bad.id, "dead")]
    run = find_runs(get_client(), RunFilter(task_id=good.id)).runs[0]
    assert (run.queue, run.attempt) == ("default", 1)
    assert run.run_us is not None
    assert read_run(get_client(), run.entry_id, task=run.task) == run


def test_tags_of_a_call_are_in_its_events(project: Configure):
    tagged = declare(tags=["tour 7", "sea"])(lambda: None).enqueue()
    declare(lambda: None).enqueue()

    work()

    assert found(tag="tour 7") == found(tag="sea") == [(tagged.id, "succeeded")]
    (run,) = find_runs(get_client(), RunFilter(tag="sea")).runs
    assert (run.tags, run.body_bytes is not None, run.error) == (("tour 7", "sea"), True, "")


def test_busy_task_does_not_push_out_the_successes_of_a_rare_one(project: Configure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recent_successes, "MOST_A_SECOND", 1000)

    def nightly() -> None:
        pass

    rare = declare(nightly).enqueue()
    work()
    busy = declare(lambda number: None)
    ids = busy.enqueue_many([[number] for number in range(300)])

    work(threads=1)

    kept = found(task=busy.module_path, kinds=frozenset({"succeeded"}))
    runs = find_runs(get_client(), count=500).runs
    assert (rare.id, "succeeded") in [(run.task_id, run.kind) for run in runs]
    assert kept[:KEPT] == [(each, "succeeded") for each in reversed(ids[-KEPT:])]
    assert len(runs) <= 1 + KEPT + 100, "the server cuts whole blocks of a hundred at most"


def test_fast_task_is_sampled_and_all_of_its_messages_are_settled(project: Configure, server: PrivateServer):
    recent = RecentSuccesses("rsmq")
    recent.turn(5.0)
    taken = [recent.takes("shop.fast") for _ in range(100)]
    recent.turn(5.5)
    taken += [recent.takes("shop.fast")]
    recent.turn(6.0)
    taken += [recent.takes("shop.fast")]

    assert taken == [True] * MOST_A_SECOND + [False] * (101 - MOST_A_SECOND) + [True]


def test_member_of_a_workflow_is_found_too(project: Configure):
    from rsmq_django.tasks import call, chain

    each = declare(lambda *given: None)
    chain(call(each), call(each)).enqueue()

    work()

    assert [kind for _, kind in found(task=each.module_path)] == ["succeeded", "succeeded"]


def test_memory_is_bounded_for_any_names_of_tasks(project: Configure, server: PrivateServer):
    client, recent = get_client(), RecentSuccesses("rsmq")
    for number in range(20_000):
        path = f"shop.tasks.forged_{number}"
        recent.turn(number / 1000)
        if recent.takes(path):
            words = (LINE.format(task=path), "default", "web1-77-abcdefgh", "\n", KEPT, 5)
            client.run(append("rsmq", "succeeded", words, log=successes_key("rsmq", path)))
        if number % 100 == 99:
            recent.carry_out(client)
            recent.carry_out(client)
    line = LINE.format(task="shop.tasks.forged_7")
    for _ in range(10):
        many = (*[line] * 100, "default", "web1-77-abcdefgh", "\n", KEPT, 104)
        client.run(append("rsmq", "succeeded", many, log=successes_key("rsmq", "shop.tasks.forged_7")))

    streams = server.redis.keys("rsmq::events:succeeded:*")
    assert len(streams) == server.redis.zcard("rsmq::events:tasks") == MOST_TASKS
    longest = server.redis.xlen(successes_key("rsmq", "shop.tasks.forged_7"))
    assert KEPT <= longest <= KEPT + 100
    bytes_of_one = server.redis.memory_usage(successes_key("rsmq", "shop.tasks.forged_7"), samples=0)
    assert bytes_of_one * MOST_TASKS <= 16_000_000


def test_task_that_has_not_succeeded_for_long_gives_way(project: Configure, server: PrivateServer):
    client, recent = get_client(), RecentSuccesses("rsmq")
    server.redis.zadd("rsmq::events:tasks", {f"shop.old_{number}": 1000 + number for number in range(MOST_TASKS)})
    server.redis.xadd(successes_key("rsmq", "shop.old_0"), {"v": "succeeded"})

    recent.turn(0.0)
    assert recent.takes("shop.new")
    recent.carry_out(client)
    recent.carry_out(client)

    assert server.redis.zscore("rsmq::events:tasks", "shop.new") is not None
    assert server.redis.zcard("rsmq::events:tasks") == MOST_TASKS
    assert not server.redis.exists(successes_key("rsmq", "shop.old_0"))


def test_arguments_of_an_encrypted_queue_are_in_no_key_of_the_log(project: Configure, server: PrivateServer):
    key = "b25seSBmb3IgdGhlc2UgYmVuY2htYXJrcywgcmVhbGw="
    project(default={"ENCRYPTION_KEYS": [key]})
    result = declare(lambda card: None).enqueue(card="hunter2")

    work()

    assert found(task_id=result.id) == [(result.id, "succeeded")]
    assert found(words=("hunter2",)) == []
    stored = [server.redis.xrange(key) for key in server.redis.keys("rsmq::events*") if key != b"rsmq::events:tasks"]
    assert "hunter" not in str(stored)


def test_search_finds_arguments_of_calls_whose_result_is_kept(project: Configure):
    each = declare(result_ttl_s=60)(lambda order: None)
    seven, eight = each.enqueue(order="A-7"), each.enqueue(order="A-8")

    work()

    assert found(words=("a-7",)) == [(seven.id, "succeeded")]
    assert found(words=("a-7",), in_arguments=False) == []
    assert {task_id for task_id, _ in found(words=("order",))} == {seven.id, eight.id}


def test_successes_are_found_again_after_the_server_has_lost_its_data(project: Configure, server: PrivateServer):
    client, recent = get_client(), RecentSuccesses("rsmq")
    begin = time.monotonic()
    recent.turn(begin)
    assert recent.takes("shop.nightly")
    recent.carry_out(client)
    server.redis.delete("rsmq::events:tasks")

    recent.turn(begin + 100)
    assert recent.takes("shop.nightly")
    assert recent.steps() == [], "nothing is asked most of the time"
    recent.turn(begin + 310)
    assert recent.takes("shop.nightly")
    recent.carry_out(client)

    assert server.redis.zscore("rsmq::events:tasks", "shop.nightly") is not None


def test_stream_of_a_task_that_gave_way_is_removed_after_an_outage(project: Configure, server: PrivateServer):
    client, recent = get_client(), RecentSuccesses("rsmq")
    server.redis.zadd("rsmq::events:tasks", {f"shop.old_{number}": 1000 + number for number in range(MOST_TASKS)})
    server.redis.xadd(successes_key("rsmq", "shop.old_0"), {"v": "succeeded"})
    recent.turn(0.0)
    assert recent.takes("shop.new")
    recent.carry_out(client)

    for step in recent.steps():
        step.failed(ConnectionFailed("the server is gone"))
    recent.carry_out(client)

    assert not server.redis.exists(successes_key("rsmq", "shop.old_0"))


def test_event_of_a_message_with_very_many_tags_stays_small(project: Configure):
    each = declare(lambda: None)
    tags = [f"{number:0100}" for number in range(500)]
    send_raw(json.dumps({"task": each.module_path, "id": "many", "args": [], "kwargs": {}, "meta": {"tags": tags}}))

    work()

    (run,) = find_runs(get_client()).runs
    assert (run.kind, run.tags) == ("succeeded", tuple(tags[:MOST_TAGS]))
