"""The whole body of a message as a file that no browser will run, with secrets hidden."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _

from ..core.limits import MAX_BODY_BYTES
from ..core.queue.browse import pick
from ..live.places import message_place_of
from .bodies import whole_body
from .formats import as_size

#: A body that is longer is not sent to a browser. Our own clients send no longer one.
MAX_DOWNLOAD_BYTES = MAX_BODY_BYTES
#: Longer bodies are written in parts of this number of characters.
LONG_BYTES = 64 * 1024
CHUNK_CHARACTERS = 64 * 1024


def body_of(key: str) -> HttpResponseBase:
    """Return the body of the message with this key. Raises Http404."""
    found = message_place_of(key)
    if found is None:
        raise Http404
    place, message_id = found
    call = pick(place.client.namespace, place.name, [message_id], body_bytes=MAX_DOWNLOAD_BYTES)
    messages = place.client.run(call).messages
    if not messages or messages[0].size_bytes is None:
        raise Http404
    if messages[0].size_bytes > MAX_DOWNLOAD_BYTES:
        text = _("%(size)s is too large for a browser. Use rsmqctl message show --raw.")
        return HttpResponse(text % {"size": as_size(messages[0].size_bytes)}, "text/plain", status=413)
    return as_file(messages[0].body)


def as_file(body: bytes) -> HttpResponseBase:
    """Return a body as a file that no browser will run; a long one is written in parts."""
    kind, parts = whole_body(body)
    chunks = _slices(body) if kind == "binary" else _encoded(parts)
    response = _Download(chunks) if len(body) > LONG_BYTES else HttpResponse(b"".join(chunks))
    suffix = {"json": "json", "text": "txt", "binary": "bin"}[kind]
    response["Content-Type"] = "application/octet-stream"
    response["Content-Disposition"] = f'attachment; filename="body.{suffix}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


class _Download(StreamingHttpResponse):
    """A response in parts, under ASGI too: each part is made on a thread, when the one before it was sent."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = iter(self)
        while (chunk := await sync_to_async(lambda: next(chunks, None))()) is not None:
            yield chunk


def _slices(body: bytes) -> Iterator[bytes]:
    return (body[at : at + CHUNK_CHARACTERS] for at in range(0, len(body), CHUNK_CHARACTERS))


def _encoded(parts: Iterator[str]) -> Iterator[bytes]:
    """Return text as UTF-8 in chunks of nearly the same size, however long its parts are."""
    waiting, size = list[str](), 0
    for part in parts:
        for at in range(0, len(part), CHUNK_CHARACTERS):
            piece = part[at : at + CHUNK_CHARACTERS]
            if size + len(piece) > CHUNK_CHARACTERS:
                yield _joined(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += len(piece)
    if waiting:
        yield _joined(waiting)


def _joined(texts: list[str]) -> bytes:
    # Half of a surrogate pair can be in a text of JSON, and in no UTF-8.
    return "".join(texts).encode("utf-8", "backslashreplace")
