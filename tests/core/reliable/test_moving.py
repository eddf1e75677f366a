"""Moving messages of a reliable queue to another one: each is in one of them at any time, and starts again there."""

import pytest

from rsmq_django.core import Client
from rsmq_django.core.errors import InvalidValue
from rsmq_django.core.reliable import ReliableQueue


@pytest.fixture
def orders(client: Client) -> ReliableQueue:
    return ReliableQueue("orders", client, consumer="shop")


@pytest.fixture
def returns(client: Client) -> ReliableQueue:
    return ReliableQueue("returns", client)


def bodies(queue: ReliableQueue) -> list[bytes]:
    return [message.body for message in queue.pop_messages(100)]


def test_a_moved_message_starts_again_at_the_end_of_the_other_queue(orders: ReliableQueue, returns: ReliableQueue):
    returns.push("first")
    orders.push("a", "b")
    a, _b = orders.pop_messages(2)
    orders.bury(a, reason="no address")

    moved = orders.move(returns, a.id, kind="dead")

    assert list(moved) == [a.id]
    assert orders.statistics().depth.dead == 0
    first, again = returns.pop_messages(2)
    assert (first.body, again.body, again.id, again.deliveries) == (b"first", b"a", moved[a.id], 1)


@pytest.mark.parametrize("kind", ["undelivered", "delayed", "delivered"])
def test_messages_of_each_kind_are_moved_in_order(orders: ReliableQueue, returns: ReliableQueue, kind: str):
    orders.push("a", "b", "c", delay_s=600 if kind == "delayed" else 0)
    if kind == "delivered":
        orders.pop_messages(3)
    first, _, last = (message.id for message in orders.messages(kind))

    moved = orders.move("returns", first, last, first, "1-1", kind=kind)

    assert list(moved) == [first, last]
    assert bodies(returns) == [b"a", b"c"]
    assert [message.body for message in orders.messages(kind)] == [b"b"]


def test_a_receipt_of_an_earlier_delivery_moves_nothing(orders: ReliableQueue, returns: ReliableQueue):
    orders.push("a")
    (held,) = orders.pop_messages(1)
    orders.recover(1, 0)

    assert orders.move(returns, held, kind="delivered") == {}
    assert orders.statistics().depth.in_flight == 1


def test_clients_of_an_emptied_queue_are_not_woken_needlessly(orders: ReliableQueue, returns: ReliableQueue):
    [only] = orders.push("a")

    orders.move(returns, only, kind="undelivered")

    assert orders.pop(1, 1) is None
    assert bodies(returns) == [b"a"]


def test_invalid_move_is_refused(orders: ReliableQueue):
    with pytest.raises(InvalidValue, match="source queue"):
        orders.move("orders", "1-1", kind="dead")
    with pytest.raises(InvalidValue, match="no id"):
        orders.move("returns", kind="dead")
    with pytest.raises(InvalidValue, match="kind"):
        orders.move("returns", "1-1", kind="lost")
    assert orders.move("returns", "1-1", kind="dead") is None, "there is no such queue yet"
