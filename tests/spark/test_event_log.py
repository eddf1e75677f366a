"""Reading the event log: ranges that can be read again, limits, and losses that are counted exactly."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsmq_django.spark.errors import DataLoss, LogReset
from rsmq_django.spark.events import FIELDS, SCHEMA, EventLogReader, rows
from rsmq_django.spark.log import StreamLog
from tests.redis_server import PrivateServer
from tests.spark.samples import STREAM, ids_between, log_events


@pytest.fixture
def new_log(options):
    """Make a log as a fresh process would."""

    def make(**given: str) -> StreamLog:
        found = options(kind="events", **{"rowsPerPartition": "3000", **given})
        return StreamLog(found, found.streams)

    return make


# -- Ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_batch_is_read_again_exactly_after_a_restart_while_the_log_grows(server: PrivateServer, new_log):
    log_events(server.redis, 10_000)
    log = new_log()
    start = log.beginning()
    end = log.advance_all(start, 7000)
    first = ids_between(log, start, end)

    log_events(server.redis, 500)
    restarted = new_log()
    again = ids_between(restarted, start, end)

    assert again == first
    assert restarted.ranges(start, end) == log.ranges(start, end), "planned anew, or as it was walked"
    assert len(set(first)) == 7000
    assert end[STREAM]["n"] == 7000


def test_offset_stays_the_same_object_when_nothing_is_new(server: PrivateServer, new_log):
    log_events(server.redis, 10)
    log = new_log()
    end = log.advance_all(log.beginning(), 1000)

    assert log.advance_all(end, 1000) is end


def test_run_with_available_now_ends_after_the_existing_events(server: PrivateServer, new_log):
    log_events(server.redis, 10)
    log = new_log()
    targets = log.newest_ids()
    log_events(server.redis, 10)

    end = log.advance_all(log.beginning(), 1000, targets)

    assert end[STREAM]["rows"] == 10
    assert log.advance_all(end, 1000, targets) is end


def test_log_that_does_not_exist_is_empty(new_log):
    log = new_log()

    assert log.advance_all(log.beginning(), 1000) == log.beginning()


def test_share_of_an_idle_stream_goes_to_the_busy_one(server: PrivateServer, new_log):
    log_events(server.redis, 900, stream="rsmq::events:0")
    log_events(server.redis, 10, stream="rsmq::events:1")
    for order in ("rsmq::events:0,rsmq::events:1", "rsmq::events:1,rsmq::events:0"):
        log = new_log(streams=order)

        end = log.advance_all(log.beginning(), 500)

        assert end["rsmq::events:1"]["rows"] == 10
        assert end["rsmq::events:0"]["rows"] == 490


def test_new_reader_begins_behind_the_given_id_and_misses_nothing(server: PrivateServer, new_log):
    log_events(server.redis, 100)
    tenth = server.redis.xrange(STREAM, count=10)[-1][0].decode()
    log = new_log(startAfter=json.dumps({STREAM: tenth}))
    start = log.beginning()
    end = log.advance_all(start, 40)
    server.redis.xtrim(STREAM, maxlen=60, approximate=False)

    later = log.advance_all(end, 1000)

    assert end[STREAM]["n"] == 50
    assert later[STREAM] == end[STREAM] | {"id": later[STREAM]["id"], "n": 100, "rows": 50, "lost": 0}


def test_range_of_ids_is_read_the_same_while_the_log_grows(server: PrivateServer, new_log):
    log_events(server.redis, 100)
    all_ids = [entry_id.decode() for entry_id, _ in server.redis.xrange(STREAM)]
    log = new_log(rowsPerPartition="20")

    parts = log.cut(STREAM, all_ids[9], all_ids[59])
    log_events(server.redis, 50)

    assert [part.rows for part in parts] == [20, 20, 10]
    found = [entry_id.decode() for part in parts for chunk in log.entries(part) for entry_id, _ in chunk]
    assert found == all_ids[10:60]
    assert new_log(rowsPerPartition="20").cut(STREAM, all_ids[9], all_ids[59]) == parts


# -- Losses ------------------------------------------------------------------------------------------------------------


def test_entries_trimmed_unread_are_refused_with_their_number(server: PrivateServer, new_log):
    log_events(server.redis, 5000)
    log = new_log()
    start = log.beginning()
    end = log.advance_all(start, 1000)
    server.redis.xtrim(STREAM, maxlen=3800, approximate=False)  # the thousand of the batch, and two hundred more

    with pytest.raises(DataLoss, match="200 entries after"):
        log.advance_all(end, 1000)
    with pytest.raises(DataLoss, match="1000 entries after 0-0 were planned, 0 were left"):
        ids_between(log, start, end)
    with pytest.raises(DataLoss, match="had 1000 entries, 0 are left"):
        ids_between(new_log(), start, end)


def test_entries_trimmed_unread_are_counted_when_the_reader_may_continue(server: PrivateServer, new_log):
    log_events(server.redis, 5000)
    log = new_log(failOnDataLoss="false")
    end = log.advance_all(log.beginning(), 1000)
    server.redis.xtrim(STREAM, maxlen=3800, approximate=False)

    later = log.advance_all(end, 1000)

    assert later[STREAM]["lost"] == 200
    assert later[STREAM]["n"] == 2200
    assert len(ids_between(log, end, later)) == 1000


def test_new_reader_has_not_lost_entries_that_were_trimmed_before_its_start(server: PrivateServer, new_log):
    log_events(server.redis, 100)
    server.redis.xtrim(STREAM, maxlen=10, approximate=False)

    end = new_log().advance_all(new_log().beginning(), 1000)

    assert end[STREAM]["lost"] == 0
    assert end[STREAM]["n"] == 100


@pytest.mark.parametrize("newer", [0, 50])
def test_log_whose_end_a_failover_lost_is_refused(server: PrivateServer, new_log, newer: int):
    log_events(server.redis, 20)
    log = new_log(failOnDataLoss="false")
    end = log.advance_all(log.beginning(), 1000)
    replica = server.redis.dump(STREAM)
    log_events(server.redis, 80)
    end = log.advance_all(end, 1000)
    server.redis.restore(STREAM, 0, replica, replace=True)
    log_events(server.redis, newer)  # newer ids than ours: only the count tells

    with pytest.raises(LogReset, match="lack our position.*, then run `rsmq_pipeline archive --accept-reset"):
        log.advance_all(end, 1000)


def test_task_that_finds_fewer_messages_than_planned_reports_that(server: PrivateServer, new_log):
    log_events(server.redis, 10)
    log = new_log()
    (part,) = log.ranges(log.beginning(), log.advance_all(log.beginning(), 10))
    server.redis.xtrim(STREAM, maxlen=4, approximate=False)

    with pytest.raises(DataLoss, match="10 entries .* were planned, 4 were left"):
        list(log.entries(part))


@given(
    history=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 40)),
            st.tuples(st.just("trim"), st.integers(0, 60)),
            st.tuples(st.just("batch"), st.integers(1, 30)),
            st.tuples(st.just("crash"), st.just(0)),
        ),
        max_size=25,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_entry_is_in_exactly_one_batch_or_counted_as_lost(server: PrivateServer, new_log, history):
    server.empty()
    log = new_log(failOnDataLoss="false", rowsPerPartition="7", chunkRows="5")
    written: list[str] = []
    stored: list[str] = []
    log_events(server.redis, 1)
    written.append(server.redis.xrevrange(STREAM, count=1)[0][0].decode())
    start = log.advance_all(log.beginning(), 1)  # from here on, whatever is trimmed unread is a loss
    stored += written

    for action, number in [*history, ("batch", 10_000)]:
        if action == "add":
            before = server.redis.xinfo_stream(STREAM)["last-generated-id"].decode()
            log_events(server.redis, number)
            written += [key.decode() for key, _ in server.redis.xrange(STREAM, min=f"({before}")]
        elif action == "trim":
            server.redis.xtrim(STREAM, maxlen=number, approximate=False)
        elif action == "crash":
            log = new_log(failOnDataLoss="false", rowsPerPartition="7", chunkRows="5")
        else:
            end = log.advance_all(start, number)
            stored += ids_between(log, start, end)
            start = end

    assert len(stored) == len(set(stored))
    assert set(stored) <= set(written)
    # What is gone behind the last offset is counted when the next entry comes.
    log_events(server.redis, 1)
    end = log.advance_all(start, 10_000)
    assert len(stored) + end[STREAM]["lost"] == len(written)


# -- Rows --------------------------------------------------------------------------------------------------------------


def test_row_has_the_columns_of_the_schema_and_the_units_of_the_log(server: PrivateServer, options):
    server.redis.xadd(STREAM, {"e": "dead"}, id="1795000000000-3")
    log_events(server.redis, 1, event="retried", error_type="ValueError", error="no row 7", wait_us=5, run_us="")
    log = EventLogReader(options(kind="events"))
    (part,) = log.log.cut(STREAM, "0-0", "+")

    (table,) = log.read(part)

    assert tuple(table) == tuple(column.name for column in SCHEMA)
    assert table["event_at"][0] == 1_795_000_000_000_000
    assert table["enqueued_at"][1] == 1_795_000_000_000_000
    assert (table["wait_us"][1], table["run_us"][1], table["attempt"][0]) == (5, None, None)
    assert table["fingerprint"][0] is None
    assert len(table["fingerprint"][1]) == 32


def test_garbage_in_an_entry_becomes_null_and_stops_nothing():
    entry = [b"e", b"succeeded", b"a", b"many", b"w", b"-5", b"b", b"99999999999", b"t", b"\xff", b"new", b"field"]

    table = rows("log", [(b"1-1", entry)])

    assert (table["attempt"], table["wait_us"], table["body_bytes"]) == ([None], [None], [None])
    assert table["task"] == ["\ufffd"]


def test_texts_with_zero_bytes_or_half_a_letter_stay_in_their_rows():
    odd = [b"a\0b", b"\xe2\x82", b"", b"plain"]

    table = rows("log", [(b"1-1", [b"e", b"succeeded", b"t", value]) for value in odd])
    whole = rows("log", [(b"1-1", [word for field in FIELDS for word in (field[2], value)]) for value in odd[1:]])

    assert table["task"] == ["a\0b", "\ufffd", "", "plain"]
    assert (whole["task"], whole["worker"]) == (["\ufffd", "", "plain"], ["\ufffd", None, "plain"])


def test_entries_of_earlier_versions_are_read_among_newer_ones():
    newer = [b"v", b"\n".join([b"dead", b"mail", b"shop.send", *[b""] * 8, b"shop.Cancelled", b"two\nlines"])]
    older = [
        word for (_, _, field), value in zip(FIELDS, newer[1].split(b"\n", 12), strict=True) for word in (field, value)
    ]

    table = rows("log", [(b"1-1", older), (b"1-2", newer)])

    assert all(first == second for name, (first, second) in table.items() if name not in ("entry_id", "event_at"))
    assert (table["event"][0], table["error"][0], table["run_us"][0]) == ("dead", "two\nlines", None)


def test_no_entries_are_columns_without_values():
    assert rows(STREAM, []) == {column.name: [] for column in SCHEMA}
