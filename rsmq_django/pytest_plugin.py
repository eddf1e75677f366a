"""The pytest plugin `rsmq`: the fixture `rsmq`, and the protection of the project's servers.

While a test runs, the plugin rejects connections to the servers of settings.RSMQ, unless the test has the marker
`rsmq_server` or the configuration has `rsmq_allow_server = true`. Nothing is imported before Django is configured with
a setting RSMQ. See `rsmq_django.testing` and docs/how-to/testing.md.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Kit
    from .testing.refusal import Refusal

MARKER, OPTION = "rsmq_server", "rsmq_allow_server"
_refusal = pytest.StashKey["Refusal"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option."""
    parser.addini(OPTION, "Allow tests to use the Redis servers of settings.RSMQ.", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{MARKER}: may use the Redis servers of settings.RSMQ")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Reject the servers of the settings from the set-up of a test to the end of its tear-down."""
    refusal = _refusal_for(item)
    if refusal is None:
        return (yield)
    from .testing.refusal import refused

    refusal.said.clear()
    with refused(refusal):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that continued after a server was rejected."""
    result = yield
    refusal = _refusal_for(item)
    if refusal is not None and refusal.said:
        pytest.fail(refusal.said[0], pytrace=False)
    return result


def _refusal_for(item: pytest.Item) -> Refusal | None:
    if item.config.getini(OPTION) or item.get_closest_marker(MARKER) is not None:
        return None
    stash = item.session.stash
    if _refusal not in stash:
        # Before the first test changes the settings. Without Django there are neither settings nor the fixture.
        django_conf = sys.modules.get("django.conf")
        if django_conf is None or not django_conf.settings.configured or not hasattr(django_conf.settings, "RSMQ"):
            return None
        from .testing.refusal import refusal_of_settings

        stash[_refusal] = refusal_of_settings()
    return stash[_refusal]


@pytest.fixture
def rsmq(request: pytest.FixtureRequest) -> Iterator[Kit]:
    """Return private, empty queues with methods for tests: run(), pass_time(), enqueued(), assert_enqueued() ..."""
    from .testing import private_kit, private_queues, settings_on_private_server

    if not request.config.pluginmanager.hasplugin("django"):
        with private_queues() as kit:
            yield kit
        return
    # A test may change settings as well. Two owners of overrides would undo them in the wrong order, and ours would
    # stay for later tests; so there is one owner, the fixture of pytest-django.
    request.getfixturevalue("settings").RSMQ = settings_on_private_server()
    with private_kit() as kit:
        yield kit
