"""Attackers who can write into Redis but have no key: they choose no argument of a call on a signed queue.

One can write every key of the namespace, one only a queue without keys; both know all ids.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from rsmq_django.queues import get_queue
from rsmq_django.tasks import Failure, Unique, Workflow, call, cancel, chain, group, map_tasks
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.tasks.proofs import keyring_of
from rsmq_django.tasks.workflow_proofs import ARGUMENT, VALUE, ForgedArgument, Receiver
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, dead_letters, declare, send_raw, the_dead_letter, work, working

SIGNED = {"SIGNING_KEYS": ["k" * 32]}
ENCRYPTED = {"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
FORGED = b'{"amount": 1000000, "to": "ATTACKER"}'
DEAD = "payments-dead"


@pytest.fixture(params=[SIGNED, ENCRYPTED], ids=["signed", "encrypted"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


@pytest.fixture
def charged(configure: Configure, options: dict[str, Any]) -> list[Any]:
    """What the task "charge" on "payments" was called with; that queue and "prices" are sealed, "default" is not."""
    configure(payments=options, prices={"SIGNING_KEYS": ["p" * 32]}, default={})
    return []


def charging(charged: list[Any], **options: Any) -> Any:
    """Declare the task that takes something from its workflow."""

    def charge(got: Any = "nothing") -> None:
        charged.append(got)

    return declare(**{"queue_name": "payments", "max_attempts": 1} | options)(charge)


def pricing(queue_name: str = "prices", **options: Any) -> Any:
    """Declare the task whose results are given on; it refuses negative numbers."""

    def price(number: int = 1) -> Any:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number * 10

    return declare(queue_name=queue_name, max_attempts=1, **options)(price)


def key_of(workflow: Workflow, part: str = "") -> str:
    return f"rsmq::workflow:{workflow.id}" + (f":{part}" if part else "")


def reasons() -> list[str]:
    return [record["reason"] for _, record in dead_letters(DEAD)]


# -- Everything that is honest works -----------------------------------------------------------------------------------


def test_honest_chains_groups_and_maps_work(charged: list[Any]):
    charge, price = charging(charged), pricing()

    chain(call(price, 1), call(price), call(charge)).enqueue()
    work()
    group([call(price, 1), chain(call(price, 2), call(price))], then=call(charge)).enqueue()
    work()
    with working():
        assert wait_until(lambda: map_tasks(price, range(3), then=call(charge), keep_results=True, window=2))
        wait_until(lambda: len(charged) == 3)

    assert charged == [100, [10, 200], [0, 10, 20]]


def test_honest_failures_reach_callbacks(charged: list[Any]):
    charge, price = charging(charged), pricing()

    group([call(price, 1), call(price, -1)], on_failure=call(charge)).enqueue()
    work()
    group([call(price, 1), call(price, -1)], then=call(charge), then_always=True).enqueue()
    work()
    cancelled = group([call(price, 1)], on_failure=call(charge)).enqueue()
    assert cancel(next(iter(live_ids(cancelled))))
    work()

    (failure,), (value, same), (by_hand,) = charged
    assert (failure.reason, failure.message) == ("attempts_used_up", "-1 is negative")
    assert (value, same.message, by_hand.reason) == (10, "-1 is negative", "cancelled")
    assert all(isinstance(each, Failure) for each in (failure, same, by_hand))


def live_ids(workflow: Workflow) -> list[str]:
    from rsmq_django.core.tasks.workflow_records import live_tasks
    from rsmq_django.queues import get_client

    return get_client().run(live_tasks("rsmq", workflow.id, b"0"))[1]


def test_a_workflow_shows_its_values_and_failures_without_their_proofs(charged: list[Any]):
    charge, price = charging(charged), pricing()
    started = group([call(price, 1), call(price, -1)], then=call(charge), then_always=True).enqueue()

    work()

    value, failure = started.results()
    assert (value, failure.message) == (10, "-1 is negative")


def test_a_member_replaced_by_an_equal_call_has_a_proven_empty_result(charged: list[Any]):
    charge, price = charging(charged), pricing(unique=Unique())
    price.enqueue(1)
    group([call(price, 1)], then=call(charge)).enqueue()

    work()

    assert charged == [[None]]


# -- Who writes every key ---------------------------------------------------------------------------------------------


def test_a_value_that_was_written_into_redis_is_not_given_to_a_step(charged: list[Any], server: PrivateServer):
    started = chain(call(pricing(), 1), call(charging(charged))).enqueue()
    work("prices")
    server.redis.hset(key_of(started, "results"), "0", FORGED)

    work("payments")

    assert (charged, the_dead_letter(DEAD)[1]["reason"]) == ([], "forged_argument")


def test_a_value_that_was_written_into_redis_is_not_given_to_a_coroutine(charged: list[Any], server: PrivateServer):
    async def charge(got: Any) -> None:
        charged.append(got)

    started = chain(call(pricing(), 1), call(declare(queue_name="payments")(charge))).enqueue()
    work("prices")
    server.redis.hset(key_of(started, "results"), "0", FORGED)

    work("payments")

    assert (charged, reasons()) == ([], ["forged_argument"])


def test_a_value_is_given_to_no_other_workflow_and_to_no_other_step(charged: list[Any], server: PrivateServer):
    charge, price = charging(charged), pricing()
    dear = chain(call(price, 100), call(charge)).enqueue()
    cheap = chain(call(price, 1), call(charge)).enqueue()
    work("prices")
    stolen = server.redis.hget(key_of(dear, "results"), "0")
    assert stolen.startswith(b"1000\n")
    server.redis.hset(key_of(cheap, "results"), "0", stolen)

    work("payments")

    assert (charged, reasons()) == ([1000], ["forged_argument"])


@pytest.mark.parametrize("attack", ["forge", "swap", "remove", "fail", "fewer", "more"])
def test_a_callback_gets_the_results_of_the_members_or_does_not_run(
    charged: list[Any], server: PrivateServer, attack: str
):
    started = group([call(pricing(), 1), call(pricing(), 2)], then=call(charging(charged))).enqueue()
    work("prices")
    results, failures, redis = key_of(started, "results"), key_of(started, "failures"), server.redis
    first, second = list[Any](redis.hmget(results, "0", "1"))
    {
        "forge": lambda: redis.hset(results, "0", FORGED),
        "swap": lambda: redis.hset(results, mapping={"0": second, "1": first}),
        "remove": lambda: redis.hdel(results, "0"),
        "fail": lambda: redis.hset(failures, "0", 'x {"message": "never happened"}'),
        "fewer": lambda: redis.hset(key_of(started), "sent", 1),
        "more": lambda: redis.hset(key_of(started), "sent", 1_000_000_000_000),
    }[attack]()

    work("payments")

    assert (charged, reasons()) == ([], ["forged_argument"])


@pytest.mark.parametrize("takes_unproven", [False, True])
def test_a_value_without_a_proof_is_accepted_only_where_old_ones_are_and_a_wrong_proof_nowhere(
    charged: list[Any], takes_unproven: bool
):
    keys = keyring_of("payments")
    assert keys is not None
    receiver = Receiver(keys, "workflow", "task", takes_unproven)
    words = ("workflow", "1", "task", VALUE)
    right, wrong = (keys.prove(ARGUMENT, *words, content=content) for content in (b"10", b"11"))

    assert receiver.check(1, VALUE, f"10\n{right}".encode()) == b"10"
    with pytest.raises(ForgedArgument, match="the value of member 1"):
        receiver.check(1, VALUE, f"10\n{wrong}".encode())
    if takes_unproven:
        assert receiver.check(1, VALUE, b"10") == b"10"
    else:
        with pytest.raises(ForgedArgument, match="the value of member 1"):
            receiver.check(1, VALUE, b"10")


def test_a_callback_about_failures_does_not_run_without_one(charged: list[Any], server: PrivateServer):
    started = group([call(pricing(), 1)], on_failure=call(charging(charged))).enqueue()
    prepared = server.redis.hget(key_of(started, "steps"), "on_failure")
    send_raw(prepared.split(b" ", 2)[2], "payments")

    work("payments")

    assert (charged, reasons()) == ([], ["forged_argument"])


def test_a_forged_failure_is_not_given_to_a_callback(charged: list[Any], server: PrivateServer):
    started = group([call(pricing(), -1)], on_failure=call(charging(charged))).enqueue()
    work("prices")
    stored = server.redis.hget(key_of(started, "failures"), "0")
    server.redis.hset(key_of(started, "failures"), "0", stored.replace(b"is negative", b"ATTACKER"))

    work("payments")

    assert (charged, reasons()) == ([], ["forged_argument"])


def test_a_bounded_number_of_a_million_forged_proofs_is_checked(charged: list[Any], server: PrivateServer):
    started = chain(call(pricing(), 1), call(charging(charged))).enqueue()
    work("prices")
    honest: Any = server.redis.hget(key_of(started, "results"), "0")
    value, proof, _ = honest.split(b"\n")
    server.redis.hset(key_of(started, "results"), "0", b"\n".join([value, *[b"0" * 64] * 1000, proof]))

    work("payments")

    assert (charged, reasons()) == ([], ["forged_argument"])


# -- Who writes one queue without keys --------------------------------------------------------------------------------


def lie(started: Workflow, task_id: str, queue_name: str = "default", **more: Any) -> bytes:
    """Return a call of the task "lie" that says to be a member of a workflow, as its attacker would write it."""
    workflow = {"id": started.id, "member": 0} | more
    return json.dumps({"task": LIE, "id": task_id, "meta": {"workflow": workflow}}).encode()


LIE = "tests.worker.test_attacks_on_workflows.lie_for_attacker"


def declare_lie() -> None:
    @declare(queue_name="default")
    def lie_for_attacker() -> Any:
        return json.loads(FORGED)


@pytest.mark.parametrize("owner", ["", "@prices"])
def test_a_member_of_a_signed_queue_ends_only_from_there(charged: list[Any], server: PrivateServer, owner: str):
    declare_lie()
    started = chain(call(pricing(), 1), call(charging(charged))).enqueue()
    (task_id,) = live_ids(started)
    following = server.redis.hkeys(key_of(started, "steps"))
    assert following == [b"0.1"]
    membership = {"next": ["a" * 22, "payments"]}
    send_raw(lie(started, task_id + owner, **membership))

    work("default")

    assert server.redis.zcard("rsmq:payments") == 0
    assert live_ids(started) == [task_id]
    work()
    assert charged == [10]


def test_a_member_of_a_signed_queue_does_not_fail_because_of_a_report_from_another_queue(
    charged: list[Any], server: PrivateServer
):
    @declare(queue_name="default", max_attempts=1)
    def lie_for_attacker() -> None:
        raise ValueError("ATTACKER")

    started = group([call(pricing(), 1)], then=call(charging(charged))).enqueue()
    (task_id,) = live_ids(started)
    send_raw(lie(started, task_id))

    work("default")
    work()

    assert (started.status().state, charged) == ("succeeded", [[10]])


def test_a_redriven_member_still_ends(charged: list[Any], server: PrivateServer):
    from rsmq_django.redrive import redrive

    flag: list[bool] = []

    def shaky() -> int:
        if not flag:
            raise ValueError("not yet")
        return 7

    task = declare(queue_name="prices", max_attempts=1)(shaky)
    started = chain(call(task), call(charging(charged))).enqueue()
    work()
    assert started.status().state == "failed"
    flag.append(True)
    redrive("prices-dead")

    work()

    assert (charged, started.status().state) == ([7], "succeeded")


# -- What cannot be proven cannot be sent -----------------------------------------------------------------------------


def test_a_call_on_a_sealed_queue_takes_no_result_of_a_queue_without_keys(charged: list[Any], server: PrivateServer):
    charge, price = charging(charged), pricing("default")

    for plan in (
        lambda: chain(call(price, 1), call(charge)).enqueue(),
        lambda: group([call(price, 1)], then=call(charge)).enqueue(),
        lambda: group([chain(call(price, 1), call(price, 2).without_result())], on_failure=call(charge)).enqueue(),
        lambda: map_tasks(price, [1], then=call(charge), keep_results=True),
    ):
        with pytest.raises(InvalidTask, match="choose its argument"):
            plan()

    assert not server.redis.keys("rsmq::workflow*")


def test_a_call_on_a_sealed_queue_may_follow_on_a_queue_without_keys_if_it_takes_nothing(charged: list[Any]):
    chain(call(pricing("default"), 1), call(charging(charged)).without_result()).enqueue()

    work()

    assert charged == ["nothing"]


def test_a_queue_without_keys_may_take_results_of_a_sealed_one(charged: list[Any]):
    chain(call(pricing(), 1), call(charging(charged, queue_name="default"))).enqueue()

    work()

    assert charged == [10]


# -- Deployments ------------------------------------------------------------------------------------------------------


def test_until_the_day_of_the_setting_workflows_of_the_previous_release_continue(
    configure: Configure, server: PrivateServer, options: dict[str, Any]
):
    until = options | {"OLD_SIGNATURES_UNTIL": "2999-12-31"}
    configure(payments=until, prices=until)
    charged: list[Any] = []
    started = chain(call(pricing(), 1), call(charging(charged))).enqueue()
    members = server.redis.hvals(key_of(started, "members"))
    work("prices")
    server.redis.hset(key_of(started, "results"), "0", b"20")  # as a worker of that release writes it

    work()

    assert charged == [20]
    assert b"@" not in members[0]  # such a worker would never end it
    assert get_queue("payments").attributes().messages == 0


def test_a_member_without_queue_that_the_release_before_has_sent_ends(charged: list[Any], server: PrivateServer):
    started = chain(call(pricing(), 1), call(charging(charged))).enqueue()
    (task_id,) = live_ids(started)
    server.redis.hset(key_of(started, "members"), "0", task_id)

    work()

    assert charged == [10]


@pytest.mark.parametrize(("days", "lines"), [(1, 1), (0, 3)], ids=["before the last day", "on the last day"])
def test_before_the_last_day_of_the_setting_the_previous_release_can_read_workflow_values(
    configure: Configure, server: PrivateServer, options: dict[str, Any], days: int, lines: int
):
    until = options | {"OLD_SIGNATURES_UNTIL": (datetime.now(UTC) + timedelta(days=days)).date().isoformat()}
    configure(payments=until, prices=until)
    charged: list[Any] = []
    charge, price = charging(charged), pricing()
    started = group([call(price, 1), call(price, -1)], then=call(charge), then_always=True).enqueue()

    work("prices")

    (value,) = server.redis.hvals(key_of(started, "results"))
    (failure,) = server.redis.hvals(key_of(started, "failures"))
    assert (len(value.splitlines()), len(failure.splitlines())) == (lines, lines)  # it takes nothing behind the JSON
    work()
    ((paid, failed),) = charged
    assert (paid, failed.message) == (10, "-1 is negative")


# -- Results that are read -------------------------------------------------------------------------------------------


def listing(queue_name: str) -> Any:
    """Declare the task of a queue without keys."""

    def list_price(number: int = 1) -> int:
        return number * 10

    return declare(queue_name=queue_name, max_attempts=1)(list_price)


def test_results_of_members_on_sealed_queues_are_authentic(charged: list[Any]):
    price = pricing()
    workflow = group([call(price, 1), call(price, -1), call(listing("default"), 2)]).enqueue()
    assert workflow.authentic() == [False, False, False]

    work()

    assert [each for each in workflow.results() if not isinstance(each, Failure)] == [10, 20]
    assert workflow.authentic() == [True, True, False]


async def test_async_twin_reports_the_same(charged: list[Any]):
    workflow = await group([call(pricing(), 1), call(listing("default"), 2)]).aenqueue()

    await asyncio.to_thread(work)

    assert await workflow.aauthentic() == [True, False]


@pytest.mark.parametrize("kind", ["value", "failure", "of another member", "of another workflow", "as a failure"])
def test_a_forged_result_of_a_member_is_not_authentic(charged: list[Any], server: PrivateServer, kind: str):
    price = pricing()
    workflow = group([call(price, 1), call(price, 2)]).enqueue()
    other = group([call(price, 3), call(price, 4)]).enqueue()
    work()
    results, proof = key_of(workflow, "results"), b"\n" + b"0" * 64
    if kind == "value":
        server.redis.hset(results, "0", FORGED + proof)
    elif kind == "failure":
        server.redis.hset(key_of(workflow, "failures"), "0", b"t " + FORGED + proof)
    elif kind == "of another member":
        server.redis.hset(results, "0", server.redis.hget(results, "1"))
    elif kind == "of another workflow":
        server.redis.hset(results, "0", server.redis.hget(key_of(other, "results"), "0"))
    else:
        server.redis.hset(key_of(workflow, "failures"), "0", b"t " + server.redis.hget(results, "0"))

    assert workflow.authentic() == [False, True]
