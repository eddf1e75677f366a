"""The whole body of a message as a file that no browser will run, with secrets hidden."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _

from ..core.browse import pick
from ..core.limits import MAX_BODY_BYTES
from ..live.places import message_place_of
from .bodies import shown
from .formats import as_size

#: A body that is longer is not sent to a browser. Our own clients send no longer one.
MAX_DOWNLOAD_BYTES = MAX_BODY_BYTES


def body_of(key: str) -> HttpResponse:
    """Return the body of the message that a key stands for. Raises Http404."""
    found = message_place_of(key)
    if found is None:
        raise Http404
    place, message_id = found
    call = pick(place.client.namespace, place.name, [message_id], body_bytes=MAX_DOWNLOAD_BYTES)
    messages = place.client.run(call).messages
    if not messages or messages[0].size_bytes is None:
        raise Http404
    if messages[0].size_bytes > MAX_DOWNLOAD_BYTES:
        text = _("%(size)s are too much for a browser; use rsmqctl message show --raw.")
        return HttpResponse(text % {"size": as_size(messages[0].size_bytes)}, "text/plain", status=413)
    return as_file(messages[0].body)


def as_file(body: bytes) -> HttpResponse:
    """Return a body as a file that no browser will run."""
    whole = shown(body, longest=None)
    content: bytes | str = body if whole.kind == "binary" else whole.text
    suffix = {"json": "json", "text": "txt", "binary": "bin"}[whole.kind]
    response = HttpResponse(content, "application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="body.{suffix}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
