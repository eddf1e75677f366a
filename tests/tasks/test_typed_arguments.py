"""Arguments by the annotations of the function: JSON in the message, Python values in the task."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NewType, Protocol, TypeVar
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.db import models
from django.test.utils import isolate_apps

from rsmq_django.outbox.models import InboxEntry
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.reliable_queues import task_body
from rsmq_django.tasks import (
    DISCARD,
    Concurrency,
    Failure,
    Task,
    TaskContext,
    Unique,
    call,
    chain,
    group,
    map_tasks,
)
from rsmq_django.tasks.compat import TaskResultStatus
from rsmq_django.tasks.converters import converter_of
from rsmq_django.tasks.schedule import UnusableSchedule, every, task_of
from rsmq_django.tasks.typed_arguments import types_of
from rsmq_django.testing import private_queues
from rsmq_django.testing.kit import Kit
from tests.worker.workshop import Configure, declare, send_raw, the_dead_letter, work

if TYPE_CHECKING:
    from rsmq_django.nowhere import OnlyForTypeCheckers  # type: ignore[import-not-found]  # no such module


T_co = TypeVar("T_co", covariant=True)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


@dataclass
class Item:
    price: Decimal
    due: date | None = None
    parts: list[Item] = field(default_factory=list)
    note: str = ""


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ArithmeticError(self.number)


@dataclass
class LongItem(Item):
    more: str = ""


@dataclass
class Sum:
    parts: list[int]
    total: int = field(init=False)
    seen: int = field(init=False, default=0, compare=False)
    spare: int = 0

    def __post_init__(self) -> None:
        self.total = sum(self.parts)


@dataclass
class Growing:
    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclass
class Made:
    number: int = 0
    factor: InitVar[int] = field(kw_only=True)


class Source(Protocol[T_co]):
    def next(self) -> T_co: ...


class Parcel:
    """In the manner of Pydantic."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and other.weight == self.weight

    __hash__ = None  # type: ignore[assignment]  # as for any class with __eq__

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool, warnings: bool) -> dict[str, Any]:
        assert mode == "json" and by_alias and round_trip and not warnings
        return {"weight": self.weight}

    @classmethod
    def model_validate(cls, value: dict[str, Any]) -> Parcel:
        if not isinstance(value.get("weight"), int):
            raise ValueError(f"no weight in {value}")
        return cls(value["weight"])


Day = NewType("Day", date)
DAY, MOMENT = date(2026, 11, 23), datetime(2026, 11, 23, 22, 5, 7, 250, tzinfo=timezone(timedelta(hours=1)))
KEY = UUID("7f3c1c1e-6f0d-4e8e-9a4e-0d5a1f2b3c4d")

#: Annotation, value, and its JSON.
VALUES: list[tuple[Any, Any, Any]] = [
    (datetime, MOMENT, "2026-11-23T22:05:07.000250+01:00"),
    (datetime, MOMENT.replace(tzinfo=None), "2026-11-23T22:05:07.000250"),
    (date, DAY, "2026-11-23"),
    (time, time(9, 30), "09:30:00"),
    (timedelta, timedelta(days=1, seconds=2, microseconds=3), "P1DT00H00M02.000003S"),
    (timedelta, -timedelta(minutes=5), "-P0DT00H05M00S"),
    (UUID, KEY, str(KEY)),
    (Decimal, Decimal("12.50"), "12.50"),
    (Colour, Colour.BLUE, "blue"),
    (Size, Size.SMALL, 1),
    (Day, DAY, "2026-11-23"),
    (Annotated[date, "of departure"], DAY, "2026-11-23"),
    (date | None, None, None),
    (date | None, DAY, "2026-11-23"),
    (list[date], [DAY, DAY], ["2026-11-23", "2026-11-23"]),
    (Sequence[date], [DAY], ["2026-11-23"]),
    (dict[str, list[UUID]], {"a": [KEY]}, {"a": [str(KEY)]}),
    (Mapping[str, date], {"a": DAY}, {"a": "2026-11-23"}),
    (tuple[int, date], (1, DAY), [1, "2026-11-23"]),
    (tuple[date, ...], (DAY, DAY), ["2026-11-23", "2026-11-23"]),
    (tuple, (1, 2), [1, 2]),
    (
        Item,
        Item(Decimal("1.5"), parts=[Item(Decimal(2), DAY)]),
        {
            "price": "1.5",
            "due": None,
            "parts": [{"price": "2", "due": "2026-11-23", "parts": [], "note": ""}],
            "note": "",
        },
    ),
    (Parcel, Parcel(3), {"weight": 3}),
]


