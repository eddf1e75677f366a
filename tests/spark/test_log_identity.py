"""Which log an offset is of: another server, or a log created again, loses and repeats nothing."""

import json
from typing import Any

import pytest

from rsmq_django.core import Queue
from rsmq_django.core.transport.streams import name_log
from rsmq_django.spark.drain import Journals
from rsmq_django.spark.drained import acknowledge_drained
from rsmq_django.spark.errors import DataLoss
from rsmq_django.spark.events import EventLogReader
from rsmq_django.spark.log import LOGS_KEPT, StreamLog
from rsmq_django.spark.server import Server
from rsmq_django.spark.transfer import Transferred
from tests.redis_server import PrivateServer
from tests.spark.samples import STREAM, add_all, ids_between, log_events

ELSEWHERE = "kept-by-the-test"


@pytest.fixture
def new_log(options) -> Any:
    """Make a log as a fresh process would."""

    def make(**given: str) -> StreamLog:
        found = options(kind="events", **given)
        return StreamLog(found, found.streams)

    return make


def move_away(server: PrivateServer, place: str = ELSEWHERE) -> None:
    """Do what another address of the server does: the log of before is out of sight."""
    server.redis.rename(STREAM, place)


def move_back(server: PrivateServer, place: str = ELSEWHERE) -> None:
    server.redis.rename(place, STREAM)


def as_stored(offsets: Any) -> Any:
    """Return offsets as Spark's checkpoint gives them back."""
    return json.loads(json.dumps(offsets))


def test_identity_is_the_same_for_all_readers_and_remains_when_the_log_is_trimmed(
    server: PrivateServer, pipeline_server: Server, new_log
):
    assert new_log().identities() == {STREAM: ""}, "there is no log"
    log_events(server.redis, 10)
    first = new_log().identities()
    server.redis.xtrim(STREAM, maxlen=0, approximate=False)

    assert first[STREAM].startswith("log:")
    assert new_log().identities() == first
    server.redis.delete(STREAM)
    log_events(server.redis, 10)
    assert new_log().identities() != first


def test_group_of_another_program_is_not_the_identity(server: PrivateServer, new_log):
    log_events(server.redis, 1)
    server.redis.xgroup_create(STREAM, "a-program", "0")

    assert new_log().identities()[STREAM].startswith("log:")


@pytest.mark.parametrize("name", ["log:", "log:0-shipper", "log:0123456789abcdef"])
def test_group_with_a_similar_name_neither_becomes_nor_replaces_the_identity(server: PrivateServer, new_log, name: str):
    log_events(server.redis, 30)
    server.redis.xgroup_create(STREAM, name, "0")
    log = new_log()
    end = log.advance_all(log.beginning(), 20)
    server.redis.xgroup_destroy(STREAM, name)
    server.redis.xgroup_create(STREAM, f"{name}-again", "0")

    after = log.advance_all(as_stored(end), 1000)

    assert end[STREAM]["log"] == after[STREAM]["log"] not in (name, f"{name}-again")
    assert (after[STREAM]["rows"], after[STREAM]["n"], after[STREAM].get("left")) == (10, 30, None)


def test_log_of_another_server_is_read_from_its_first_entry(server: PrivateServer, new_log):
    log_events(server.redis, 600)
    log = new_log()
    end = log.advance_all(log.beginning(), 10_000)
    move_away(server)
    # Older, and fewer, than those that were read: neither ids nor counts tell.
    add_all(server.redis, ({"id": f"1795000000000-{number}"} for number in range(500)))
    wanted = [f"1795000000000-{number}" for number in range(500)]

    here = log.advance_all(as_stored(end), 10_000)

    assert (here[STREAM]["rows"], here[STREAM]["n"], here[STREAM]["lost"]) == (500, 500, 0)
    assert here[STREAM]["log"] != end[STREAM]["log"]
    assert ids_between(log, end, here) == wanted
    assert ids_between(new_log(), as_stored(end), as_stored(here)) == wanted, "planned anew after a crash"


