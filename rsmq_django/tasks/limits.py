"""Limits of tasks: how many run at a time, and how many start per period, for a task or for each of its keys.

Declared here, applied by workers (worker/execute/limits.py) just before a message runs. A call over the limit is
released into its queue with a delay: it occupies no worker, and other calls overtake it. Senders do not count calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.keys import limit_key
from ..core.numbers import is_number, is_whole
from ..core.transport.call import Argument
from .call_key import By, call_key, check_is_list, check_names, key_text

MOST_AT_A_TIME = 1000
MOST_IN_A_WINDOW = 10_000
LONGEST_WINDOW_S = 7 * 86_400
#: Maximum time until a waiting message checks the limit again ...
LONGEST_WAIT_MS = 60_000
#: ... or this number of windows of a rate.
LONGEST_WAIT_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Concurrency:
    """At most `most` running calls at a time in all workers together.

    `by`: names of the arguments whose values are limited one by one, or a function of the arguments; default: the
    limit is for all calls. Tasks that give their limits the same `name` share them.
    """

    most: int
    by: By | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _check_count("Concurrency", self.most, MOST_AT_A_TIME)
        check_is_list(self.by)

    def words(self) -> tuple[Argument, ...]:
        """Return the limit in the form for the script tasks/limits/take."""
        return "concurrency", self.most, 0, LONGEST_WAIT_MS

    @property
    def holds_places(self) -> bool:
        """Return whether an attempt occupies a slot until it has ended."""
        return True


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `most` starts in any span of `per_s` seconds, in all workers together. `by` and `name`: see Concurrency.

    Retries are starts, too.
    """

    most: int
    per_s: float
    by: By | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _check_count("Rate", self.most, MOST_IN_A_WINDOW)
        if not is_number(self.per_s) or not 0.001 <= self.per_s <= LONGEST_WINDOW_S:
            raise ValueError(f"per_s is {self.per_s!r}; it must be 0.001 to {LONGEST_WINDOW_S} seconds (a week)")
        check_is_list(self.by)

    @property
    def _window_ms(self) -> int:
        return round(self.per_s * 1000)

    def words(self) -> tuple[Argument, ...]:
        """Return the limit in the form for the script tasks/limits/take."""
        return "rate", self.most, self._window_ms, max(LONGEST_WAIT_MS, LONGEST_WAIT_WINDOWS * self._window_ms)

    @property
    def holds_places(self) -> bool:
        """See Concurrency.holds_places."""
        return False


Limit = Concurrency | Rate


def check_limits(limits: Sequence[Limit]) -> None:
    """Raise ValueError for a value that is not a list of limits."""
    if isinstance(limits, (Concurrency, Rate)) or not isinstance(limits, Iterable):
        raise ValueError(f"limits is {limits!r}; write a list, limits=[Concurrency(4)]")
    for limit in limits:
        if not isinstance(limit, (Concurrency, Rate)):
            raise ValueError(f"limits has {limit!r}; a limit is a Concurrency(...) or a Rate(...)")


def check_limit_names(limits: Sequence[Limit], function: Callable[..., Any], path: str) -> None:
    """Raise ValueError when a limit names an argument that the function does not take."""
    for limit in limits:
        check_names(limit.by, function, path, what="limit")


def keys_of_limit(
    limit: Limit,
    namespace: str,
    path: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes_context: bool,
) -> tuple[str, str]:
    """Return the Redis keys of a limit for one call: its counter, and the turns of waiting calls.

    Raises the exceptions of a function given as `by`, and TypeError for a key that JSON cannot represent.
    """
    key = None
    if limit.by is not None:
        key = call_key(limit.by, function, args, kwargs, takes_context=takes_context)
    names = None if limit.by is None else "function" if callable(limit.by) else list(limit.by)
    span = limit.per_s if isinstance(limit, Rate) else None
    # The arguments in order, not their names: tasks that share a limit need not call them alike.
    shared = [limit.name, len(names)] if limit.name and isinstance(names, list) else [limit.name or path, names]
    text = key_text([type(limit).__name__, span, *shared, key], what=f"{path} is limited by")
    counted = limit_key(namespace, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return counted, f"{counted}:turn"


def _check_count(kind: str, most: int, largest: int) -> None:
    if not is_whole(most) or not 1 <= most <= largest:
        raise ValueError(f"{kind} of {most!r}; it must be a whole number from 1 to {largest}")