@pytest.mark.parametrize(("hint", "value", "plain"), VALUES)
def test_a_value_becomes_json_and_the_json_the_value(hint: Any, value: Any, plain: Any):
    converter = converter_of(hint)
    assert converter is not None

    written = converter.write(value)
    assert json.loads(json.dumps(written)) == plain
    found = converter.read(plain)
    assert found == value and type(found) is type(value)
    assert converter.write(plain) == plain, "what is JSON already is sent as it is"


@pytest.mark.parametrize(
    "hint",
    [int, str, list[int], dict[str, Any], Any, date | str, date | datetime, dict[int, date], set[date], bytes]
    + [Source[date]],
)
def test_an_annotation_without_one_meaning_changes_nothing(hint: Any):
    assert converter_of(hint) is None


@pytest.mark.parametrize(
    ("hint", "plain", "value"),
    [
        (Decimal, 1.5, Decimal("1.5")),
        (Decimal, 3, Decimal(3)),
        (timedelta, 90, timedelta(seconds=90)),
        (timedelta, "PT1M30S", timedelta(seconds=90)),
        (datetime, "2026-11-23T21:05:07.250Z", datetime(2026, 11, 23, 21, 5, 7, 250000, UTC)),
        (Item, {"price": 2, "of a newer release": 1}, Item(Decimal(2))),
    ],
)
def test_json_that_other_programs_write_is_read(hint: Any, plain: Any, value: Any):
    converter = converter_of(hint)
    assert converter is not None
    assert converter.read(plain) == value


@pytest.fixture
def got() -> list[Any]:
    return []


@pytest.fixture
def ship(project: Configure, got: list[Any]) -> Task[..., Any]:
    def ship(
        day: date, item: Item | None = None, *rest: Decimal, colour: Colour = Colour.RED, **others: timedelta
    ) -> None:
        got.append((day, item, rest, colour, others))

    declared: Task[..., Any] = declare(ship)
    return declared


def waiting() -> list[dict[str, Any]]:
    queue = get_queue("default")
    (ids,) = queue.client.connection.exchange([("ZRANGE", queue.keys.messages, 0, -1)])
    bodies = queue.client.connection.exchange([("HGET", queue.keys.settings, each) for each in ids])
    return [json.loads(body) for body in bodies]


def test_a_call_arrives_as_it_was_sent(ship: Task[..., Any], got: list[Any]):
    item = Item(Decimal("9.90"), DAY)
    ship.enqueue(DAY, item, Decimal(1), Decimal(2), colour=Colour.BLUE, pause=timedelta(seconds=1))
    result = ship.enqueue(day=DAY)

    assert waiting()[0]["args"] == [
        "2026-11-23",
        {"price": "9.90", "due": "2026-11-23", "parts": [], "note": ""},
        "1",
        "2",
    ]
    assert waiting()[0]["kwargs"] == {"colour": "blue", "pause": "P0DT00H00M01S"}
    assert result.kwargs == {"day": "2026-11-23"}
    assert work()
    assert got == [
        (DAY, item, (Decimal(1), Decimal(2)), Colour.BLUE, {"pause": timedelta(seconds=1)}),
        (DAY, None, (), Colour.RED, {}),
    ]


async def test_every_way_of_sending_converts(ship: Task[..., Any], got: list[Any]):
    await ship.aenqueue(DAY)
    await ship.aenqueue_many([{"day": DAY}])
    ship.enqueue_many([[DAY], ("2026-11-23",)])
    ship.using(tags=["t"], priority=5).enqueue(DAY)
    group([call(ship, DAY)], then=call(ship, DAY).without_result()).enqueue()
    map_tasks(ship, [DAY], window=5)
    send_raw(task_body(ship, DAY))
    send_raw(json.dumps({"task": ship.module_path, "args": ["2026-11-23"]}))

    await asyncio.to_thread(work)
    assert [each[0] for each in got] == [DAY] * 10


def test_the_result_of_a_step_is_the_typed_argument_of_the_next(project: Configure, got: list[Any]):
    @declare
    def first(day: date) -> date:
        return day + timedelta(days=1)

    @declare
    def second(day: date, more: timedelta) -> None:
        got.append((day, more))

    chain(call(first, DAY), call(second, timedelta(hours=1))).enqueue()
    assert work()
    assert got == [(DAY + timedelta(days=1), timedelta(hours=1))]


def test_failures_of_a_workflow_arrive_as_they_are(project: Configure, got: list[Any]):
    @declare(max_attempts=1)
    def fail(day: date) -> None:
        raise ValueError

    @declare
    def report(failures: list[Failure], day: date) -> None:
        got.append((type(failures[0]), day))

    group([call(fail, DAY)], on_failure=call(report, DAY)).enqueue()
    assert not work() or got
    assert got == [(Failure, DAY)]


