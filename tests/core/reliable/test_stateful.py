"""Random histories of one reliable queue, compared with a model after every step."""

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import BrokenQueue, QueueFull, RsmqError
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.transport import client as client_module
from rsmq_django.core.transport.call import Script, load_script
from tests.redis_server import PrivateServer

from .model import Model

EXAMPLES = int(os.environ.get("RSMQ_TEST_EXAMPLES", "25"))
#: Longer than any test.
FAR_S = 7200
BODIES = st.lists(st.sampled_from([b"", b"a", b"\xff\x00", "ü".encode() * 9]), min_size=1, max_size=4)
PICKS = st.integers(0, 9)
COUNTS = st.sampled_from([2, 1, 4, 0])


class ReliableMachine(RuleBasedStateMachine):
    """Nothing that is drawn depends on what the server answered, so that failures can be replayed and shrunk."""

    server: ClassVar[PrivateServer]

    def __init__(self) -> None:
        super().__init__()
        self.server.empty()
        self.server.redis.config_set("maxmemory", 0)
        self.client = Client(Connection(self.server.url, timeout_s=15))
        self.queue = ReliableQueue("jobs", self.client)
        self.model = Model()
        self.is_full = False
        #: Receipts that were once good, and ids.
        self.receipts: list[tuple[str, int]] = []

    def teardown(self) -> None:
        self.server.redis.config_set("maxmemory", 0)
        self.client.connection.close()

    def receipt(self, pick: int, *, bare: bool) -> tuple[str, str, int | None]:
        """Return an id, what is said to the queue, and the deliveries that it is good for."""
        if not self.receipts:
            return "1-1", "1-1", None
        message_id, deliveries = self.receipts[-1 - pick % len(self.receipts)]
        return (message_id, message_id, None) if bare else (message_id, f"{message_id}:{deliveries}", deliveries)

    def check_ids(self, answer: list[str] | None, expected: list[str]) -> None:
        assert answer == (expected if self.model.exists else None)

    @initialize()
    def begin(self) -> None:
        """There is something to work on from the beginning: most of what is drawn is small and simple."""
        self.model.push(self.queue.push("1", "2", "3"), [b"1", b"2", b"3"], is_delayed=False)

    @rule(bodies=BODIES, is_delayed=st.booleans())
    def push(self, bodies: list[bytes], is_delayed: bool) -> None:
        if self.is_full:
            with pytest.raises(QueueFull):
                self.queue.push(*bodies)
            return
        ids = self.queue.push(*bodies, delay_s=FAR_S if is_delayed else 0)
        assert len(set(ids) | set(self.model.messages)) == len(ids) + len(self.model.messages)
        self.model.push(ids, bodies, is_delayed=is_delayed)

    @rule(count=COUNTS)
    def pop(self, count: int) -> None:
        popped = self.queue.pop_messages(count)
        assert [message.id for message in popped] == self.model.pop(count)
        self.remember(popped)

    @rule(count=COUNTS)
    def recover(self, count: int) -> None:
        recovered = self.queue.recover_messages(count, 0)
        assert [message.id for message in recovered] == self.model.recover(count)
        self.remember(recovered)

    @rule(count=COUNTS)
    def consumer_dies(self, count: int) -> None:
        self.pop(count)
        self.recover(count)

    def remember(self, messages: list) -> None:
        for message in messages:
            held = self.model.messages[message.id]
            assert (message.body, message.deliveries, message.unused) == (held.body, held.deliveries, held.unused)
            self.receipts.append((message.id, message.deliveries))

    @rule(pick=PICKS, bare=st.booleans(), twice=st.booleans())
    def ack(self, pick: int, bare: bool, twice: bool) -> None:
        message_id, said, deliveries = self.receipt(pick, bare=bare)
        good = self.model.holds(message_id, deliveries)
        self.check_ids(self.queue.ack(*[said] * (1 + twice), "zzz"), [message_id] if good else [])
        if good:
            self.model.ack(message_id)

    @rule(pick=PICKS, other=PICKS, bare=st.booleans(), is_delayed=st.booleans(), is_unused=st.booleans())
    def nack(self, pick: int, other: int, bare: bool, is_delayed: bool, is_unused: bool) -> None:
        chosen = [self.receipt(pick, bare=bare), self.receipt(other, bare=bare)]
        good = list(dict.fromkeys(id_ for id_, _, deliveries in chosen if self.model.holds(id_, deliveries)))
        said = [words for _, words, _ in chosen]
        answer = self.queue.nack(*said, delay_s=FAR_S if is_delayed else 0, is_unused=is_unused)
        self.check_ids(answer, good)
        self.model.nack(good, is_delayed=is_delayed, is_unused=is_unused)

    @rule(pick=PICKS, bare=st.booleans())
    def extend(self, pick: int, bare: bool) -> None:
        message_id, said, deliveries = self.receipt(pick, bare=bare)
        good = self.model.holds(message_id, deliveries)
        self.check_ids(self.queue.extend(said, seconds=FAR_S), [message_id] if good else [])
        if good:
            self.model.extend(message_id)

    @rule(operation=st.sampled_from(["ack", "nack", "extend", "bury"]))
    def late_consumer(self, operation: str) -> None:
        """One that held a message before somebody else got it changes nothing."""
        late = [
            f"{id_}:{n}" for id_, n in self.receipts if self.model.holds(id_, None) and not self.model.holds(id_, n)
        ]
        if late:
            assert getattr(self.queue, operation)(*late) == []

    @rule(pick=PICKS, bare=st.booleans())
    def bury(self, pick: int, bare: bool) -> None:
        message_id, said, deliveries = self.receipt(pick, bare=bare)
        good = self.model.holds(message_id, deliveries)
        self.check_ids(self.queue.bury(said, reason="no use"), [message_id] if good else [])
        if good:
            self.model.bury(message_id)

    @rule(max_deliveries=st.integers(0, 3))
    def configure(self, max_deliveries: int) -> None:
        self.queue.configure(max_deliveries=max_deliveries)
        self.model.max_deliveries, self.model.exists = max_deliveries, True

    @rule(pick=PICKS)
    def redrive(self, pick: int) -> None:
        message_id, _, _ = self.receipt(pick, bare=True)
        good = message_id in self.model.dead
        self.check_ids(self.queue.redrive(message_id, message_id), [message_id] if good else [])
        if good:
            self.model.redrive(message_id)

    @rule(part=st.sampled_from(["wake", "delayed", "dead"]))
    def foreign_key(self, part: str) -> None:
        """Another program stores something else under a key: nothing is done until it is gone."""
        key = f"rsmq::reliable:jobs:{part}"
        if not self.is_full and not self.server.redis.exists(key):
            self.server.redis.set(key, "foreign")
            for attempt in (lambda: self.queue.push("x"), lambda: self.queue.pop(3), lambda: self.queue.recover(3, 0)):
                with pytest.raises(BrokenQueue):
                    attempt()
            self.server.redis.delete(key)

    @rule(chance=st.integers(0, 3))
    def memory_is(self, chance: int) -> None:
        self.is_full = chance == 3
        self.server.redis.config_set("maxmemory", int(self.is_full))

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.server.redis.script_flush()

    @invariant()
    def queue_holds_what_the_model_says(self) -> None:
        stored: dict[str, Any] = {
            kind: self.queue.messages(kind, 0, 1000) for kind in ("undelivered", "delayed", "delivered", "dead")
        }
        ids = {kind: [message.id for message in messages] for kind, messages in stored.items()}
        assert ids["undelivered"] == self.model.undelivered
        assert set(ids["delayed"]) == self.model.delayed and set(ids["dead"]) == self.model.dead
        assert [i for i in ids["delivered"] if i not in self.model.extended] == [
            i for i in self.model.delivered if i not in self.model.extended
        ]
        assert set(ids["delivered"]) == set(self.model.delivered)
        found = {message.id: (message.body, message.deliveries) for kind in stored.values() for message in kind}
        assert found == {id_: (held.body, held.deliveries) for id_, held in self.model.messages.items()}

    @invariant()
    def nothing_else_is_stored(self) -> None:
        redis, prefix = self.server.redis, "rsmq::reliable:jobs"
        assert redis.hlen(f"{prefix}:bodies") == len(self.model.messages)
        assert set(redis.hkeys(f"{prefix}:history")) <= {id_.encode() for id_ in self.model.messages}
        if self.model.undelivered:
            assert redis.llen(f"{prefix}:wake") == 1
        assert redis.llen(f"{prefix}:wake") <= 1


