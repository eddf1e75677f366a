"""Deleting messages and changing their visibility: allowed with a valid lease, refused without."""

import pytest

from rsmq_django.core import Client, Message, Queue, SettleResult
from rsmq_django.core.errors import InvalidMessageId, InvalidValue, LeaseLost, QueueNotFound
from tests.redis_server import PrivateServer
from tests.support import pass_time


def received(queue: Queue, *, visibility_timeout_s: float = 30) -> Message:
    message = queue.receive(visibility_timeout_s=visibility_timeout_s)
    assert message is not None
    return message


def taken_over(queue: Queue) -> tuple[Message, Message]:
    """Let a first worker lose its lease to a second one and return what each of them holds."""
    queue.send(b"invoice 7")
    first = received(queue, visibility_timeout_s=1)
    pass_time(queue, seconds=2)
    return first, received(queue)


# -- Delete --------------------------------------------------------------------------------------------------------


def test_deleted_message_leaves_no_data_behind(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    message = received(queue)

    assert queue.delete(message) is True

    fields = set(server.redis.hkeys("rsmq:jobs:Q"))
    assert fields == {b"vt", b"delay", b"maxsize", b"created", b"modified", b"totalsent", b"totalrecv"}
    assert not server.redis.exists("rsmq:jobs")


def test_deleting_twice_reports_that_the_message_is_missing(queue: Queue):
    queue.send(b"x")
    message = received(queue)
    queue.delete(message)

    assert queue.delete(message) is False
    assert queue.delete(message.id) is False


def test_late_delete_is_refused_and_does_not_change_the_new_lease(queue: Queue):
    first, second = taken_over(queue)

    with pytest.raises(LeaseLost, match=first.id):
        queue.delete(first)

    assert queue.attributes().messages == 1
    assert queue.delete(second) is True


def test_delete_after_the_lease_expired_succeeds_until_another_consumer_receives_the_message(queue: Queue):
    queue.send(b"x")
    message = received(queue, visibility_timeout_s=1)
    pass_time(queue, seconds=2)

    assert queue.delete(message) is True
    assert queue.receive() is None


def test_bare_id_deletes_even_if_another_consumer_has_the_lease(queue: Queue):
    _, second = taken_over(queue)

    assert queue.delete(second.id) is True
    assert queue.delete(second) is False


def test_message_that_was_never_received_is_deleted_by_its_id(queue: Queue):
    message_id = queue.send(b"x")

    assert queue.delete(message_id) is True
    assert queue.attributes().messages == 0


def test_deleting_an_unknown_id_changes_nothing(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    before = server.redis.hgetall("rsmq:jobs:Q")

    assert queue.delete("x" * 32) is False
    assert server.redis.hgetall("rsmq:jobs:Q") == before


def test_delete_from_a_missing_queue_reports_that_it_is_missing(client: Client):
    with pytest.raises(QueueNotFound, match="nowhere"):
        Queue("nowhere", client).delete("x" * 32)


@pytest.mark.parametrize(
    "bad_id", ["vt", "", "x" * 31, "x" * 33, "x" * 32 + "\n", "x" * 31 + "é", "x" * 31 + "-", None, 7]
)
def test_id_of_an_impossible_form_is_refused(server: PrivateServer, queue: Queue, bad_id: str):
    before = server.redis.hgetall("rsmq:jobs:Q")

    with pytest.raises(InvalidMessageId):
        queue.delete(bad_id)
    with pytest.raises(InvalidMessageId):
        queue.change_visibility(bad_id, 5)
    with pytest.raises(InvalidMessageId):
        queue.delete_many([bad_id])

    assert server.redis.hgetall("rsmq:jobs:Q") == before


def test_message_with_a_foreign_id_can_be_deleted_once_it_was_received(server: PrivateServer, queue: Queue):
    short_id = "AbCdEfGhIjKlMnOpQrStUv"  # 22 characters, as one Go client writes them
    add_foreign_message(server, short_id, b"from go")

    message = received(queue)
    assert (message.id, message.sent_ms) == (short_id, None)

    assert queue.change_visibility(message, 60) is True
    assert queue.delete(message) is True
    assert queue.attributes().messages == 0


@pytest.mark.parametrize("field", ["vt", "totalsent", "maxsize"])
def test_receipt_named_like_an_attribute_never_costs_the_queue_that_attribute(
    server: PrivateServer, queue: Queue, field: str
):
    queue.send(b"x")
    forged = Message(id=field, body=b"", receive_count=1, first_received_ms=None)
    before = server.redis.hget("rsmq:jobs:Q", field)

    assert queue.delete(forged) is False

    assert server.redis.hget("rsmq:jobs:Q", field) == before


def add_foreign_message(server: PrivateServer, message_id: str, body: bytes) -> None:
    server.redis.zadd("rsmq:jobs", {message_id: server.redis.time()[0] * 1000 - 1000})
    server.redis.hset("rsmq:jobs:Q", message_id, body)


# -- Delete many ---------------------------------------------------------------------------------------------------


def test_batch_of_deletes_reports_each_in_order(queue: Queue):
    lost, _ = taken_over(queue)
    queue.send_many([b"a", b"b"])
    kept, gone = queue.receive_many(2)
    queue.delete(gone)

    verdicts = queue.delete_many([kept, lost, gone])

    assert verdicts == [SettleResult.DONE, SettleResult.LEASE_LOST, SettleResult.MISSING]
    assert queue.attributes().messages == 1


def test_batch_may_mix_receipts_and_bare_ids(queue: Queue):
    never_received = queue.send(b"a", delay_s=60)
    queue.send(b"b")
    held = received(queue)

    assert queue.delete_many([never_received, held]) == [SettleResult.DONE, SettleResult.DONE]
    assert queue.attributes().messages == 0


def test_batch_of_no_deletes_does_nothing(queue: Queue):
    assert queue.delete_many([]) == []


def test_batch_larger_than_one_script_call_is_deleted_whole(queue: Queue):
    ids = queue.send_many([b"x"] * 2500)

    verdicts = queue.delete_many(ids)

    assert verdicts == [SettleResult.DONE] * 2500
    assert queue.attributes().messages == 0


def test_same_message_twice_in_a_batch_is_deleted_once(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    message = received(queue)

    verdicts = queue.delete_many([message, message])

    assert verdicts[0] == SettleResult.DONE
    assert queue.attributes().messages == 0
    assert len(server.redis.hgetall("rsmq:jobs:Q")) == 7


# -- Change visibility ---------------------------------------------------------------------------------------------


def test_extended_lease_lasts_longer(queue: Queue):
    queue.send(b"x")
    message = received(queue, visibility_timeout_s=10)

    assert queue.change_visibility(message, 100) is True

    pass_time(queue, seconds=99)
    assert queue.receive() is None
    pass_time(queue, seconds=2)
    assert received(queue).receive_count == 2


def test_extending_does_not_count_as_receiving(queue: Queue):
    queue.send(b"x")
    message = received(queue)

    queue.change_visibility(message, 100)

    assert queue.attributes().total_received == 1
    assert queue.delete(message) is True


def test_released_message_is_visible_at_once(queue: Queue):
    queue.send(b"x")
    message = received(queue)

    assert queue.change_visibility(message, 0) is True

    assert received(queue).id == message.id


def test_late_extension_is_refused_and_does_not_change_the_new_lease(server: PrivateServer, queue: Queue):
    first, second = taken_over(queue)
    lease_end = server.redis.zscore("rsmq:jobs", second.id)

    with pytest.raises(LeaseLost, match=first.id):
        queue.change_visibility(first, 0)

    assert server.redis.zscore("rsmq:jobs", second.id) == lease_end


def test_delayed_message_is_released_at_once_by_its_id(queue: Queue):
    message_id = queue.send(b"x", delay_s=600)

    assert queue.change_visibility(message_id, 0) is True

    assert received(queue).id == message_id


def test_bare_id_changes_the_visibility_even_if_another_consumer_has_the_lease(queue: Queue):
    _, second = taken_over(queue)

    assert queue.change_visibility(second.id, 0) is True
    assert received(queue).receive_count == 3


def test_changing_an_unknown_or_deleted_message_reports_that_it_is_missing(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    message = received(queue)
    queue.delete(message)

    assert queue.change_visibility(message, 30) is False
    assert queue.change_visibility("x" * 32, 30) is False
    assert not server.redis.exists("rsmq:jobs")


def test_new_visibility_below_a_second_is_exact(server: PrivateServer, queue: Queue):
    queue.send(b"x")
    message = received(queue)
    before_s, before_us = server.redis.time()
    queue.change_visibility(message, 0.25)
    after_s, after_us = server.redis.time()

    score = server.redis.zscore("rsmq:jobs", message.id)

    assert before_s * 1000 + before_us // 1000 + 250 <= score <= after_s * 1000 + after_us // 1000 + 250


@pytest.mark.parametrize("visibility_timeout_s", [-1, 10_000_000, float("nan"), float("inf"), "30", None])
def test_impossible_visibility_timeout_is_refused(queue: Queue, visibility_timeout_s: float):
    message_id = queue.send(b"x", delay_s=60)

    with pytest.raises(InvalidValue):
        queue.change_visibility(message_id, visibility_timeout_s)

    assert queue.receive() is None


def test_changing_visibility_on_a_missing_queue_reports_that_it_is_missing(client: Client):
    with pytest.raises(QueueNotFound, match="nowhere"):
        Queue("nowhere", client).change_visibility("x" * 32, 5)
