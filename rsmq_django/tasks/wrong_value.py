"""The errors of arguments that do not fit their annotations."""

from __future__ import annotations

from typing import Any


class MissingObject(Exception):
    """A row that an argument names does not exist when the call runs."""


class WrongValue(ValueError):
    """A value that does not fit its annotation. The text never contains the value, which may be a secret."""

    def __init__(self, expected: str, value: Any) -> None:
        kind = type(value).__name__
        super().__init__(f"{expected}, not {'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}")
        #: Where it is inside of the argument: "[3]", ".day".
        self.place = ""

    @classmethod
    def text(cls, text: str) -> WrongValue:
        """Return the error with a text of its own."""
        error = cls("", None)
        error.args = (text,)
        return error

    def inside(self, place: str) -> WrongValue:
        """Return the error with the place of the value that contains it."""
        self.place = place + self.place
        return self
