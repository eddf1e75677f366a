"""The Django application of the pipeline. It has tables: run `manage.py migrate` after installing it."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class PipelineConfig(AppConfig):
    """The application configuration of rsmq_django.pipeline."""

    name = "rsmq_django.pipeline"
    label = "rsmq_pipeline"
    verbose_name = gettext_lazy("RSMQ history")
    default_auto_field = "django.db.models.BigAutoField"
    #: Read by telemetry.metrics at each scrape.
    rsmq_metrics = "rsmq_django.pipeline.metrics.pipeline_metrics"
