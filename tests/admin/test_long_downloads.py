"""Downloads of bodies: in small parts, in time and memory that grow linearly with their length."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import StreamingHttpResponse

from rsmq_django.admin import json_text, secret_text
from rsmq_django.admin.body_download import CHUNK_CHARACTERS, as_file

#: Four bytes for each character of the longest code point.
CHUNK_BYTES = 4 * CHUNK_CHARACTERS
#: Large enough to be written in parts and not to be parsed.
SIZE = 300 * 1024


def call(*args: Any) -> bytes:
    return json.dumps({"task": "shop.tasks.pay", "args": args}).encode()


#: Bodies of about so many bytes; some are made to be slow.
BODIES: dict[str, Callable[[int], bytes]] = {
    "one long text": lambda size: call("x" * size),
    "many values": lambda size: call([{"id": n, "password": "s3cret"} for n in range(size // 38)]),
    "many levels": lambda size: b'{"task": "a.b", "args": ' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "JSON in a text": lambda size: call(json.dumps([{"id": n} for n in range(size // 15)])),
    "escaped signs": lambda size: call('\\"' * (size // 4)),
    "signed": lambda size: json.dumps({"signed": call("x y " * (size // 4)).decode(), "signature_v2": "0"}).encode(),
    "no JSON": lambda size: b"{" + b"x" * size + b"!",
    "names and values on one line": lambda size: b"password='s3cret' " * (size // 18),
    "headers on one line": lambda size: b'"authorization: s3cret", ' * (size // 25),
    "tags on one line": lambda size: b"password=<s3cret> " * (size // 18),
    "bytes": lambda size: b"\x00\xff" * (size // 2),
}


def chunks_of(body: bytes) -> Iterator[bytes]:
    response = as_file(body)
    assert isinstance(response, StreamingHttpResponse)
    return iter(response.streaming_content)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", BODIES.values(), ids=BODIES.keys())
def test_download_comes_in_small_parts_without_secrets(make: Callable[[int], bytes]):
    chunks = list(chunks_of(make(SIZE)))

    assert 0 < max(map(len, chunks)) <= CHUNK_BYTES
    assert b"s3cret" not in b"".join(chunks)


@pytest.mark.parametrize("kind", ["one long text", "many values", "escaped signs", "signed"])
def test_memory_of_a_download_is_a_small_multiple_of_the_body(kind: str):
    body = BODIES[kind](SIZE)
    tracemalloc.start()
    try:
        for _ in chunks_of(body):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 40 * len(body)


class Counting:
    """A pattern that counts over how many characters it was searched for."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.characters = pattern, 0

    def search(self, text: str, start: int) -> re.Match[str] | None:
        found = self.pattern.search(text, start)
        self.characters += (found.start() if found else len(text)) - start
        return found


@pytest.mark.parametrize(
    "part",
    ["password='s3cret' ", '"authorization: s3cret", ', "password=<s3cret> ", "password=[s3cret, 's3cret'] "],
)
def test_ends_of_lines_are_looked_for_once(part: str, monkeypatch: pytest.MonkeyPatch):
    patterns = [Counting(secret_text._LINE_END), Counting(secret_text._LINE_FEED)]
    monkeypatch.setattr(secret_text, "_LINE_END", patterns[0])
    monkeypatch.setattr(secret_text, "_LINE_FEED", patterns[1])
    text = part * 2000

    assert "s3cret" not in secret_text.redact(text)
    assert sum(pattern.characters for pattern in patterns) <= 2 * len(text)


def test_long_call_is_redacted_like_a_short_one_without_being_parsed(monkeypatch: pytest.MonkeyPatch):
    body = call({"password": "s3cret", "n": 1}, 'password="s3cret" and more')
    short = b"".join(iter(as_file(body)))
    monkeypatch.setattr(json_text, "LONGEST_PARSED", 10)

    assert b"".join(iter(as_file(body))) == short
    assert b"s3cret" not in short and b"and more" in short


def test_short_body_is_one_response_with_its_length():
    response = as_file(call(1))

    assert not response.streaming
    assert response["Content-Disposition"] == 'attachment; filename="body.json"'


async def test_download_comes_in_parts_under_asgi_too():
    body = call("x" * SIZE)
    response = as_file(body)
    assert isinstance(response, StreamingHttpResponse)

    chunks = [chunk async for chunk in response]

    assert len(chunks) > 3 and b"".join(chunks) == b"".join(chunks_of(body))
