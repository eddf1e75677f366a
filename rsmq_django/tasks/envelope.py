"""The encoded form of a call: one JSON object that a program in any language can write by hand.

    {"task": "shop.tasks.send_receipt", "id": "pLq0...", "args": [], "kwargs": {"order_id": 7}}

Only `task` is required. docs/reference/message_format.md is the reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from .arguments import positional_names
from .task import find_task

#: Raised when a later release changes the meaning of a field; a worker refuses versions that it does not know.
VERSION = 1

Encoder = Callable[[Any, int], Sequence[str]]

# json.dumps() and json.loads() with such options create these objects for each call; here they are created once.
_OPTIONS = (json.JSONEncoder().default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
_decoder = json.JSONDecoder()
#: raw_decode() in C: the value that begins at a position, and where it ends.
scan_json: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]


def tried(private: Callable[..., Encoder] | None) -> Callable[..., Encoder]:
    """Return json's private encoder in C; json.JSONEncoder for a Python that has none or calls it otherwise."""
    try:
        works = private and "".join(private({}, *_OPTIONS)({"ü": [1, None, "\u2028"]}, 0)) == '{"ü":[1,null,"\u2028"]}'
    except Exception:
        works = False
    return private if private and works else _slow_encoder


def _slow_encoder(
    cycles: dict[int, Any] | None, _default: Any, text: Any, _indent: None, key_end: str, item_end: str, *_: Any
) -> Encoder:
    is_ascii, check = text is json.encoder.encode_basestring_ascii, cycles is not None
    separators = (item_end, key_end)
    encoder = json.JSONEncoder(ensure_ascii=is_ascii, check_circular=check, allow_nan=False, separators=separators)
    return lambda value, _: (encoder.encode(value),)


make_encoder = tried(getattr(json.encoder, "c_make_encoder", None))
#: For values without containers, which need no detection of cycles.
_encode = make_encoder(None, *_OPTIONS)
SCALARS = frozenset({bool, float, int, str, type(None)})

#: The fields that our senders always write; messages of other senders need the task only.
_WORDS = ("task", "id", "args", "kwargs")
_words_of = itemgetter(*_WORDS)


class Unreadable(Exception):
    """A message that no attempt can ever run. `reason` is the word in its failure record."""

    def __init__(self, reason: str, text: str, envelope: Envelope | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        #: The call, if the message contains one.
        self.envelope = envelope


@dataclass(slots=True)
class Envelope:
    """One call of a task: its dotted path, its id, its arguments, and the data of features.

    `meta` has one key per feature that was asked for (docs/reference/message_format.md lists them), and is None for
    most calls.
    """

    task: str
    id: str
    args: list[Any]
    kwargs: dict[str, Any]
    meta: dict[str, Any] | None = None

    def encode(self) -> bytes:
        """Return the body of the message."""
        return encode(self.task, self.id, self.args, self.kwargs, self.meta)


def new_envelope(
    task: str, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], meta: dict[str, Any] | None = None
) -> Envelope:
    """Return the envelope of a new call."""
    return Envelope(task, task_id, list(args), dict(kwargs), meta)


def head_of(task: str) -> str:
    """Return the beginning of the bodies of a task's calls, up to the id."""
    return f'{{"task":{"".join(_encode(task, 0))},"id":"'


