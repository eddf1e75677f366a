"""Settings of the processes that tests of the supervisor start: those of the site, with further tasks."""

from tests.worker.site.settings import *  # noqa: F403
from tests.worker.site.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.project"]
