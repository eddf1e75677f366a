"""Settings of the processes that tests of the supervisor start: those of the site, with further connections."""

import json
import os

from tests.worker.site.settings import *  # noqa: F403
from tests.worker.site.settings import INSTALLED_APPS, RSMQ

INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.project"]
RSMQ = RSMQ | {
    "CONNECTIONS": RSMQ["CONNECTIONS"] | json.loads(os.environ.get("RSMQ_TEST_CONNECTIONS", "{}")),
}
