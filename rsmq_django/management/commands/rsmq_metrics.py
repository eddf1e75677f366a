"""`./manage.py rsmq_metrics`: serve metrics for Prometheus on a port, or print them once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from ..arguments import SuggestingCommand

DEFAULT_PORT = 9808


class Command(SuggestingCommand):
    """The management command."""

    help = "Serves metrics for Prometheus until stopped; each scrape reads them from Redis."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0 for any free port"
        )
        parser.add_argument(
            "--host", default="127.0.0.1", help="address to listen on, default: 127.0.0.1; 0.0.0.0 for all"
        )
        parser.add_argument("--once", action="store_true", help="print the metrics and exit, for a textfile collector")

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve or print the metrics."""
        try:
            from prometheus_client import generate_latest, start_http_server

            from ...telemetry.metrics import registry
        except ImportError as error:
            raise CommandError(f"{error}; install the extra: pip install 'rsmq-django[metrics]'") from error
        if options["once"]:
            self.stdout.write(generate_latest(registry()).decode(), ending="")
            return
        served = registry()
        served.register(_LastCollector())
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            server, thread = start_http_server(options["port"], options["host"], served)
        except OSError as error:
            raise CommandError(f"cannot listen on {options['host']}:{options['port']}: {error.strerror}") from error
        host, port = server.server_address[:2]
        self.stdout.write(f"metrics on http://{host!s}:{port}/metrics; Ctrl-C stops it")
        self.stdout.flush()
        stop.wait()
        server.shutdown()
        server.server_close()
        thread.join()


class _LastCollector:
    """Closes the database connections of the thread of a scrape, which no later scrape uses."""

    def collect(self) -> Iterator[Any]:
        connections.close_all()
        return iter(())
