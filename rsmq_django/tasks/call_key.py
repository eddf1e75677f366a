"""Keys that distinguish calls of one task: the values of some arguments, or the result of a function of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .arguments import signature_of
from .typed_arguments import types_in_keys

#: Names of arguments, or a function of the arguments that returns a value JSON can represent.
By = Sequence[str] | Callable[..., Any]


def check_is_list(by: By | None, *, option: str = "by") -> None:
    """Raise ValueError for a text, which would be read as a list of letters, and for values that name no argument."""
    if isinstance(by, str):
        raise ValueError(f"{option} is the text {by!r}; write a list of names, {option}=[{by!r}]")
    is_names = isinstance(by, Sequence) and all(isinstance(name, str) for name in by)
    if not (by is None or callable(by) or is_names):
        raise ValueError(f"{option} is {by!r}; write a list of names of arguments, or a function of the arguments")


def check_names(by: By | None, function: Callable[..., Any], path: str, *, what: str) -> None:
    """Raise ValueError when `by` names an argument that the function does not take."""
    if by is None or callable(by):
        return
    parameters = signature_of(function).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in by:
        if name not in parameters and not takes_any:
            raise ValueError(f"{what} by {name!r}: {path} lacks this argument, it has only {', '.join(parameters)}")


def bound_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, takes_context: bool
) -> dict[str, Any]:
    """Return the arguments of a call by name and in canonical JSON, so that f(1) and f(order_id=1.0) are equal.

    Raises TypeError for arguments that the function does not take.
    """
    signature, types = signature_of(function), types_in_keys(function)
    if types is not None:
        args, kwargs = types.canonical(args, kwargs, given=takes_context)
    try:
        bound = signature.bind(*([None] if takes_context else []), *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.__name__}{signature}: {error}") from error
    given = set(bound.arguments)
    bound.apply_defaults()
    if types is not None:  # what was sent is JSON already
        for name in bound.arguments.keys() - given:
            bound.arguments[name] = types.canonical_default(name, bound.arguments[name])
    return dict(list(bound.arguments.items())[1 if takes_context else 0 :])


def call_key(
    by: By, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, takes_context: bool
) -> Any:
    """Return the key of a call, which is equal for calls that belong together."""
    if callable(by):
        types = types_in_keys(function)
        if types is not None:
            args, kwargs = types.canonical(args, kwargs, given=takes_context)
        return by(*args, **kwargs)
    arguments = bound_arguments(function, args, kwargs, takes_context=takes_context)
    return [arguments[name] if name in arguments else kwargs.get(name) for name in by]


def key_text(key: Any, *, what: str) -> str:
    """Return the JSON of a key, the same for equal keys: a tuple is a list.

    Raises TypeError for values that JSON cannot represent, ValueError for NaN and infinity.

    The error contains `what` the key is for: "makes shop.tasks.pay unique".
    """
    try:
        return json.dumps(key, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        from .json_errors import blamed_value  # only for its words

        kind = TypeError if isinstance(error, TypeError) else ValueError
        said = blamed_value(key, "the key") or str(error)
        raise kind(f"what {what} cannot be written as JSON: {said}") from error
