"""Fair shares: customers take turns, however many calls one of them has waiting."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from rsmq_django.conf.settings import get_settings
from rsmq_django.core import list_queues
from rsmq_django.core.errors import MessageTooLong, PartlyDone
from rsmq_django.core.queue.bands import lane_of, split_band
from rsmq_django.core.transport.call import load_script
from rsmq_django.core.transport.connection import Connection
from rsmq_django.queues import get_client, get_queue, pause_queue
from rsmq_django.tasks import Retry, call, chain, consumer, current_task, group, map_tasks
from rsmq_django.tasks.compat import task_backends
from rsmq_django.tasks.lanes import lane_of_call, lane_of_later_call
from rsmq_django.worker.delivery import NO_LANE
from rsmq_django.worker.fetch.queue_selector import LaneRotation
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
    turns, left, total = LaneRotation(), Counter(backlog), Counter[str]()
    for _ in range(looks):
        served = list[Any]()
        for queue in turns.arrange(queues):
            took = min(left[queue.name], room - len(served))
            left[queue.name] -= took
            served += [queue] * took
        turns.note_served(served)
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
    turns, total, first = LaneRotation(), Counter[str](), None
    for _ in range(12):
        # Lane 1 gets single messages, so that it is empty when it has had its turn; the others have many.
        ready = [lane for lane in lanes if lane is not lanes[1] or first is not lane]
        first = turns.arrange(ready)[0]
        turns.note_served([first])
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


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many scripts that send tasks each round trip has carried so far; others are left out."""
    seen: list[int] = []
    exchange, aexchange = Connection.exchange, Connection.aexchange

    def note(commands: Any) -> None:
        digest = load_script("tasks/enqueue").sha1
        sends = sum(command[1:2] == (digest,) for command in commands)
        if sends:
            seen.append(sends)

    def counted(self: Connection, commands: Any, **options: Any) -> Any:
        note(commands)
        return exchange(self, commands, **options)

    async def acounted(self: Connection, commands: Any, **options: Any) -> Any:
        note(commands)
        return await aexchange(self, commands, **options)

    monkeypatch.setattr(Connection, "exchange", counted)
    monkeypatch.setattr(Connection, "aexchange", acounted)
    return seen


CUSTOMERS = [[number] for number in range(40)]


def declared_with_its_lanes() -> Any:
    """Return a task whose lanes exist; the server knows its script."""
    declared = declare(fair_by=["customer"])(lambda customer, note="": None)
    declared.enqueue_many(CUSTOMERS)
    return declared


def test_a_bulk_call_is_one_round_trip_for_all_lanes(project: Configure, exchanges: list[int]):
    declared = declared_with_its_lanes()
    exchanges.clear()

    declared.enqueue_many(CUSTOMERS)

    assert exchanges == [len(lanes_in_use())]
    assert sum(map(waiting_in, lanes_in_use())) == 80


async def test_a_bulk_call_of_a_coroutine_is_one_round_trip_for_all_lanes(project: Configure, exchanges: list[int]):
    declared = declared_with_its_lanes()
    exchanges.clear()

    await declared.aenqueue_many(CUSTOMERS)

    assert exchanges == [len(lanes_in_use())]


@pytest.mark.django_db(transaction=True)
def test_calls_of_one_transaction_to_many_lanes_are_one_round_trip(configure: Configure, exchanges: list[int]):
    configure(on_commit=True)
    declared = declared_with_its_lanes()
    exchanges.clear()

    with transaction.atomic():
        for (customer,) in CUSTOMERS:
            declared.enqueue(customer)

    assert exchanges == [len(lanes_in_use())]
    assert sum(map(waiting_in, lanes_in_use())) == 80


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_deleted_lane_is_created_again_and_no_call_is_lost(project: Configure, is_async: bool):
    declared = declared_with_its_lanes()
    gone = sorted(lanes_in_use())[1]
    waited_there = waiting_in(gone)
    get_queue(gone).delete_queue()

    if is_async:
        await declared.aenqueue_many(CUSTOMERS)
    else:
        declared.enqueue_many(CUSTOMERS)

    assert waiting_in(gone) == waited_there
    assert sum(map(waiting_in, lanes_in_use())) == 80 - waited_there


