"""Splitting of large requests into portions that a slow network transfers within the timeout of a connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from ..limits import MAX_BATCH, MAX_TRIP_BYTES
from .call import Call

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def portions(
    items: Iterable[T], size_of: Callable[[T], int], *, count: int = MAX_BATCH, size: int = MAX_TRIP_BYTES
) -> Iterator[list[T]]:
    """Yield lists of up to `count` items and this `size` each, in order; a larger item has a list of its own."""
    portion: list[T] = []
    total = 0
    for item in items:
        own_size = size_of(item)
        if portion and (len(portion) == count or total + own_size > size):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += own_size
    if portion:
        yield portion


def grouped(items: Iterable[T], key_of: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by key, both in their order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups


def size_of_call(call: Call[Any]) -> int:
    """Return the size in bytes of the arguments of a call, without numbers."""
    return sum(len(word) for word in call.args if not isinstance(word, int))
