"""Random histories of the whole queue API on a real server, compared with a model after every step.

Clients of other kinds take part: they send, receive, delete and leave things half done as they do. Scripts are
forgotten, memory is full, the server crashes and comes back, and time passes by moving scores.

Two rules keep histories replayable: nothing that is drawn depends on what the server answered, and times that pass are
no multiples of delays and time-outs, so that nothing depends on being just before or after a boundary.

RSMQ_STATEFUL_EXAMPLES=1500 makes a long run. What it finds becomes a test of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rsmq_django.core import Client, Connection, Message, Queue, SettleResult, list_queues
from rsmq_django.core.doctor import examine
from rsmq_django.core.errors import (
    LeaseLost,
    MessageTooLong,
    QueueExists,
    QueueFull,
    QueueNotFound,
    RsmqError,
)
from rsmq_django.core.ids import random_suffix
from rsmq_django.core.transport import client as client_module
from rsmq_django.core.transport.call import Script, load_script
from tests.core.queue.queue_model import PHANTOM_GRACE_MS, Held, QueueModel
from tests.redis_server import PrivateServer
from tests.support import pass_time

EXAMPLES = int(os.environ.get("RSMQ_STATEFUL_EXAMPLES", "100"))
INDEX, HASH, NAMES, TRACE = "rsmq:jobs", "rsmq:jobs:Q", "rsmq:QUEUES", "rsmq::phantoms:jobs"

BODIES = st.lists(st.sampled_from([b"", b"x", b"\x00\xff\r\n", "grüße".encode()]), min_size=1, max_size=3)
DELAYS_S = st.sampled_from([None, None, 0, 0.25, 7])
TIMEOUTS_S = st.sampled_from([None, 0, 0, 1, 30])
PICKS = st.integers(0, 9)
#: Half of the calls go the other way.
ASYNC = st.booleans()


class QueueMachine(RuleBasedStateMachine):
    """One queue, its model, and everybody who works on it."""

    server: PrivateServer

    def __init__(self) -> None:
        super().__init__()
        self.server.redis.config_set("maxmemory", 0)
        self.server.empty()
        self.redis = self.server.redis
        self.client = Client(Connection(self.server.url, timeout_s=10))  # a busy machine is no finding
        self.queue = Queue("jobs", self.client)
        self.loop = asyncio.Runner()
        self.model = QueueModel()
        self.is_full = False
        #: What was received so far, by any worker. No bundle, because what is drawn must not depend on it.
        self.receipts: list[Message] = []

    def teardown(self) -> None:
        self.loop.close()
        self.client.connection.close()
        self.server.redis.config_set("maxmemory", 0)

    # -- Helpers ------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        seconds, microseconds = self.redis.time()
        return seconds * 1000 + microseconds // 1000

    def call(self, operation: str, is_async: bool, *args: Any, **kwargs: Any) -> tuple[Any, int, int]:
        """Run an operation, sync or async; return its result or error, and the server's time before and after."""
        before = self.now_ms()
        try:
            if is_async:
                result = self.loop.run(getattr(self.queue, f"a{operation}")(*args, **kwargs))
            else:
                result = getattr(self.queue, operation)(*args, **kwargs)
        except RsmqError as error:
            result = error
        return result, before, self.now_ms()

    def score(self, message_id: str) -> float:
        """Return what only the server knows: the score that it has just written."""
        score = self.redis.zscore(INDEX, message_id)
        assert score is not None, "a message that was just written is gone"
        return float(score)

    def picked(self, pick: int, *, phantoms: bool = False) -> str | None:
        ids = sorted(id_ for id_, held in self.model.messages.items() if phantoms or not held.is_phantom)
        return ids[pick % len(ids)] if ids else None

    def receipt(self, pick: int) -> Message | None:
        """Return one of the last receipts, whatever became of its message since."""
        if not self.receipts:
            self.receive(2, 0, 9, False)
        recent = self.receipts[-10:]
        return recent[pick % len(recent)] if recent else None

    def refusal(self) -> type[RsmqError] | None:
        """Return the error of every call on a queue that does not exist."""
        return None if self.model.exists else QueueNotFound

    def answer(self, receipt: Message) -> SettleResult:
        """Return what a receipt is still worth."""
        held = self.model.messages.get(receipt.id)
        if held is None:
            return SettleResult.MISSING
        return SettleResult.DONE if held.receive_count == receipt.receive_count else SettleResult.LEASE_LOST

    # -- The queue ----------------------------------------------------------------------------------------------------

    @initialize()
    def start_with_a_queue(self) -> None:
        self.create(30, 0, False)

    @rule(visibility_timeout_s=st.sampled_from([30, 1]), delay_s=st.sampled_from([0, 7]), is_async=ASYNC)
    def create(self, visibility_timeout_s: int, delay_s: int, is_async: bool) -> None:
        attributes = {"visibility_timeout_s": visibility_timeout_s, "delay_s": delay_s, "max_size_bytes": 1024}
        result, _, _ = self.call("create", is_async, **attributes)
        if self.is_full:
            assert isinstance(result, QueueFull)
            return
        assert isinstance(result, QueueExists) if self.model.exists else result is None, repr(result)
        self.model.attributes = self.model.attributes or {
            "vt": visibility_timeout_s,
            "delay": delay_s,
            "maxsize": 1024,
        }
        self.model.is_listed = True

    @rule(is_async=ASYNC, sure=PICKS)
    def delete_queue(self, is_async: bool, sure: int) -> None:
        if sure:  # rarely, or no history would grow
            return
        result, _, _ = self.call("delete_queue", is_async)
        assert result is None if self.model.has_keys else isinstance(result, QueueNotFound)
        self.model.delete_queue()

    @rule(
        visibility_timeout_s=st.sampled_from([None, 1, 30]),
        delay_s=st.sampled_from([None, 0, 7]),
        max_size_bytes=st.sampled_from([2048, -1]),
        is_async=ASYNC,
    )
    def set_attributes(
        self, visibility_timeout_s: int | None, delay_s: int | None, max_size_bytes: int, is_async: bool
    ) -> None:
        wanted = {"vt": visibility_timeout_s, "delay": delay_s, "maxsize": max_size_bytes}
        result, _, _ = self.call(
            "set_attributes",
            is_async,
            visibility_timeout_s=visibility_timeout_s,
            delay_s=delay_s,
            max_size_bytes=max_size_bytes,
        )
        if not self.model.exists:
            assert isinstance(result, QueueNotFound)
        elif self.is_full:
            assert isinstance(result, QueueFull)
        else:
            self.model.attributes |= {name: value for name, value in wanted.items() if value is not None}
            assert result.max_size_bytes == max_size_bytes

    # -- Messages -----------------------------------------------------------------------------------------------------

    @rule(bodies=BODIES, delay_s=DELAYS_S, is_async=ASYNC)
    def send(self, bodies: list[bytes], delay_s: float | None, is_async: bool) -> None:
        result, before, after = self.call("send_many", is_async, bodies, delay_s=delay_s)
        if not self.model.exists:
            assert isinstance(result, QueueNotFound)
            return
        if self.is_full:
            assert isinstance(result, QueueFull), "a full server took a message"
            return
        delay_ms = (self.model.attributes["delay"] if delay_s is None else delay_s) * 1000
        assert len(set(result)) == len(bodies) and result == sorted(result)
        for message_id, body in zip(result, bodies, strict=True):
            assert message_id not in self.model.gone and message_id not in self.model.messages
            assert before <= int(message_id[:10], 36) / 1000 < after + 1.1
            assert before <= self.score(message_id) - delay_ms <= after
            self.model.messages[message_id] = Held(self.score(message_id), body)
        self.model.total_sent += len(bodies)

    @rule(is_async=ASYNC)
    def send_too_much(self, is_async: bool) -> None:
        limit = self.model.attributes.get("maxsize", 1024)
        if limit < 0:
            return
        result, _, _ = self.call("send_many", is_async, [b"fits", b"x" * (limit + 1)])
        # A full server refuses at the first write, which comes after the check.
        assert isinstance(result, self.refusal() or MessageTooLong)

    @rule(count=st.integers(1, 3), timeout_s=TIMEOUTS_S, after_s=PICKS, is_async=ASYNC)
    def receive(self, count: int, timeout_s: float | None, after_s: int, is_async: bool) -> None:
        if after_s < 3:
            self.time_passes(31.7)
        self.supply()
        result, before, after = self.call("receive_many", is_async, count, visibility_timeout_s=timeout_s)
        if not self.model.exists:
            assert isinstance(result, QueueNotFound)
            return
        assert not isinstance(result, RsmqError), repr(result)
        timeout_ms = (self.model.attributes["vt"] if timeout_s is None else timeout_s) * 1000
        self.check_order([message.id for message in result], count, before, after)
        self.check_phantoms(count, before, after)
        for message in result:
            self.check_delivery(message, before, after, timeout_ms)
        self.receipts += result

    def supply(self) -> None:
        """Send something when nothing is ready: a history of empty receives shows little."""
        if self.model.exists and not self.is_full and not self.model.deliverable(self.now_ms()):
            self.send([b"one", b"two"], 0, False)

    @rule(is_async=ASYNC)
    def pop(self, is_async: bool) -> None:
        self.supply()
        result, before, after = self.call("pop", is_async)
        if not self.model.exists:
            assert isinstance(result, QueueNotFound)
            return
        assert not isinstance(result, RsmqError), repr(result)
        self.check_order([result.id] if result else [], 1, before, after)
        self.check_phantoms(1, before, after)
        if result is not None:
            self.check_delivery(result, before, after, None)
            self.model.remove(result.id)

    def check_order(self, ids: list[str], count: int, before: int, after: int) -> None:
        """The oldest ready messages, in order, and none that had to come earlier left out."""
        assert len(ids) <= count and len(set(ids)) == len(ids)
        assert not set(ids) & self.model.gone, "a deleted message came back"
        possible, certain = self.model.deliverable(after), self.model.deliverable(before)
        assert ids == possible[: len(ids)], "not the oldest ready messages"
        assert len(ids) >= min(count, len(certain)), "a ready message was left out"

    def check_phantoms(self, count: int, before: int, after: int) -> None:
        """Overdue phantoms in front of what was delivered are gone, all others are left alone."""
        there = {id_ for id_, held in self.model.messages.items() if held.is_phantom}
        removed = {id_ for id_ in there if self.redis.zscore(INDEX, id_) is None}
        assert set(self.model.meet_phantoms(count, before)) <= removed <= set(self.model.meet_phantoms(count, after))
        self.model.drop_phantoms(sorted(removed))

    def check_delivery(self, message: Message, before: int, after: int, timeout_ms: float | None) -> None:
        held = self.model.messages[message.id]
        score = held.score_ms if timeout_ms is None else self.score(message.id)
        if timeout_ms is not None:
            assert before <= score - timeout_ms <= after, "the lease has another length"
        first_received_ms = held.first_received_ms or message.first_received_ms or 0
        held = self.model.deliver(message.id, now_ms=first_received_ms, score_ms=score)
        assert message == Message(message.id, held.body, held.receive_count, held.first_received_ms)
        assert held.receive_count > 1 or before <= first_received_ms <= after

    @rule(pick=PICKS, is_async=ASYNC)
    def delete(self, pick: int, is_async: bool) -> None:
        receipt = self.receipt(pick)
        if receipt is None:
            return
        result, _, _ = self.call("delete", is_async, receipt)
        self.check_settlement(result, self.answer(receipt), "a late worker deleted what another one holds")
        if result is True:
            self.model.remove(receipt.id)

    @rule(picks=st.lists(PICKS, max_size=3), pick=PICKS, is_async=ASYNC)
    def delete_many(self, picks: list[int], pick: int, is_async: bool) -> None:
        batch = [receipt for receipt in map(self.receipt, picks) if receipt is not None]
        bare = self.picked(pick, phantoms=True)
        wanted: list[Message | str] = [*batch, *([bare] if bare else [])]
        expected = [*map(self.answer, batch), *([SettleResult.DONE] if bare else [])]
        result, _, _ = self.call("delete_many", is_async, wanted)
        if not self.model.exists and wanted:
            assert isinstance(result, QueueNotFound)
            return
        assert result == expected, "what became of a batch is not what was told"
        for one, settlement in zip(wanted, expected, strict=True):
            id_ = one if isinstance(one, str) else one.id
            if settlement is SettleResult.DONE and id_ in self.model.messages:
                self.model.remove(id_)

    @rule(pick=PICKS, timeout_s=st.sampled_from([0, 1, 30]), is_async=ASYNC)
    def change_visibility(self, pick: int, timeout_s: float, is_async: bool) -> None:
        receipt = self.receipt(pick)
        if receipt is None:
            return
        result, before, after = self.call("change_visibility", is_async, receipt, timeout_s)
        self.check_settlement(result, self.answer(receipt), "a late worker changed the lease of another one")
        if result is True:
            self.check_moved(receipt.id, timeout_s, before, after)

    @rule(pick=PICKS, timeout_s=st.sampled_from([0, 1, 30]), is_async=ASYNC)
    def change_visibility_by_id(self, pick: int, timeout_s: float, is_async: bool) -> None:
        message_id = self.picked(pick, phantoms=True)
        if message_id is None:
            return
        result, before, after = self.call("change_visibility", is_async, message_id, timeout_s)
        self.check_settlement(result, SettleResult.DONE, "")
        if result is True:
            self.check_moved(message_id, timeout_s, before, after)

    def check_settlement(self, result: Any, expected: SettleResult, otherwise: str) -> None:
        if not self.model.exists:
            assert isinstance(result, QueueNotFound)
        elif expected is SettleResult.LEASE_LOST:
            assert isinstance(result, LeaseLost), otherwise
        else:
            assert result is (expected is SettleResult.DONE)

    def check_moved(self, message_id: str, timeout_s: float, before: int, after: int) -> None:
        score = self.score(message_id)
        assert before <= score - timeout_s * 1000 <= after
        self.model.messages[message_id].score_ms = score

    # -- Clients of other kinds, as the reference works ---------------------------------------------------------------

    @rule(body=st.sampled_from([b"", b"from node"]), delay_s=st.sampled_from([0, 7]), is_late=ASYNC)
    def foreign_send(self, body: bytes, delay_s: int, is_late: bool) -> None:
        """Look for the queue, then write in a transaction; a late one writes although the queue is gone by then."""
        if self.is_full or not (self.model.exists or is_late):
            return
        message_id, score = "0mxk3d9qaw" + random_suffix(), self.now_ms() + delay_s * 1000
        pipeline: Any = self.redis.pipeline(transaction=True)
        pipeline.zadd(INDEX, {message_id: score}).hset(HASH, message_id, body).hincrby(HASH, "totalsent", 1).execute()
        self.model.messages[message_id] = Held(score, body)
        self.model.total_sent += 1

    @rule(timeout_s=st.sampled_from([0, 30]))
    def foreign_receive(self, timeout_s: int) -> None:
        """Take the oldest ready one; a phantom is handed out like a message."""
        if self.is_full or not self.model.exists:
            return
        now = self.now_ms()
        oldest: Any = self.redis.zrangebyscore(INDEX, "-inf", now, start=0, num=1)
        assert [message_id.decode() for message_id in oldest] == list(self.model.ready(now))[:1]
        for message_id in map(bytes.decode, oldest):
            score = now + timeout_s * 1000
            held = self.model.deliver(message_id, now_ms=now, score_ms=score)
            pipeline: Any = self.redis.pipeline(transaction=True)
            pipeline.zadd(INDEX, {message_id: score}).hincrby(HASH, "totalrecv", 1)
            pipeline.hincrby(HASH, f"{message_id}:rc", 1)
            if held.receive_count == 1:
                pipeline.hset(HASH, f"{message_id}:fr", now)
            pipeline.execute()

    @rule(pick=PICKS)
    def foreign_delete(self, pick: int) -> None:
        """By id, whoever holds the message."""
        message_id = self.picked(pick, phantoms=True)
        if message_id is not None and not self.is_full:
            self.redis.zrem(INDEX, message_id)
            self.redis.hdel(HASH, message_id, f"{message_id}:rc", f"{message_id}:fr")
            self.model.remove(message_id)

    @rule(pick=PICKS, timeout_s=st.sampled_from([0, 30]))
    def foreign_change_visibility(self, pick: int, timeout_s: int) -> None:
        message_id = self.picked(pick, phantoms=True)
        if message_id is not None and not self.is_full:
            score = self.now_ms() + timeout_s * 1000
            self.redis.zadd(INDEX, {message_id: score}, xx=True)
            self.model.messages[message_id].score_ms = score

    @rule(pick=PICKS)
    def foreign_delete_that_leaves_the_body(self, pick: int) -> None:
        message_id = self.picked(pick)
        if message_id is not None and not self.is_full:
            self.redis.zrem(INDEX, message_id)
            self.redis.hdel(HASH, f"{message_id}:rc", f"{message_id}:fr")
            self.model.orphans[message_id] = self.model.messages[message_id].body or b""
            self.model.remove(message_id)

    @rule(overdue_s=st.sampled_from([60, 0.5]))
    def foreign_phantom(self, overdue_s: float) -> None:
        """The index of a message whose body never came."""
        if not self.is_full:
            message_id, score = "0mxk3d9qaw" + random_suffix(), self.now_ms() - overdue_s * 1000
            self.redis.zadd(INDEX, {message_id: score})
            self.model.messages[message_id] = Held(score, None)

    # -- The world ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.9, 3.3, 31.7]))
    def time_passes(self, seconds: float) -> None:
        self.redis.config_set("maxmemory", 0)  # moving scores is no operation of ours: it need not work when full
        pass_time(self.queue, seconds=seconds)
        self.redis.config_set("maxmemory", int(self.is_full))
        self.model.pass_time(int(seconds * 1000))

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.redis.script_flush()

    @rule(is_full=st.booleans())
    def memory_is(self, is_full: bool) -> None:
        self.supply()
        self.is_full = is_full
        self.redis.config_set("maxmemory", int(is_full))

    @rule(chance=st.integers(0, 14))
    def server_crashes(self, chance: int) -> None:
        if chance == 0:
            self.server.restart()
            self.is_full = False

    @rule(deep=st.booleans())
    def doctor_looks(self, deep: bool) -> None:
        """What was there ten seconds ago is found, and nothing else."""
        found = {finding.id for finding in examine(self.client, deep=deep)}
        phantoms = [held for held in self.model.messages.values() if held.is_phantom]
        old = [held for held in phantoms if held.score_ms < self.now_ms() - 2 * PHANTOM_GRACE_MS]
        assert "phantoms" in found or not (old and self.model.exists)
        assert phantoms or "phantoms" not in found
        assert self.model.orphans or "orphan-bodies" not in found
        assert "orphan-counters" not in found
        assert ("unlisted" in found) == (self.model.exists and not self.model.is_listed)

    # -- What must hold after every step ------------------------------------------------------------------------------

    @invariant()
    def redis_holds_what_the_model_says(self) -> None:
        scores = {id_.decode(): score for id_, score in self.redis.zrange(INDEX, 0, -1, withscores=True)}
        assert scores == self.model.scores(), "messages"
        fields = {name.decode(): value for name, value in self.redis.hgetall(HASH).items()}
        assert (fields.pop("created", None) is not None) == self.model.exists
        assert (fields.pop("modified", None) is not None) == self.model.exists
        assert fields == self.model.fields(), "attributes, counters or bodies"
        assert list_queues(self.client) == ["jobs"] * self.model.is_listed
        assert int(self.redis.hget(TRACE, "removed") or 0) == self.model.phantoms_removed

    @invariant()
    def attributes_add_up(self) -> None:
        result, before, after = self.call("attributes", False)
        if not self.model.exists:
            assert isinstance(result, QueueNotFound)
            return
        assert (result.total_sent, result.total_received) == (self.model.total_sent, self.model.total_received)
        assert result.messages == len(self.model.messages)
        assert len(list(self.model.ready(before))) <= result.ready_messages <= len(list(self.model.ready(after)))


