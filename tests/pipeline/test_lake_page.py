"""The figures of the lake in the database, and the lines with which other programs open its tables."""

import datetime as dt
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from rsmq_django.pipeline import history
from rsmq_django.pipeline.lake_page import readers_of
from rsmq_django.pipeline.models import LakeDay
from rsmq_django.pipeline.publish import publish, without_credentials
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import EVENTS, FIVE_MINUTES, HOURLY, LakeTable, archived_topic, drained

from .conftest import DAY, NOON, hour_row, write_events


def event_at(at: dt.datetime) -> dict[str, Any]:
    return {"shard": "rsmq::events", "entry_id": f"{at.timestamp():.0f}-0", "event": "succeeded", "event_at": at}


def nothing_but_nulls(table: LakeTable) -> dict[str, Any]:
    return dict.fromkeys(column.name for column in table.columns)


@pytest.mark.django_db
def test_figures_are_those_of_the_files_of_all_tables(lake: Lake, write_hours):
    write_hours([hour_row(), hour_row(task="shop.bill")])
    write_events(lake, [event_at(NOON)])
    write_events(lake, [event_at(NOON + dt.timedelta(hours=1))])
    for table in (drained("mail"), archived_topic("tea/milk")):
        lake.append(table, DAY, [nothing_but_nulls(table)])

    publish(lake)

    found = {one.table: one for one in history.lake_tables()}
    assert {name: (one.days, one.rows, one.files) for name, one in found.items()} == {
        "hourly": (1, 2, 1),
        "events": (1, 2, 2),
        "drained/mail": (1, 1, 1),
        "topics/tea~2Fmilk": (1, 1, 1),
    }
    for name, one in found.items():
        assert one.size_bytes == sum(path.stat().st_size for path in lake.root.glob(f"{name}/dt=*/*.parquet")), name
    assert (found["hourly"].first_day, found["hourly"].last_day) == (DAY, DAY)
    state = history.lake_state()
    assert state is not None
    assert (state.place, state.newest_event_at) == (lake.uri, NOON + dt.timedelta(hours=1))


@pytest.mark.django_db
def test_figures_of_days_that_changed_or_expired_follow(lake: Lake, write_hours):
    old = DAY - dt.timedelta(days=1000)
    for day in (old, DAY):
        write_hours([hour_row(dt.datetime.combine(day, dt.time(), dt.UTC))], day)
    publish(lake)
    keys = dict(LakeDay.objects.values_list("day", "pk"))

    write_hours([hour_row(), hour_row(task="shop.bill")], DAY + dt.timedelta(days=1))
    publish(lake)
    days = history.lake_days(table="hourly", since=DAY)
    same = dict(LakeDay.objects.values_list("day", "pk"))
    write_hours([hour_row(), hour_row(task="shop.bill"), hour_row(task="shop.ship")])
    lake.expire(DAY)
    publish(lake)

    assert [(day.day, day.rows) for day in days] == [(DAY + dt.timedelta(days=1), 2), (DAY, 1)]
    assert {day: same[day] for day in keys} == keys, "rows of the same files stay"
    assert list(LakeDay.objects.values_list("day", "rows")) == [(DAY + dt.timedelta(days=1), 2), (DAY, 3)]


@pytest.mark.django_db
def test_lake_that_is_empty_has_a_place_and_no_figures(lake: Lake):
    assert history.lake_state() is None

    publish(lake)

    state = history.lake_state()
    assert state is not None
    assert (state.place, bool(state.newest_event_at), history.lake_tables()) == (lake.uri, False, [])


@pytest.mark.django_db
def test_event_of_the_future_is_not_the_newest(lake: Lake):
    write_events(lake, [event_at(NOON - dt.timedelta(days=365)), event_at(NOON + dt.timedelta(days=3650))])

    publish(lake)

    state = history.lake_state()
    assert state is not None
    assert state.newest_event_at == NOON - dt.timedelta(days=365)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/var/lib/shop/lake@home?", "/var/lib/shop/lake@home?"),
        ("s3://bucket/lake", "s3://bucket/lake"),
        ("s3://key:secret@bucket/lake", "s3://bucket/lake"),
        ("abfss://lake@account.dfs.core.windows.net/shop", "abfss://lake@account.dfs.core.windows.net/shop"),
        ("https://account.blob.core.windows.net/lake?sig=secret", "https://account.blob.core.windows.net/lake"),
    ],
)
def test_place_has_no_credentials(place: str, shown: str):
    assert without_credentials(place) == shown


@pytest.mark.parametrize(
    ("program", "count"),
    [("DuckDB", "rows.count('*').fetchall()[0][0]"), ("polars", "rows.collect().height")],
    ids=["DuckDB", "polars"],
)
@pytest.mark.parametrize("table", [EVENTS, FIVE_MINUTES, HOURLY], ids=lambda table: table.name)
def test_line_of_the_page_opens_a_table(lake: Lake, program: str, count: str, table: LakeTable):
    if find_spec(program.lower()) is None:
        pytest.skip(f"needs {program}")
    lake.append(table, DAY, 3 * [nothing_but_nulls(table)])
    line = dict(readers_of(f"{lake.uri}/{table.name}"))[program]

    # A process of its own: polars sets variables of the environment.
    done = subprocess.run([sys.executable, "-c", f"{line}; print({count})"], capture_output=True, text=True, check=True)

    assert done.stdout == "3\n"
