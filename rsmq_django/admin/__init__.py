"""Admin pages for the data in Redis: one module registers each model, `site.py` has the code of all pages.

They read Redis through `live/` and store no copy. Scripts and keys are in `core/`.
"""

from django.apps import apps
from django.contrib import admin

from . import messages, queues, reliable_queues, results, runs, schedules, tasks, topics, workers, workflows

__all__ = [
    "messages",
    "queues",
    "register",
    "reliable_queues",
    "results",
    "runs",
    "schedules",
    "tasks",
    "topics",
    "workers",
    "workflows",
]

PACKAGE = __name__.partition(".")[0] + "."


def register(site: admin.AdminSite) -> None:
    """Register all pages of this package on another admin site of the project, with those of its installed parts."""
    installed = [config for config in apps.get_app_configs() if f"{config.name}.".startswith(PACKAGE)]
    for model in (model for config in installed for model in config.get_models()):
        if admin.site.is_registered(model) and not site.is_registered(model):
            site.register(model, type(admin.site.get_model_admin(model)))
