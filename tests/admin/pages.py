"""Helpers that read parts of admin pages."""

from __future__ import annotations

import html
import re
from typing import Any


def rows_of(response: Any) -> list[Any]:
    """Return the rows of a list."""
    assert response.status_code == 200, f"{response.status_code} {response.get('location')}"
    return list(response.context["cl"].result_list)


def text_of(response: Any) -> str:
    """Return what a page says, without tags."""
    content = response.content.decode()
    content = re.sub(r"<(script|style)\b.*?</\1>", " ", content, flags=re.DOTALL)
    content = content.replace("<wbr>", "")
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", content)).split())


def told(response: Any) -> list[str]:
    """Return the lines that an action has left."""
    return [str(message) for message in response.context["messages"]]
