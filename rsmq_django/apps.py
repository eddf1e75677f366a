"""The Django application. Knows what has to happen once at start-up: the system checks are registered.

Modules named `tasks` are not imported here. A web process imports the tasks it sends anyway; only a worker must know
all of them, and it looks for them itself (`autodiscover_modules("tasks")`). So a mistake in one app's tasks stops
that worker, and neither the site nor `migrate`.
"""

from django.apps import AppConfig
from django.core.checks import register


class RsmqConfig(AppConfig):
    """See the module."""

    name = "rsmq_django"
    label = "rsmq"
    verbose_name = "RSMQ"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from .checks import TAG, check_project

        register(check_project, TAG)
