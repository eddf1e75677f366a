"""Every page of the admin under the theme that the settings install. Started by test_themes.py, one theme a process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.browser.pages import ACTIONS, PAGES, fill_pages, missing_actions
from tests.browser.test_layout import FIND_PROBLEMS, PICTURES, WITH_HISTORY
from tests.redis_server import PrivateServer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute"), pytest.mark.deadline(540)]
THEME = settings.INSTALLED_APPS[0]
WIDTHS = (390, 1280)


def test_every_page_can_be_used(visitor: Callable[..., Visitor], mail: Queue, dead: Queue, server: PrivateServer):
    names = fill_pages(mail, dead, server)
    # Themes load scripts, fonts and styles of their own; what they say on the console is theirs.
    root = visitor(expects_refusals=True, bypass_csp=True).log_in(User.objects.create_superuser("root"))
    problems = []
    for name, path in PAGES.items():
        if name == "queue-of-a-long-name":  # the title is in a template of the theme
            continue
        answer = root.open(path.format(**names))
        if answer.status != 200:
            problems.append(f"{name} answers {answer.status}")
            continue
        # The tools of this page are those of the theme.
        has_history = None if name == "pipeline-run" else name in WITH_HISTORY
        for width in WIDTHS:
            root.page.set_viewport_size({"width": width, "height": 900})
            found = root.page.evaluate(FIND_PROBLEMS, {"theme": THEME, "hasHistory": has_history})
            problems += [f"{name} at {width} px: {problem}" for problem in found]
            keep_picture(root, f"{name}-{width}")
        problems += [f"{name}: {action} is missing" for action in missing_actions(root, ACTIONS.get(name, ()))]
    assert not problems, "\n".join(problems)


def keep_picture(visitor: Visitor, name: str) -> None:
    directory: Path = PICTURES.with_name(f"{PICTURES.name}-{THEME}")
    directory.mkdir(parents=True, exist_ok=True)
    visitor.page.screenshot(path=directory / f"{name}.png", full_page=True, animations="disabled")