def test_a_coroutine_and_a_context_get_typed_arguments(project: Configure, got: list[Any]):
    @declare(takes_context=True)
    async def ping(context: TaskContext, day: date) -> None:
        got.append((context.attempt, day))

    @declare(takes_context=True)
    def pong(context: TaskContext, day: date) -> None:
        got.append((context.attempt, day))

    ping.enqueue(DAY)
    pong.enqueue(day=DAY)
    assert work()
    assert got == [(1, DAY)] * 2


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([7], "argument 'day' must be a date or its ISO text, not an int"),
        ([MOMENT], "argument 'day' must be a date or its ISO text, not a datetime"),
        (["monday"], "argument 'day' must be a date or its ISO text, and this one is not"),
        ([None], "argument 'day' must be a date or its ISO text, not a NoneType"),
        ([DAY, {"due": None}], "argument 'item' lacks the field 'price' of Item"),
        ([DAY, Item(Decimal(1), parts=[Item("x")])], r"argument 'item'\.parts\[0\]\.price must be a Decimal"),  # type: ignore[arg-type]
        ([DAY, Item(Decimal("NaN"))], r"argument 'item'\.price must be a finite number"),
        ([DAY, None, DAY], "argument 3 must be a Decimal, its text or a number, not a date"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_where_it_is_sent(ship: Task[..., Any], args: list[Any], text: str):
    for send in (
        lambda: ship.enqueue(*args),
        lambda: ship.enqueue_many([args]),
        lambda: task_body(ship, *args),
        lambda: group([call(ship, *args)]).enqueue(),
    ):
        with pytest.raises(TypeError, match=f"test_typed_arguments.ship: {text}"):
            send()


def test_an_object_that_contains_itself_is_refused(ship: Task[..., Any]):
    item = Item(Decimal(1))
    item.parts.append(item)
    with pytest.raises(TypeError, match="argument 'item' is too deep, or contains itself"):
        ship.enqueue(DAY, item)


def _changed(total: Sum) -> Sum:
    total.total = 1234567
    return total


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (Item, LongItem(Decimal(1), more="1234567"), "must be Item or an object of its fields, not a LongItem$"),
        (list[Item], [Item(Decimal(1), parts=[LongItem(Decimal(2))])], "must be Item or an object of its fields"),
        (Sum, _changed(Sum([1])), "would arrive with another value of Sum.total$"),
        (Growing, Growing(1234567), "would arrive with another value of Growing.number$"),
        (Made, Made(1234567, factor=1), r"is refused by Made \(TypeError\)$"),
    ],
)
def test_a_dataclass_that_would_arrive_changed_is_refused_without_its_values(hint: Any, value: Any, text: str):
    converter = converter_of(hint)
    assert converter is not None
    with pytest.raises(ValueError, match=text) as caught:
        converter.write(value)
    assert "1234567" not in str(caught.value)


def test_fields_that_a_dataclass_makes_itself_do_not_travel():
    converter, value = converter_of(Sum), Sum([1, 2])
    value.seen = 7  # it does not count when two are compared
    assert converter is not None
    assert converter.write(value) == {"parts": [1, 2], "spare": 0}
    assert converter.read(converter.write(value)) == value


def test_json_that_does_not_fit_is_a_dead_letter_without_the_value(ship: Task[..., Any], got: list[Any]):
    send_raw(json.dumps({"task": ship.module_path, "args": ["a secret"]}))
    assert work()

    _, record = the_dead_letter()
    assert record["reason"] == "wrong_arguments"
    assert "argument 'day' must be a date or its ISO text" in json.dumps(record) and "secret" not in record["error"]
    assert got == []


def test_pydantic_errors_name_the_class_and_not_the_value():
    converter = converter_of(Parcel)
    assert converter is not None
    with pytest.raises(ValueError, match=r"^is refused by Parcel \(ValueError\)$"):
        converter.read({"weight": "a secret"})


def test_a_return_value_is_read_as_it_was_returned(project: Configure):
    @declare
    def price(day: date) -> list[Decimal]:
        return [Decimal("1.50")]

    @declare
    def wrong() -> Decimal:
        return "no number"  # type: ignore[return-value]  # an annotation that is not true

    @declare
    def refused() -> Even:
        return {"number": 1}  # type: ignore[return-value]  # as above

    results = [price.enqueue(DAY), wrong.enqueue(), refused.enqueue()]
    assert work()
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [[Decimal("1.50")], "no number", {"number": 1}]


