"""What may be shown of calls, values and texts: the one place that pages ask before they show what may hold a secret.

    redact(text)                              free text: an exception's message, a traceback, a header line
    redacted_value(value)                     a value that came out of JSON: a result, a key, a tag
    redacted_header(name, value)              a header of a topic entry
    redacted_call(envelope)                   the arguments of a call, each with the name of its parameter
    seal_of(body)                             whether a body is signed or encrypted, and the call inside a signed one

Bodies as text are shown by `bodies.shown()` and `bodies.preview()`, which find the call in a body, also inside a
signature, by themselves. A value is hidden when its name contains one of the words of RSMQ["ADMIN"]["REDACT"]:
positional arguments have the names of the parameters of their function. Secrets without a name cannot be found, nor
can positional ones of a task that this process does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..live.envelopes import seal_of
from ..tasks.envelope import Envelope
from .call_secrets import call_secrets
from .json_text import redacted_string
from .secret_text import HIDDEN, is_secret, redact

__all__ = [
    "HIDDEN", "RedactedCall", "is_secret", "redact", "redacted_call", "redacted_header", "redacted_value", "seal_of",
]  # fmt: skip

#: Deeper values are hidden.
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class RedactedCall:
    """The arguments of a call as they may be shown: values that JSON can hold."""

    task: str
    #: The name of each positional argument's parameter, "" when the function is not known, and its value.
    args: Sequence[tuple[str, Any]]
    kwargs: Mapping[str, Any]


def redacted_call(call: Envelope) -> RedactedCall:
    """Return the arguments of a call without secrets.

    `tasks.sealing.peek()` and `tasks.envelope.decode()` return the envelope; the first of them opens a seal. A step of
    a workflow that takes a result has it as its first argument: its own begin with the second parameter.
    """
    secrets = call_secrets(call.task, call.meta)
    return RedactedCall(
        call.task,
        [
            (secrets.name_of(place), HIDDEN if secrets.hides_place(place) else redacted_value(value))
            for place, value in enumerate(call.args)
        ],
        {name: HIDDEN if secrets.hides_name(name) else redacted_value(value) for name, value in call.kwargs.items()},
    )


def redacted_value(value: Any, *, depth: int = 0) -> Any:
    """Return a value of JSON in which values with secret names are hidden, also in texts that hold JSON or a call."""
    if depth > MAX_DEPTH:
        return HIDDEN
    if isinstance(value, str):
        return redacted_string(value)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if is_secret(str(name)) else redacted_value(each, depth=depth + 1)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted_value(each, depth=depth + 1) for each in value]
    return value


def redacted_header(name: str, value: str) -> str:
    """Return the value of a header as it may be shown."""
    return HIDDEN if is_secret(name) else redacted_string(value)
