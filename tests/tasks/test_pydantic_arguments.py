"""Arguments of Pydantic's classes: the worker gets an equal object, or the sender an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest

from rsmq_django.tasks import Unique
from rsmq_django.tasks.converters import converter_of
from rsmq_django.testing import private_queues
from rsmq_django.testing.kit import Kit
from tests.worker.workshop import declare

# Its core is written in Rust: there is no wheel for Python 3.15 yet, and the group of test dependencies leaves it out.
pytest.importorskip("pydantic")
import pydantic
from pydantic import BaseModel, Field


class Renamed(BaseModel):
    secret: int = Field(alias="Secret", default=1)


class RequiredRenamed(BaseModel):
    secret: int = Field(alias="Secret")


class Shown(BaseModel):
    number: int = Field(serialization_alias="Number")


class Total(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    price: Decimal

    @pydantic.computed_field
    def twice(self) -> Decimal:
        return 2 * self.price


class Line(BaseModel):
    day: date | None = None
    tags: tuple[str, ...] = ()
    seen: datetime | None = None


class LongLine(Line):
    note: str = ""


class Order(BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    lines: list[Line] = []
    by_name: dict[str, Line] = {}


class Login(BaseModel):
    password: pydantic.SecretStr


class Hidden(BaseModel):
    number: int = Field(exclude=True, default=1)


class Private(BaseModel):
    _number: int = pydantic.PrivateAttr(default=1)


class TwoNames(BaseModel):
    number: int = Field(validation_alias="In", serialization_alias="Out")


class Growing(BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def _grow(cls, value: int) -> int:
        return value + 1


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Anything(BaseModel):
    value: Any


EMPTY: dict[str, Any] = {"day": None, "tags": [], "seen": None}
#: Python does not compare it with the same time of another zone: it is in the hour that comes twice.
REPEATED = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Renamed(Secret=9), {"Secret": 9}),
        (RequiredRenamed(Secret=9), {"Secret": 9}),
        (Shown(number=9), {"number": 9}),
        (Total(price=Decimal("1.50")), {"price": "1.50"}),
        (Line(day=date(2026, 11, 23), tags=("a",)), {"day": "2026-11-23", "tags": ["a"], "seen": None}),
        (
            Order.model_validate({"lines": [Line()], "more": 3}),
            {"lines": [Line().model_dump(mode="json")], "by_name": {}, "more": 3},
        ),
    ],
)
def test_an_object_arrives_as_it_was_sent(value: Any, plain: Any):
    converter = converter_of(type(value))
    assert converter is not None

    written = converter.write(value)
    assert json.loads(json.dumps(written)) == plain
    found = converter.read(plain)
    assert found == value and type(found) is type(value)
    assert converter.write(plain) == plain, "what is JSON already is sent as it is"


def _order(line: Line) -> Order:
    return Order(lines=[line], by_name={"a": line})


@pytest.mark.parametrize("value", [Line(seen=REPEATED), _order(Line(seen=REPEATED))])
def test_a_time_in_the_hour_that_a_zone_repeats_is_sent(value: Any):
    converter = converter_of(type(value))
    assert converter is not None
    found = converter.read(converter.write(value))
    assert found != value and found.model_dump(mode="json") == value.model_dump(mode="json")
    assert converter.write(found) == converter.write(value)


CHANGED = r"does not come back from its JSON as an equal \w+$"


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (Login, Login(password="hunter2"), CHANGED),
        (Hidden, Hidden(number=1234567), CHANGED),
        (Growing, Growing(number=1234567), CHANGED),
        (Order, Order(lines=[LongLine(note="hunter2")]), CHANGED),
        (Order, Order.model_validate({"more": REPEATED}), CHANGED),  # a field without annotation comes back as a text
        (Anything, Anything(value=Line()), CHANGED),
        (
            TwoNames,
            TwoNames.model_validate({"In": 1234567}),
            r"from its JSON: it is refused by TwoNames \(In: missing\)$",
        ),
        (
            Numbers,
            Numbers([1234567]),
            "from its JSON: it must be Numbers or an object of its fields",
        ),
        (Anything, Anything(value=object()), r"cannot be written by Anything as JSON \(PydanticSerializationError\)$"),
        (Line, LongLine(note="hunter2"), "must be Line or an object of its fields, not a LongLine$"),
        (Line, Order(), "must be Line or an object of its fields, not an Order$"),
    ],
)
def test_an_object_that_would_arrive_changed_is_refused_without_its_values(hint: Any, value: Any, text: str):
    converter = converter_of(hint)
    assert converter is not None
    with pytest.raises(ValueError, match=text) as caught:
        converter.write(value)
    assert "hunter2" not in str(caught.value) and "1234567" not in str(caught.value)
    assert caught.value.__cause__ is None, "a cause would have the value in its text"


def test_private_attributes_do_not_travel_and_are_refused_when_they_were_set():
    converter, value = converter_of(Private), Private()
    assert converter is not None
    assert converter.write(value) == {}

    value._number = 2
    with pytest.raises(ValueError, match=CHANGED):
        converter.write(value)


def test_a_value_that_its_field_does_not_allow_is_refused_without_a_warning():
    line = Line()
    line.day = "hunter2"  # type: ignore[assignment]  # Pydantic does not check assignments
    converter = converter_of(Line)
    assert converter is not None
    with pytest.raises(ValueError, match=r"it is refused by Line \(day: date_from_datetime_parsing\)$"):
        converter.write(line)


@pytest.fixture
def queues(project: Any) -> Iterator[Kit]:
    with private_queues() as kit:
        yield kit


def test_the_task_gets_the_object_and_the_sender_the_error(queues: Kit):
    got = []

    @declare
    def note(renamed: Renamed, login: Login | None = None) -> Renamed:
        got.append(renamed)
        return renamed

    with pytest.raises(TypeError, match="note: argument 'login' does not come back from its JSON as an equal Login"):
        note.enqueue(Renamed(Secret=9), Login(password="hunter2"))
    result = note.enqueue(Renamed(Secret=9))
    queues.run()
    assert got == [Renamed(Secret=9)]
    result.refresh()
    assert result.return_value == Renamed(Secret=9)


class Event(BaseModel):
    at: datetime | None = None
    prices: dict[str, Decimal] = {}
    tags: set[str] = set()
    lines: list[Total] = []
    key: UUID | None = None
    count: int = Field(default=1, alias="Count")


class Joined(BaseModel):
    tags: Annotated[set[str], pydantic.PlainSerializer(lambda tags: ",".join(sorted(tags)), when_used="json")]

    @pydantic.field_validator("tags", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value


class Numbered(BaseModel):
    number: UUID = Field(default_factory=uuid4)
    count: int = 1


NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = UUID("7f3c1c1e-6f0d-4e8e-9a4e-0d5a1f2b3c4d")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            Event,
            [Event(at=NOON), Event(at=NOON.astimezone(ZoneInfo("Asia/Tokyo"))), {"at": "2026-11-23T13:00:00+01:00"}],
        ),
        (Event, [Event(prices={"a": Decimal("1.0")}), Event(prices={"a": Decimal(1)}), {"prices": {"a": 1}}]),
        (Event, [Event(lines=[Total(price=Decimal("1.0"))]), {"lines": [{"price": "1.00"}], "Count": 1.0}]),
        (Event, [Event(key=KEY), {"key": str(KEY).upper()}]),
        (Event, [{"tags": list(tags)} for tags in ("abcdefgh", "hgfedcba", "badcfehg")]),
        (Numbered, [{"count": 1}, {"count": 1}]),
        (Login, [{"password": "a"}, {"password": "a"}]),
    ],
)
def test_calls_with_equal_objects_are_equal(kind: type[BaseModel], values: list[Any]):
    def work(value: Any) -> None: ...

    work.__annotations__["value"] = kind
    converter = converter_of(kind)
    assert converter is not None
    written = [json.loads(json.dumps(converter.write(each))) for each in values]

    assert len({Unique().digest(work, "shop.work", [each], {}) for each in written}) == 1


def test_the_key_of_an_object_is_that_of_its_json_where_there_is_only_one():
    converter = converter_of(Event)
    assert converter is not None
    written = converter.write(Event(at=NOON, prices={"a": Decimal("1.5")}, tags={"a"}, key=KEY))

    assert converter.canonical(written) == written


def test_the_key_of_a_set_that_is_written_as_a_text_is_that_text():
    converter = converter_of(Joined)
    assert converter is not None
    written = converter.write(Joined(tags={"b", "a"}))

    assert converter.canonical(written) == written == {"tags": "a,b"}
