"""`DURABILITY` of connections and queues: a table inside a table, checked against the timeout of the connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import InvalidValue
from ..core.transport.durability import most_wait_s
from .options import OptionReader
from .problem_ids import WRONG_VALUE
from .sections import DurabilitySettings

KEY = "DURABILITY"


def read_durability(
    reader: OptionReader,
    table: Mapping[Any, Any],
    where: str,
    *,
    timeout_s: float,
    inherited: DurabilitySettings | None,
) -> DurabilitySettings | None:
    """Return the durability of a table of options, or the inherited one if it has none. None: nothing is waited for."""
    if KEY not in table:
        return inherited
    given, where = table[KEY], f"{where}['{KEY}']"
    if given is None:
        return None
    settings = reader.options(DurabilitySettings, given, where)
    if not isinstance(given, Mapping):
        return None
    try:
        _ = settings.durability
    except InvalidValue:
        # A wrong value, which was noted, has left its default.
        if not any(problem.message.startswith(where) for problem in reader.problems):
            reader.note(WRONG_VALUE, f"{where} waits for nothing", "Set REPLICAS to at least 1, or FSYNC to 'local'.")
        return None
    if not _fits(settings, timeout_s):
        said = f"{where}['TIMEOUT_S'] is {settings.timeout_s:g}, and the TIMEOUT_S of the connection is {timeout_s:g}"
        hint = f"It may be {most_wait_s(timeout_s):g} at most; or raise the TIMEOUT_S of the connection."
        reader.note(WRONG_VALUE, said, hint)
        return None
    return settings


def _fits(settings: DurabilitySettings, timeout_s: float) -> bool:
    return settings.timeout_s <= most_wait_s(timeout_s)
