"""Refreshing a page: only its content without the frame of the admin, or 304 when nothing of it has changed.

A page that is open asks for its own address with the header `Rsmq-Fragment: 1`. It goes through the same view, so with
the same permissions and filters; the templates of lists and of rows then extend an empty frame instead of the admin's.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import get_template
from django.utils.cache import get_conditional_response, patch_vary_headers

HEADER = "Rsmq-Fragment"
EMPTY_FRAME = "admin/rsmq/_fragment.html"

#: What differs between two answers that show the same: how long ago something is, and tokens of forms.
_PASSING = re.compile(rb'(<[a-z]+ [^>]*data-rsmq-(?:at|until)="[^>]*>)[^<]*|name="csrfmiddlewaretoken" value="[^"]*"')


def is_fragment(request: HttpRequest) -> bool:
    """Return whether an open page asks for its content anew."""
    return request.method == "GET" and request.headers.get(HEADER) == "1"


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the variables of the templates that have two frames."""
    return {"page_frame": EMPTY_FRAME} if is_fragment(request) else {}


def conditional(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return the answer to a refresh: 304 without content when the page shows what it would show."""
    if not is_fragment(request) or response.status_code != 200 or not isinstance(response, HttpResponse):
        return response
    shown = _PASSING.sub(rb"\1", response.content)
    response.headers["ETag"] = etag = f'"{hashlib.sha256(shown).hexdigest()[:32]}"'
    patch_vary_headers(response, [HEADER])
    return get_conditional_response(request, etag=etag, response=response) or response


@cache
def has_stock_lists() -> bool:
    """Return whether lists are drawn by Django's own template; with that of a theme a refresh is the whole page."""
    template: Any = get_template("admin/change_list_results.html")
    return str(template.origin.name).startswith(str(admin.__path__[0]))
