"""The Django application of outbox and inbox. It has tables: run `manage.py migrate` after installing it."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """The application configuration of rsmq_django.outbox."""

    name = "rsmq_django.outbox"
    label = "rsmq_outbox"
    verbose_name = "RSMQ outbox"
    default_auto_field = "django.db.models.BigAutoField"