def test_a_lane_with_a_smaller_size_limit_is_reported_and_the_others_get_their_calls(project: Configure):
    declared = declared_with_its_lanes()
    small = sorted(lanes_in_use())[0]
    waited_there = waiting_in(small)
    get_queue(small).set_attributes(max_size_bytes=1024)

    with pytest.raises(PartlyDone, match=small) as raised:
        declared.enqueue_many([{"customer": number, "note": "x" * 2000} for (number,) in CUSTOMERS])

    assert isinstance(raised.value.__cause__, MessageTooLong)
    assert waiting_in(small) == waited_there
    assert sum(map(waiting_in, lanes_in_use())) == 80 - waited_there
    assert len(raised.value.done) == 40 - waited_there


def lane_of_customer(declared: Any, customer: str) -> str:
    return f"default-lane{lane_of_call(declared, (customer,), {})}"


def test_steps_and_callbacks_of_workflows_wait_in_the_lane_of_their_customer(project: Configure):
    seen: list[tuple[str, str]] = []

    def step(customer: str) -> None:
        seen.append((customer, current_task().queue_name))

    fair = declare(fair_by=["customer"])(step)
    one = call(fair, "acme")
    two, after = call(fair, "bolt").without_result(), call(fair, "core").without_result()

    chain(one, two).enqueue()
    group([call(fair, "acme"), call(fair, "bolt")], then=after).enqueue()
    work(threads=1)

    assert len(seen) == 5
    assert set(seen) == {(customer, lane_of_customer(fair, customer)) for customer in ("acme", "bolt", "core")}


def test_a_step_that_gets_a_result_waits_in_its_lane_unless_the_result_decides_about_it(project: Configure):
    seen: dict[str, str] = {}

    def by_name(result: str, customer: str) -> str:
        seen["by name"] = current_task().queue_name
        return result

    def by_result(result: str) -> str:
        seen["by result"] = current_task().queue_name
        return result

    def by_function(result: str) -> None:
        seen["by function"] = current_task().queue_name

    first = declare(lambda: "acme")
    named = declare(fair_by=["customer"])(by_name)
    chain(
        call(first),
        call(named, customer="bolt"),
        call(declare(fair_by=["result"])(by_result)),
        call(declare(fair_by=lambda result: result)(by_function)),
    ).enqueue()
    work(threads=1)

    lane = f"default-lane{lane_of_call(named, ('acme', 'bolt'), {})}"
    assert seen == {"by name": lane, "by result": "default", "by function": "default"}


def test_items_of_a_map_take_turns(project: Configure, exchanges: list[int]):
    seen: list[int] = []
    declared = declare(fair_by=["customer"])(lambda customer: seen.append(customer))
    declared.enqueue_many(CUSTOMERS)
    exchanges.clear()

    map_tasks(declared, range(40), window=1000)

    assert exchanges == [len(lanes_in_use())]
    work(threads=1)
    assert sorted(seen) == sorted([*range(40)] * 2)


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


def test_lane_of_a_call_that_gets_a_result_is_known_unless_the_result_decides(project: Configure):
    def pay(result: int, customer: str) -> None:
        pass

    plain = declare(pay)
    by_customer, by_result = (declare(fair_by=[name])(pay) for name in ("customer", "result"))
    by_both = declare(fair_by=["customer", "result"])(pay)
    by_function = declare(fair_by=lambda result, customer: customer)(pay)

    assert lane_of_later_call(by_customer, ["alice"], {}) == lane_of_call(by_customer, [7, "alice"], {})
    assert lane_of_later_call(by_customer, [], {"customer": "alice"}) == lane_of_call(by_customer, [7, "alice"], {})
    for undecided in (plain, by_result, by_both, by_function):
        assert lane_of_later_call(undecided, ["alice"], {}) is None


def test_a_queue_cannot_have_the_name_of_a_lane(project: Configure):
    project(**{"mail": {}, "mail-lane3": {}})

    with pytest.raises(ImproperlyConfigured, match="the queue for lane 3 of 'mail'"):
        get_settings()


@pytest.mark.parametrize(("fair_by", "said"), [("customer", "write a list of names"), (7, "fair_by is 7")])
def test_fair_by_that_is_not_a_list_of_names_is_refused(project: Configure, fair_by: Any, said: str):
    with pytest.raises(ValueError, match=said):
        declare(fair_by=fair_by)(lambda customer: None)


def test_fair_by_that_names_no_argument_is_refused(project: Configure):
    with pytest.raises(ValueError, match="lacks this argument, it has only customer"):
        declare(fair_by=["tenant"])(lambda customer: None)


def test_a_key_that_json_cannot_hold_is_refused_where_it_is_sent(project: Configure):
    declared = declare(fair_by=lambda customer: {1, 2})(lambda customer: None)

    with pytest.raises(TypeError, match="is fair by cannot be written as JSON"):
        declared.enqueue("acme")
