"""Arguments without their secrets, for a form, and with them again when the form comes back.

The page gets `•••` in the place of each secret. For a value that comes back with that sign
the server reads the earlier call again: a secret never travels to the browser.
"""

from __future__ import annotations

import json
from typing import Any

from .redaction import HIDDEN, is_secret, redacted_value


class StillHidden(Exception):
    """A value holds the sign of a hidden value in a place where none was shown."""


def without_secrets(value: Any, name: str = "") -> Any:
    """Return a JSON value with HIDDEN in the place of secrets; `name` is what the value is called."""
    return HIDDEN if is_secret(name) else redacted_value(value)


def with_secrets(given: Any, shown: Any, original: Any) -> Any:
    """Return the given value, with the values of `original` where it is as it was shown.

    Objects are compared name by name. A list is compared as a whole: after a change of its order, the place of
    each secret would be unknown. Raises StillHidden.
    """
    if are_same(given, shown):
        return original
    if isinstance(given, dict) and isinstance(shown, dict):
        return {
            name: with_secrets(each, shown[name], original[name]) if name in shown else _checked(each)
            for name, each in given.items()
        }
    return _checked(given)


def are_same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same, their types included."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _checked(value: Any) -> Any:
    if HIDDEN in json.dumps(value, ensure_ascii=False):
        raise StillHidden
    return value
