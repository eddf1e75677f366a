"""The Django application of the pipeline. It has tables: run `manage.py migrate` after installing it."""

from django.apps import AppConfig


class PipelineConfig(AppConfig):
    """The application configuration of rsmq_django.pipeline."""

    name = "rsmq_django.pipeline"
    label = "rsmq_pipeline"
    verbose_name = "RSMQ history"
    default_auto_field = "django.db.models.BigAutoField"
