"""Exports to other systems: Prometheus metrics, OpenTelemetry spans, log records as JSON.

The event log and the statistics themselves are in `rsmq_django.core.stats`.
"""
