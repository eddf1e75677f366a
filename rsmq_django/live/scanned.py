"""The base of sources that read all their rows, because there are few: as many as processes, tasks or schedules."""

from __future__ import annotations

from typing import Any

from django.db import models

from .conditions import Selection
from .queryset import Scan


class ScannedSource:
    """The queryset filters, sorts and pages the rows; see Source. A subclass reads the rows in scan()."""

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.notes: list[str] = []

    def can_page(self, selection: Selection) -> bool:
        """See RowSource."""
        return False

    def count(self, selection: Selection) -> int:
        """See RowSource."""
        return len(self.scan(selection).rows)

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See RowSource."""
        return list(self.scan(selection).rows[start:stop])

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        raise NotImplementedError


def all_of(rows: list[Any], selection: Selection, *fields: str) -> Scan:
    """Return the rows in whose fields each word of a search is found."""
    words = [word.lower() for word in selection.words]

    def text(row: Any) -> str:
        return " ".join(str(getattr(row, name)) for name in fields).lower()

    found = [row for row in rows if all(word in text(row) for word in words)] if words else rows
    return Scan(found, len(found), len(found))