def test_position_in_a_log_is_known_again_when_its_server_returns(server: PrivateServer, new_log):
    log_events(server.redis, 100)
    log = new_log(failOnDataLoss="false")
    start = log.advance_all(log.beginning(), 60)
    move_away(server)
    log_events(server.redis, 10)
    there = log.advance_all(as_stored(start), 1000)
    server.redis.delete(STREAM)
    move_back(server)
    server.redis.xtrim(STREAM, maxlen=30, approximate=False)

    back = log.advance_all(as_stored(there), 1000)

    assert (back[STREAM]["rows"], back[STREAM]["n"], back[STREAM]["lost"]) == (30, 100, 10)
    assert len(ids_between(new_log(), as_stored(there), as_stored(back))) == 30
    assert log.advance_all(back, 1000) is back


def test_log_that_lost_its_identity_is_read_again_from_its_first_entry(server: PrivateServer, new_log):
    log_events(server.redis, 30)
    replica = server.redis.dump(STREAM)
    log = new_log()
    end = log.advance_all(log.beginning(), 20)
    server.redis.restore(STREAM, 0, replica, replace=True)

    after = log.advance_all(as_stored(end), 1000)

    assert (after[STREAM]["rows"], after[STREAM]["n"], after[STREAM]["lost"]) == (30, 30, 0)


def test_position_is_kept_for_some_logs_only(server: PrivateServer, new_log):
    log = new_log()
    end = log.beginning()
    for _ in range(LOGS_KEPT + 3):
        log_events(server.redis, 2)
        end = log.advance_all(as_stored(end), 1000)
        server.redis.delete(STREAM)

    assert len(end[STREAM]["left"]) == LOGS_KEPT


def test_another_log_without_entries_leaves_the_offset_as_it_is(server: PrivateServer, new_log):
    log_events(server.redis, 10)
    log = new_log()
    end = log.advance_all(log.beginning(), 1000)
    move_away(server)

    assert log.advance_all(end, 1000) is end, "there is no log"
    log_events(server.redis, 1)
    server.redis.xtrim(STREAM, maxlen=0, approximate=False)
    assert log.advance_all(end, 1000) is end, "it is empty"


def test_batch_that_was_planned_on_another_server_reads_none_of_the_entries_of_this_one(server: PrivateServer, new_log):
    log_events(server.redis, 50)
    log = new_log()
    start = log.beginning()
    end = log.advance_all(start, 1000)
    (part,) = log.ranges(start, end)
    move_away(server)
    log_events(server.redis, 50)

    with pytest.raises(DataLoss, match="had 50 entries, 0 are left"):
        new_log().ranges(as_stored(start), as_stored(end))
    with pytest.raises(DataLoss, match="50 entries .* were planned, 0 were left"):
        list(log.entries(part))
    assert new_log(failOnDataLoss="false").ranges(as_stored(start), as_stored(end)) == []
    assert list(new_log(failOnDataLoss="false").entries(part)) == []


def test_offset_of_an_earlier_version_goes_on_in_the_log_that_is_there(server: PrivateServer, new_log):
    log_events(server.redis, 30)
    log = new_log()
    end = log.advance_all(log.beginning(), 20)
    before = {STREAM: {name: end[STREAM][name] for name in ("id", "n", "rows", "lost")}}

    after = log.advance_all(before, 1000)

    assert (after[STREAM]["rows"], after[STREAM]["n"]) == (10, 30)
    assert after[STREAM]["log"] == end[STREAM]["log"]
    assert len(ids_between(new_log(), before, as_stored(after))) == 10


def test_row_names_its_log(server: PrivateServer, pipeline_server: Server, options):
    log_events(server.redis, 3)
    log = pipeline_server.run(name_log(STREAM))
    reader = EventLogReader(options(kind="events"))

    (part,) = reader.log.ranges(reader.log.beginning(), reader.log.advance_all(reader.log.beginning(), 10))
    (table,) = reader.read(part)

    assert table["log"] == [log] * 3


def test_journal_of_another_server_keeps_its_messages(server: PrivateServer, mail: Queue, options):
    mail.send_many([b"a", b"b", b"c"])
    drain = options(kind="drain", queue="mail")
    journals = Journals(drain)
    ((journal, end),) = journals.advance_all(journals.beginning(), 10).items()
    result = Transferred()

    acknowledge_drained(drain, {journal: end | {"log": "log:of-another-server"}}, result)
    assert (result.trimmed, server.redis.xlen(journal)) == (0, 3)
    acknowledge_drained(drain, {journal: end}, result)
    assert (result.trimmed, server.redis.xlen(journal)) == (3, 0)
