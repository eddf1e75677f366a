"""A QuerySet that reads Redis instead of a table.

The admin needs a real `QuerySet` (the deletion of selected rows requires one), so `LiveQuerySet` is a subclass. It
replaces methods that would run SQL, and makes all others of them raise NotSupportedError: a method without a
replacement fails with an error and does not query a table that does not exist. Rows come from a `RowSource`, which
finds them in Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, cast

from django.core.exceptions import FieldError
from django.db import NotSupportedError, models
from django.db.models import Q

from .conditions import Selection, checked, equalities, field_named, fits
from .narrowing import NO_NARROWING, Narrowing


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows that a source found by a scan."""

    rows: Sequence[Any]
    #: The number of scanned rows, and the number of all rows; fewer were scanned when it reached its limit.
    looked_at: int
    of: int
    #: Whether the rows are exactly the selected ones, in the right order; else the queryset filters and sorts them.
    is_final: bool = False
    #: Where to continue, "" at the end; and how many rows were scanned before this scan.
    end: str = ""
    looked_before: int = 0

    @property
    def is_complete(self) -> bool:
        """Return whether all rows were scanned."""
        return self.looked_before + self.looked_at >= self.of


class LazyRows(Sequence[Any]):
    """Rows that are created when they are used: of thousands that were found a page shows some dozens."""

    def __init__(self, found: list[Any], make: Callable[[Any], Any]) -> None:
        self._found = found
        self._make = make

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, key: Any) -> Any:
        found = self._found[key]
        return [self._make(each) for each in found] if isinstance(key, slice) else self._make(found)


class RowSource(Protocol):
    """The origin of rows. Each chain of querysets has its own, so it may remember its replies."""

    #: Notes for the operator above the rows, for example that a server cannot be reached.
    notes: list[str]

    def can_page(self, selection: Selection) -> bool:
        """Return whether Redis can count and page the selection, in its order, without a scan of the rows."""

    def count(self, selection: Selection) -> int:
        """Return the number of rows; asked only when can_page()."""

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """Return the rows from `start` to `stop`; asked only when can_page()."""

    def scan(self, selection: Selection) -> Scan:
        """Return the rows that may match. It has a limit, and may return more rows than are selected."""


class Query:
    """The few attributes of `QuerySet.query` that the admin and QuerySet itself read."""

    select_related = False
    is_sliced = False
    combinator = None

    def __init__(self, order_by: tuple[str, ...] = (), where: Q | None = None) -> None:
        self.order_by = order_by
        self.where = where or Q()  # read by the counts of list filters

    def clone(self) -> Query:
        """Return a copy."""
        return Query(self.order_by, self.where)

    chain = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Query:
        return self.clone()


