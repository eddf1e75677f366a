"""A random writer on every key of the namespace, without a key, against workers of signed and encrypted queues.

Each example sends a few honest calls, workflows and schedules, and lets the attacker write between the steps of the
workers and of the people who use them: what he has seen anywhere, what he makes up, what he changes. Whatever he does,
the functions on sealed queues are called with nothing but what the honest sender gave them.

The steps are those of a worker without its threads, so that an example takes milliseconds.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.fernet import Fernet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsmq_django import schedules
from rsmq_django.conf.settings import get_settings
from rsmq_django.core import Message
from rsmq_django.core.errors import RsmqError
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import Failure, call, chain, group
from rsmq_django.tasks.compat import task_backends
from rsmq_django.worker.delivery import Delivery, WorkQueue
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.lease.settle import settle_calls
from rsmq_django.worker.outcomes import Outcome, Settlement
from rsmq_django.worker.report.notifications import Notifier
from rsmq_django.worker.supervise.recovery import _NoSink
from tests.redis_server import PrivateServer
from tests.tasks.schedules import DUE, ENTRIES, new_scheduler, own_declarations  # noqa: F401
from tests.worker.workshop import Configure, declare

#: Functions run on the thread of the test, whose connections to the database a worker looks after.
pytestmark = pytest.mark.django_db

MODULE = "tests.worker.test_attacks_on_namespace"
FORGED = {"to": "ATTACKER"}
SEALED, OPEN = ("payments", "prices"), "default"


# -- The honest side --------------------------------------------------------------------------------------------------


class AckSink(_NoSink):
    """Carries each outcome out at once."""

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        execution.finished_ms = self.clock.now_ms()
        for settle_call in settle_calls([Settlement(execution, outcome)]):
            with contextlib.suppress(RsmqError):  # a damaged queue, an unknown dead-letter queue
                get_queue(OPEN).client.run(settle_call.call)


class Shop:
    """Tasks on sealed queues, what they were called with, and what they may be called with."""

    def __init__(self) -> None:
        self.charged: list[Any] = []
        self.priced: list[int] = []
        self.task_ids: dict[str, Any] = {}
        self._declare()

    def _declare(self) -> None:
        @declare(queue_name="payments", max_attempts=1)
        def charge(got: Any = "nothing", tag: str = "") -> str:
            self.charged.append((tag, got))
            return "charged"

        @declare(queue_name="prices", max_attempts=1)
        def price(number: int) -> int:
            self.priced.append(number)
            if number < 0:
                raise ValueError(f"{number} is negative")
            return number * 10

        @declare(queue_name=OPEN)
        def lie(got: Any = None) -> Any:
            return got

        self.charge, self.price, self.lie = charge, price, lie

    def send(self) -> None:
        """Send what is honest."""
        charge, price = self.charge, self.price
        for name in (*SEALED, OPEN):
            ensure_queue(f"{name}-dead")
        self.task_ids[charge.enqueue(tag="direct").id] = "charged"
        self.task_ids[price.enqueue(3).id] = 30
        chain(call(price, 1), call(charge, tag="chain")).enqueue()
        group([call(price, 2), call(price, 4)], then=call(charge, tag="then")).enqueue()
        group([call(price, 2), call(price, -1)], on_failure=call(charge, tag="on_failure")).enqueue()
        schedules.add("rent", charge, every_s=3600, kwargs={"tag": "rent"})
        self.lie.enqueue(FORGED)

    def check(self) -> None:
        """Fail when a function was called with what the honest side did not send."""
        for tag, got in self.charged:
            if tag == "on_failure":
                assert [(each.task, each.message) for each in got] == [(f"{MODULE}.price", "-1 is negative")]
                assert all(isinstance(each, Failure) for each in got)
            else:
                assert (tag, got) in ALLOWED, got
        assert set(self.priced) <= {1, 2, 3, 4, -1}
        for task_id, returned in self.task_ids.items():
            with contextlib.suppress(Exception):  # what the attacker has damaged cannot be read
                result: Any = task_backends["default"].get_result(task_id)
                if result.is_authentic:
                    assert result.return_value == returned


ALLOWED: list[Any] = [("direct", "nothing"), ("rent", "nothing"), ("chain", 10), ("then", [20, 40])]


def take_step(queue_name: str) -> None:
    """Receive what a queue has, and let each message run through its whole life as in a worker."""
    queue, options = get_queue(queue_name), get_settings().queue(queue_name)
    with contextlib.suppress(RsmqError):
        for message in queue.receive_many(20):
            run_one(message, WorkQueue(options, queue, lease_s=30, inflight_key="rsmq::holds"))


def run_one(message: Message, work_queue: WorkQueue) -> None:
    delivery = Delivery(work_queue, message, attempt=1, renewed_at=time.monotonic())
    execution = Execution(delivery, sink=AckSink(), notifier=Notifier("worker of the attack"))
    contextvars.copy_context().run(execution.run)  # on this thread no task runs afterwards


def use_schedules() -> None:
    """Fire what is due, and let a person press "Run now" for everything, and change everything."""
    with contextlib.suppress(RsmqError, ValueError):
        new_scheduler().fire_due()
    with contextlib.suppress(RsmqError, ValueError):
        for entry in schedules.entries():
            for act in (schedules.run_now, schedules.change):
                with contextlib.suppress(RsmqError, ValueError):
                    act(entry.name)


# -- The attacker -----------------------------------------------------------------------------------------------------

#: What he does, and three numbers by which he chooses among what is there.
Move = tuple[str, int, int, int]


class Attacker:
    """Writes into any key. He has seen every value that ever was in Redis, and knows how everything is stored."""

    def __init__(self, server: PrivateServer) -> None:
        self.redis: Any = server.redis
        self.seen: list[bytes] = []
        self._known: set[bytes] = set()

    def look(self) -> None:
        """Remember all keys, fields, members and values that are there now."""
        for key in sorted(self.redis.keys("rsmq*")):
            kind = self.redis.type(key)
            if kind == b"hash":
                words: list[bytes] = [word for pair in sorted(self.redis.hgetall(key).items()) for word in pair]
            elif kind == b"zset":
                words = self.redis.zrange(key, 0, -1)
            else:
                words = []
            for word in words:
                if word not in self._known:
                    self._known.add(word)
                    self.seen.append(word)

    def move(self, move: Move) -> None:
        """Do something; what Redis refuses is not done."""
        how, a, b, c = move
        self.look()
        with contextlib.suppress(Exception):
            getattr(self, how)(a, b, c)

    def _key(self, number: int, kind: bytes = b"hash") -> bytes:
        keys: list[bytes] = [key for key in sorted(self.redis.keys("rsmq*")) if self.redis.type(key) == kind]
        return keys[number % len(keys)]

    def _field(self, key: bytes, number: int) -> bytes:
        fields: list[bytes] = sorted(self.redis.hkeys(key))
        return fields[number % len(fields)]

    def _value(self, number: int) -> bytes:
        """Return something that he has seen, has changed, or has made up."""
        forged = self._forged(number)
        pool = [*self.seen, *forged, *forged]
        return pool[number % len(pool)]

    def _forged(self, number: int) -> list[bytes]:
        seen = self.seen[number % len(self.seen)] if self.seen else b""
        signatures = [word.partition(b"\n")[2] for word in self.seen if b"\n" in word] or [b"0" * 64]
        proof = signatures[number % len(signatures)].decode("utf-8", "replace")
        charge = json.dumps({"task": f"{MODULE}.charge", "kwargs": {"got": "ATTACKER", "tag": "direct"}})
        entry = {"TASK": f"{MODULE}.charge", "EVERY_S": 1, "KWARGS": {"got": "ATTACKER"}, "QUEUE": "payments"}
        return [
            charge.encode(),
            json.dumps({"signed": charge, "signature": proof, "signature_v2": self._signature(number)}).encode(),
            json.dumps({"encrypted": self._token(number), "signature_v2": proof}).encode(),
            json.dumps(entry).encode(),
            json.dumps(entry | {"SIGNATURE": self._signature(number)}).encode(),
            self._lie(number),
            b'"ATTACKER"',
            b'"ATTACKER"\n' + proof.encode(),
            b"0",
            b"1",
            str(10**15).encode(),
            seen.replace(b"1", b"2"),
            seen[: number % (len(seen) + 1)],
        ]

    def _signature(self, number: int) -> str:
        found = [word for word in self.seen if b'"signature_v2"' in word or b'"SIGNATURE"' in word]
        words = json.loads(found[number % len(found)])
        return str(words.get("signature_v2") or words.get("SIGNATURE"))

    def _token(self, number: int) -> str:
        found = [word for word in self.seen if b'"encrypted"' in word] or [b'{"encrypted": ""}']
        return str(json.loads(found[number % len(found)])["encrypted"])

    def _lie(self, number: int) -> bytes:
        """Return a call on the open queue that says to be a member of a workflow, under an id that he has seen."""
        workflows = sorted(key.split(b":")[3] for key in self.redis.keys("rsmq::workflow:*:members")) or [b"x"]
        ids = [word.partition(b" ")[0] for word in self.seen if len(word) < 64] or [b"x"]
        membership = {
            "id": workflows[number % len(workflows)].decode(),
            "member": number % 3,
            "next": [ids[number % len(ids)].decode("ascii", "replace"), "payments"],
        }
        task_id = ids[(number // 3) % len(ids)].decode("ascii", "replace")
        body = {"task": f"{MODULE}.lie", "id": task_id, "args": [FORGED], "meta": {"workflow": membership}}
        return json.dumps(body).encode()

    # -- His moves ----------------------------------------------------------------------------------------------------

    def overwrite(self, a: int, b: int, c: int) -> None:
        key = self._key(a)
        self.redis.hset(key, self._field(key, b), self._value(c))

    def add_field(self, a: int, b: int, c: int) -> None:
        self.redis.hset(self._key(a), self._value(b), self._value(c))

    def copy_field(self, a: int, b: int, c: int) -> None:
        source, target = self._key(a), self._key(c)
        field = self._field(source, b)
        self.redis.hset(target, self._field(target, b), self.redis.hget(source, field))

    def remove_field(self, a: int, b: int, c: int) -> None:
        key = self._key(a)
        self.redis.hdel(key, self._field(key, b))

    def rescore(self, a: int, b: int, c: int) -> None:
        key = self._key(a, b"zset")
        members = self.redis.zrange(key, 0, -1)
        self.redis.zadd(key, {members[b % len(members)]: (c % 3) * 10**12})

    def remove_member(self, a: int, b: int, c: int) -> None:
        key = self._key(a, b"zset")
        members = self.redis.zrange(key, 0, -1)
        self.redis.zrem(key, members[b % len(members)])

    def copy_key(self, a: int, b: int, c: int) -> None:
        kind = (b"hash", b"zset")[c % 2]
        self.redis.copy(self._key(a, kind), self._key(b, kind), replace=True)

    def delete_key(self, a: int, b: int, c: int) -> None:
        self.redis.delete(self._key(a))

    def change_type(self, a: int, b: int, c: int) -> None:
        key = self._key(a)
        self.redis.delete(key)
        self.redis.set(key, self._value(b))

    def send(self, a: int, b: int, c: int) -> None:
        """Put a message on a queue, under a new id or one that he has seen."""
        queue = ensure_queue((*SEALED, OPEN)[a % 3])
        ids = [word for word in self.seen if len(word) == 32] or [b"g73zkl38qz" + b"A" * 22]
        message_id = ids[c % len(ids)] if c % 2 else b"g73zkl38qz%022d" % c
        self.redis.hset(queue.keys.settings, message_id, self._value(b))
        self.redis.zadd(queue.keys.messages, {message_id: 1})

    def send_prepared(self, a: int, b: int, c: int) -> None:
        """Send what a workflow has prepared for later, to whichever queue."""
        steps = sorted(self.redis.keys("rsmq::workflow:*:steps"))
        key = steps[a % len(steps)]
        body = self.redis.hget(key, self._field(key, b)).split(b" ", 2)[2]
        queue = ensure_queue(SEALED[c % 2])
        self.redis.hset(queue.keys.settings, b"g73zkl38qz%022d" % c, body)
        self.redis.zadd(queue.keys.messages, {b"g73zkl38qz%022d" % c: 1})

    def plan(self, a: int, b: int, c: int) -> None:
        """Write a schedule that is due."""
        name = "rent" if c % 2 else "evil"
        self.redis.hset(ENTRIES, name, self._value(b))
        self.redis.zadd(DUE, {name: 1})

    def bring_due(self, a: int, b: int, c: int) -> None:
        """Let an hour of all schedules have passed."""
        for name, score in self.redis.zrange(DUE, 0, -1, withscores=True):
            self.redis.zadd(DUE, {name: score - 3_600_000})


MOVES = [name for name in vars(Attacker) if not name.startswith("_") and name not in ("look", "move")]
#: Between his moves, something honest happens: a worker takes a step, or people use schedules.
HONEST: dict[str, Callable[[], None]] = {
    **{f"work on {name}": lambda name=name: take_step(name) for name in (*SEALED, OPEN)},  # type: ignore[misc]
    "use schedules": use_schedules,
}
NUMBER = st.integers(0, 2**20)
ATTACKS = st.lists(st.tuples(st.sampled_from([*MOVES, *MOVES, *HONEST]), NUMBER, NUMBER, NUMBER), max_size=25)


@pytest.fixture
def shop(configure: Configure, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], Shop]]:
    """A signed and an encrypted queue; returns the function that opens the shop anew."""
    configure(
        payments={"SIGNING_KEYS": ["k" * 32]},
        prices={"ENCRYPTION_KEYS": [Fernet.generate_key().decode()]},
        default={},
    )
    with caplog.at_level(logging.CRITICAL):
        shop = Shop()

        def anew() -> Shop:
            shop.charged.clear()
            shop.priced.clear()
            shop.task_ids.clear()
            return shop

        yield anew


def attack(server: PrivateServer, shop: Shop, moves: list[Move]) -> None:
    """Play one example."""
    server.redis.flushdb()
    shop.send()
    attacker = Attacker(server)
    for move in moves:
        if move[0] in HONEST:
            HONEST[move[0]]()
        else:
            attacker.move(move)
    for _ in range(3):
        for act in HONEST.values():
            act()
    shop.check()


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def test_without_an_attacker_everything_runs(server: PrivateServer, shop: Callable[[], Shop]):
    opened = shop()

    attack(server, opened, [("bring_due", 0, 0, 0)])

    assert {tag for tag, _ in opened.charged} == {"direct", "chain", "then", "on_failure", "rent"}
    assert opened.priced.count(3) == 1
    for task_id, returned in opened.task_ids.items():
        result: Any = task_backends["default"].get_result(task_id)
        assert (result.is_authentic, result.return_value) == (True, returned)


@pytest.mark.deadline(600)
@settings(max_examples=100, suppress_health_check=QUIET)
@given(moves=ATTACKS)
def test_a_random_writer_runs_nothing_on_sealed_queues(
    server: PrivateServer, shop: Callable[[], Shop], moves: list[Move]
):
    attack(server, shop(), moves)


@pytest.mark.long
@pytest.mark.deadline(3600)
@settings(max_examples=2500, suppress_health_check=QUIET)
@given(moves=ATTACKS)
def test_a_patient_random_writer_runs_nothing_on_sealed_queues(
    server: PrivateServer, shop: Callable[[], Shop], moves: list[Move]
):
    attack(server, shop(), moves)
