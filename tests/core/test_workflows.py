"""Workflows in Redis: registered members, their ends, the calls that follow, and safe repeats."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import MessageTooLong
from rsmq_django.core.limits import MAX_BATCH
from rsmq_django.core.tasks.workflow_outcomes import TOO_LONG, Extent, find_numbers, numbers_in, outcomes, read_extent
from rsmq_django.core.tasks.workflow_records import (
    Unfinished,
    WorkflowStatus,
    live_tasks,
    newest,
    read_failed,
    read_later,
    read_members,
    read_statuses,
    read_unfinished,
)
from rsmq_django.core.tasks.workflows import (
    MemberBatch,
    Target,
    await_room,
    create,
    expect,
    prepare,
    room_key,
    seal,
    skip,
    start,
    stop,
)
from rsmq_django.core.transport.reading_steps import run_reading
from tests.redis_server import PrivateServer

WEEK_MS = 7 * 86_400_000
STATE, MEMBERS, RESULTS, FAILURES, STEPS = (
    f"rsmq::workflow:w{part}" for part in ("", *map(":{}".format, ("members", "results", "failures", "steps")))
)


class Flow:
    """The workflow "w", whose messages go to the queue "jobs"."""

    def __init__(self, client: Client, server: PrivateServer) -> None:
        self.client, self.server = client, server
        self.options: dict[str, Any] = {"keep_ms": WEEK_MS, "fields": {"kind": "group", "keeps": "1"}}

    def create(self, *queue_names: str) -> list[str]:
        return self.client.run(create("rsmq", "w", queue_names=queue_names, **self.options))

    def start(self, *bodies: bytes, steps: Any = (), later: Any = (), **options: Any) -> list[str]:
        """Start it with a member for each body, "t0" and so on."""
        calls = [(number, f"t{number}", body) for number, body in enumerate(bodies)]
        values: dict[str, Any] = {"queue_name": "jobs", "channel": "c", "delay": 0, "record_ttl_s": 3600}
        batch = MemberBatch(**values | options, calls=calls)
        words = {"calls": len(calls), "steps": steps, "later_queues": later, "batches": [batch]}
        return self.client.run(start("rsmq", "w", **words, **self.options))

    def expect(self, *tasks: str, first: int = 0) -> int:
        return self.client.run(expect("rsmq", "w", first=first, calls=len(tasks), task_ids=tasks))

    def end(self, member: int, task: str = "", *, value: str = "null", targets: Any = ()) -> bool:
        """Let a member succeed."""
        return self.client.run(skip("rsmq", "w", member, task or f"t{member}", targets, value))

    def seal(self, members: int, *targets: Target, **fields: str) -> bool:
        return self.client.run(seal("rsmq", "w", members=members, targets=targets, fields=fields))

    def stop(self) -> bool:
        return self.client.run(stop("rsmq", "w"))

    @property
    def status(self) -> WorkflowStatus:
        (status,) = self.client.run(read_statuses("rsmq", ["w"]))
        assert status is not None
        return status

    @property
    def tokens(self) -> int:
        return int(self.server.redis.llen(room_key("rsmq", "w")))


@pytest.fixture
def flow(client: Client, queue: Queue, server: PrivateServer) -> Flow:
    return Flow(client, server)


def then(task: str = "after", queue_name: str = "jobs") -> Target:
    return Target("then", "then", task, queue_name, "c")


def bodies_in(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.receive_many(100)]


# -- Its beginning ---------------------------------------------------------------------------------------------------


def test_creating_it_again_changes_nothing_and_returns_the_missing_queues(flow: Flow):
    assert flow.create("jobs", "nowhere") == ["nowhere"]
    assert flow.expect("t0") == 1

    assert flow.create("nowhere", "jobs") == ["nowhere"]

    assert (flow.status.members, flow.status.state, flow.status.is_sealed) == (1, "running", False)


@pytest.mark.parametrize("how", ["create", "start"])
def test_only_the_newest_are_listed(client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch, how: str):
    monkeypatch.setattr("rsmq_django.core.tasks.workflows.MAX_LISTED", 2)
    options: dict[str, Any] = {"keep_ms": WEEK_MS, "fields": {}}
    for name in ("a", "b", "c"):
        if how == "create":
            client.run(create("rsmq", name, queue_names=[], **options))
        else:
            batch = MemberBatch("jobs", "c", 0, 0, [(0, f"{name}0", b"x")])
            client.run(start("rsmq", name, calls=1, steps=[], later_queues=[], batches=[batch], **options))

    assert set(client.run(newest("rsmq", 10))) == {"b", "c"}
    assert len(client.run(newest("rsmq", 1))) == 1


def test_newest_are_listed_the_newest_first(client: Client, server: PrivateServer):
    server.redis.zadd("rsmq::workflows", {"old": 1, "new": 3, "middle": 2})

    assert client.run(newest("rsmq", 2)) == ["new", "middle"]


def test_start_sends_all_members_once(flow: Flow, queue: Queue):
    assert flow.start(b"one", b"two") == []
    assert flow.start(b"one", b"two") == []

    assert bodies_in(queue) == [b"one", b"two"]
    assert queue.attributes().total_sent == 2
    status = flow.status
    assert (status.members, status.waiting, status.total, status.is_sealed) == (2, 2, 2, True)
    assert flow.server.redis.ttl("rsmq::result:t1") in range(1, 3601)


def test_subscribed_workers_are_woken_for_members_and_callbacks(flow: Flow):
    with flow.client.connection.subscriber(["c"]) as waiting:
        assert waiting.get_message(timeout=60)["type"] == "subscribe"

        flow.start(b"x", steps=[("then", b"0 60 after")])
        assert waiting.get_message(timeout=60)["data"] == b"1"
        flow.end(0, targets=[then()])
        assert waiting.get_message(timeout=60)["data"] == b"2"


def test_start_with_a_missing_queue_writes_nothing(flow: Flow, server: PrivateServer):
    before = set(server.redis.keys())

    assert flow.start(b"x", later=["jobs", "nowhere"]) == ["nowhere"]
    assert flow.start(b"x", queue_name="elsewhere") == ["elsewhere"]

    assert set(server.redis.keys()) == before


def test_body_may_be_as_long_as_its_queue_allows(flow: Flow, queue: Queue, server: PrivateServer):
    queue.set_attributes(max_size_bytes=1024)
    before = set(server.redis.keys())

    with pytest.raises(MessageTooLong, match=r"1,?025"):
        flow.start(b"x", b"x" * 1025)
    assert set(server.redis.keys()) == before

    assert flow.start(b"x" * 1024) == []
    assert len(bodies_in(queue)) == 1


def test_queue_without_a_limit_takes_a_body_of_any_length(flow: Flow, queue: Queue):
    queue.set_attributes(max_size_bytes=-1)

    assert flow.start(b"x" * 70_000) == []

    assert len(bodies_in(queue)) == 1


def test_call_without_a_result_has_no_record_and_the_next_batch_follows(
    flow: Flow, client: Client, server: PrivateServer
):
    other = Queue("mail", client)
    other.create()
    batches = [
        MemberBatch("jobs", "c", 0, 0, [(0, "t0", b"a"), (1, "t1", b"b")]),
        MemberBatch("mail", "c", 0, 60, [(2, "t2", b"c")], owner="@mail"),
    ]
    words: dict[str, Any] = {"calls": 3, "steps": [], "later_queues": [], "batches": batches}

    assert client.run(start("rsmq", "w", **words, **flow.options)) == []

    assert server.redis.keys("rsmq::result:*") == [b"rsmq::result:t2"]
    assert bodies_in(other) == [b"c"]
    assert server.redis.hgetall(MEMBERS) == {b"0": b"t0", b"1": b"t1", b"2": b"t2@mail"}


# -- Members ---------------------------------------------------------------------------------------------------------


def test_members_are_registered_once_with_any_number_of_repeats(flow: Flow):
    flow.create()

    assert flow.expect("t0", "t1") == flow.expect("t0", "t1") == 2
    assert flow.expect("t2", first=2) == 3

    assert (flow.status.members, flow.status.total) == (3, 3)


@pytest.mark.parametrize("why", ["gone", "sealed", "cancelled", "members are missing before them"])
def test_no_members_are_taken_any_more(flow: Flow, why: str):
    if why != "gone":
        flow.create()
        flow.expect("t0")
    if why == "sealed":
        flow.seal(1)
    if why == "cancelled":
        flow.stop()

    assert flow.expect("t2", first=2 if why == "members are missing before them" else 1) == -1

    if why != "gone":
        assert (flow.status.members, flow.status.total) == (1, 1)


def test_sender_that_waits_is_woken_when_few_enough_members_are_left(flow: Flow, client: Client):
    flow.create()
    flow.expect("t0", "t1", "t2", "t3")

    assert client.run(await_room("rsmq", "w", low=2)) == 4
    flow.end(0)
    assert flow.tokens == 0
    flow.end(1)
    assert flow.tokens == 1
    flow.end(2)
    assert flow.tokens == 1, "it is woken once"


def test_sender_that_need_not_wait_finds_no_token_later(flow: Flow, client: Client):
    flow.create()
    flow.expect("t0", "t1")

    assert client.run(await_room("rsmq", "w", low=2)) == 2
    flow.end(0)

    assert flow.tokens == 0


def test_token_of_an_earlier_wait_is_taken_away(flow: Flow, client: Client, server: PrivateServer):
    flow.create()
    flow.expect("t0", "t1", "t2")
    server.redis.rpush(room_key("rsmq", "w"), "1")

    assert client.run(await_room("rsmq", "w", low=1)) == 3

    assert flow.tokens == 0


def test_waiting_sender_learns_that_the_workflow_has_ended(flow: Flow, client: Client):
    assert client.run(await_room("rsmq", "w", low=1)) == -1
    flow.create()
    flow.expect("t0", "t1")
    client.run(await_room("rsmq", "w", low=1))

    assert flow.stop()

    assert flow.tokens == 1
    assert client.run(await_room("rsmq", "w", low=1)) == -1


def test_member_ends_once_and_by_its_own_task(flow: Flow):
    flow.create()
    flow.expect("t0", "t1")

    assert not flow.end(0, "other")
    assert not flow.end(7)
    assert flow.end(0, value="5")
    assert not flow.end(0, value="6")

    assert (flow.status.done, flow.status.waiting) == (1, 1)
    assert flow.server.redis.hgetall(RESULTS) == {b"0": b"5"}


def test_next_step_is_sent_and_becomes_the_task_of_the_member(flow: Flow, queue: Queue):
    flow.create()
    flow.expect("t0")
    flow.client.run(prepare("rsmq", "w", [("0.1", b"0 60 second")]))
    step = Target("next", "0.1", "u0", "jobs", "c", owner="@jobs")

    assert flow.end(0, value="5", targets=[step])
    assert not flow.end(0, value="6", targets=[step])

    assert bodies_in(queue) == [b"second"]
    assert flow.server.redis.hgetall(MEMBERS) == {b"0": b"u0@jobs"}
    assert (flow.status.done, flow.status.waiting) == (1, 1)
    assert flow.end(0, "u0@jobs")
    assert flow.status.waiting == 0


@pytest.mark.parametrize("keeps", ["0", "1"])
def test_result_of_a_step_is_stored_for_the_next_one_and_kept_only_on_request(flow: Flow, keeps: str):
    flow.options["fields"] = {"keeps": keeps}
    flow.create()
    flow.expect("t0")
    flow.client.run(prepare("rsmq", "w", [("0.1", b"0 60 second")]))

    flow.end(0, value="5", targets=[Target("next", "0.1", "u0", "jobs", "c")])
    assert flow.server.redis.hgetall(RESULTS) == {b"0": b"5"}
    flow.end(0, "u0", value="6")

    assert flow.server.redis.hgetall(RESULTS) == ({b"0": b"6"} if keeps == "1" else {})


def test_member_of_an_older_release_ends_without_the_name_of_its_queue(flow: Flow):
    flow.create()
    flow.expect("t0", "t1")

    assert flow.end(0, "t0@jobs")
    assert not flow.end(1, "t0@jobs")


def test_only_the_last_result_is_kept_and_none_without_keep_results(flow: Flow):
    flow.options["fields"] = {"keeps": "0"}
    flow.create()
    flow.expect("t0")

    flow.end(0, value="5")

    assert not flow.server.redis.exists(RESULTS)
    assert flow.status.done == 1


# -- Its end ---------------------------------------------------------------------------------------------------------


def test_workflow_ends_when_all_members_have_ended_and_sends_its_callback_once(flow: Flow, queue: Queue):
    flow.create()
    flow.client.run(prepare("rsmq", "w", [("then", b"0 60 after")]))
    flow.expect("t0", "t1")
    flow.end(0)
    assert flow.seal(2, then(), shape="known")
    assert flow.status.state == "running"

    flow.end(1, targets=[then()])

    assert (flow.status.state, flow.status.shape, flow.status.finished_ms is not None) == ("succeeded", "known", True)
    assert bodies_in(queue) == [b"after"]
    assert flow.seal(2, then(), shape="other"), "its reply may have been lost"
    assert flow.status.shape == "known"
    assert bodies_in(queue) == []


def test_it_does_not_end_before_it_is_sealed(flow: Flow):
    flow.create()
    flow.expect("t0")
    flow.end(0)

    assert flow.status.state == "running"
    assert not flow.seal(2), "one of them is not known here"
    assert flow.status.state == "running"
    assert flow.seal(1)
    assert str(flow.status.state) == "succeeded"


def test_it_cannot_be_sealed_after_it_was_cancelled_or_has_expired(flow: Flow, queue: Queue):
    assert not flow.seal(0)
    flow.create()
    flow.client.run(prepare("rsmq", "w", [("then", b"0 60 after")]))
    flow.stop()

    assert not flow.seal(0, then())

    assert flow.status.state == "cancelled"
    assert bodies_in(queue) == []


def test_repeated_cancellation_has_the_same_result_and_ended_calls_are_not_cancelled(flow: Flow):
    assert not flow.stop(), "there is none"
    flow.create()
    flow.expect("t0")
    assert flow.stop() and flow.stop()
    finished_ms = flow.status.finished_ms
    assert finished_ms is not None

    assert flow.end(0)

    assert (flow.status.state, flow.status.finished_ms) == ("cancelled", finished_ms)


def test_ended_call_cannot_be_cancelled(flow: Flow):
    flow.create()
    flow.seal(0)

    assert not flow.stop()

    assert flow.status.state == "succeeded"


def test_step_is_not_sent_when_it_is_cancelled(flow: Flow, queue: Queue):
    flow.create()
    flow.expect("t0")
    flow.client.run(prepare("rsmq", "w", [("0.1", b"0 60 second")]))
    flow.stop()
    flow.server.redis.hset(STEPS, "0.1", "0 60 second")  # a late prepare()

    flow.end(0, targets=[Target("next", "0.1", "u0", "jobs", "c")])

    assert bodies_in(queue) == []
    assert not flow.server.redis.exists(MEMBERS)


def test_no_call_is_prepared_for_a_workflow_that_does_not_exist(flow: Flow, server: PrivateServer):
    assert not flow.client.run(prepare("rsmq", "w", [("then", b"0 60 after")]))

    assert not server.redis.exists(STEPS)


@pytest.mark.parametrize("prepared", ["nonsense", "0 x body", "0 1234567890 body", ""])
def test_step_that_another_program_wrote_is_not_sent(flow: Flow, queue: Queue, prepared: str):
    flow.create()
    flow.server.redis.hset(STEPS, "then", prepared)

    assert flow.seal(0, then())

    assert bodies_in(queue) == []


@pytest.mark.parametrize(
    ("when", "is_ready"),
    [("0", True), ("s", False), ("ms", True), ("99999999999999", False), ("1e300", True), ("nonsense", True)],
)
def test_callback_is_visible_when_its_time_has_come(flow: Flow, queue: Queue, when: str, is_ready: bool):
    flow.server.redis.hset("rsmq:jobs:Q", "delay", 5000 if when == "s" else 0)
    flow.create()
    flow.client.run(prepare("rsmq", "w", [("then", f"{when} 999999999 after".encode())]))

    flow.seal(0, then())

    assert queue.attributes().messages == 1
    assert (queue.attributes().ready_messages == 1) is is_ready
    assert flow.server.redis.ttl("rsmq::result:after") > 999_990_000


def test_queue_that_is_missing_gets_the_callback_anyway(flow: Flow, client: Client):
    flow.create()
    flow.client.run(prepare("rsmq", "w", [("then", b"0 0 after")]))

    flow.seal(0, then(queue_name="mail"))

    mail = Queue("mail", client)
    mail.create()
    assert bodies_in(mail) == [b"after"]
    assert not flow.server.redis.exists("rsmq::result:after"), "it keeps no result"


@pytest.mark.parametrize("keep_ms", ["0", "-5", "nonsense", "1e16", ""])
def test_impossible_time_to_keep_it_counts_as_a_week(flow: Flow, server: PrivateServer, keep_ms: str):
    flow.create()
    server.redis.hset(STATE, "keep_ms", keep_ms)

    flow.expect("t0")

    for key in (STATE, MEMBERS):
        assert WEEK_MS - 60_000 < server.redis.pttl(key) <= WEEK_MS


def test_all_keys_are_kept_for_the_same_time_after_each_use(flow: Flow, server: PrivateServer):
    flow.options["keep_ms"] = 5_000_000
    flow.start(b"x", b"y", steps=[("then", b"0 60 after")])
    for key in (STATE, MEMBERS, STEPS):
        assert 4_900_000 < server.redis.pttl(key) <= 5_000_000
        server.redis.pexpire(key, 100_000)

    flow.end(0)

    for key in (STATE, MEMBERS, STEPS, RESULTS):
        assert 4_900_000 < server.redis.pttl(key) <= 5_000_000


# -- What is read of it ----------------------------------------------------------------------------------------------


def test_size_is_read_without_words_that_are_too_long(flow: Flow, client: Client, server: PrivateServer):
    assert client.run(read_extent("rsmq", "w")) is None
    flow.create()
    flow.expect("t0", "t1", "t2")
    flow.end(0, value="1")
    server.redis.hset(FAILURES, "9", "t9 {}")
    server.redis.hset(STATE, mapping={"then_members": "p" * 256, "on_failure_members": "q" * 257})

    assert client.run(read_extent("rsmq", "w")) == Extent(3, ("p" * 256,), 4)


def test_outcomes_are_read_until_the_reply_is_full(flow: Flow, client: Client, monkeypatch: pytest.MonkeyPatch):
    flow.create()
    for key, values in ((RESULTS, {0: "11", 1: "22", 3: "55555"}), (FAILURES, {2: "t2 {}"})):
        flow.server.redis.hset(key, mapping=values)

    def read(*numbers: int, **options: bool) -> list[tuple[bytes, bytes]]:
        return client.run(outcomes("rsmq", "w", numbers, **options))

    assert read(0, 1, 2, 3, 4) == [(b"11", b""), (b"22", b""), (b"", b"{}"), (b"55555", b""), (b"", b"")]
    assert read(0, 2, failures_only=True) == [(b"", b""), (b"", b"{}")]
    monkeypatch.setattr("rsmq_django.core.tasks.workflow_outcomes.MAX_TRIP_BYTES", 4)
    assert read(0, 1, 2) == [(b"11", b""), (b"22", b"")]
    monkeypatch.setattr("rsmq_django.core.tasks.workflow_outcomes.MAX_TRIP_BYTES", 5)
    assert read(0, 1, 2, 3) == [(b"11", b""), (b"22", b""), (b"", b"{}")]
    monkeypatch.setattr("rsmq_django.core.tasks.workflow_outcomes.MAX_OUTCOME_BYTES", 5)
    assert read(3) == [(b"55555", b"")]
    monkeypatch.setattr("rsmq_django.core.tasks.workflow_outcomes.MAX_OUTCOME_BYTES", 4)
    assert read(3, 2) == [(TOO_LONG, b""), (b"", TOO_LONG)]
    flow.server.redis.delete(STATE)
    assert read(0) == []


def test_numbers_of_members_are_distinguished_from_other_fields(flow: Flow, client: Client, server: PrivateServer):
    fields = {"0": "", "7": "", "12345678": "", "123456789": "", "07": "", "-1": "", "x": "", "1x": "", "00": ""}
    server.redis.hset(RESULTS, mapping=fields)
    server.redis.hset(FAILURES, mapping={"7": "", "8": ""})

    following, numbers = client.run(numbers_in("rsmq", "w", "results", b"0"))

    assert (following, sorted(numbers)) == (b"0", [0, 7, 12345678])
    both = find_numbers("rsmq", "w", "results", "failures", below=12345678)
    assert run_reading(client, both, lambda: None) == [0, 7, 8]


def test_slice_of_the_members_shows_beginnings_without_proofs(flow: Flow, client: Client, server: PrivateServer):
    server.redis.hset(MEMBERS, mapping={"1": "t1@jobs"})
    server.redis.hset(RESULTS, mapping={"2": "123456789", "3": "12345\nproof", "9": "not asked for"})
    server.redis.hset(FAILURES, mapping={"4": "t4@jobs {}\nproof"})

    rows = client.run(read_members("rsmq", "w", 1, 4, value_bytes=5))

    assert [(row.number, row.task_id, row.value, row.value_bytes) for row in rows] == [
        (1, "t1", b"", 0),
        (2, "", b"12345", 9),
        (3, "", b"12345", 5),
        (4, "", b"", 0),
    ]
    assert [(row.failed_task_id, row.failure) for row in rows] == [("", b"")] * 3 + [("t4", b"{}")]


def test_failed_and_unfinished_members_are_read_in_slices(flow: Flow, client: Client, server: PrivateServer):
    server.redis.hset(FAILURES, mapping={"4": "t4 {}"})
    server.redis.hset(MEMBERS, mapping={"1": "t1@jobs", "2": "t2"})

    following, (failed,) = client.run(read_failed("rsmq", "w", b"0"))
    assert (following, failed.number, failed.failed_task_id, failed.failure) == (b"0", 4, "t4", b"{}")
    following, tasks = client.run(live_tasks("rsmq", "w", b"0"))
    assert (following, sorted(tasks)) == (b"0", ["t1", "t2"])


def test_unfinished_members_are_read_up_to_a_maximum_number(flow: Flow, client: Client, server: PrivateServer):
    server.redis.hset(MEMBERS, mapping={"1": "t1", "2": "t2"})
    server.redis.hset(FAILURES, "4", "t4 {}")
    server.redis.hset(STEPS, mapping={"2.1": "", "then": ""})

    assert client.run(read_unfinished("rsmq", "w", most=2)) == Unfinished([1, 2], [4], [(2, 1)])
    assert client.run(read_unfinished("rsmq", "w", most=1)) == Unfinished(None, None, None)


def test_beginnings_of_later_bodies_are_read(flow: Flow, client: Client, server: PrivateServer):
    server.redis.hset(STEPS, mapping={"0.1": "s 60 a body with words", "0.2": "nonsense"})

    assert client.run(read_later("rsmq", "w", ["0.2", "0.1", "0.3"], body_bytes=6)) == [b"", b"a body", b""]
    with pytest.raises(AssertionError):
        read_later("rsmq", "w", ["x"] * (MAX_BATCH + 1), body_bytes=1)


def test_fields_that_are_too_long_are_not_read(flow: Flow, client: Client, monkeypatch: pytest.MonkeyPatch):
    flow.options["fields"] = {"name": "12345678", "kind": "123456789"}
    flow.create()
    monkeypatch.setattr("rsmq_django.core.tasks.workflow_records.MAX_FIELD_BYTES", 8)
    flow.server.redis.hset(STATE, "created_ms", 5)

    known, gone = client.run(read_statuses("rsmq", ["w", "nobody"]))

    assert known is not None and (known.name, known.kind, known.state) == ("12345678", "", "running")
    assert gone is None


def test_state_of_a_workflow_that_was_only_begun_expires(flow: Flow, server: PrivateServer):
    flow.create()

    assert WEEK_MS - 600_000 < server.redis.pttl(STATE) <= WEEK_MS


def test_queue_whose_limit_is_zero_takes_no_body(flow: Flow, queue: Queue, server: PrivateServer):
    server.redis.hset("rsmq:jobs:Q", "maxsize", 0)

    with pytest.raises(MessageTooLong):
        flow.start(b"x")

    assert queue.attributes().messages == 0
