"""Receiving and popping: order, visibility timeout, and damaged messages."""

import pytest

from rsmq_django.core import Client, Message, Queue
from rsmq_django.core.errors import InvalidValue, QueueNotFound
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until


def test_empty_queue_gives_none(queue: Queue):
    assert queue.receive() is None
    assert queue.receive_many(10) == []
    assert queue.pop() is None


def test_received_message_is_hidden_until_its_visibility_timeout_passes(queue: Queue):
    queue.send(b"invoice 7")
    first = queue.receive(visibility_timeout_s=30)
    assert first is not None
    assert queue.receive() is None

    pass_time(queue, seconds=31)

    again = queue.receive()
    assert again is not None
    assert (again.id, again.body, again.receive_count) == (first.id, b"invoice 7", 2)


def test_visibility_timeout_of_the_queue_is_the_default(client: Client):
    queue = Queue("patient", client)
    queue.create(visibility_timeout_s=100)
    queue.send(b"x")
    queue.receive()

    pass_time(queue, seconds=99)
    assert queue.receive() is None

    pass_time(queue, seconds=2)
    assert queue.receive() is not None


def test_time_of_the_first_receive_never_changes(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    before_s, before_us = server.redis.time()
    first = queue.receive(visibility_timeout_s=0)
    after_s, after_us = server.redis.time()
    wait_until(lambda: server.redis.time() > (after_s, after_us + 2000) or server.redis.time()[0] > after_s)

    again = queue.receive()

    assert first is not None and again is not None and first.first_received_ms is not None
    assert before_s * 1000 + before_us // 1000 <= first.first_received_ms <= after_s * 1000 + after_us // 1000
    assert again.first_received_ms == first.first_received_ms


def test_receive_writes_exactly_the_format(server: PrivateServer, queue: Queue):
    message_id = queue.send(b"x")
    before = set(server.redis.hkeys("rsmq:jobs:Q"))

    message = queue.receive()

    assert message is not None
    new_fields = set(server.redis.hkeys("rsmq:jobs:Q")) - before
    assert new_fields == {f"{message_id}:rc".encode(), f"{message_id}:fr".encode(), b"totalrecv"}
    assert server.redis.hget("rsmq:jobs:Q", f"{message_id}:rc") == b"1"
    assert server.redis.hget("rsmq:jobs:Q", f"{message_id}:fr") == str(message.first_received_ms).encode()


@pytest.mark.parametrize(("stored", "count", "has_first_receive"), [(b"0", 1, True), (b"2", 3, False)])
def test_time_of_the_first_receive_is_stored_with_a_counter_that_begins_at_zero(
    server: PrivateServer, queue: Queue, stored: bytes, count: int, has_first_receive: bool
):
    message_id = queue.send(b"x")
    server.redis.hset("rsmq:jobs:Q", f"{message_id}:rc", stored)  # another program has counted, without a time

    message = queue.receive()

    assert message is not None and message.receive_count == count
    assert (message.first_received_ms is not None) == has_first_receive
    assert server.redis.hexists("rsmq:jobs:Q", f"{message_id}:fr") == has_first_receive


def test_score_of_a_received_message_is_the_end_of_its_lease(server: PrivateServer, queue: Queue):
    queue.send(b"x")

    message = queue.receive(visibility_timeout_s=30)

    assert message is not None and message.first_received_ms is not None
    assert server.redis.zscore("rsmq:jobs", message.id) == message.first_received_ms + 30_000


def test_visibility_timeout_below_a_second_moves_only_the_score(server: PrivateServer, queue: Queue):
    queue.send(b"x")

    message = queue.receive(visibility_timeout_s=0.25)

    assert message is not None and message.first_received_ms is not None
    assert server.redis.zscore("rsmq:jobs", message.id) == message.first_received_ms + 250
    assert server.redis.hget("rsmq:jobs:Q", "vt") == b"30"


def test_message_leased_for_a_fraction_of_a_second_becomes_ready_again(queue: Queue):
    queue.send(b"x")
    queue.receive(visibility_timeout_s=0.05)

    assert wait_until(queue.receive).receive_count == 2


def test_visibility_timeout_of_zero_leaves_the_message_visible(queue: Queue):
    queue.send(b"x")

    counts = [message.receive_count for _ in range(3) if (message := queue.receive(visibility_timeout_s=0))]

    assert counts == [1, 2, 3]


def test_batch_with_a_visibility_timeout_of_zero_gives_each_message_once(queue: Queue):
    queue.send_many([b"a", b"b", b"c"])

    received = queue.receive_many(10, visibility_timeout_s=0)

    assert [message.body for message in received] == [b"a", b"b", b"c"]


def test_longest_visibility_timeout_does_not_overflow(server: PrivateServer, queue: Queue):
    queue.send(b"x")

    message = queue.receive(visibility_timeout_s=9_999_999)

    assert message is not None and message.first_received_ms is not None
    assert server.redis.zscore("rsmq:jobs", message.id) == message.first_received_ms + 9_999_999_000


def test_batch_has_up_to_the_requested_number_of_messages_oldest_first(queue: Queue):
    ids = queue.send_many([b"x"] * 5)

    assert [message.id for message in queue.receive_many(3)] == ids[:3]
    assert [message.id for message in queue.receive_many(3)] == ids[3:]


def test_messages_of_a_batch_are_leased_one_by_one(queue: Queue):
    queue.send_many([b"a", b"b"])
    batch = queue.receive_many(2, visibility_timeout_s=30)

    assert [message.receive_count for message in batch] == [1, 1]
    assert queue.attributes().hidden_messages == 2
    assert queue.attributes().total_received == 2


@pytest.mark.parametrize("count", [0, -1, 1.5, "3", None])
def test_impossible_count_is_refused(queue: Queue, count: int):
    queue.send(b"x")

    with pytest.raises(InvalidValue):
        queue.receive_many(count)

    assert queue.attributes().total_received == 0


@pytest.mark.parametrize("visibility_timeout_s", [-1, 10_000_000, float("nan"), float("inf"), "30"])
def test_impossible_visibility_timeout_is_refused(queue: Queue, visibility_timeout_s: float):
    queue.send(b"x")

    with pytest.raises(InvalidValue):
        queue.receive(visibility_timeout_s=visibility_timeout_s)

    assert queue.attributes().total_received == 0


def test_receive_from_a_missing_queue_reports_that_it_is_missing(client: Client):
    with pytest.raises(QueueNotFound, match="nowhere"):
        Queue("nowhere", client).receive_many(3)


def test_message_has_its_sending_time(server: PrivateServer, queue: Queue):
    before_s, before_us = server.redis.time()
    queue.send(b"x")

    message = queue.receive()

    assert message is not None and message.sent_ms is not None
    assert 0 <= message.sent_ms - (before_s * 1000 + before_us / 1000) < 60_000


# -- Pop -----------------------------------------------------------------------------------------------------------


def test_popped_message_leaves_no_data_behind(server: PrivateServer, queue: Queue):
    fields = set(server.redis.hkeys("rsmq:jobs:Q"))
    message_id = queue.send(b"once")

    message = queue.pop()

    assert message is not None
    assert (message.id, message.body, message.receive_count) == (message_id, b"once", 1)
    assert message.first_received_ms is not None
    assert set(server.redis.hkeys("rsmq:jobs:Q")) - fields == {b"totalsent", b"totalrecv"}
    assert not server.redis.exists("rsmq:jobs")


def test_pop_counts_earlier_receptions_and_leaves_nothing_of_them(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    first = queue.receive(visibility_timeout_s=0)

    popped = queue.pop()

    assert first is not None and popped is not None
    assert (popped.receive_count, popped.first_received_ms) == (2, first.first_received_ms)
    assert not [field for field in server.redis.hkeys("rsmq:jobs:Q") if first.id.encode() in field]


def test_pop_takes_the_oldest_ready_message(queue: Queue):
    queue.send(b"hidden", delay_s=60)
    queue.send_many([b"first", b"second"])

    popped = [message.body for message in (queue.pop(), queue.pop()) if message]

    assert popped == [b"first", b"second"]
    assert queue.pop() is None


# -- Phantoms: an id without a body, which other clients leave behind ----------------------------------------------


def add_phantom(server: PrivateServer, *, overdue_s: float) -> str:
    phantom = "0" * 32
    now_ms = server.redis.time()[0] * 1000
    server.redis.zadd("rsmq:jobs", {phantom: now_ms - overdue_s * 1000})
    server.redis.hset("rsmq:jobs:Q", mapping={f"{phantom}:rc": 3, f"{phantom}:fr": now_ms - 60_000})
    return phantom


@pytest.mark.parametrize("operation", ["receive", "pop"])
def test_old_phantom_is_removed_and_the_next_message_delivered_in_the_same_call(
    server: PrivateServer, queue: Queue, operation: str
):
    phantom = add_phantom(server, overdue_s=60)
    queue.send(b"real")

    message = getattr(queue, operation)()

    assert isinstance(message, Message) and message.body == b"real"
    assert server.redis.zscore("rsmq:jobs", phantom) is None
    assert not server.redis.hexists("rsmq:jobs:Q", f"{phantom}:rc")
    assert not server.redis.hexists("rsmq:jobs:Q", f"{phantom}:fr")


@pytest.mark.parametrize("operation", ["receive", "pop"])
def test_young_phantom_is_left_alone_and_the_next_message_delivered(
    server: PrivateServer, queue: Queue, operation: str
):
    # A foreign sender may be between its two steps: its body will come.
    phantom = add_phantom(server, overdue_s=1)
    queue.send(b"real")

    message = getattr(queue, operation)()

    assert message is not None and message.body == b"real"
    assert server.redis.zscore("rsmq:jobs", phantom) is not None
    assert server.redis.hget("rsmq:jobs:Q", f"{phantom}:rc") == b"3"


@pytest.mark.parametrize("overdue_s", [60, 1])
def test_phantom_does_not_hide_the_next_message_when_the_visibility_timeout_is_zero(
    server: PrivateServer, queue: Queue, overdue_s: float
):
    add_phantom(server, overdue_s=overdue_s)
    queue.send(b"real")

    message = queue.receive(visibility_timeout_s=0)

    assert message is not None and message.body == b"real"


def test_phantoms_are_not_counted_as_received(server: PrivateServer, queue: Queue):
    add_phantom(server, overdue_s=60)
    queue.send(b"real")

    received = queue.receive_many(10)

    assert [message.body for message in received] == [b"real"]
    assert queue.attributes().total_received == 1


def test_queue_of_nothing_but_phantoms_is_empty(server: PrivateServer, queue: Queue):
    add_phantom(server, overdue_s=60)

    assert queue.receive() is None
    assert queue.attributes().messages == 0


def test_many_phantoms_do_not_hide_the_messages_after_them(server: PrivateServer, queue: Queue):
    now_ms = server.redis.time()[0] * 1000
    server.redis.zadd("rsmq:jobs", {f"{number:032d}": now_ms - 60_000 for number in range(50)})
    server.redis.zadd("rsmq:jobs", {f"y{number:031d}": now_ms - 1000 for number in range(20)})
    sent = queue.send_many([b"x"] * 30)

    received = queue.receive_many(30)

    assert [message.id for message in received] == sent
