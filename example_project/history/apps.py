"""What differs from the flight board when a year goes through."""

from django.apps import AppConfig


class HistoryConfig(AppConfig):
    """See the module."""

    name = "example_project.history"
    label = "flight_history"

    def ready(self) -> None:
        """Keep no work log: a row in the database for each task takes a hundred times as long as the task."""
        from example_project.flightboard.signals import write_work_log
        from rsmq_django.tasks.compat import task_finished

        task_finished.disconnect(write_work_log)
