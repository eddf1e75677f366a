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
def rsmq(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Private, empty queues, and what a test does with them: run(), pass_time(), enqueued(), assert_enqueued() ..."""
    from .testing import Kit, private_queues, settings_on_private_server

    if not request.config.pluginmanager.hasplugin("django"):
        with private_queues() as kit:
            yield kit
        return
    # A test may change settings as well. Overrides of two owners would be undone in the wrong order, and ours would
    # stay for the tests that follow; so there is one owner, the fixture of pytest-django.
    request.getfixturevalue("settings").RSMQ = settings_on_private_server()
    kit = Kit()
    kit.empty()
    yield kit
