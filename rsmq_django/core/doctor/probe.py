"""Read commands of the doctor. A refusal by the server's ACL is recorded, not raised."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import redis

from ..errors import BrokenQueue, PermissionDenied, RsmqError
from ..transport.call import Call
from ..transport.client import Client
from .catalogue import found
from .finding import Finding, Severity

T = TypeVar("T")
#: Yields calls, each with the subject of the finding if it is refused; gets their results, None for a refused one; and
#: returns its findings.
Examination = Generator[tuple[Call[Any], str], Any, list[Finding]]

#: The subject of findings about the server.
SERVER = "server"
#: How many calls are in one round trip.
CALLS_AT_A_TIME = 100


class Probe:
    """A client, with a record of the commands that the server refused."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._refused: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        self._asked_count = self._refused_count = 0

    def ask(self, *command: str | int, about: str | None) -> Any | None:
        """Return the reply to a plain command, or None when the server refuses it.

        The refusal becomes a finding with `about` as its subject, unless that is None.
        """
        (reply,) = self.client.connection.exchange([command])
        self._asked_count += 1
        if isinstance(reply, redis.ResponseError):
            self._refused_count += 1
            if about is not None:
                self._refused.setdefault(about, f"{command[0]}: {reply}")
            return None
        return reply

    def run(self, call: Call[T], *, about: str) -> T | None:
        """Return the result of a script call, or None when the server's user may not run it."""
        return next(self.run_many([call], about=about))

    def run_many(self, calls: Sequence[Call[T]], *, about: str) -> Iterator[T | None]:
        """Yield the result of each call, None for calls that the server's user may not run."""
        return self._results([(call, about) for call in calls])

    def examine_side_by_side(self, examinations: Iterable[Examination]) -> Iterator[Finding]:
        """Yield the findings of examinations. Each round trip has the next call of each."""
        answered: list[tuple[Examination, Any]] = [(each, None) for each in examinations]
        while answered:
            asked = []
            for examination, result in answered:
                try:
                    asked.append((examination, examination.send(result)))
                except StopIteration as end:
                    yield from end.value
            results = self._results([question for _, question in asked])
            answered = [(examination, result) for (examination, _), result in zip(asked, results, strict=True)]

    def _results(self, questions: Sequence[tuple[Call[Any], str]]) -> Iterator[Any]:
        for first in range(0, len(questions), CALLS_AT_A_TIME):
            part = questions[first : first + CALLS_AT_A_TIME]
            for result, (_, about) in zip(self.client.run_many([call for call, _ in part]), part, strict=True):
                self._asked_count += 1
                if isinstance(result, PermissionDenied):
                    self._refused_count += 1
                    self._refused.setdefault(about, str(result))
                    yield None
                elif isinstance(result, BrokenQueue):
                    self._broken.setdefault(str(result), about)
                    yield None
                elif isinstance(result, RsmqError):
                    raise result
                else:
                    yield result

    def findings(self) -> list[Finding]:
        """Return the findings about the refused commands."""
        notes = [found("not-allowed", about, f"no permission to read: {said}") for about, said in self._refused.items()]
        notes += [found("wrong-type", about, said) for said, about in self._broken.items()]
        if 2 * self._refused_count <= self._asked_count:
            return notes
        what = (
            f"the server's user was refused {self._refused_count} of {self._asked_count} questions; "
            "`rsmqctl acl viewer` prints the rules of a user who may ask them"
        )
        return [found("not-allowed", SERVER, what, severity=Severity.ERROR), *notes]