def test_equal_calls_of_a_unique_task_are_found_by_their_json(project: Configure):
    @declare(unique=Unique())
    def sweep(day: date = DAY, limit: Decimal = Decimal(1)) -> None: ...

    ids = {sweep.enqueue().id, sweep.enqueue(DAY).id, sweep.enqueue("2026-11-23", limit=Decimal(1)).id}
    assert len(ids) == 1
    assert sweep.enqueue(date(2026, 1, 1)).id not in ids


def test_a_limit_by_a_typed_argument_counts(project: Configure, got: list[Any]):
    @declare(limits=[Concurrency(1, by=["day"])])
    def sweep(day: date) -> None:
        got.append(day)

    sweep.enqueue(DAY)
    assert work()
    assert got == [DAY]


def test_arguments_of_a_schedule_are_checked(project: Configure, monkeypatch: pytest.MonkeyPatch):
    from rsmq_django.tasks import schedule

    monkeypatch.setattr(schedule, "_declared", {})

    @every(hours=1, args=["2026-11-23"], name="good")
    @every(hours=1, args=["monday"], name="bad")
    @declare
    def sweep(day: date) -> None: ...

    assert task_of(schedule.declared_schedules()["good"]) is sweep
    with pytest.raises(UnusableSchedule, match="schedule 'bad': arguments do not fit .*argument 'day' must be a date"):
        task_of(schedule.declared_schedules()["bad"])


def test_a_name_that_only_type_checkers_know_leaves_its_argument_as_it_is(project: Configure, got: list[Any]):
    @declare
    def odd(value: OnlyForTypeCheckers, day: date) -> None:
        got.append((value, day))

    odd.enqueue(1, DAY)
    assert work()
    assert got == [(1, DAY)]


def test_a_function_without_such_annotations_has_no_table():
    def plain(number: int, names: list[str], **options: Any) -> str:
        return names[number]

    assert types_of(plain).arguments is None and types_of(plain).returned is None


def test_the_testing_kit_compares_values(queues: Kit):
    @declare
    def sweep(day: date, price: Decimal = Decimal(1)) -> date:
        return day

    sweep.enqueue(DAY)
    queues.assert_enqueued(sweep, DAY)
    queues.assert_enqueued(sweep, day="2026-11-23", price=Decimal(1))
    with pytest.raises(AssertionError):
        queues.assert_enqueued(sweep, date(2026, 1, 1))
    assert [run.succeeded for run in queues.run()] == [True]


# -- Instances of models ----------------------------------------------------------------------------------------------


@pytest.fixture
def queues(settings: Any) -> Iterator[Kit]:
    """Calls run on the thread of the test, which has the database."""
    settings.RSMQ = {"QUEUES": {"default": {}}, "TASKS": {"ENQUEUE_ON_COMMIT": False}}
    with private_queues() as kit:
        yield kit


def promoting(got: list[Any], **options: Any) -> Task[..., Any]:
    @declare(**options)
    def promote(user: User, groups: list[Group] = []) -> None:  # noqa: B006 - never changed
        got.append((user.pk, user.username, [each.name for each in groups]))

    return promote  # type: ignore[no-any-return]


@pytest.mark.django_db
def test_an_instance_travels_by_its_key_and_is_read_when_the_call_runs(queues: Kit, got: list[Any]):
    user, promote = User.objects.create(username="ada"), promoting(got)
    groups = [Group.objects.create(name=name) for name in "ab"]
    promote.enqueue(user, groups=groups[::-1])
    promote.enqueue(user.pk)
    User.objects.filter(pk=user.pk).update(username="Ada")

    assert [each.args for each in queues.enqueued()] == [[f"auth.user:{user.pk}"], [user.pk]]
    queues.run()
    assert got == [(user.pk, "Ada", ["b", "a"]), (user.pk, "Ada", [])]


@pytest.mark.django_db
def test_a_list_of_instances_is_read_in_one_query(queues: Kit, got: list[Any], django_assert_num_queries: Any):
    user, promote = User.objects.create(username="ada"), promoting(got)
    groups = [Group.objects.create(name=name) for name in "abcd"]
    promote.enqueue(user, groups)
    with django_assert_num_queries(2):
        queues.run()
    assert len(got[0][2]) == 4


@pytest.mark.django_db
def test_a_coroutine_gets_instances(queues: Kit, got: list[Any]):
    @declare
    async def greet(user: User | None) -> None:
        got.append(user and user.username)

    greet.enqueue(User.objects.create(username="ada"))
    greet.enqueue(None)
    queues.run()
    assert got == ["ada", None]


