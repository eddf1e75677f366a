"""Addresses for pages of a project: `path("tasks/", include("rsmq_django.urls"))`."""

from __future__ import annotations

from django.urls import path

from .views import task_progress, task_status

app_name = "rsmq"
urlpatterns = [
    path("progress/<str:signed>/", task_progress, name="task-progress"),
    path("status/<str:signed>/", task_status, name="task-status"),
]
