"""Validation of published messages: bodies, keys and headers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..errors import InvalidValue, MessageTooLong
from ..limits import MAX_BATCH, MAX_BODY_BYTES, Body, encoded
from ..transport.call import Argument
from .records import NewMessage

MAX_KEY_BYTES = 1024
#: Headers are small: every reader of the topic receives them.
MAX_HEADERS_BYTES = 8192


def publish_words(
    topic: str, entries: Sequence[Body | NewMessage], *, key: str | None, headers: Mapping[str, str] | None
) -> list[Argument]:
    """Return the arguments of topic/publish from the count on. `key` and `headers` are defaults.

    Raises InvalidValue, MessageNotBytes, MessageTooLong.
    """
    if not 1 <= len(entries) <= MAX_BATCH:
        raise InvalidValue(
            f"{len(entries)} messages for topic {topic!r} in one call; publish 1 to {MAX_BATCH} at a time, "
            "so that they get consecutive indexes in one step"
        )
    bodies: list[Argument] = []
    extras: list[Argument] = []
    common = _packed_key(key), _packed_headers(headers)
    for place, entry in enumerate(entries, 1):
        own = common
        if isinstance(entry, NewMessage):
            own = _packed_key(entry.key) or common[0], _packed_headers(entry.headers) or common[1]
            entry = entry.body
        bodies.append(_encoded(topic, entry))
        if own != (b"", b""):
            extras += (place, *own)
    return [len(bodies), *bodies, *extras]


def packed_entry(body: bytes, key: str | None, headers: Mapping[str, str] | None) -> bytes:
    """Return a message as one value for queue/bulk/publish_topic: lengths of key and headers, key, headers, body."""
    packed_key, packed_headers = _packed_key(key), _packed_headers(headers)
    return b"%d:%d:%b%b%b" % (len(packed_key), len(packed_headers), packed_key, packed_headers, body)


def _encoded(topic: str, body: Body) -> bytes:
    data = encoded(body)
    if len(data) > MAX_BODY_BYTES:
        raise MessageTooLong(
            f"body is {len(data)} bytes, this client publishes at most {MAX_BODY_BYTES}; "
            f"store it elsewhere and publish a reference on topic {topic!r}",
            size_bytes=len(data),
            limit_bytes=MAX_BODY_BYTES,
        )
    return data


def _packed_key(key: str | None) -> bytes:
    if key is None:
        return b""
    if not isinstance(key, str) or not key:
        raise InvalidValue(f"key is {key!r}; it must be a text that is not empty, or None")
    return _limited("key", key, MAX_KEY_BYTES)


def _packed_headers(headers: Mapping[str, str] | None) -> bytes:
    if not headers:
        return b""
    wrong = [name for name, value in headers.items() if not isinstance(name, str) or not isinstance(value, str)]
    if wrong:
        raise InvalidValue(f"header {wrong[0]!r} is not text; names and values of headers are text, encode the value")
    return _limited("headers", json.dumps(dict(headers), separators=(",", ":")), MAX_HEADERS_BYTES)


def _limited(what: str, text: str, limit_bytes: int) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} must be Unicode: {error}") from error
    if len(data) > limit_bytes:
        raise InvalidValue(f"{what} takes {len(data)} bytes, the limit is {limit_bytes}; put it into the body")
    return data