def machine_on(server: PrivateServer) -> type[QueueMachine]:
    return type("QueueMachineOnServer", (QueueMachine,), {"server": server})


OPTIONS = settings(
    stateful_step_count=40,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
def test_every_history_ends_as_in_the_model(server: PrivateServer):
    run_state_machine_as_test(machine_on(server), settings=settings(OPTIONS, max_examples=EXAMPLES))


# -- A test that cannot fail proves nothing ------------------------------------------------------------------------


Replace = Callable[[str, str], None]


@pytest.fixture
def in_scripts(server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replace]:
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


REMOVES = 'redis.call("HDEL", settings, ":fr")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("piece", "by", "complaint"),
    [
        pytest.param("stored[n] ~= receive_counts[n]", "false", "a late worker|became of a batch", id="no fence"),
        pytest.param(REMOVES, "", "QueueFull", id="adds without removing"),
        pytest.param('redis.call("HDEL", settings, unpack(fields))', "", "counters or bodies", id="leaves bodies"),
        pytest.param("now_ms - PHANTOM_GRACE_MS", "now_ms", "check_phantoms", id="no grace for senders"),
        pytest.param(
            '"(" .. integer(now_ms)', '"(" .. integer(time[1] * 1000)', "ready_messages", id="hides fresh ones"
        ),
    ],
)
def test_broken_script_is_found_out(server: PrivateServer, in_scripts: Replace, piece: str, by: str, complaint: str):
    in_scripts(piece, by)
    options = settings(OPTIONS, max_examples=500, phases=[Phase.generate], derandomize=True)

    with pytest.raises((AssertionError, RsmqError, AttributeError)) as failure:
        run_state_machine_as_test(machine_on(server), settings=options)

    assert re.search(complaint, "".join(traceback.format_exception(failure.value)))
