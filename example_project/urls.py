"""Where the pages are."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    # The admin's pages name no icon, so browsers ask for this one.
    path("favicon.ico", RedirectView.as_view(url=static("flightboard/icon.svg"))),
    path("tasks/", include("rsmq_django.urls")),  # where the bars of {% task_progress %} ask
    path("", include("example_project.flightboard.urls")),
]
