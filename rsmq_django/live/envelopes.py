"""The name of the task in a body of which perhaps only the beginning was read."""

from __future__ import annotations

import json
import re

_TASK = re.compile(rb'"task"\s*:\s*("(?:[^"\\]|\\.){1,500}")')


def task_name(body: bytes) -> str:
    """Return the dotted path that a body names, or "" when it is no task. For showing only: nothing is looked up."""
    found = _TASK.search(body) if body.lstrip()[:1] == b"{" else None
    if found is None:
        return ""
    try:
        return str(json.loads(found[1]))
    except ValueError:
        return ""