OPTIONS = settings(
    stateful_step_count=40, deadline=None, database=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
@pytest.mark.long
def test_every_history_ends_as_in_the_model(server: PrivateServer):
    machine = type("ReliableMachineOnServer", (ReliableMachine,), {"server": server})

    run_state_machine_as_test(machine, settings=OPTIONS)


# -- A test that cannot fail proves nothing ---------------------------------------------------------------------------


@pytest.fixture
def in_scripts(server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Replace a piece of the scripts' text, in every script that holds it."""
    replaced: list[str] = []

    def replace(piece: str, by: str) -> None:
        def load(name: str) -> Script:
            text = load_script(name).source.decode()
            if piece in text:
                replaced.append(name)
            source = text.replace(piece, by).encode()
            return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest())

        monkeypatch.setattr(client_module, "load_script", load)

    yield replace
    assert replaced, "no script holds that piece any more: the mutant is the original"
    server.redis.script_flush()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("piece", "by"),
    [
        pytest.param("wanted[n] == histories[n].count", "true", id="no fence"),
        pytest.param("not seen[id] and", "", id="counts a message twice"),
        pytest.param("history.unused = history.unused + 1", "local _", id="counts unused deliveries"),
        pytest.param(
            "if history.count - history.unused < most", "if history.count <= most", id="one delivery too many"
        ),
        pytest.param('redis.call("HDEL", queue.bodies, unpack(ids))', "", id="leaves bodies"),
        pytest.param("front[#remaining + 1 - n] = id", "front[n] = id", id="turns the order round"),
    ],
)
def test_broken_script_is_found_out(server: PrivateServer, in_scripts: Callable[[str, str], None], piece: str, by: str):
    in_scripts(piece, by)
    machine = type("ReliableMachineOnServer", (ReliableMachine,), {"server": server})
    options = settings(OPTIONS, max_examples=100, phases=[Phase.generate], derandomize=True)

    with pytest.raises((AssertionError, RsmqError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=options)
