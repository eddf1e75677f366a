"""A Django site with one view that sends a task and one that does not, each in a transaction (ATOMIC_REQUESTS).

Requests go through Django's handler, without a socket. What sending costs a site is the difference between the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

Send = Callable[[float], object]
#: The one that the view calls.
_sends: list[Send] = []


def sending(request: HttpRequest) -> HttpResponse:
    """Send a task."""
    _sends[-1](0.0)
    return HttpResponse()


def silent(request: HttpRequest) -> HttpResponse:
    """Send nothing."""
    return HttpResponse()


urlpatterns = [path("sending", sending), path("silent", silent)]


def open_site(send: Send) -> tuple[Send, Send]:
    """Return how to make a request that sends a task, and one that does not."""
    if not settings.configured:
        settings.configure(
            SECRET_KEY="only-for-benchmarks",  # noqa: S106
            ROOT_URLCONF=__name__,
            DATABASES={
                "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True}
            },
        )
    _sends.append(send)
    site = get_wsgi_application()

    def get(address: str) -> None:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": address, "SERVER_NAME": "bench", "SERVER_PORT": "80"}
        response = site(
            {**environ, "wsgi.url_scheme": "http", "wsgi.input": BytesIO(), "wsgi.errors": sys.stderr}, _begin
        )
        assert response.status_code == 200, response.status_code
        response.close()

    return lambda _: get("/sending"), lambda _: get("/silent")


def _begin(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
    """Accept the head of a response, as a server does."""
    return len
