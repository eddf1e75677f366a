"""Draining: a message leaves its queue only into the journal, and the journal only when it is stored."""

import pytest

from rsmq_django.core import Queue
from rsmq_django.core.errors import QueueNotFound
from rsmq_django.spark.drain import Journals, drains
from tests.redis_server import PrivateServer
from tests.support import pass_time


def bodies(journals: Journals, start, end) -> list[bytes]:
    parts = journals.ranges(start, end)
    return [body for part in parts for table in journals.read(part) for body in table["body"]]


@pytest.fixture
def journals(options):
    """Make the journals of a drain as a fresh process would."""

    def make(**given: str) -> Journals:
        return Journals(options(kind="drain", queue="mail", **given))

    return make


def test_claim_that_never_reached_the_checkpoint_comes_first_in_the_next_run(mail: Queue, journals):
    mail.send_many(["1", "2", "3"])
    killed = journals()
    killed.advance_all(killed.beginning(), 2)

    second = journals()
    start = second.beginning()
    end = second.advance_all(start, 100)
    last = second.advance_all(end, 100)

    assert bodies(second, start, end) == [b"1", b"2"]
    assert bodies(second, end, last) == [b"3"]
    assert bodies(second, start, end) == [b"1", b"2"], "a batch can be read again"
    assert mail.attributes().messages == 0


def test_message_keeps_its_known_data(mail: Queue, journals):
    sent = mail.send("1")
    mail.receive(visibility_timeout_s=0)
    log = journals()

    (part,) = log.ranges(log.beginning(), log.advance_all(log.beginning(), 10))
    (table,) = log.read(part)

    assert table["message_id"] == [sent]
    assert table["receive_count"] == [2]
    assert table["sent_at"][0] < table["claimed_at"][0] + 1000
    assert table["first_received_at"][0] <= table["claimed_at"][0]


def test_run_takes_only_what_was_visible_when_it_began(mail: Queue, journals):
    mail.send("before")
    mail.send("delayed", delay_s=60)
    log = journals()
    log.until_ms = log.server.now_us() // 1000 + 1
    end = log.advance_all(log.beginning(), 100)
    pass_time(mail, seconds=-5)  # what is sent now is later than the limit
    mail.send("after", delay_s=1)

    assert bodies(log, log.beginning(), end) == [b"before"]
    assert log.advance_all(end, 100) is end


def test_leased_message_is_claimed_once_even_when_the_lease_ran_out(mail: Queue, journals):
    mail.send_many(["1", "2", "3"])
    log = journals(leaseS="60")
    end = log.advance_all(log.beginning(), 100)
    pass_time(mail, seconds=61)

    assert log.advance_all(end, 100) is end, "it is in the journal already"
    assert mail.attributes().hidden_messages == 3, "and leased again"


def test_message_that_another_worker_received_is_left_alone(mail: Queue, journals):
    mail.send_many(["1", "2", "3"])
    log = journals(leaseS="60")
    end = log.advance_all(log.beginning(), 100)
    pass_time(mail, seconds=61)
    theirs = mail.receive()
    (drain,) = drains(log.options)

    answer = log.server.run(drain.acknowledge(end[drain.journal]["id"]))

    assert answer == (3, 1)
    assert mail.attributes().messages == 1
    assert mail.delete(theirs)


def test_move_works_at_the_memory_limit(mail: Queue, journals, server: PrivateServer):
    mail.send_many(["x" * 1000] * 2000)
    server.redis.config_set("maxmemory", "1mb")
    try:
        log = journals()
        end = log.advance_all(log.beginning(), 2000)
        assert len(bodies(log, log.beginning(), end)) == 2000
        assert mail.attributes().messages == 0
    finally:
        server.redis.config_set("maxmemory", 0)


def test_queue_that_does_not_exist_is_named(journals):
    log = journals()

    with pytest.raises(QueueNotFound, match="'mail'"):
        log.advance_all(log.beginning(), 10)


def test_id_without_a_body_does_not_stop_the_drain(mail: Queue, journals, server: PrivateServer):
    server.redis.zadd("rsmq:mail", {"0" * 32: 1})
    mail.send("1")
    log = journals()

    assert bodies(log, log.beginning(), log.advance_all(log.beginning(), 10)) == [b"1"]
    assert server.redis.hget("rsmq::phantoms:mail", "removed") == b"1"
