"""The call in a body, which may be incomplete; for display only: signatures are not checked."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple

_TASK = re.compile(rb'"task"\s*:\s*("(?:[^"\\]|\\.){1,500}")')
#: The beginning of a call as our senders write it. Elsewhere an "id" may be that of an argument.
_TASK_AND_ID = re.compile(rb"\s*\{\s*" + _TASK.pattern + rb'\s*,\s*"id"\s*:\s*"([^"\\]{1,63})"')
#: The signed text, which may be incomplete.
_SIGNED = re.compile(rb'"signed"\s*:\s*"((?:[^"\\]++|\\.)*+)("?)', re.DOTALL)

Seal = Literal["", "signed", "encrypted"]


class Sealed(NamedTuple):
    """A body without its seal."""

    #: "" for a body without a seal.
    seal: Seal
    #: The body inside the signature; for an encrypted body and a body without a seal, the unchanged body.
    body: bytes
    #: Whether the end of the body inside is missing.
    is_cut: bool


def seal_of(body: bytes, *, is_cut: bool = False) -> Sealed:
    """Return the seal of a body, and the body inside a signature."""
    if body.lstrip()[:1] != b"{" or (b'"signed"' not in body and b'"encrypted"' not in body):
        return Sealed("", body, is_cut)
    wrapper = _parsed(body)
    if wrapper is None:
        return _seal_of_beginning(body)
    if isinstance(wrapper.get("signed"), str) and "task" not in wrapper:
        return Sealed("signed", wrapper["signed"].encode("utf-8", "surrogatepass"), is_cut)
    return Sealed("encrypted" if isinstance(wrapper.get("encrypted"), str) else "", body, is_cut)


def _seal_of_beginning(body: bytes) -> Sealed:
    found = _SIGNED.search(body)
    if found is None or _TASK.search(body[: found.start()]):
        return Sealed("encrypted" if re.match(rb'\s*\{\s*"encrypted"\s*:\s*"', body) else "", body, True)
    # A character may have been cut in the middle.
    text = re.sub(r"\\u[0-9a-fA-F]{0,3}\Z", "", found[1].decode("utf-8", "ignore"))
    try:
        inside = str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return Sealed("", body, True)
    return Sealed("signed", inside.encode("utf-8", "surrogatepass"), not found[2])


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else {}


def task_name(body: bytes) -> str:
    """Return the dotted path in a body, or "" when it is not a call of a task. The task is not looked up."""
    inside = seal_of(body).body
    found = _TASK.search(inside) if inside.lstrip()[:1] == b"{" else None
    if found is None:
        return ""
    try:
        return str(json.loads(found[1]))
    except ValueError:
        return ""


def task_id_at_start(body: bytes) -> str:
    """Return the id of a call whose end may be missing; "" unless it follows the task, as our senders write it."""
    found = _TASK_AND_ID.match(seal_of(body).body)
    return found[2].decode("utf-8", "replace") if found else ""