@pytest.mark.django_db
def test_a_call_whose_row_is_gone_is_a_dead_letter_at_once(queues: Kit, got: list[Any]):
    user, promote = User.objects.create(username="ada"), promoting(got)
    result, key = promote.enqueue(user), user.pk
    user.delete()

    assert len(queues.run()) == 1, "it is not tried again"
    (letter,) = queues.dead_letters()
    assert letter.failure is not None and letter.failure.reason == "missing_object"
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert f"auth.user:{key} does not exist any more" in result.errors[0].traceback
    assert got == []


@pytest.mark.django_db
@pytest.mark.parametrize("key", [10**30, f"auth.user:{10**30}"])
def test_a_key_larger_than_any_key_is_of_no_row(queues: Kit, got: list[Any], key: Any):
    promoting(got).enqueue(key)
    assert len(queues.run()) == 1
    (letter,) = queues.dead_letters()
    assert letter.failure is not None and letter.failure.reason == "missing_object"


@pytest.mark.django_db
def test_a_call_whose_row_is_gone_is_deleted_by_choice(queues: Kit, got: list[Any]):
    user, promote = User.objects.create(username="ada"), promoting(got, missing_objects=DISCARD)
    result = promote.enqueue(user)
    user.delete()

    queues.run()
    assert queues.dead_letters() == [] and got == []
    result.refresh()
    assert result.status == TaskResultStatus.FAILED


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["auth.group:1", "auth.user", "user:1", "auth.user:x", 1.5, True, {"pk": 1}, ""])
def test_a_message_cannot_name_another_class(queues: Kit, got: list[Any], name: Any):
    Group.objects.create(pk=1, name="a")
    User.objects.create(pk=1, username="ada")
    promote = promoting(got)

    with pytest.raises(
        TypeError,
        match=r"argument 'user' must be a row of User, its key if that is a number, or its name like \"auth\.user:7\"",
    ):
        promote.enqueue(name)
    ensure_queue("default").send(json.dumps({"task": promote.module_path, "args": [name]}))
    queues.run()
    (letter,) = queues.dead_letters()
    assert letter.failure is not None and letter.failure.reason == "wrong_arguments"
    assert got == []


def test_an_instance_that_is_not_saved_is_refused(queues: Kit, got: list[Any]):
    with pytest.raises(TypeError, match="argument 'user' is an unsaved User; save it before the call"):
        promoting(got).enqueue(User(username="ada"))


@isolate_apps("rsmq_django")
def test_an_instance_that_has_its_key_before_it_is_saved_is_refused():
    class Order(models.Model):  # noqa: DJ008 - shown nowhere
        key = models.UUIDField(primary_key=True, default=uuid4)

        class Meta:
            app_label = "rsmq_django"

    converter = converter_of(Order)
    assert converter is not None
    with pytest.raises(ValueError, match="is an unsaved Order; save it before the call"):
        converter.write(Order())
    assert converter.write(Order.from_db("default", ["key"], [KEY])) == f"rsmq_django.order:{KEY}"


def test_a_row_of_another_database_is_refused_unless_a_router_writes_to_ours(settings: Any):
    converter, row = converter_of(Group), Group.from_db("archive", ["id", "name"], [7, "a"])
    assert converter is not None
    with pytest.raises(ValueError, match="is a Group of the database 'archive', and a task would read it from 'defa"):
        converter.write(row)

    settings.DATABASE_ROUTERS = [SimpleNamespace(db_for_write=lambda model, **hints: "default")]
    assert converter.write(row) == "auth.group:7"  # that database is a replica


@pytest.mark.django_db
def test_a_repeat_of_a_call_that_has_deleted_its_row_does_nothing(queues: Kit, got: list[Any]):
    @declare(once=True)
    def dissolve(group: Group) -> date:
        got.append(group.name)
        group.delete()
        return date(2026, 11, 28)

    dissolve.enqueue(Group.objects.create(name="a"))
    body = get_queue("default").receive(visibility_timeout_s=0).body
    queues.run()
    ensure_queue("default").send(body)  # as after a worker that died before it could acknowledge it

    assert [run.succeeded for run in queues.run()] == [True]
    assert got == ["a"] and queues.dead_letters() == []
    assert InboxEntry.objects.get().value == '"2026-11-28"'


@pytest.mark.parametrize("choice", ["drop", True])
def test_a_wrong_choice_is_refused(project: Configure, choice: Any):
    with pytest.raises(ValueError, match="missing_objects is .*; it must be DISCARD or None"):
        promoting([], missing_objects=choice)