@dataclass(slots=True)
class SelectionCache:
    """The replies for one selection; shared by the slices of a queryset, so that a page scans once."""

    scan: Scan | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The selection of a queryset so far."""

    conditions: tuple[Q, ...] = ()
    words: tuple[str, ...] = ()
    searches_bodies: bool = True
    narrowing: Narrowing = NO_NARROWING
    begin: str = ""
    start: int = 0
    stop: int | None = None
    is_none: bool = False
    memory: SelectionCache = field(default_factory=SelectionCache)


class LiveQuerySet(models.QuerySet[Any, Any]):
    """See the module."""

    source: RowSource

    def __init__(self, model: Any = None, query: Any = None, using: str | None = None, hints: Any = None) -> None:
        self._own_query: Any = query if query is not None else cast(Any, Query())
        super().__init__(model=model, query=self._own_query, using=using, hints=hints)
        self._wanted = Wanted()

    # -- Copies -------------------------------------------------------------------------------------------------------

    def _copy(self, **changes: Any) -> Self:
        mine: Any = self  # its private attributes are known to Django only
        copy = type(self)(model=self.model, query=mine._query.clone(), using=mine._db, hints=mine._hints)
        old = self._wanted
        kept = {name: getattr(old, name) for name in Wanted.__dataclass_fields__}
        copy._wanted = Wanted(**{**kept, **changes})
        copy.source = self.source
        return copy

    def _clone(self) -> Self:
        return self._copy()

    _chain = _clone

    def _same(self, *args: Any, **kwargs: Any) -> Self:
        """Return a copy: how rows are loaded makes no difference here."""
        return self._copy()

    all = select_related = prefetch_related = only = defer = distinct = select_for_update = _same

    def none(self) -> Self:
        """Return a queryset without rows."""
        return self._copy(is_none=True)

    def using(self, alias: str | None) -> Self:
        """Return a queryset without rows: these are in no database. This keeps dumpdata away from messages."""
        return self.none()

    # -- Filters and order --------------------------------------------------------------------------------------------

    def _filter_or_exclude(self, negate: bool, args: Any, kwargs: Any) -> Self:
        # ChangeList always calls filter(Q()), which is not a condition.
        condition = Q(*[arg for arg in args if arg], **kwargs)
        if not condition:
            return self._copy()
        # Here and not later: the admin answers a wrong lookup with ?e=1 only when filter() raises.
        checked(self.model, condition)
        conditions = (*self._wanted.conditions, ~condition if negate else condition)
        copy = self._copy(conditions=conditions, memory=SelectionCache())
        copy._own_query.where = Q(*conditions)
        return copy

    def complex_filter(self, filter_obj: Any) -> Self:
        """See filter()."""
        if isinstance(filter_obj, Q):
            return self._filter_or_exclude(False, (filter_obj,), {})
        return self._filter_or_exclude(False, (), filter_obj)

    def search(self, text: str, *, in_bodies: bool = True) -> Self:
        """Return the rows in which each word of the text is found. Upper and lower case are the same."""
        words = (*self._wanted.words, *text.split())
        return self._copy(words=words, searches_bodies=in_bodies, memory=SelectionCache())

    def narrow(self, **asked: Any) -> Self:
        """Return the messages that also match these conditions: see Narrowing."""
        return self._copy(narrowing=replace(self._wanted.narrowing, **asked), memory=SelectionCache())

    def begin_at(self, end: str) -> Self:
        """Return the rows after the end of an earlier scan."""
        return self._copy(begin=end, memory=SelectionCache())

    def order_by(self, *names: Any) -> Self:
        """Return the rows in the order of these fields."""
        for name in names:
            if not isinstance(name, str):
                raise FieldError(f"{self.model._meta.label} lives in Redis and cannot be ordered by {name!r}")
            field_named(self.model, name.lstrip("-"))
        copy = self._copy(memory=SelectionCache())
        copy._own_query.order_by = names
        return copy

    ordered = property(lambda self: True)
    totally_ordered = property(lambda self: True)

    @property
    def selection(self) -> Selection:
        """Return the selection for the source."""
        equal, is_exact = equalities(self.model, self._wanted.conditions)
        # ChangeList appends the primary key to have a total order; the own order of a queue is total.
        order_by = self._own_query.order_by
        if len(order_by) > 1 and order_by[-1] in ("pk", "-pk"):
            order_by = order_by[:-1]
        wanted = self._wanted
        return Selection(
            equal, is_exact, wanted.words, wanted.searches_bodies, order_by, wanted.narrowing, wanted.begin
        )

    # -- Rows ---------------------------------------------------------------------------------------------------------

    def scanned(self) -> Scan | None:
        """Return the result of a scan; None when Redis can page the selection."""
        memory, selection = self._wanted.memory, self.selection
        if memory.scan is None and not self._wanted.is_none and not self.source.can_page(selection):
            scan = self.source.scan(selection)
            if scan.is_final:
                memory.scan = scan
                return scan
            rows = [row for row in scan.rows if all(fits(row, condition) for condition in self._wanted.conditions)]
            memory.scan = replace(scan, rows=self._sorted(rows))
        return memory.scan

    def _sorted(self, rows: list[Any]) -> list[Any]:
        for name in reversed(self._own_query.order_by):
            attribute = field_named(self.model, name.lstrip("-")).attname
            rows.sort(key=_none_first(attribute), reverse=name.startswith("-"))
        return rows

    def _rows(self) -> list[Any]:
        wanted = self._wanted
        if wanted.is_none:
            return []
        scan = self.scanned()
        if scan is not None:
            return list(scan.rows[wanted.start : wanted.stop])
        return self.source.page(self.selection, wanted.start, wanted.stop)

    def _fetch_all(self) -> None:
        if self._result_cache is None:
            self._result_cache = self._rows()

    def __len__(self) -> int:
        self._fetch_all()
        return len(self._result_cache or ())

    def __iter__(self) -> Iterator[Any]:
        self._fetch_all()
        return iter(self._result_cache or ())

    def __bool__(self) -> bool:
        return len(self) > 0

    def iterator(self, chunk_size: int | None = None) -> Iterator[Any]:
        """Return the rows, read anew."""
        return iter(self._rows())

    def __getitem__(self, key: Any) -> Any:
        if self._result_cache is not None:
            return self._result_cache[key]
        start, stop = (key.start or 0, key.stop) if isinstance(key, slice) else (key, key + 1)
        if start < 0 or (stop is not None and stop < 0) or (isinstance(key, slice) and key.step not in (None, 1)):
            raise ValueError("Negative indexing and steps are not supported.")
        base, end = self._wanted.start, self._wanted.stop
        ends = [each for each in (end, None if stop is None else base + stop) if each is not None]
        copy = self._copy(start=base + start, stop=min(ends) if ends else None)
        return copy if isinstance(key, slice) else list(copy)[0]

    def count(self) -> int:
        """Return the number of rows; after a scan, the number of matching rows among the scanned ones."""
        wanted = self._wanted
        if self._result_cache is not None:
            return len(self._result_cache)
        if wanted.is_none:
            return 0
        scan = self.scanned()
        if scan is not None:
            number = len(scan.rows)
        else:
            if wanted.memory.count is None:
                wanted.memory.count = self.source.count(self.selection)
            number = wanted.memory.count
        return max(0, min(number, wanted.stop if wanted.stop is not None else number) - wanted.start)

    def exists(self) -> bool:
        """Return whether there is a row."""
        return self.count() > 0

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Return the only row. Raises DoesNotExist or MultipleObjectsReturned."""
        rows = list(self.filter(*args, **kwargs)[:2]) if args or kwargs else list(self[:2])
        if not rows:
            raise self.model.DoesNotExist(f"{self.model._meta.object_name} matching query does not exist.")
        if len(rows) > 1:
            raise self.model.MultipleObjectsReturned(f"get() found more than one {self.model._meta.object_name}.")
        return rows[0]

    def first(self) -> Any:
        """Return the first row, or None."""
        return next(iter(self[:1]), None)

    def last(self) -> Any:
        """Return the last row, or None."""
        rows = list(self)
        return rows[-1] if rows else None

    def in_bulk(self, id_list: Any = None, *, field_name: str = "pk") -> dict[Any, Any]:
        """Return the rows by primary key."""
        rows = self if id_list is None else self.filter(**{f"{field_name}__in": id_list})
        return {row.pk: row for row in rows}

    def values_list(self, *fields: Any, flat: bool = False, named: bool = False) -> Any:
        """Return one value of each row, or tuples of values."""
        names = [field_named(self.model, name).attname for name in fields]
        rows = [tuple(getattr(row, name) for name in names) for row in self]
        return ValueList(row[0] for row in rows) if flat else ValueList(rows)

    def aggregate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Count rows per condition, for the counts of list filters."""
        counts = {}
        for alias, expression in kwargs.items():
            if args or not isinstance(expression, models.Count):
                raise _unsupported(self, "aggregate")
            condition: Any = getattr(expression, "filter", None)
            if condition is not None and not isinstance(condition, Q):  # from Django 6.0 on it is wrapped
                condition = condition.source_expressions[0]
            counts[alias] = sum(condition is None or fits(row, condition) for row in self)
        return counts

    def delete(self) -> tuple[int, dict[str, int]]:
        """Refuse: only the admin deletes, because it compares messages with their state on the page."""
        raise _unsupported(self, "delete")


class ValueList(list[Any]):
    """Values with the methods that the admin's list filters call."""

    def distinct(self) -> ValueList:
        """Return each value once."""
        return ValueList(dict.fromkeys(self))

    def order_by(self, *names: str) -> ValueList:
        """Return the values in their own order."""
        return ValueList(sorted(self))


def _none_first(attribute: str) -> Callable[[Any], tuple[bool, Any]]:
    def key(row: Any) -> tuple[bool, Any]:
        value = getattr(row, attribute)
        return value is not None, value

    return key


# -- Methods that need SQL --------------------------------------------------------------------------------------------

SQL_ONLY = (
    "annotate alias bulk_create bulk_update contains create dates datetimes difference earliest explain "
    "extra get_or_create intersection latest raw reverse union update update_or_create values "
    "_insert _raw_delete _update"
).split()


def _unsupported(queryset: LiveQuerySet, name: str) -> NotSupportedError:
    return NotSupportedError(f"{name}() is not supported: {queryset.model._meta.label} lives in Redis, not in a table")


def _refusal(name: str) -> Callable[..., Any]:
    def method(self: LiveQuerySet, *args: Any, **kwargs: Any) -> Any:
        raise _unsupported(self, name)

    method.__name__ = name
    return method


for _name in SQL_ONLY:
    setattr(LiveQuerySet, _name, _refusal(_name))
