"""New events -> sums -> all figures: each event counted once, whatever happens between. Without Spark."""

import datetime as dt
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest

from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.spark import rollup as rolling
from rsmq_django.spark.burn import read_objectives
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import LOG, Table
from rsmq_django.spark.demand import demands, newest, outcomes
from rsmq_django.spark.files import NEVER_US, scan_files
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.rollup import news, rollup
from rsmq_django.spark.schemas import ANOMALIES, CAPACITY, EVENTS, FAILURES, FIVE_MINUTES, HOURLY, SLO, LakeTable
from rsmq_django.spark.steps import analyse
from tests.spark import recount
from tests.spark.samples import store_events

DAY = dt.date(2026, 11, 18)
MIDNIGHT_MS = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1000)
DAY_MS = 86_400_000
OBJECTIVES = {"mail": {"success": 0.99, "wait_p95_ms": 2}, "bulk": {"wait_p50_ms": 40}}


@pytest.fixture
def config(tmp_path: Path) -> JobConfig:
    return JobConfig(lake=str(tmp_path / "lake"), objectives=OBJECTIVES)


@pytest.fixture
def lake(config: JobConfig) -> Lake:
    return config.find_lake()


def write_day(lake: Lake, day: int = 0, *, count: int = 1200) -> None:
    """Put attempts of two hours into the lake: one in ten of them fails, in two groups."""
    start_ms = MIDNIGHT_MS + day * DAY_MS

    def event(number: int) -> dict[str, Any]:
        at_ms = start_ms + number * 6000
        failed = number % 10 == 0
        return {
            "id": f"{at_ms}-1",
            "task_id": f"t{number}",
            "event": ("dead" if number % 20 else "discarded") if failed else "succeeded",
            "wait_us": 1000 + number,
            "run_us": 20_000 + number % 7 * 1000,
            "enqueued_at": at_ms - 50,
            "worker": f"web1:{number % 3}",
            "error_type": "shop.Cancelled" if failed else "",
            "error": f"flight {number} {'cancelled' if number % 20 else 'lost'}" if failed else "",
        }

    # Two batches, as a day has many.
    store_events(lake, map(event, range(count // 2)))
    store_events(lake, map(event, range(count // 2, count)))


def some_events(seed: int, *, first_ms: int, count: int = 400, span_ms: int = DAY_MS) -> Iterator[dict[str, Any]]:
    """Yield events of all kinds at random times, as a log has them: in the order of their ids."""
    chance = random.Random(seed)
    times = sorted(first_ms + chance.randrange(span_ms) for _ in range(count))
    for number, at_ms in enumerate(times):
        kind = chance.choice(["succeeded"] * 8 + ["retried", "dead", "discarded", "released", "lost", "cancelled"])
        failed = kind in ("retried", "dead", "discarded", "lost")
        was_run = kind not in ("released", "cancelled")
        yield {
            "id": f"{at_ms}-{number}",
            "task_id": f"t{seed}-{number}",
            "event": kind,
            "queue": chance.choice(["mail", "bulk"]),
            "task": chance.choice(["shop.send", "shop.pack", ""]),
            "attempt": chance.choice([1, 1, 1, 2, 3, ""]),
            "enqueued_at": chance.choice([at_ms - chance.randrange(3_000_000), at_ms + 400_000, ""]),
            "wait_us": int(chance.lognormvariate(8, 2)) if was_run else "",
            "run_us": chance.choice([0, 1, int(chance.lognormvariate(10, 1))]) if was_run else "",
            "body_bytes": chance.choice([90, 4000, ""]),
            "worker": chance.choice(["web1:1:0", "web1:2:0", "web2:1:0", ""]),
            "error_type": chance.choice(["shop.Lost", "shop.Late"]) if failed else "",
            "error": f"order {number} is gone" if failed else "",
        }


def contents(lake: Lake, table: LakeTable) -> list[dict[str, Any]]:
    return sorted(lake.open(table).read().to_pylist(), key=repr)


def hourly_rows(lake: Lake) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = lake.open(HOURLY).read().to_pylist()
    found = {(row.pop("hour"), row.pop("queue"), row.pop("task")): row for row in rows}
    assert len(found) == len(rows)
    for row in found.values():
        row |= {name: dict(row[name]) for name in ("wait_hist", "run_hist")}
        row["run_s_squared"] = round(row["run_s_squared"], 9)
    return found


def failure_rows(lake: Lake) -> dict[tuple[Any, ...], dict[str, Any]]:
    table, found = lake.open(FAILURES), {}
    for day in table.days:
        for row in table.read({day}).to_pylist():
            assert row["workers"] == len(row.pop("worker_names"))
            found[day, row.pop("task"), row.pop("fingerprint"), row.pop("error_type")] = row
    return found


def assert_figures_are_those_of_the_events(lake: Lake) -> None:
    """Compare all that is computed from sums with a recomputation over the events of the lake."""
    events = lake.open(EVENTS).read().to_pylist()
    assert hourly_rows(lake) == recount.hours(events)
    assert failure_rows(lake) == recount.failures(events)
    sums = lake.open(FIVE_MINUTES)
    at = newest(sums)
    assert at is not None
    found = demands(sums, sums.days, slots_per_worker=4)
    wanted = recount.demands(events, slots_per_worker=4)
    assert {demand.queue for demand in found} == wanted.keys()
    for demand in found:
        assert {name: getattr(demand, name) for name in wanted[demand.queue]} == pytest.approx(wanted[demand.queue])
    objectives = read_objectives(OBJECTIVES)
    judged = {(one.queue, one.name, window): counts for (one, window), counts in outcomes(sums, objectives, at).items()}
    assert judged == recount.outcomes(events, objectives)


def uncounted(lake: Lake) -> int:
    found = news(lake.open(EVENTS), lake.open(FIVE_MINUTES))
    return found.rows if found else 0


# -- Equality ----------------------------------------------------------------------------------------------------------


def test_objective_of_a_queue_includes_its_priorities_and_lanes(lake: Lake):
    queues = ["mail", "mail-p10", "mail-m3-lane2", "mail-lane3", "mailing-p1", "bulk"]
    store_events(lake, [{"id": f"{MIDNIGHT_MS}-{n}", "queue": name, "event": "dead"} for n, name in enumerate(queues)])
    rollup(lake)

    sums, (success, wait, _bulk) = lake.open(FIVE_MINUTES), read_objectives(OBJECTIVES)
    found = outcomes(sums, [success, wait], dt.datetime.fromtimestamp(MIDNIGHT_MS / 1000, dt.UTC))

    assert found[success, "1h"] == [4, 4]
    assert found[wait, "1h"][0] == 4


def test_figures_of_many_small_rollups_are_those_of_a_recomputation_over_all_events(lake: Lake):
    for number in range(12):
        # Two logs, one of them archived late; midnight is within some batches.
        late = DAY_MS if number % 3 == 0 else 0
        first_ms = MIDNIGHT_MS + number * DAY_MS // 3 - late
        store_events(lake, some_events(number, first_ms=first_ms, count=150, span_ms=DAY_MS // 3 + 7_000_000))
        rollup(lake)
        if number % 4 == 1:
            lake.compact(DAY + dt.timedelta(days=3))

    assert len(lake.days(HOURLY)) > 3
    assert_figures_are_those_of_the_events(lake)


def test_sums_hours_and_analysis_are_the_same_on_each_storage(place: str):
    config = JobConfig(lake=place, objectives=OBJECTIVES)
    lake = config.find_lake()
    for number in range(3):
        store_events(lake, some_events(number, first_ms=MIDNIGHT_MS, count=100, span_ms=2 * DAY_MS))
        rollup(lake)
    store_events(lake, some_events(3, first_ms=MIDNIGHT_MS, count=100))
    lake.compact(DAY + dt.timedelta(days=3))  # before its events were read

    assert rollup(lake).rows_in > 100, "the compacted day again"
    assert rollup(lake).rows_in == 0
    assert_figures_are_those_of_the_events(lake)
    analyse(config)
    assert len(contents(lake, SLO)) == 9
    assert lake.expire(DAY + dt.timedelta(days=31))["events"] == 1
    assert rollup(lake).rows_in == 0


def test_figures_of_a_lake_without_sums_are_those_of_its_events(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.spark.files.GROUP_ROWS", 30)
    monkeypatch.setattr(rolling, "MOST_PARTS", 2)
    for number in range(4):
        store_events(lake, some_events(number, first_ms=MIDNIGHT_MS + number * DAY_MS // 2))
    done: list[tuple[int, int]] = []

    result = rollup(lake, on_rows=lambda rows, total: done.append((rows, total)))

    assert (result.rows_in, done[-1]) == (1600, (1600, 1600))
    assert len(done) > len(lake.days(EVENTS))
    assert_figures_are_those_of_the_events(lake)


def test_day_is_counted_and_analysed_the_same_however_often(config: JobConfig, lake: Lake):
    write_day(lake)

    first = rollup(lake)
    again = rollup(lake)
    tables = (FIVE_MINUTES, HOURLY, FAILURES)
    rows = [contents(lake, table) for table in tables]
    forced = rollup(lake, since=DAY)

    assert (first.rows_in, first.rows_out, first.days) == (1200, 2, 1)
    assert (again.rows_in, again.rows_out, again.days) == (0, 0, 0)
    assert (forced.rows_in, forced.days) == (1200, 1)
    assert rows == [contents(lake, table) for table in tables]
    assert [(row["attempts"], row["dead"], row["succeeded"], row["workers"]) for row in rows[1]] == [
        (600, 60, 540, 3),
        (600, 60, 540, 3),
    ]
    exact = Histogram.of(20_000 + number % 7 * 1000 for number in range(600)).counts
    assert dict(rows[1][0]["run_hist"]) == exact, "Arrow and Python put a time into the same bucket"
    assert {group["sample"] for group in rows[2]} == {"flight 1190 cancelled", "flight 1180 lost"}


def test_analysis_gives_advice_burn_rates_and_odd_hours(config: JobConfig, lake: Lake):
    write_day(lake)
    rollup(lake)

    analyse(config)
    first = [contents(lake, table) for table in (CAPACITY, SLO, ANOMALIES)]
    analyse(config)

    assert [contents(lake, table) for table in (CAPACITY, SLO, ANOMALIES)] == first
    (advice,) = contents(lake, CAPACITY)
    assert (advice["queue"], advice["attempts"], advice["slots_seen"], advice["slots_needed"]) == ("mail", 1200, 24, 1)
    assert advice["arrivals_per_s"] == pytest.approx(50 / 300)
    assert advice["mean_run_s"] == pytest.approx(0.023, rel=0.01)
    burns = {(row["objective"], row["window"]): row for row in contents(lake, SLO) if row["queue"] == "mail"}
    assert len(burns) == 6
    assert len(contents(lake, SLO)) == 9
    assert (burns["success", "1h"]["total"], burns["success", "1h"]["bad"]) == (600, 60)
    assert burns["success", "1h"]["burn_rate"] == pytest.approx(10)
    # The limit is exact within one per cent: it counts as the end of its bucket.
    late = sum(1000 + number > 2000 for number in range(1200))
    assert burns["wait_p95_ms", "3d"]["bad"] == pytest.approx(late, abs=0.02 * 2000)
    assert contents(lake, ANOMALIES) == []


def test_advice_counts_a_worker_that_is_started_again_once_and_no_slots_where_more_would_not_help(
    config: JobConfig, lake: Lake
):
    def event(number: int) -> dict[str, Any]:
        at_ms = MIDNIGHT_MS + number * 5000
        late = {"queue": "bulk", "wait_us": 31_000_000} if number % 2 else {}
        return {"id": f"{at_ms}-1", "enqueued_at": at_ms - 50, "worker": f"web1:{number // 720}:0"} | late

    store_events(lake, map(event, range(4320)))  # six hours; a new process in each
    rollup(lake)
    analyse(config)

    bulk, mail = sorted(contents(lake, CAPACITY), key=lambda row: row["queue"])
    assert (mail["slots_seen"], mail["slots_needed"], mail["silent_because"]) == (8, 1, "")
    assert (bulk["slots_seen"], bulk["slots_needed"]) == (8, None)
    assert "waited up to 31" in bulk["silent_because"]


# -- Only what is new --------------------------------------------------------------------------------------------------


def test_rollup_reads_new_files_only(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    write_day(lake)
    rollup(lake)
    before = {file.path for file in lake.open(EVENTS).files}
    store_events(lake, [{"id": f"{MIDNIGHT_MS + 3_700_000}-9"}])
    read: list[str] = []

    def noting(uri: str, paths: list[str], *given: Any) -> Iterator[Any]:
        if uri.endswith("/events"):
            read.extend(paths)
        return scan_files(uri, paths, *given)

    monkeypatch.setattr("rsmq_django.spark.rollup.scan_files", noting)
    result = rollup(lake)

    assert (result.rows_in, result.rows_out) == (1, 1), "of one hour"
    assert read
    assert not before.intersection(read)
    assert_figures_are_those_of_the_events(lake)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_rollup_skips_the_sums_of_hours_without_new_events(
    lake: Lake, is_compacted: bool, monkeypatch: pytest.MonkeyPatch
):
    tasks = [f"shop.task{number}" for number in range(12)]
    at_ms = [MIDNIGHT_MS + slot * 300_000 for slot in range(288)]
    store_events(lake, ({"id": f"{ms}-{number}", "task": task} for ms in at_ms for number, task in enumerate(tasks)))
    rollup(lake)
    if is_compacted:
        store_events(lake, [{"id": f"{MIDNIGHT_MS + 9 * 3_600_000}-99"}])
        rollup(lake)
        lake.compact(DAY + dt.timedelta(days=3))
    store_events(lake, [{"id": f"{MIDNIGHT_MS + 7 * 3_600_000}-99"}])
    conditions: list[Any] = []
    read = Table.read

    def noted(self: Table, *days: Any, **options: Any) -> Any:
        conditions.extend([options["where"]] if self.definition is FIVE_MINUTES and "where" in options else [])
        return read(self, *days, **options)

    monkeypatch.setattr(Table, "read", noted)
    rollup(lake)

    table, (where,) = lake.open(FIVE_MINUTES), conditions
    (large,) = (file for file in table.files if file.rows > 3000)
    (fragment,) = dataset.dataset(f"{table.uri}/{large.path}").get_fragments()
    parts = [sum(part.num_rows for part in each.row_groups) for each in fragment.split_by_row_group(where)]
    assert sum(parts) <= 2000 < large.rows
    assert_figures_are_those_of_the_events(lake)


def test_late_events_change_only_their_day_and_released_messages_are_not_attempts(lake: Lake):
    write_day(lake)
    rollup(lake)
    write_day(lake, 1, count=100)
    given_back = {"id": f"{MIDNIGHT_MS + DAY_MS}-2", "event": "released", "wait_us": "", "run_us": ""}
    store_events(lake, [given_back])

    assert uncounted(lake) == 101
    assert rollup(lake).rows_in == 101
    rows = contents(lake, HOURLY)
    assert [sum(row[name] for row in rows) for name in ("attempts", "first_attempts", "released")] == [1300, 1300, 1]


def test_compaction_of_counted_days_is_not_news(lake: Lake):
    write_day(lake)
    rollup(lake)

    assert lake.compact(DAY + dt.timedelta(days=2)) == (1, 1200)
    assert len(lake.open(EVENTS).files) == 1
    assert uncounted(lake) == 0
    rollup(lake)
    assert_figures_are_those_of_the_events(lake)


def test_new_events_that_were_compacted_before_the_rollup_are_counted_once(lake: Lake):
    write_day(lake)
    rollup(lake)
    write_day(lake, count=600)
    write_day(lake, 1, count=100)
    lake.compact(DAY + dt.timedelta(days=2))

    assert uncounted(lake) == 1900, "the compacted day from its beginning"
    rollup(lake)
    assert_figures_are_those_of_the_events(lake)


def test_days_are_counted_again_when_the_commits_of_their_files_are_no_longer_known(lake: Lake):
    write_day(lake)
    rollup(lake)
    write_day(lake, 1, count=100)
    events = lake.open(EVENTS, create=True)
    events._delta.create_checkpoint()
    for path in (Path(events.uri) / LOG).glob("*.json"):
        path.unlink()

    assert uncounted(lake) == 1300
    rollup(lake)
    assert uncounted(lake) == 0
    assert_figures_are_those_of_the_events(lake)


def test_events_of_another_table_of_events_are_counted_from_its_beginning(lake: Lake):
    write_day(lake)
    rollup(lake)
    (lake.root / "events").rename(lake.root / "before")
    for _ in range(3):
        write_day(lake, count=100)

    rollup(lake)

    assert_figures_are_those_of_the_events(lake)


def test_expired_days_keep_their_hours_and_late_events_of_them_change_nothing(lake: Lake):
    write_day(lake)
    write_day(lake, 1, count=100)
    rollup(lake)
    before = contents(lake, HOURLY), contents(lake, FAILURES)

    lake.expire(DAY + dt.timedelta(days=31))
    assert lake.days(EVENTS) == [DAY + dt.timedelta(days=1)]
    rollup(lake)
    assert (contents(lake, HOURLY), contents(lake, FAILURES)) == before

    write_day(lake, count=100)
    assert rollup(lake).rows_in == 0
    assert rollup(lake, since=DAY).rows_in == 100, "of the day that is kept"
    assert (contents(lake, HOURLY), contents(lake, FAILURES)) == before


def as_of_an_earlier_version(lake: Lake, *, expired: dt.date) -> None:
    """Make the lake one of 0.1.0: no sums, marks and names of workers; the events of a day expired without a mark."""
    shutil.rmtree(lake.root / FIVE_MINUTES.name)
    for table in (HOURLY, FAILURES):
        days = {day: lake.open(table).read({day}).to_pylist() for day in lake.days(table)}
        shutil.rmtree(lake.root / table.name)
        for day, rows in days.items():
            newer = ("worker_names", "wait_p95_us", "run_p95_us")
            lake.write_day(table, day, [row | {name: None for name in newer if name in row} for row in rows])
    events = lake.open(EVENTS, create=True)
    events.commit(removed=events.files_of({expired}))


@pytest.mark.parametrize("has_sums", [False, True], ids=["first", "later"])
def test_late_events_of_a_day_that_expired_in_an_earlier_version_change_nothing(lake: Lake, has_sums: bool):
    write_day(lake)
    write_day(lake, 1, count=100)
    rollup(lake)
    as_of_an_earlier_version(lake, expired=DAY)
    before = [lake.open(table).read({DAY}).to_pylist() for table in (HOURLY, FAILURES)]
    if has_sums:
        rollup(lake)

    for count in (10, 20):
        write_day(lake, count=count)
        rollup(lake)
    rollup(lake, since=DAY)

    assert [lake.open(table).read({DAY}).to_pylist() for table in (HOURLY, FAILURES)] == before
    assert lake.days(FIVE_MINUTES) == [DAY + dt.timedelta(days=1)]
    write_day(lake, 1, count=50)
    rollup(lake)
    assert sum(row["attempts"] for row in lake.open(HOURLY).read({DAY + dt.timedelta(days=1)}).to_pylist()) == 150


def test_failures_of_an_earlier_version_get_more_attempts(lake: Lake):
    write_day(lake)
    rollup(lake)
    as_of_an_earlier_version(lake, expired=DAY)
    shutil.rmtree(lake.root / HOURLY.name)
    write_day(lake, 1, count=20)
    rollup(lake)
    workers = {row["workers"] for row in lake.open(FAILURES).read({DAY}).to_pylist()}

    write_day(lake, count=20)
    rollup(lake)

    rows = lake.open(FAILURES).read({DAY}).to_pylist()
    assert (sum(row["n"] for row in rows), {row["workers"] for row in rows}) == (122, workers)


@pytest.mark.parametrize("stored", ["on the day of archiving", "on a far day"])
def test_events_whose_clock_was_ahead_change_no_figures(config: JobConfig, lake: Lake, stored: str):
    write_day(lake)
    rollup(lake)
    analyse(config)
    tables = (HOURLY, FAILURES, CAPACITY, SLO, ANOMALIES)
    before = [[row for day in lake.days(table) for row in lake.open(table).read({day}).to_pylist()] for table in tables]
    far = [{"id": f"4300000000000-{number}", "error_type": "shop.Lost"} for number in range(5)]

    # An earlier version stored them on a day of 2106.
    is_far = stored == "on a far day"
    store_events(lake, far, now_us=NEVER_US if is_far else (MIDNIGHT_MS + 7_200_000) * 1000)
    assert rollup(lake).rows_in == 5
    analyse(config)

    days = [day for day in lake.days(EVENTS) if day.year < 2106]
    assert (len(lake.days(EVENTS)), days) == (1 + is_far, [DAY])
    after = [[row for day in days for row in lake.open(table).read({day}).to_pylist()] for table in tables]
    assert after == before
    assert all(day == DAY for table in (CAPACITY, SLO, ANOMALIES) for day in lake.days(table))


# -- Crashes and other runs --------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


@pytest.mark.parametrize("is_committed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("table", [FAILURES, FIVE_MINUTES, HOURLY], ids=lambda table: table.name)
@pytest.mark.parametrize("has_sums", [False, True], ids=["first", "later"])
def test_events_are_counted_once_after_a_crash_at_any_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, table: LakeTable, is_committed: bool, has_sums: bool
):
    write_day(lake, count=200)
    if has_sums:
        rollup(lake)
        write_day(lake, count=300)
    commit = Table.commit

    def die(self: Table, *args: Any, **options: Any) -> None:
        if self.definition is not table or is_committed:
            commit(self, *args, **options)
        if self.definition is table:
            raise Killed

    with monkeypatch.context() as killed:
        killed.setattr(Table, "commit", die)
        with pytest.raises(Killed):
            rollup(lake)
    store_events(lake, [{"id": f"{MIDNIGHT_MS + 3_700_000}-9", "error_type": "shop.Lost"}])
    rollup(lake)

    assert_figures_are_those_of_the_events(lake)


@pytest.mark.parametrize("table", [FAILURES, FIVE_MINUTES, HOURLY], ids=lambda table: table.name)
@pytest.mark.parametrize(
    "change",
    [
        lambda lake: write_day(lake, count=100),
        lambda lake: lake.compact(DAY + dt.timedelta(days=2)),
        lambda lake: rollup(lake, since=DAY),
    ],
    ids=["more", "compaction", "again"],
)
def test_two_rollups_at_once_count_each_event_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, table: LakeTable, change: Callable[[Lake], object]
):
    write_day(lake, count=100)
    rollup(lake)
    write_day(lake, count=100)
    commit = Table.commit
    others: list[Any] = []

    def after_another(self: Table, *args: Any, **options: Any) -> None:
        if self.definition is table and not others:
            others.append(None)
            change(lake)
            rollup(lake)
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_another)
    rollup(lake)
    rollup(lake)

    assert others
    assert_figures_are_those_of_the_events(lake)
    assert uncounted(lake) == 0
