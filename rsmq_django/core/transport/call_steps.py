"""Calls of several exchanges: after one of them was carried out, no error may claim that nothing was done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from ..errors import OutcomeUnknown, PartlyDone, RsmqError, without_claims
from .call import Call
from .client import Client

T = TypeVar("T")


class CallSteps(Generic[T]):
    """The exchanges of one call in order, and the results of those that were carried out."""

    def __init__(self) -> None:
        self.results: list[T] = []
        self._carried_out = 0

    @contextmanager
    def step(self, count: int) -> Iterator[None]:
        """Guard the exchange for the next `count` items; raises PartlyDone when it fails and an earlier one did not."""
        try:
            yield
        except RsmqError as error:
            if not self._carried_out:
                raise
            done = dict(enumerate(self.results)) or dict.fromkeys(range(self._carried_out))
            lost = range(self._carried_out, self._carried_out + count) if is_unknown(error) else ()
            raise partly_done(done, dict.fromkeys(lost), error) from error
        self._carried_out += count


def run_in_turn(client: Client, calls: Iterable[Call[T]], *, words: int = 0, each: int = 1) -> list[T]:
    """Run calls in order and return their results. Raises PartlyDone.

    The items of a call are its arguments after the first `words`, `each` of them for one item.
    """
    steps, answers = CallSteps[None](), list[T]()
    for call in calls:
        with steps.step((len(call.args) - words) // each):
            answers.append(client.run(call))
    return answers


async def arun_in_turn(client: Client, calls: Iterable[Call[T]], *, words: int = 0, each: int = 1) -> list[T]:
    """See run_in_turn()."""
    steps, answers = CallSteps[None](), list[T]()
    for call in calls:
        with steps.step((len(call.args) - words) // each):
            answers.append(await client.arun(call))
    return answers


def is_unknown(error: RsmqError) -> bool:
    """Return whether the failed exchange may have been carried out."""
    return isinstance(error, OutcomeUnknown)


def partly_done(done: Mapping[int, object], unknown: Mapping[int, object], error: RsmqError) -> PartlyDone:
    """Return the error of a call of several items that was ended by `error`."""
    maybe = f"{len(unknown)} may have been, " if unknown else ""
    text = f"{len(done)} were carried out, {maybe}the others were not: {without_claims(error)}"
    return PartlyDone(text, done=done, unknown=unknown, queue_name=error.queue_name)
