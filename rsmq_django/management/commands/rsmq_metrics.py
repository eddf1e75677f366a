"""`./manage.py rsmq_metrics`: answer Prometheus, on a port of its own or once on standard output."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

DEFAULT_PORT = 9808


class Command(BaseCommand):
    """See the module."""

    help = "Serves metrics for Prometheus until it is stopped; they are read from Redis at each scrape."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0 takes a free one"
        )
        parser.add_argument(
            "--host", default="127.0.0.1", help="address to listen on, default: 127.0.0.1; 0.0.0.0 for all"
        )
        parser.add_argument("--once", action="store_true", help="print the metrics and end, for a textfile collector")

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve, or print."""
        try:
            from prometheus_client import generate_latest, start_http_server

            from ...metrics import registry
        except ImportError as error:
            raise CommandError(f"{error}; install the extra: pip install 'rsmq-django[metrics]'") from error
        if options["once"]:
            self.stdout.write(generate_latest(registry()).decode(), ending="")
            return
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            server, thread = start_http_server(options["port"], options["host"], registry())
        except OSError as error:
            raise CommandError(f"cannot listen on {options['host']}:{options['port']}: {error.strerror}") from error
        host, port = server.server_address[:2]
        self.stdout.write(f"metrics on http://{host!s}:{port}/metrics; Ctrl-C stops it")
        self.stdout.flush()
        stop.wait()
        server.shutdown()
        server.server_close()
        thread.join()
