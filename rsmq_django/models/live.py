"""What all our models share: their rows are read from Redis, and nothing can be saved."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import NotSupportedError, models

from ..live.queryset import LiveQuerySet, RowSource


class LiveManager(models.Manager[Any]):
    """Makes querysets that read from a source."""

    def __init__(self, source_class: type[Any]) -> None:
        super().__init__()
        self.source_class = source_class

    def get_queryset(self) -> LiveQuerySet:
        """Return a queryset with a source of its own, which remembers what it has read."""
        queryset = LiveQuerySet(self.model, using=self._db)
        source: RowSource = self.source_class(self.model)
        queryset.source = source
        return queryset


class LiveModel(models.Model):
    """The base of all models here."""

    class Meta:
        abstract = True
        managed = False
        # dumpdata reads through the base manager; ours answers it with nothing.
        base_manager_name = "objects"
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state.adding = False  # the admin takes it for a new one otherwise
        self._state.db = "default"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""
        raise NotSupportedError(f"{self._meta.label} lives in Redis and cannot be saved")

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Refuse: the admin deletes with a script that compares with the state that was shown."""
        raise NotSupportedError(f"{self._meta.label} lives in Redis; use rsmq_django.core to delete it")

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Read the row anew. Raises DoesNotExist."""
        fresh = type(self)._default_manager.get(pk=self.pk)
        self.__dict__.update(fresh.__dict__)
