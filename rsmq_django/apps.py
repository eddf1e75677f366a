"""The Django application, which registers the system checks at start-up.

Modules named `tasks` are not imported here. A web process imports the tasks that it sends; only a worker needs all of
them, and imports them (`autodiscover_modules("tasks")`). Therefore an error in the tasks of an app stops the worker,
but neither the site nor `migrate`.
"""

from django.apps import AppConfig
from django.core.checks import register


class RsmqConfig(AppConfig):
    """The application configuration of rsmq_django."""

    name = "rsmq_django"
    label = "rsmq"
    verbose_name = "RSMQ"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from .checks import TAG, check_cache_databases, check_durability, check_project

        register(check_project, TAG)
        register(check_cache_databases, TAG, deploy=True)
        register(check_durability, TAG, deploy=True)
