"""Helpers that read parts of admin pages."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

from rsmq_django.core.errors import ConnectionFailed
from tests.redis_server import PrivateServer


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


def bytes_read_by(server: PrivateServer, ask: Callable[[], Any]) -> tuple[Any, int]:
    """Return the answer to a request, and how many bytes the server sent for it; the scripts are loaded before."""

    def sent() -> int:
        return int(server.redis.info("stats")["total_net_output_bytes"])

    ask()
    # The figure of the server itself, which has a few thousand bytes.
    before = sent()
    own = sent() - before
    before = sent()
    response = ask()
    return response, sent() - before - own


def lost_after(number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does as the real one so many times; then the connection is lost."""
    calls: list[object] = []

    def lose(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) > number:
            raise ConnectionFailed("gone")
        return real(*args, **kwargs)

    return lose
