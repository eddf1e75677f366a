"""Bodies of messages as they are shown: JSON, text or bytes, cut, with secrets hidden. Everything stays text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _

from ..live.envelopes import Seal, seal_of
from .formats import as_size, one_line, visible
from .json_text import Piece, is_json, pieces, redacted_text

#: How many bytes of a body a page shows; the rest can be downloaded.
SHOWN_BYTES = 16 * 1024
#: The same for a binary body: each line shows sixteen bytes.
SHOWN_BINARY_BYTES = 4 * 1024
#: Of each body, for one line.
PREVIEW_BYTES = 400
#: Of each body, for a cell of a table: the content of a signed body is shorter than the body.
CELL_BYTES = 2 * SHOWN_BYTES


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body, or its beginning, ready to be put into a page."""

    #: "json", "text" or "binary".
    kind: str
    pieces: list[Piece]
    is_cut: bool
    seal: Seal = ""

    @property
    def text(self) -> str:
        """Return it as one text."""
        return "".join(piece.text for piece in self.pieces)


def whole_body(body: bytes) -> tuple[str, Iterator[str]]:
    """Return the kind of a body and all of its redacted text in parts; no parts for a binary body."""
    text = as_text(body, None)
    if text is None:
        return "binary", iter(())
    if is_json(text):
        return "json", (visible(part) for _, part in pieces(text))
    return "text", iter([visible(redacted_text(text))])


def shown(body: bytes, *, task: str = "", longest: int | None = SHOWN_BYTES) -> ShownBody:
    """Return a redacted body, or its first `longest` bytes; for a signed body, the signed content.

    `task` is that of a failure record, for a body that does not name one.
    """
    if longest is None:
        return _shown(body, "", task=task, longest=None, is_cut=False)
    is_cut = len(body) > longest
    # The inner body is shorter, and may have been escaped.
    found = seal_of(body[: 2 * longest], is_cut=len(body) > 2 * longest)
    if found.seal != "signed":
        return _shown(body, found.seal, task=task, longest=longest, is_cut=is_cut)
    return _shown(found.body, "signed", task=task, longest=longest, is_cut=found.is_cut or len(found.body) > longest)


def _shown(body: bytes, seal: Seal, *, task: str, longest: int | None, is_cut: bool) -> ShownBody:
    text = as_text(body, longest)
    if text is None:
        head = body if longest is None else body[:SHOWN_BINARY_BYTES]
        return ShownBody("binary", [Piece("other", line) for line in hex_lines(head)], len(head) < len(body), seal)
    if is_json(text):
        found = pieces(text, task=task, is_cut=is_cut)
        return ShownBody("json", [Piece(kind, visible(part)) for kind, part in found], is_cut, seal)
    return ShownBody("text", [Piece("other", visible(redacted_text(text, task=task, is_cut=is_cut)))], is_cut, seal)


def preview(body: bytes, task: str, *, size_bytes: int) -> str:
    """Return the beginning of a body of this size on one line; for a signed body, of the signed content."""
    is_cut = len(body) < size_bytes
    found = seal_of(body, is_cut=is_cut)
    if found.seal == "signed":
        body, is_cut = found.body, found.is_cut
    text = as_text(body, len(body) if not is_cut else max(len(body) - 3, 0))
    if text is None:
        return _("%(size)d bytes of binary data") % {"size": size_bytes}
    if is_json(text):
        parts = pieces(text, task=task, is_cut=is_cut)
        text = "".join(part if kind != "space" else " " for kind, part in parts)
    else:
        text = redacted_text(text, task=task, is_cut=is_cut)
    # The name of the task is shown next to it.
    at = text.find('"args"') if task else -1
    line = one_line("{ " + text[at:] if at > 0 else text)
    return line + "…" if is_cut and not line.endswith("…") else line


def as_text(body: bytes, longest: int | None) -> str | None:
    """Return the first bytes as text, up to a whole character; None when they are not text."""
    head = body if longest is None else body[:longest]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) == len(body) or error.start < len(head) - 3:
            return None
        text = head[: error.start].decode()
    # Text has no NUL and few other control characters.
    controls = sum(sign < " " and sign not in "\t\n\r\f\x1b" for sign in text)
    return None if controls * 10 > len(text) else text


def hex_lines(data: bytes) -> Iterator[str]:
    """Return lines of sixteen bytes: place, bytes, and the letters among them."""
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):<47}  {letters}\n"


@dataclass(frozen=True, slots=True)
class BodyCell:
    """A body in a cell of a table, see `components/body_cell.html`."""

    size: str
    preview: str = ""
    #: None for users who may not see it, and when it is too large.
    body: ShownBody | None = None
    is_too_large: bool = False


def body_cell(body: bytes, size_bytes: int, *, is_shown: bool) -> BodyCell:
    """Return the first CELL_BYTES of a body as one line that opens; b"" for a body that was too large to be read."""
    size = as_size(size_bytes)
    if not is_shown or (size_bytes and not body):
        return BodyCell(size, is_too_large=is_shown)
    return BodyCell(size, preview(body[:PREVIEW_BYTES], "", size_bytes=size_bytes), shown(body))
