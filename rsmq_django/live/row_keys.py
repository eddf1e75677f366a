"""Keys of rows that have an id on a connection and no name in the settings: workers and workflows."""

from __future__ import annotations

from urllib.parse import quote, unquote

from ..conf.settings import get_settings


def row_key(alias: str, own_id: str) -> str:
    """Return the key of an id on a connection."""
    return f"{quote(alias, safe='')}/{quote(own_id, safe='', errors='surrogateescape')}"


def parts_of_key(key: str) -> tuple[str, str] | None:
    """Return the alias and the id of a key; None when the key is not valid."""
    alias, slash, own_id = key.partition("/")
    alias = unquote(alias)
    known = slash and alias in get_settings().connections
    return (alias, unquote(own_id, errors="surrogateescape")) if known else None
