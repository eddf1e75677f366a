"""The pytest plugin `rsmq`: the fixture of that name. Imports nothing before a test asks for it.

See `rsmq_django.testing` and docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Kit


@pytest.fixture
def rsmq() -> Iterator[Kit]:
    """Private, empty queues, and what a test does with them: run(), pass_time(), enqueued(), assert_enqueued() ..."""
    from .testing import private_queues

    with private_queues() as kit:
        yield kit
