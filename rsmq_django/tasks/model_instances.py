"""Instances of Django's models as arguments: `shop.order:7` in JSON, the row of the database in the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models, router

from .wrong_value import MissingObject, WrongValue


def has_instances(kind: type[models.Model]) -> bool:
    """Return whether rows of a model can be named by one key."""
    meta = kind._meta
    composite = getattr(models, "CompositePrimaryKey", ())
    return not meta.abstract and not isinstance(meta.pk, composite)


@dataclass(frozen=True, slots=True)
class InstanceConverter:
    """A model. The row is read when the call runs: with its current fields, and from the database for writes.

    A replica for reads may not have it yet.
    """

    kind: type[models.Model]
    uses_database: ClassVar[bool] = True

    def write(self, value: Any) -> Any:
        """Return the name of an instance. Raises WrongValue for one that is not stored where a task would read it."""
        if not isinstance(value, self.kind):
            self._key(value)
            return value
        key = getattr(value, self._pk.attname)
        if key is None or (value._state.adding and self._pk.has_default()):
            raise WrongValue.text(f"is an unsaved {self.kind.__name__}; save it before the call")
        own, read_from = router.db_for_write(self.kind, instance=value), router.db_for_write(self.kind)
        if own != read_from:  # the key may be that of another row there
            name = self.kind.__name__
            raise WrongValue.text(
                f"is a {name} of the database {own!r}, and a task would read it from {read_from!r}; pass its key, and "
                "read the row in the task"
            )
        return f"{self._label}:{key}"

    def read(self, value: Any) -> Any:
        """Return the instance that JSON names. Raises MissingObject."""
        return self.read_all([value])[0]

    def read_all(self, values: Sequence[Any]) -> list[Any]:
        """Return the instances that a list names, in one query. Raises MissingObject."""
        keys = [self._key(value) for value in values]
        try:
            rows = self.kind._base_manager.using(router.db_for_write(self.kind)).in_bulk(keys)
        except OverflowError:  # larger than any key of SQLite
            rows = {}
        for key in keys:
            if key not in rows:
                raise MissingObject(f"{self._label}:{key} does not exist any more")
        return [rows[key] for key in keys]

    def canonical(self, value: Any) -> Any:
        """Return the name of an instance, also for a key that is a number."""
        return f"{self._label}:{self._key(value)}"

    @property
    def _label(self) -> str:
        return self.kind._meta.label_lower

    @property
    def _pk(self) -> Any:
        return self.kind._meta.pk

    def _key(self, value: Any) -> Any:
        """Return the key in the name of an instance, or a key that is a number. Raises WrongValue."""
        if type(value) is str:
            label, has_key, value = value.partition(":")
            if label != self._label or not has_key:
                value = None
        elif type(value) is not int:
            value = None
        try:
            key = None if value is None else self._pk.to_python(value)
        except ValidationError:
            key = None
        if key is None:
            ways = f'its key if that is a number, or its name like "{self._label}:7"'
            raise WrongValue.text(f"must be a row of {self.kind.__name__}, {ways}")
        return key
