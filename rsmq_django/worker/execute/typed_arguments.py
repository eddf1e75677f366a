"""The arguments of a call as its function gets them: values of the annotated types, rows of the database.

They are read when the function is called, in its thread and within its time limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...tasks.envelope import Unreadable
from ...tasks.typed_arguments import Converted, as_json_if_fits
from ...tasks.wrong_value import MissingObject, WrongValue
from ..delivery import AttemptState, Handler

MISSING_OBJECT = "missing_object"


def read_arguments(attempt: AttemptState) -> Converted:
    """Return the arguments of a call. Raises Unreadable for JSON that does not fit, and for a row that is gone."""
    handler, (passed, args, given) = attempt.handler, _split(attempt)
    assert handler is not None and handler.arguments is not None
    with _unreadable(attempt):
        found, named = handler.arguments.read(args, attempt.kwargs, given=given)
    return [*passed, *found], named


async def aread_arguments(attempt: AttemptState) -> Converted:
    """See read_arguments()."""
    handler, (passed, args, given) = attempt.handler, _split(attempt)
    assert handler is not None and handler.arguments is not None
    with _unreadable(attempt):
        found, named = await handler.arguments.aread(args, attempt.kwargs, given=given)
    return [*passed, *found], named


def as_json_of_return(handler: Handler, value: Any) -> Any:
    """Return the JSON of a return value; one that has none as it is: the end of the attempt reports it."""
    with suppress(Exception):
        return value if handler.returned is None else as_json_if_fits(handler.returned, value)
    return value


def _split(attempt: AttemptState) -> tuple[list[Any], list[Any], int]:
    """Return the arguments to pass as they are, the others, and how many parameters come before the others."""
    handler, source = attempt.handler, attempt.takes_from
    given = int(handler is not None and handler.task is not None and handler.task.takes_context)
    if source is not None and source.takes == "failures":
        return attempt.args[:1], attempt.args[1:], given + 1
    return [], attempt.args, given


@contextmanager
def _unreadable(attempt: AttemptState) -> Iterator[None]:
    try:
        yield
    except WrongValue as error:
        raise Unreadable("wrong_arguments", f"{attempt.path}: {error}", attempt.envelope) from error
    except MissingObject as error:
        raise Unreadable(MISSING_OBJECT, f"{attempt.path}: {error}", attempt.envelope) from error
