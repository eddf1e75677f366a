"""Pages of a project with `{% task_progress %}`, under the strict policy."""

from django.http import HttpRequest, HttpResponse
from django.template import RequestContext, Template
from django.urls import include, path

PAGE = """{% load rsmq %}<!doctype html><html lang="en"><head><title>Imports</title>
<meta name="color-scheme" content="light dark"><script src="/ended.js" defer></script></head>
<body><main><h1>Imports</h1>
{% for id in ids %}<div>{% task_progress id label="Import" %}</div>{% endfor %}</main></body>
</html>"""
FRAGMENT = "{% load rsmq %}{% task_progress id label='Import' %}"
#: Counts the ends that the page has heard of.
ENDED = "document.addEventListener('rsmq:ended', (one) => { document.title += ' ' + one.detail.status; });"


def page(request: HttpRequest, ids: str) -> HttpResponse:
    return HttpResponse(Template(PAGE).render(RequestContext(request, {"ids": ids.split(",") if ids != "-" else []})))


def fragment(request: HttpRequest, task_id: str) -> HttpResponse:
    return HttpResponse(Template(FRAGMENT).render(RequestContext(request, {"id": task_id})))


urlpatterns = [
    path("tasks/", include("rsmq_django.urls")),
    path("imports/<ids>", page),
    path("fragment/<task_id>", fragment),
    path("ended.js", lambda request: HttpResponse(ENDED, "text/javascript")),
    path("favicon.ico", lambda request: HttpResponse(status=204)),
]
