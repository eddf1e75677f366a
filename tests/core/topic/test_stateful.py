"""Random histories of one topic, compared after each step with a list in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rsmq_django.core import Client, Connection
from rsmq_django.core.topic import Topic, TopicBatch
from tests.core.topic.plain_client import PlainClient
from tests.redis_server import PrivateServer

GROUPS = st.sampled_from(["a", "b"])
COUNTS = st.integers(1, 7)
MAX_DELIVERIES = 2


@dataclass
class GroupModel:
    """What should be known about a group."""

    position: int = 0
    held: dict[int, int] = field(default_factory=dict)  #: index -> deliveries
    #: Those of them that may be handed out again at once.
    due: set[int] = field(default_factory=set)
    exists: bool = False
    #: The cursor was deleted, and nothing was read since: the group is wherever the log begins.
    is_at_start: bool = False

    @property
    def cursor(self) -> int | None:
        if self.is_at_start:
            return None
        return min(self.held) - 1 if self.held else self.position


class TopicMachine(RuleBasedStateMachine):
    """A topic with two groups that read in both ways, and a plain client beside them."""

    server: PrivateServer

    def __init__(self) -> None:
        super().__init__()
        self.server.empty()
        self.topic = Topic("orders", Client(Connection(self.server.url, timeout_s=15)))
        self.plain = PlainClient(self.server.redis, "orders")
        self.log: dict[int, bytes] = {}
        self.last = 0
        self.first = 1
        self.dead: list[bytes] = []
        self.groups = {"a": GroupModel(), "b": GroupModel()}

    def teardown(self) -> None:
        self.topic.client.connection.close()

    # -- Writing -------------------------------------------------------------------------------------------------------

    @rule(bodies=st.lists(st.binary(max_size=5), min_size=1, max_size=8))
    def publish(self, bodies: list[bytes]) -> None:
        assert self.topic.publish(*bodies) == range(self.last + 1, self.last + len(bodies) + 1)
        for body in bodies:
            self._append(body)

    @rule(body=st.binary(max_size=5))
    def plain_client_publishes(self, body: bytes) -> None:
        assert self.plain.send(body) == self.last + 1
        self._append(body)

    def _append(self, body: bytes) -> None:
        self.last += 1
        self.log[self.last] = body

    @rule(keep=st.integers(0, 10))
    def trim(self, keep: int) -> None:
        to = max(self.first - 1, self.last - keep)
        assert self.topic.trim(keep=keep) == to - self.first + 1
        self.first = to + 1
        self.log = {index: body for index, body in self.log.items() if index >= self.first}

    @rule(ahead=st.integers(0, 9))
    def somebody_deletes_a_message(self, ahead: int) -> None:
        index = self.first + ahead
        if index in self.log:
            self.server.redis.delete(f"orders:messages:{index}")
            del self.log[index]

    # -- Reading -------------------------------------------------------------------------------------------------------

    def _locate(self, model: GroupModel) -> int:
        """Return how many messages the group missed, and let it jump over them."""
        if not model.exists:
            model.exists, model.position = True, self.first - 1
        if model.is_at_start:
            model.position = self.first - 1
        skipped = max(0, self.first - 1 - model.position)
        model.position += skipped
        return skipped

    def _next(self, model: GroupModel, count: int) -> tuple[list[int], int]:
        """Return the indexes that come next and the position behind them."""
        found: list[int] = []
        position = model.position
        while position < self.last and len(found) < count:
            position += 1
            if position in self.log:
                found.append(position)
        model.is_at_start = model.is_at_start and position == model.position
        return found, position

    @rule(name=GROUPS, count=COUNTS)
    def read(self, name: str, count: int) -> None:
        model = self.groups[name]
        batch = self.topic.group(name).read(count)
        assert batch.skipped == self._locate(model)
        found, model.position = self._next(model, count)
        assert [(message.index, message.body) for message in batch] == [(index, self.log[index]) for index in found]
        assert batch.left == self.last - model.position

    @rule(name=GROUPS, count=COUNTS, expired=st.booleans())
    def lease(self, name: str, count: int, expired: bool) -> None:
        model = self.groups[name]
        group = self.topic.group(name, at_least_once=True, max_deliveries=MAX_DELIVERIES)
        if expired:
            group.retry(list(model.held))
            model.due = set(model.held)
        self._check_lease(model, group.read(count), count)

    def _check_lease(self, model: GroupModel, batch: TopicBatch, count: int) -> None:
        skipped = self._locate(model)
        due = sorted(model.due & model.held.keys())  # all are due at the same time
        spent = [index for index in due if model.held[index] >= MAX_DELIVERIES]
        due = sorted([*spent[:count], *[index for index in due if index not in spent][:count]])
        model.due -= set(due)
        gone = [index for index in due if index not in self.log]
        assert batch.skipped == skipped + sum(index < self.first for index in gone)
        dead = [index for index in due if index in self.log and model.held[index] >= MAX_DELIVERIES]
        again = [index for index in due if index not in gone and index not in dead]
        for index in (*gone, *dead):
            del model.held[index]
        self.dead += [self.log[index] for index in dead]
        for index in again:
            model.held[index] += 1
        fresh, model.position = self._next(model, count - len(again))
        model.held |= dict.fromkeys(fresh, 1)
        given = [(message.index, message.body, message.deliveries) for message in batch.messages]
        assert given == [(index, self.log[index], model.held[index]) for index in again + fresh]
        assert batch.dead_lettered == len(dead)

    @rule(name=GROUPS, choice=st.sets(st.integers(1, 60), min_size=1, max_size=8))
    def acknowledge(self, name: str, choice: set[int]) -> None:
        model = self.groups[name]
        held = choice & model.held.keys()
        (call,) = self.topic.group(name).ack_calls(choice)
        assert self.topic.client.run(call) == [index in held for index in choice]
        for index in held:
            del model.held[index]

    @rule(name=GROUPS)
    def plain_client_polls(self, name: str) -> None:
        model = self.groups[name]
        if model.held or not model.exists or model.is_at_start:
            return  # which messages it gets then is said elsewhere
        self._plain_poll(name, model)

    def _plain_poll(self, name: str, model: GroupModel) -> None:
        position = model.position
        while position < self.last:
            position += 1
            if position in self.log:
                assert self.plain.poll(name) == self.log[position]
                break
        else:
            assert self.plain.poll(name) is None
        model.position = position

    # -- Going somewhere else ------------------------------------------------------------------------------------------

    @rule(name=GROUPS, by_plain_client=st.booleans())
    def replay(self, name: str, by_plain_client: bool) -> None:
        model = self.groups[name]
        if not model.exists:
            return
        if by_plain_client:
            self.plain.unsubscribe(name)
        else:
            self.topic.group(name).replay(force=True)
        model.position, model.held, model.is_at_start = self.first - 1, {}, True

    @rule(name=GROUPS, index=st.integers(0, 60))
    def seek(self, name: str, index: int) -> None:
        model = self.groups[name]
        result = self.topic.group(name).seek(index, force=True)
        model.exists, model.held, model.is_at_start = True, {}, False
        model.position = min(max(index - 1, self.first - 1), self.last)
        assert result.after == model.position + 1

    # -- What always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def stored_messages_are_the_models(self) -> None:
        keys = self.server.redis.keys("orders:messages:*")
        stored = {int(key.rpartition(b":")[2]): self.server.redis.get(key) for key in keys}
        assert stored == self.log
        assert (self.topic.status().first, self.topic.status().last) == (self.first, self.last)

    @invariant()
    def groups_are_where_the_model_has_them(self) -> None:
        for name, model in self.groups.items():
            status = self.topic.group(name).status()
            assert status.exists == model.exists
            if not model.exists:
                continue
            position = self.first - 1 if model.is_at_start else model.position
            assert (status.position, status.held) == (position, len(model.held))
            cursor = self.server.redis.get(f"orders:{name}:nextIndex")
            assert cursor == (None if model.cursor is None else str(model.cursor).encode())
            assert status.lag == sum(index > position for index in range(self.first, self.last + 1))

    @invariant()
    def dead_letters_are_all_there(self) -> None:
        keys = (f"orders.dlt:messages:{n}" for n in range(1, len(self.dead) + 1))
        assert [self.server.redis.get(key) for key in keys] == self.dead


@pytest.mark.slow
def test_histories_of_a_topic_agree_with_the_model(server: PrivateServer) -> None:
    machine: Any = type("Machine", (TopicMachine,), {"server": server})
    machine.TestCase.settings = settings(
        max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    machine.TestCase("runTest").runTest()
