"""Pages of a project with `{% task_progress %}`, under the strict policy."""

import importlib.util
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.template import RequestContext, Template
from django.urls import include, path

PAGE = """{% load rsmq %}<!doctype html><html lang="en"><head><title>Imports</title>
<meta name="color-scheme" content="light dark"><script src="/ended.js" defer></script></head>
<body><main><h1>Imports</h1>
{% for id in ids %}<div>{% task_progress id label="Import" %}</div>{% endfor %}</main></body>
</html>"""
#: A form whose answer is a bar, and what comes after its task.
HTMX_PAGE = """<!doctype html><html lang="en"><head><title>Imports</title>
<meta name="htmx-config" content='{"includeIndicatorStyles": false}'><script src="/htmx.js" defer></script></head>
<body><button hx-get="/fragment/t1" hx-target="#import">Import</button>
<div id="import" hx-get="/products" hx-trigger="rsmq:ended" hx-target="#products"></div><div id="products"></div></body>
</html>"""
FRAGMENT = "{% load rsmq %}{% task_progress id label='Import' %}"
#: Counts the ends that the page has heard of.
ENDED = "document.addEventListener('rsmq:ended', (one) => { document.title += ' ' + one.detail.status; });"


def page(request: HttpRequest, ids: str) -> HttpResponse:
    return HttpResponse(Template(PAGE).render(RequestContext(request, {"ids": ids.split(",") if ids != "-" else []})))


def fragment(request: HttpRequest, task_id: str) -> HttpResponse:
    return HttpResponse(Template(FRAGMENT).render(RequestContext(request, {"id": task_id})))


def htmx(request: HttpRequest) -> HttpResponse:
    package = importlib.util.find_spec("django_htmx")
    assert package is not None and package.origin is not None
    scripts = Path(package.origin).parent / "static" / "django_htmx"
    return HttpResponse((scripts / "htmx-2.min.js").read_bytes(), "text/javascript")


urlpatterns = [
    path("tasks/", include("rsmq_django.urls")),
    path("imports/<ids>", page),
    path("fragment/<task_id>", fragment),
    path("with-htmx", lambda request: HttpResponse(HTMX_PAGE)),
    path("htmx.js", htmx),
    path("products", lambda request: HttpResponse("<p>300 products</p>")),
    path("ended.js", lambda request: HttpResponse(ENDED, "text/javascript")),
    path("favicon.ico", lambda request: HttpResponse(status=204)),
]
