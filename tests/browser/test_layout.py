"""Every page of the admin as a person sees it, in windows from a telephone to a large screen, in light and dark.

Each page is loaded once and its window resized. The run leaves one picture of each page in `.screenshots/`, a folder
per version of Django (RSMQ_SCREENSHOTS=all: one for each window).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.browser.pages import ACTIONS, PAGES, fill_pages, missing_actions
from tests.redis_server import PrivateServer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute"), pytest.mark.deadline(540)]

WIDTHS = (1920, 1280, 768, 390)
PICTURED = 1280
PICTURES = Path(__file__).parents[2] / ".screenshots" / "django-{}.{}".format(*django.VERSION)
FIND_PROBLEMS = (Path(__file__).parent / "layout.js").read_text()
FIND_PALE_TEXTS = (Path(__file__).parent / "contrast.js").read_text()
#: Pages of one thing whose changes the admin remembers.
WITH_HISTORY = {
    "queue",
    "queue-of-a-long-name",
    "message",
    "worker",
    "schedule",
    "topic",
    "workflow",
    "reliable-queue",
    "result",
    "run",
    "pipeline-run",
}


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
            if width == PICTURED:
                problems += [f"{name}: {problem}" for problem in pale_texts(root)]
                problems += [f"{name}: {action} is missing" for action in missing_actions(root, ACTIONS.get(name, ()))]
                keep_picture(root, name)
            elif os.environ.get("RSMQ_SCREENSHOTS") == "all":
                keep_picture(root, f"{name}-{width}")
    assert not problems, "\n".join(problems)


def test_page_about_an_error_looks_right_in_every_window(visitor: Callable[..., Visitor], settings: Any):
    settings.RSMQ = settings.RSMQ | {"CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0"}}}
    root = visitor(expects_refusals=True).log_in(User.objects.create_superuser("root"))
    assert root.open("/admin/rsmq/queue/").status == 503

    problems = [f"{text} is pale" for text in pale_texts(root)]
    for width in WIDTHS:
        root.page.set_viewport_size({"width": width, "height": 900})
        problems += root.page.evaluate(FIND_PROBLEMS, {"hasHistory": False, "hasBreadcrumbs": True})

    assert not problems
    assert root.page.get_by_text("Redis does not answer", exact=True).locator("visible=true").count() == 2, (
        "the end of the path, and one title"
    )


@pytest.mark.parametrize(
    ("styles", "expected"),
    [
        # The list of queues on Django 6.1 when its filter was laid out beside it.
        ({"#changelist form": "width: 18px"}, ["the list takes 18 of", "px of the list are cut"]),
        ({".rsmq-charts": "width: 40px", ".rsmq-figure": "overflow: visible"}, ["overlap"]),
        ({"#result_list thead th:nth-child(2)": "display: none"}, ["heads above"]),
        ({".rsmq-summary": "width: 12px; overflow-wrap: anywhere"}, ["is broken into"]),
        ({"#content": "width: 3000px"}, ["wider than its window"]),
        ({".breadcrumbs": "background: none; white-space: normal; width: 8em"}, ["have no style", "breadcrumbs take"]),
    ],
    ids=["strip", "charts", "heads", "letters", "wide", "breadcrumbs"],
)
def test_the_check_finds_pages_that_are_out_of_shape(
    root: Visitor, mail: Queue, styles: dict[str, str], expected: list[str]
):
    root.page.set_viewport_size({"width": 1280, "height": 900})
    root.open("/admin/rsmq/queue/")
    assert root.page.evaluate(FIND_PROBLEMS, {"hasBreadcrumbs": True}) == []

    for selector, style in styles.items():
        set_style = "(elements, style) => elements.forEach((element) => { element.style.cssText = style; })"
        root.page.locator(selector).evaluate_all(set_style, style)

    found = "\n".join(root.page.evaluate(FIND_PROBLEMS, {"hasBreadcrumbs": True}))
    assert [words for words in expected if words not in found] == []


def test_large_numbers_of_queues_are_not_cut(root: Visitor, mail: Queue, dead: Queue):
    root.open("/admin/rsmq/queue/")
    root.page.get_by_label("Auto-refresh").uncheck()
    numbers = ["1,234,567", "123,456", "12,345", "12,345", "23 h 59 min", "12.3 %", "1,234", "123,456", "123,456"]
    cells = root.page.locator("#result_list tbody tr").first.locator("td:not(.action-checkbox)")
    fill = "(cells, numbers) => numbers.forEach((text, at) => { cells[at].textContent = text; })"
    cells.evaluate_all(fill, numbers)

    found = []
    for width in WIDTHS:
        root.page.set_viewport_size({"width": width, "height": 900})
        found += [f"{width} px: {one}" for one in root.page.evaluate(FIND_PROBLEMS, {"hasBreadcrumbs": True})]

    assert found == []


def test_the_check_finds_pale_texts(root: Visitor, mail: Queue):
    root.open("/admin/rsmq/queue/")
    root.page.evaluate("document.querySelector('h1').style.color = '#aaa'")

    assert "Queues" in str(pale_texts(root))


def test_a_long_name_of_a_column_does_not_cover_the_next_row(root: Visitor, dead: Queue):
    dead.send(b"x")
    root.page.set_viewport_size({"width": 390, "height": 900})
    root.open("/admin/rsmq/queue/mail-dead/failures/")
    cell = root.page.locator("#result_list tbody [data-label]:not([data-label=''])").first
    height = "(cell) => cell.getBoundingClientRect().height"
    before = cell.evaluate(height)

    cell.evaluate("(cell) => { cell.dataset.label = 'Streuung der Laufzeit (CV²) '.repeat(4); }")

    assert cell.evaluate(height) > before + 20


#: How far the filter button is below the last field, and whether it is level with that field.
PLACE_OF_FILTER_BUTTON = """() => {
  const button = document.querySelector('.rsmq-filters input[type=submit]').getBoundingClientRect();
  const fields = document.querySelectorAll('.rsmq-filters .rsmq-filter:not(.rsmq-actions)');
  const last = fields[fields.length - 1];
  const field = last.querySelector('input, select').getBoundingClientRect();
  return [button.top - last.getBoundingClientRect().bottom, Math.abs(button.top - field.top) < 2];
}"""


def test_the_button_of_filters_is_beside_the_fields_or_right_below_them(root: Visitor, mail: Queue):
    for path in ("/admin/rsmq/run/", "/admin/rsmq_pipeline/failuregroup/?span=12w"):
        root.open(path)
        places = {}
        for width in range(390, 1400, 10):
            root.page.set_viewport_size({"width": width, "height": 900})
            below, is_beside = root.page.evaluate(PLACE_OF_FILTER_BUTTON)
            places[width] = "beside" if is_beside else "below" if 0 <= below < 20 else f"{below} px below"
        assert set(places.values()) == {"beside", "below"}, places

        root.page.set_viewport_size({"width": 2400, "height": 900})
        root.page.locator(".rsmq-filter").first.evaluate(
            "(field) => { field.insertAdjacentHTML('beforeend', '<span class=rsmq-bad>Wrong</span>'); }"
        )
        assert root.page.evaluate(PLACE_OF_FILTER_BUTTON)[1], "also beside a field with an error"


def pale_texts(visitor: Visitor) -> list[str]:
    """Return the texts that can hardly be read, in light and in dark."""
    found = []
    for scheme in ("dark", "light"):
        visitor.page.emulate_media(color_scheme=scheme)
        found += [f"{text} in {scheme}" for text in visitor.page.evaluate(FIND_PALE_TEXTS)]
    return found


def keep_picture(visitor: Visitor, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    visitor.page.screenshot(path=PICTURES / f"{name}.png", full_page=True, animations="disabled")
