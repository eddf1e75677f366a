"""Wire the signals up when Django is ready."""

from django.apps import AppConfig


class FlightboardConfig(AppConfig):
    """Flights, and the work they cause."""

    name = "example_project.flightboard"
    label = "flightboard"
    verbose_name = "Flight board"

    def ready(self) -> None:
        """Connect the receivers."""
        from . import signals  # noqa: F401  (importing connects them)
