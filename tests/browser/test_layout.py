"""Every page of the admin as a person sees it, in windows from a telephone to a large screen, in light and dark.

Each page is loaded once and its window resized. The run leaves one picture of each page in `.screenshots/`, a folder
per version of Django (RSMQ_SCREENSHOTS=all: one for each window).
"""

import os
from collections.abc import Callable
from pathlib import Path

import django
import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.browser.pages import PAGES, fill_pages
from tests.redis_server import PrivateServer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute")]

WIDTHS = (1920, 1280, 768, 390)
PICTURED = 1280
PICTURES = Path(__file__).parents[2] / ".screenshots" / "django-{}.{}".format(*django.VERSION)
FIND_PROBLEMS = (Path(__file__).parent / "layout.js").read_text()
#: Pages of one thing whose changes the admin remembers.
WITH_HISTORY = {"queue", "message", "worker", "schedule", "topic", "workflow", "reliable-queue"}


def test_every_page_looks_right_in_every_window(
    visitor: Callable[..., Visitor], mail: Queue, dead: Queue, server: PrivateServer
):
    names = fill_pages(mail, dead, server)
    root = visitor(has_touch=True).log_in(User.objects.create_superuser("root"))
    problems = []
    for name, path in PAGES.items():
        answer = root.open(path.format(**names))
        if answer.status != 200:
            problems.append(f"{name} answers {answer.status}")
            continue
        expected = {"hasHistory": name in WITH_HISTORY, "hasBreadcrumbs": name != "site"}
        for width in WIDTHS:
            root.page.set_viewport_size({"width": width, "height": 900})
            found = root.page.evaluate(FIND_PROBLEMS, expected)
            problems += [f"{name} at {width} px: {problem}" for problem in found]
            if width == PICTURED or os.environ.get("RSMQ_SCREENSHOTS") == "all":
                keep_picture(root, f"{name}-{width}")
    assert not problems, "\n".join(problems)


def keep_picture(visitor: Visitor, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    visitor.page.screenshot(path=PICTURES / f"{name}.png", full_page=True, animations="disabled")
