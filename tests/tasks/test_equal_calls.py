"""Calls are equal for `unique`, `fair_by`, `limits` and `shard_by` when the function would get equal values."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User

from rsmq_django.tasks import Concurrency, Task, TaskContext, Unique
from rsmq_django.tasks.lanes import lane_of_call, lane_of_later_call
from rsmq_django.tasks.limits import keys_of_limit
from rsmq_django.tasks.shards import ShardKey
from rsmq_django.tasks.typed_arguments import as_sent
from tests.tasks.test_typed_arguments import Parcel
from tests.worker.workshop import Configure, declare

HERE = timezone(timedelta(hours=2))
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
NOON_HERE = NOON.astimezone(HERE)
KEY = UUID("7f3c1c1e-6f0d-4e8e-9a4e-0d5a1f2b3c4d")
ADA = User(pk=7, username="ada")
ADA._state.adding = False


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Rate(enum.Enum):
    WHOLE = 1
    HALF = 0.5


@dataclass
class Line:
    price: Decimal
    count: int = 1
    seen: datetime | None = None
    notes: list[str] = field(default_factory=list)
    key: UUID = field(default_factory=uuid4)


@dataclass
class Old:
    price: Decimal
    count: int = 1


LINE = Line(Decimal("1.50"), key=KEY)

#: Annotation, and values that the function would find equal.
EQUAL: list[tuple[Any, list[Any]]] = [
    (User, [ADA, 7, "auth.user:7", "auth.user:07"]),
    (list[User], [[ADA], [7], ("auth.user:7",)]),
    (Decimal, [Decimal("1.0"), Decimal("1.00"), "1", 1, 1.0, "10E-1"]),
    (Decimal, [Decimal("100"), Decimal("1E+2"), "1.00E2"]),
    (Decimal, [Decimal("-0.00"), 0, "0E+1000000"]),
    (Decimal, [Decimal("1E+1000000"), "10E+999999"]),
    (Decimal, [Decimal("0.00000010"), "1E-7"]),
    (UUID, [KEY, str(KEY), str(KEY).upper(), KEY.hex]),
    (datetime, [NOON, NOON_HERE, "2026-11-23T12:00:00Z", "20261123T140000+02"]),
    (datetime, [NOON.replace(tzinfo=None), "2026-11-23 12:00"]),
    (date, [date(2026, 11, 23), "2026-11-23", "20261123"]),
    (time, [time(9, 30), "09:30", "T093000"]),
    (timedelta, [timedelta(seconds=90), 90, 90.0, "PT1M30S", "00:01:30"]),
    (Size, [Size.SMALL, 1]),
    (Rate, [Rate.WHOLE, 1, 1.0]),
    (int, [1, 1.0, True, Size.SMALL]),
    (float, [1.0, 1, True]),
    (float, [0.0, -0.0, 0]),
    (bool, [True, 1, 1.0]),
    (int | None, [1, 1.0]),
    (list[int], [[1, 2], [1.0, 2.0], (True, 2)]),
    (Sequence[Decimal], [[Decimal("1.0")], ["1.00"]]),
    (dict[str, int], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}]),
    (Mapping[str, UUID], [{"a": KEY}, {"a": str(KEY).upper()}]),
    (tuple[int, ...], [(1, 2), [1.0, 2]]),
    (tuple[int, UUID], [(1, KEY), [1.0, str(KEY).upper()]]),
    (
        Line,
        [
            LINE,
            {"price": 1.5, "key": str(KEY)},
            {"price": "1.5", "key": str(KEY).upper(), "count": 1.0, "seen": None, "notes": [], "of a newer release": 7},
        ],
    ),
    (list[Line], [[LINE], [{"price": "1.50", "key": str(KEY)}]]),
    (Parcel, [Parcel(3), {"weight": 3}]),
]
#: Annotation, and values that the function would find different, or that the annotation does not explain.
DIFFERENT: list[tuple[Any, list[Any]]] = [
    (User, [ADA, 8]),
    (Decimal, [Decimal("1.0"), Decimal("1.01"), "-1", "1E+2", "1E-2", "1E+1000000", "1E+1000001"]),
    (datetime, [NOON, NOON.replace(tzinfo=HERE), NOON.replace(tzinfo=None), "0001-01-01T00:00:00+01:00"]),
    (int, [1, 1.5, 2**53, 2**53 + 1, 10**400, None]),
    (float, [1.0, 1.5, 2**53 + 1, 2**53, 10**400]),
    (bool, [True, False, 2]),
    (Any, [1, 1.0, True, "1"]),
    (int | str, [1, "1"]),
    (str, ["1", "1.0"]),
    (Line, [LINE, Line(Decimal(2), key=KEY)]),
]


def declared(annotation: Any, **options: Any) -> Task[..., Any]:
    def work(value: Any) -> None: ...

    work.__annotations__["value"] = annotation
    made: Task[..., Any] = declare(**options)(work)
    return made


def as_received(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the arguments of a call as the JSON in its message."""
    return json.loads(json.dumps(as_sent(task, args, kwargs)))


