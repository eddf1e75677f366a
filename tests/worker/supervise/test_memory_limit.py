"""At its memory limit the server refuses what stores more, whole; all that ends, gives back and moves on goes on.

Each scenario goes through one part of the package, while every call is made at the limit, too (tests/memory_limit.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rsmq_django import schedules
from rsmq_django.core.keys import worker_key, workers_key
from rsmq_django.core.queue.browse import page
from rsmq_django.core.queue.moves import discard, move, purge, redrive, remove, reschedule
from rsmq_django.core.queue.pause import pause, resume
from rsmq_django.core.queue.replies import read_nothing
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.tasks.outbox import RelayItem, confirm, keep_back, relay
from rsmq_django.core.tasks.processes import describe, give_order
from rsmq_django.core.topic import Bridge, Retention, Topic
from rsmq_django.core.transport.call import Call
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import Concurrency, Rate, Unique, call, cancel, cancel_tagged, chain, fixed, group, map_tasks
from rsmq_django.worker.lease.inflight import heartbeat_call
from tests.core.tasks.test_processes import RECORD
from tests.memory_limit import looked_at
from tests.redis_server import PrivateServer
from tests.tasks.schedules import let_pass, new_scheduler
from tests.worker.workshop import Configure, declare, send_raw, work

#: What only stores more; nobody is held up when it is refused but who wants to store more.
MAY_BE_REFUSED = {
    "stats/events/enter",
    "tasks/outbox/cancel",
    "tasks/outbox/confirm",
    "tasks/outbox/relay",
    "queue/create",
    "queue/send",
    "queue/set_attributes",
    "reliable/push",
    "tasks/schedule/fire",
    "tasks/schedule/put",
    "tasks/enqueue",
    "tasks/enqueue_unique",
    "topic/publish",
    "tasks/worker/provision",
    "topic/configure",
    "tasks/workflow/create",
    "tasks/workflow/expect",
    "tasks/workflow/prepare",
    "tasks/workflow/seal",
    "tasks/workflow/start",
}


def a_queue() -> None:
    queue = get_queue("default")
    queue.send_many([b"a"] * 5)
    first, second = queue.receive(), queue.receive_many(1)[0]
    queue.change_visibility(second, 0)
    queue.delete(first)
    queue.pop()
    queue.delete_many(queue.receive_many(5))
    queue.set_attributes(delay_s=0)
    queue.delete_queue()


def messages_that_are_moved() -> None:
    client, ids = get_client(), get_queue("default").send_many([b"a"] * 5)
    ensure_queue("default-dead")
    seen = client.run(page("rsmq", "default", count=5)).messages
    client.run(move("rsmq", "default", "default-dead", seen[:1]))
    client.run(redrive("rsmq", "default", "default-dead", seen[1:2]))
    client.run(reschedule("rsmq", "default", seen[2:3], 5))
    client.run(remove("rsmq", "default", seen[2:3]))
    client.run(discard("rsmq", "default", ids[3:4]))
    purge(client, "default")


def tasks_that_end_in_every_way() -> None:
    def fails() -> None:
        raise OSError

    def returns_nothing() -> None:
        pass

    declare(result_ttl_s=0)(returns_twice).enqueue_many([[1], [2]])
    declare(returns_nothing).enqueue()
    declare(max_attempts=2, backoff=fixed(0))(fails).enqueue()
    send_raw(b"not from here")
    work()


def returns_twice(number: int) -> int:
    return 2 * number


def tasks_with_limits() -> None:
    declare(limits=[Concurrency(1), Rate(50, per_s=1)])(returns_twice).enqueue_many([[n] for n in range(4)])
    work(threads=3)


def tasks_that_are_unique_or_cancelled() -> None:
    painting = declare(unique=Unique(), tags=["colours"])(returns_twice)
    painting.enqueue(1)
    painting.enqueue(1)
    cancel(painting.enqueue(2).id)
    cancel_tagged("colours")
    painting.enqueue(1)
    work()


def workflows() -> None:
    def follows(*_: object) -> None:
        pass

    double, after = declare(max_attempts=1)(returns_twice), declare(follows)
    group([call(double, 1), call(double, 2)], then=call(after)).enqueue()
    chain(call(double, 1), call(double)).enqueue()
    map_tasks(double, [1, 2, None], on_failure=call(after))
    group([call(double, 1), call(double, 2)]).enqueue().cancel()
    work()


def schedules_that_come_and_go(server: PrivateServer) -> None:
    declare(returns_twice)
    schedules.add("hourly", f"{__name__}.returns_twice", every_s=3600, args=[1])
    let_pass(server, "hourly", seconds=5 * 3600)
    new_scheduler().fire_due()
    schedules.pause("hourly")
    schedules.resume("hourly")
    schedules.remove("hourly")


def a_topic() -> None:
    topic = Topic("orders", get_client())
    topic.publish(*"abc", key="k", headers={"a": "b"})
    topic.set_retention(Retention(max_count=100))
    topic.group("plain").read(2)
    careful = topic.group("careful", at_least_once=True, max_deliveries=1)
    batch = careful.read(2)
    careful.ack(batch.messages[:1])
    careful.retry(batch.messages[1:])
    assert careful.read(5).dead_lettered == 1
    topic.client.run(careful.beat_call())
    careful.seek("earliest", force=True)
    careful.leave()
    Bridge(topic.group("bridge"), get_queue("default")).forward()
    topic.compact()
    topic.trim(keep=0)
    careful.drop()


def a_reliable_queue() -> None:
    jobs, other = ReliableQueue("jobs", get_client()), ReliableQueue("other", get_client())
    jobs.configure(max_deliveries=3)
    jobs.push(*"abcdef")
    first, second, third, fourth = jobs.pop_messages(4)
    jobs.extend(first, seconds=60)
    jobs.ack(first)
    jobs.nack(second)
    jobs.bury(third, fourth)
    jobs.discard(third.id)
    jobs.redrive(count=1)
    jobs.pop(1)
    jobs.recover(5, 0)
    jobs.move(other, *(message.id for message in jobs.messages("undelivered")), kind="undelivered")
    jobs.delete_queue()


def everything_around() -> None:
    client, queue = get_client(), ensure_queue("default")
    client.run(pause("rsmq", "default"))
    client.run(resume("rsmq", "default"))
    client.run(heartbeat_call(client, ["w1"]))
    client.run(give_order("rsmq", "w1", "stop"))
    client.run(describe("rsmq", "w1", RECORD))
    client.run(Call("tasks/worker/forget", (workers_key("rsmq"), worker_key("rsmq", "w1")), ("w1",), read_nothing))
    items = [RelayItem("a" * 22, b"{}", 0, True)]
    client.run(relay("rsmq", queue.keys, "default", items, channel="c", record_ttl_s=60))
    client.run(confirm("rsmq", ["a" * 22]))
    client.run(keep_back("rsmq", "b" * 22, queue_name="default", error="[]", body=b"{}", keep_s=60))


SCENARIOS = {
    a_queue: "queue/change_visibility queue/delete queue/delete_queue queue/pop queue/receive",
    messages_that_are_moved: "queue/moves/discard queue/moves/foreign_fields queue/moves/move queue/moves/purge "
    "queue/moves/redrive queue/moves/remove queue/moves/reschedule",
    tasks_that_end_in_every_way: "tasks/worker/bury tasks/worker/fetch tasks/worker/keep_results tasks/worker/retry "
    "tasks/worker/succeed",
    tasks_with_limits: "tasks/limits/free tasks/limits/take",
    tasks_that_are_unique_or_cancelled: "tasks/cancel tasks/tag tasks/unlock tasks/untag_ended",
    workflows: "tasks/worker/bury tasks/worker/keep_results tasks/workflow/stop",
    schedules_that_come_and_go: "tasks/schedule/pause tasks/schedule/plan tasks/schedule/remove",
    a_topic: "topic/ack topic/beat topic/compact topic/drop_group topic/forward topic/lease topic/read topic/retry "
    "topic/seek topic/sweep",
    a_reliable_queue: "ack bury configure delete_queue discard extend move nack pop recover redrive",
    everything_around: "queue/pause/pause queue/pause/resume tasks/worker/beat tasks/worker/describe "
    "tasks/worker/forget tasks/worker/order",
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scripts_do_all_or_nothing_and_refuse_only_writes_at_the_memory_limit(
    project: Configure, server: PrivateServer, scenario: Callable[..., None]
):
    ensure_queue("default")
    with looked_at(server) as limit:
        scenario(*[server] * scenario.__code__.co_argcount)

    room = "reliable/" if scenario is a_reliable_queue else ""
    assert limit.refused <= MAY_BE_REFUSED
    assert {room + script for script in SCENARIOS[scenario].split()} <= limit.worked
