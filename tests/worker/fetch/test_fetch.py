"""What a fetch returns and notes: which messages, what is known of their past, the lease, and when to look again."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core.queue.pause import pause
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import consumer
from rsmq_django.worker.fetch.exchange import Fetched, FetchStep
from rsmq_django.worker.sources.queues import QueueSource
from tests.redis_server import PrivateServer
from tests.support import pass_time
from tests.worker.workshop import Configure, declare, new_worker

RECORD = "rsmq::worker:w-1"


def source_of(*queue_names: str) -> QueueSource:
    """Return the source of a worker that knows its queues, "w-1"."""
    for name in queue_names:
        ensure_queue(name)
    (source,) = new_worker(*queue_names, worker_id="w-1").sources
    assert isinstance(source, QueueSource)
    source.exchange(0)
    return source


def fetch(source: QueueSource, room: int = 10, *, at_most: int = 1000) -> Fetched:
    return get_client().run(FetchStep(source.fetch_parts, room, at_most).call)


def bodies(fetched: Fetched) -> list[tuple[int, list[bytes]]]:
    """Return what came from which queue, by position."""
    return [(portion.position, portion.bodies) for portion in fetched.portions]


def send(name: str, *sent: bytes, delay_s: float | None = None) -> list[str]:
    return ensure_queue(name).send_many(list(sent), delay_s=delay_s)


@pytest.fixture
def queues(configure: Configure) -> Configure:
    configure(a={"VISIBILITY_TIMEOUT_S": 200}, b={"VISIBILITY_TIMEOUT_S": 50}, c={})
    return configure


def test_messages_come_from_the_first_queue_first_and_then_from_the_next(queues: Configure):
    source = source_of("a", "b", "c")
    send("c", b"c1")
    send("b", b"b1", b"b2")
    send("a", b"a1")

    fetched = fetch(source, room=3)

    assert bodies(fetched) == [(1, [b"a1"]), (2, [b"b1", b"b2"])]
    assert fetched.next_ms == 0, "there may be more"
    assert bodies(fetch(source, room=3)) == [(3, [b"c1"])]


def test_long_messages_come_in_several_fetches_and_before_those_of_the_next_queue(configure: Configure):
    configure(a={"MAX_SIZE_BYTES": -1}, b={})
    source, sizes = source_of("a", "b"), [6_000_000, 10_000_000, 1, 16_000_000, 10]
    for size in sizes:
        send("a", b"a" * size)
    send("b", b"b")

    first, second = fetch(source), fetch(source)

    assert [[len(body) for _, found in bodies(each) for body in found] for each in (first, second)] == [
        [6_000_000, 10_000_000, 1],
        [16_000_000, 10, 1],
    ]
    assert first.next_ms == 0, "there is more"


def test_next_fetch_is_when_the_first_message_of_any_queue_becomes_visible(queues: Configure):
    source = source_of("a", "b", "c")
    assert fetch(source).next_ms == -1, "there is no message at all"
    send("a", b"later", delay_s=3000)
    send("b", b"soon", delay_s=1000)
    send("c", b"last", delay_s=5000)

    assert 900_000 < fetch(source).next_ms <= 1_000_000
    pass_time(get_queue("b"), seconds=1000)
    fetched = fetch(source)
    assert bodies(fetched) == [(2, [b"soon"])]
    assert 0 < fetched.next_ms <= 50_000, "its lease ends before the others become visible"


def test_paused_queue_gives_nothing_and_is_not_waited_for(queues: Configure):
    source = source_of("a", "b", "c")
    send("a", b"a1")
    send("c", b"c1")
    get_client().run(pause("rsmq", "a"))

    fetched = fetch(source)

    assert bodies(fetched) == [(3, [b"c1"])]
    assert fetched.next_ms > 0


def test_queues_that_cannot_be_read_are_returned_by_position(queues: Configure, server: PrivateServer):
    source = source_of("a", "b", "c")
    send("b", b"b1")
    for key in ("rsmq:a", "rsmq::released:c", "rsmq::paused"):
        server.redis.delete(key)
        server.redis.set(key, "of another program")
    send("c", b"c1")

    fetched = fetch(source)

    assert (fetched.unreadable, bodies(fetched)) == ([0, 1, 3], [(2, [b"b1"])])
    assert fetched.queue_count >= 3
    assert server.redis.hlen("rsmq:c:Q") > 0 and get_queue("c").attributes().ready_messages == 1


def test_number_of_queues_is_none_when_their_list_is_damaged(queues: Configure, server: PrivateServer):
    source = source_of("a")
    send("a", b"a1")
    server.redis.delete("rsmq:QUEUES")
    server.redis.set("rsmq:QUEUES", "of another program")

    fetched = fetch(source)

    assert (fetched.queue_count, bodies(fetched)) == (-1, [(1, [b"a1"])])


def test_record_of_leases_lists_fetched_messages_and_outlives_the_longest_lease(
    queues: Configure, server: PrivateServer
):
    source = source_of("a", "b")
    fetch(source)
    assert not server.redis.exists(RECORD)
    (again,) = send("a", b"again")
    get_queue("a").receive(visibility_timeout_s=0)
    (first, second), (third,) = send("a", b"1", b"2"), send("b", b"3")

    step = FetchStep(source.fetch_parts, 10, 1000)
    fetched = get_client().run(step.call)

    assert [portion.ids for portion in fetched.portions] == [[again, first, second], [third]]
    number = step._number
    assert server.redis.hgetall(RECORD) == {
        f"{number} a".encode(): f"\n{again} 2\n{first} 1\n{second} 1".encode(),
        f"{number} b".encode(): f"\n{third} 1".encode(),
    }
    assert 2_000_000 < server.redis.pttl(RECORD) <= 2_060_000


def test_lease_is_the_visibility_timeout_of_the_queue_but_at_least_a_second(
    configure: Configure, server: PrivateServer
):
    configure(a={"VISIBILITY_TIMEOUT_S": 200}, b={"VISIBILITY_TIMEOUT_S": 0})
    source = source_of("a", "b")
    (long,), (short,) = send("a", b"1"), send("b", b"2")

    now_ms = fetch(source).server_ms

    assert server.redis.zscore("rsmq:a", long) == now_ms + 200_000
    assert server.redis.zscore("rsmq:b", short) == now_ms + 1000


def test_queue_without_a_visibility_timeout_cannot_be_read_and_loses_nothing(queues: Configure, server: PrivateServer):
    source = source_of("a", "b")
    send("a", b"1")
    server.redis.hset("rsmq:a:Q", "vt", "soon")

    fetched = fetch(source)

    assert (fetched.unreadable, fetched.portions) == ([1], [])
    assert get_queue("a").attributes().ready_messages == 1


def test_past_of_a_message_comes_with_it(queues: Configure, server: PrivateServer):
    source = source_of("a")
    new, old, unknown = send("a", b"new", b"old", b"unknown")
    server.redis.zadd("rsmq:a", {new: 1, old: 2, unknown: 3})
    server.redis.hset("rsmq:a:Q", mapping={f"{old}:rc": 4, f"{old}:fr": 1234, f"{unknown}:rc": 1})
    server.redis.hset("rsmq::released:a", mapping={old: 2, f"{old}:crashes": 1, unknown: "many"})

    (portion,) = fetch(source).portions

    assert portion.ids == [new, old, unknown]
    assert portion.pasts == [-1, b"5 2 1 1234 -1", b"2 0 0  -1"], "their scores are not times of this century"
    assert server.redis.hget("rsmq:a:Q", f"{new}:fr") is not None


@pytest.mark.parametrize("stored", [b"99999999999998", b"99999999999999", b"100000000000000", b"1e400", b"nan"])
def test_receive_count_near_the_largest_number_is_read(queues: Configure, server: PrivateServer, stored: bytes):
    source = source_of("a")
    (message_id,) = send("a", b"body")
    server.redis.hset("rsmq:a:Q", f"{message_id}:rc", stored)

    source.fetch_now()
    (delivery,) = source.exchange(1)

    assert server.redis.hget("rsmq:a:Q", f"{message_id}:rc") == str(delivery.message.receive_count).encode()


def test_time_since_each_message_became_ready_is_returned(queues: Configure, server: PrivateServer):
    source = source_of("a")
    ids = send("a", b"1", b"2", b"3")
    seconds, _ = server.redis.time()
    server.redis.zadd("rsmq:a", {ids[0]: seconds * 1000 - 9000, ids[1]: seconds * 1000 - 9000, ids[2]: seconds * 1000})

    fetched = fetch(source)

    (portion,) = fetched.portions
    since = [fetched.server_ms - seconds * 1000 + more for more in (9000, 9000, 0)]
    assert dict(zip(portion.ids, portion.pasts, strict=True)) == dict(zip(ids, since, strict=True))


def test_batches_are_filled_up_to_the_number_of_messages_in_all(configure: Configure):
    configure(a={}, b={}, c={})
    consumer("a", batch=3)(lambda messages: None)
    consumer("b")(lambda message: None)
    consumer("c", batch=2)(lambda messages: None)
    send("a", *(b"%d" % number for number in range(12)))
    send("b", b"x", b"y")
    send("c", b"c1", b"c2", b"c3")
    source = source_of("a", "b", "c")

    assert bodies(fetch(source, room=1, at_most=100)) == [(1, [b"0", b"1", b"2"])]
    assert bodies(fetch(source, room=2, at_most=5)) == [(1, [b"3", b"4", b"5", b"6", b"7"])]
    assert bodies(fetch(source, room=3, at_most=100)) == [(1, [b"8", b"9", b"10", b"11"]), (2, [b"x"])]
    assert bodies(fetch(source, room=2, at_most=100)) == [(2, [b"y"]), (3, [b"c1", b"c2"])]


def test_next_fetch_is_at_once_when_there_was_no_room_for_more(configure: Configure):
    configure(a={}, b={})
    consumer("a", batch=3)(lambda messages: None)
    source = source_of("a", "b")
    send("b", b"later", delay_s=3000)

    send("a", b"2", b"3", b"4")
    assert fetch(source, room=1).next_ms == 0
    send("a", b"5", b"6")
    assert fetch(source, room=5, at_most=2).next_ms == 0


def test_record_of_leases_names_the_band_of_a_message(configure: Configure, server: PrivateServer):
    configure(a={})
    declare(queue_name="a", priority=7)(hello).enqueue()
    source = source_of("a")

    (portion,) = fetch(source).portions

    (field,) = server.redis.hkeys(RECORD)
    _, _, name = field.decode().partition(" ")
    assert name != "a"
    assert get_queue(name).attributes().messages == len(portion.ids) == 1


def hello() -> None: ...


def test_fetch_that_finds_nothing_does_not_shorten_the_life_of_the_record(queues: Configure, server: PrivateServer):
    source = source_of("a")
    send("a", b"1")
    fetch(source)

    assert fetch(source).portions == []

    assert server.redis.pttl(RECORD) > 1_000_000


@pytest.mark.parametrize(
    ("vt_unit", "stored", "lease_ms"), [("s", "7.5", 7500), ("ms", "7500", 7500), ("s", "0", 1000)]
)
def test_lease_is_in_the_unit_of_the_queue(
    configure: Configure, server: PrivateServer, vt_unit: str, stored: str, lease_ms: int
):
    options: dict[str, Any] = {"VT_UNIT": vt_unit} if vt_unit == "ms" else {}
    configure(a=options)
    source = source_of("a")
    (message_id,) = send("a", b"1")
    server.redis.hset("rsmq:a:Q", "vt", stored)

    assert fetch(source).server_ms + lease_ms == server.redis.zscore("rsmq:a", message_id)
