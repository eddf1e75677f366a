"""How many examples a fuzzing target takes: a slice by default, FUZZ times as many on request (CONTRIBUTING.md)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FUZZ = int(os.environ.get("FUZZ", "1"))


def examples(count: int) -> settings:
    """Return settings for a target that takes `count` examples by default."""
    ignored = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count * FUZZ, suppress_health_check=ignored)
