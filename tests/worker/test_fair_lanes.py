"""Fair shares: customers take turns, however many calls one of them has waiting."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.conf import get_settings
from rsmq_django.core import list_queues
from rsmq_django.core.bands import lane_of, split_band
from rsmq_django.queues import get_client, get_queue, pause_queue
from rsmq_django.tasks import Retry, consumer
from rsmq_django.tasks.compat import task_backends
from rsmq_django.worker.delivery import NO_LANE
from rsmq_django.worker.turns import Turns
from tests.worker.workshop import Configure, declare, send_raw, the_dead_letter, work


class Lane(NamedTuple):
    """What turns want to know about a queue."""

    name: str
    band: tuple[str, int]
    lane: int

    @classmethod
    def of(cls, name: str) -> Lane:
        lane = lane_of(name)
        return cls(name, split_band(name), NO_LANE if lane is None else lane)


def waiting_in(name: str) -> int:
    return get_queue(name).attributes().messages


def lanes_in_use() -> set[str]:
    return {name for name in list_queues(get_client("default")) if "-lane" in name}


def serve(backlog: dict[str, int], *, room: int, looks: int) -> Counter[str]:
    """Serve queues as the fetch script does, and count what each gave."""
    queues: Any = [Lane.of(name) for name in backlog]
    turns, left, total = Turns(), Counter(backlog), Counter[str]()
    for _ in range(looks):
        served = list[Any]()
        for queue in turns.arrange(queues):
            took = min(left[queue.name], room - len(served))
            left[queue.name] -= took
            served += [queue] * took
        turns.gave(served)
        total.update(queue.name for queue in served)
    return total


@pytest.mark.parametrize("room", [1, 3, 50])
def test_lanes_with_a_backlog_give_the_same_number_of_messages(room: int):
    backlog = {"mail": 0, "mail-lane1": 9000, "mail-lane2": 9000, "mail-lane7": 9000}

    total = serve(backlog, room=room, looks=30)

    assert total == {"mail-lane1": 10 * room, "mail-lane2": 10 * room, "mail-lane7": 10 * room}


def test_messages_without_a_lane_are_a_lane_of_their_own():
    assert serve({"mail": 900, "mail-lane1": 900}, room=10, looks=10) == {"mail": 50, "mail-lane1": 50}


def test_lanes_of_a_priority_come_before_all_of_a_lower_one():
    backlog = {"mail-p5-lane1": 40, "mail-p5-lane2": 40, "mail-lane1": 900, "mail-lane2": 900}

    total = serve(backlog, room=10, looks=12)

    assert total == {"mail-p5-lane1": 40, "mail-p5-lane2": 40, "mail-lane1": 20, "mail-lane2": 20}


def test_lane_that_is_left_out_because_it_is_empty_does_not_send_the_turn_back_to_the_first():
    lanes: Any = [Lane.of(f"mail-lane{number}") for number in range(3)]
    turns, total, first = Turns(), Counter[str](), None
    for _ in range(12):
        # Lane 1 gets single messages, so that it is empty when it has had its turn; the others have many.
        ready = [lane for lane in lanes if lane is not lanes[1] or first is not lane]
        first = turns.arrange(ready)[0]
        turns.gave([first])
        total[first.name] += 1

    assert total == dict.fromkeys((lane.name for lane in lanes), 4)


def test_configured_queues_that_are_called_like_lanes_take_no_turns(configure: Configure):
    configure(**{"express-lane1": {}, "express-lane2": {}})
    seen: list[str] = []
    for name in ("express-lane1", "express-lane2"):
        consumer(name)(lambda message: seen.append(message.text()))
        for _ in range(5):
            send_raw(name, name)

    work(threads=1, max_tasks=6)

    assert seen == ["express-lane1"] * 5 + ["express-lane2"]


def test_a_few_calls_of_one_customer_pass_the_many_of_another(project: Configure):
    seen: list[str] = []
    declared = declare(fair_by=["customer"])(lambda customer: seen.append(customer))
    declared.enqueue_many([["big"]] * 2000)
    declared.enqueue_many([["small"]] * 3)

    work(threads=1)

    assert len(seen) == 2003
    assert seen[1000:] == ["big"] * 1003, "the small customer waited behind half of the big one's calls"


def test_calls_of_one_customer_keep_their_order(project: Configure):
    seen: list[int] = []
    declared = declare(fair_by=lambda customer, number: customer)(lambda customer, number: seen.append(number))
    for number in range(20):
        declared.enqueue("acme", number)

    work(threads=1)

    assert seen == list(range(20))
    assert len(lanes_in_use()) == 1


def test_ids_of_a_bulk_call_are_in_the_order_of_the_calls(project: Configure):
    declared = declare(fair_by=["customer"])(lambda customer: customer)

    ids = declared.enqueue_many([{"customer": customer} for customer in range(40)])
    work()

    assert [task_backends["default"].get_result(task_id).return_value for task_id in ids] == list(range(40))
    assert len(lanes_in_use()) > 1


def test_retry_and_dead_letter_stay_with_lane_and_priority(project: Configure):
    attempts: list[int] = []

    def stubborn(customer: str) -> None:
        attempts.append(waiting_in("default"))
        if len(attempts) == 1:
            raise Retry(after_s=0)
        raise ValueError("no")

    result = declare(fair_by=["customer"], max_attempts=2)(stubborn).using(priority=5).enqueue("acme")

    work()

    (lane,) = lanes_in_use()
    assert lane.startswith("default-p5-lane")
    assert attempts == [0, 0], "it went to the queue itself"
    assert the_dead_letter()[1]["queue"] == lane
    assert task_backends["default"].get_result(result.id).task.priority == 5


def test_lanes_pause_with_their_queue(project: Configure):
    declare(fair_by=["customer"])(lambda customer: None).enqueue("acme")
    pause_queue("default")

    work()

    (lane,) = lanes_in_use()
    assert waiting_in(lane) == 1


def test_number_of_lanes_is_an_option_of_the_queue(project: Configure):
    project(default={"FAIR_LANES": 2})

    declare(fair_by=["customer"])(lambda customer: None).enqueue_many([[number] for number in range(50)])

    assert lanes_in_use() == {"default-lane0", "default-lane1"}
    project(default={"FAIR_LANES": 65})
    with pytest.raises(ImproperlyConfigured, match="FAIR_LANES"):
        get_settings()


def test_a_queue_cannot_have_the_name_of_a_lane(project: Configure):
    project(**{"mail": {}, "mail-lane3": {}})

    with pytest.raises(ImproperlyConfigured, match="holds lane 3 of 'mail'"):
        get_settings()


@pytest.mark.parametrize(("fair_by", "said"), [("customer", "write a list of names"), (7, "fair_by is 7")])
def test_fair_by_that_is_no_list_of_names_is_refused(project: Configure, fair_by: Any, said: str):
    with pytest.raises(ValueError, match=said):
        declare(fair_by=fair_by)(lambda customer: None)


def test_fair_by_that_names_no_argument_is_refused(project: Configure):
    with pytest.raises(ValueError, match="no such argument, only customer"):
        declare(fair_by=["tenant"])(lambda customer: None)


def test_a_key_that_json_cannot_hold_is_refused_where_it_is_sent(project: Configure):
    declared = declare(fair_by=lambda customer: {1, 2})(lambda customer: None)

    with pytest.raises(TypeError, match="is fair by cannot be written as JSON"):
        declared.enqueue("acme")