def encode_plain(head: str, task: str, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return what encode() does without meta, in a third of the time; `head` is head_of() the task."""
    if SCALARS.issuperset(map(type, args)) and SCALARS.issuperset(map(type, kwargs.values())):
        try:
            positional = "".join(_encode(list(args), 0)) if args else "[]"
            by_name = "".join(_encode(dict(kwargs), 0)) if kwargs else "{}"
            return f'{head}{task_id}","args":{positional},"kwargs":{by_name}}}'.encode()
        except (TypeError, ValueError):  # of a name, a float or a text that JSON lacks
            pass
    return encode(task, task_id, args, kwargs, None)


def encode(
    task: str, task_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], meta: Mapping[str, Any] | None
) -> bytes:
    """Return the message body. Raises TypeError or ValueError, with the task, for arguments that are not JSON."""
    call: dict[str, Any] = {"task": task, "id": task_id, "args": list(args), "kwargs": dict(kwargs)}
    if meta:
        call["meta"] = meta
    try:
        # Each call has an encoder with a dictionary of the containers that it is in, to detect a cycle. Otherwise a
        # cycle would end at the limit of the stack only, which kills the process in threads with a small one.
        return "".join(make_encoder({}, *_OPTIONS)(call, 0)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        from .json_errors import OTHERWISE, blamed_argument, blamed_value  # only for its words

        kind = TypeError if isinstance(error, TypeError) else ValueError
        said = blamed_argument(args, kwargs, names=_names(task, meta))
        if not said and (said := blamed_value((meta or {}).get("context"), "context")):  # of middleware
            raise kind(f"the context of a call of {task} cannot be sent as JSON: {said}") from error
        said = said or f"{error}; pass {OTHERWISE}"
        raise kind(f"arguments of {task} cannot be sent as JSON: {said}") from error


def _names(path: str, meta: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the positional arguments of a call, if its task is declared and takes single calls."""
    task = find_task(path)
    if task is None or task.options.batch is not None:
        return []
    return positional_names(task.func, given=task.takes_context + _given(meta))


def _given(meta: Mapping[str, Any] | None) -> int:
    """Return how many arguments the workflow puts in front of the arguments of a call."""
    from .membership import membership_of

    membership = membership_of(meta) if meta else None
    return int(membership is not None and bool(membership.takes))


def decode(body: bytes, *, message_id: str) -> Envelope:
    """Return the call of a message body. Without an `id`, the message id is the task's id. Raises Unreadable."""
    # A worker reads many: parsed JSON has exactly these types, so subclasses are not considered.
    try:
        call = _parse(body.decode())
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, or not UTF-8
        raise Unreadable("undecodable", f"the body of {len(body)} bytes is not JSON: {error}") from error
    try:
        task, task_id, args, kwargs = _words_of(call)
    except (KeyError, TypeError):  # a field is missing, or it is not an object
        given = call if type(call) is dict else {}
        call = {"task": None, "id": message_id, "args": [], "kwargs": {}} | given
        task, task_id, args, kwargs = _words_of(call)
    if type(task) is not str:
        raise Unreadable("undecodable", 'the body has no "task": it must be a JSON object that names a task')
    meta = None if len(call) == len(_WORDS) else _read_more(call)
    if type(args) is not list or type(kwargs) is not dict:
        raise Unreadable("undecodable", '"args" must be a JSON array and "kwargs" a JSON object')
    # Half a surrogate pair is legal in JSON, but not in a key of Redis; it is not printable either.
    if type(task_id) is not str or not 0 < len(task_id) < 64 or not task_id.isprintable():
        raise Unreadable("undecodable", '"id" must be a text of 1 to 63 printable characters')
    return Envelope(task, task_id, args, kwargs, meta)


def _read_more(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the meta of a call. Raises Unreadable, also for an unknown version."""
    version = call.get("v", VERSION)
    if version != VERSION or version is True:  # which equals 1
        raise Unreadable(
            "unknown_version", f"the body has version {version!r}, this worker reads {VERSION}; upgrade it"
        )
    meta = call.get("meta")
    if meta is not None and type(meta) is not dict:
        raise Unreadable("undecodable", '"meta" must be a JSON object')
    return meta


def _parse(text: str) -> Any:
    """Return parsed JSON; faster without surrounding blanks, as our senders write it."""
    try:
        value, end = scan_json(text, 0)
    except StopIteration:
        return _decoder.decode(text)
    return value if end == len(text) else _decoder.decode(text)
