"""URLs of the test run: the admin, and those for pages of a project."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("tasks/", include("rsmq_django.urls"))]