def digests(task: Task[..., Any], values: Sequence[Any], unique: Unique) -> set[str]:
    """Return the digests of a call with each value, by position and by name in turn."""
    calls = [as_received(task, value=each) if n % 2 else as_received(task, each) for n, each in enumerate(values)]
    return {unique.digest(task.func, task.module_path, *call) for call in calls}


@pytest.mark.parametrize(("annotation", "values"), EQUAL)
def test_calls_with_values_that_the_function_finds_equal_are_equal(
    project: Configure, annotation: Any, values: list[Any]
):
    task = declared(annotation)

    for unique in (Unique(), Unique(by=["value"]), Unique(by=lambda value: value)):
        assert len(digests(task, values, unique)) == 1


@pytest.mark.parametrize(("annotation", "values"), DIFFERENT)
def test_calls_with_values_that_the_function_finds_different_are_different(
    project: Configure, annotation: Any, values: list[Any]
):
    assert len(digests(declared(annotation), values, Unique())) == len(values)


def test_a_unique_call_by_the_key_of_a_row_is_a_duplicate_of_that_by_the_row(project: Configure):
    pay = declared(User, unique=Unique())

    second = pay.enqueue(ADA.pk)
    first = pay.enqueue(ADA)

    assert second.id == first.id
    assert second.args == [7], "it is sent as it was passed"


def test_keys_of_calls_in_canonical_form_are_those_of_earlier_releases():
    def work(
        user: User, price: Decimal, key: UUID, at: datetime, day: date, wait: timedelta, count: int, lines: list[Old]
    ) -> None: ...

    args = ["auth.user:7", "12.5", str(KEY), NOON.isoformat(), "2026-11-23", "P0DT00H01M30S", 3]
    args.append([{"price": "100", "count": 1}])

    assert Unique().digest(work, "shop.work", args, {}) == "426a7171a0391730b6533853e0f90916"
    assert Unique(by=["price", "key"]).digest(work, "shop.work", args, {}) == "ca1eef2e8aeb452df003db5953fec3a0"


def test_equal_calls_have_one_lane_one_shard_and_one_limit(project: Configure):
    task = declared(Decimal, fair_by=["value"], limits=[Concurrency(1, by=["value"])])
    calls = [as_received(task, each) for each in (Decimal("1.5"), Decimal("1.50"), Decimal("1.500"), "15E-1", 1.5)]

    def limit(call: Any) -> Any:
        return keys_of_limit(task.options.limits[0], "rsmq", "shop.work", task.func, *call, takes_context=False)

    assert {lane_of_call(task, *call) for call in calls} == {lane_of_call(task, ["1.5"], {})}
    assert {ShardKey("shard_by", ("value",)).text(task, *call) for call in calls} == {"1.5"}
    assert len({limit(call) for call in calls}) == 1


def test_a_step_after_a_result_has_the_lane_of_an_equal_call(project: Configure):
    @declare(fair_by=["user"], takes_context=True)
    def pay(context: TaskContext, result: Decimal, user: User) -> None: ...

    lanes = {lane_of_later_call(pay, [user], {}) for user in (7, "auth.user:7")}
    assert lanes == {lane_of_call(pay, ["1", 7], {})}


def test_defaults_and_further_arguments_are_canonical(project: Configure):
    @declare(takes_context=True)
    def pay(
        context: TaskContext,
        day: datetime = NOON_HERE,
        /,
        *rest: Decimal,
        tip: Decimal = Decimal("1.0"),
        **more: UUID,
    ) -> None: ...

    def digest(*args: Any, **kwargs: Any) -> str:
        return Unique().digest(pay.func, "shop.pay", *as_received(pay, *args, **kwargs), takes_context=True)

    assert digest() == digest(NOON) == digest("2026-11-23T12:00:00Z", tip=1)
    assert digest(NOON, "1.0", Decimal("2.00"), key=KEY) == digest(NOON, 1, 2, key=str(KEY).upper())
    assert digest(NOON, 1) != digest(NOON, 2)


def test_a_value_that_does_not_fit_its_annotation_is_compared_as_it_is(project: Configure):
    """Other programs may send it; the call of a limit is counted before it fails."""
    limit, task = Concurrency(1, by=["value"]), declared(list[Line])

    def key(value: Any) -> Any:
        return keys_of_limit(limit, "rsmq", "shop.work", task.func, [value], {}, takes_context=False)

    values: list[Any] = ["x", 7, {}, [7], [{}], [{"price": {}}], None]
    assert len({key(value) for value in values}) == len(values)


@dataclass
class Odd:
    anything: Any = object()
    day: date = None  # type: ignore[assignment]  # an annotation that is not true


def test_defaults_that_are_no_json_stay_left_out(project: Configure):
    assert len(digests(declared(Odd), [{}, {"of a newer release": 1}], Unique())) == 1
