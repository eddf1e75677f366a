"""axe (axe-core, best practices included) reports nothing on any page, narrow and wide, in light and dark."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.browser.pages import PAGES, fill_pages
from tests.redis_server import PrivateServer

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute"), pytest.mark.deadline(900)]

#: A telephone, where rows are lists, and a screen: between them the pages have nothing that is in neither.
WIDTHS = (390, 1280)
#: Pages of Django, on which there is a line of ours at most.
OF_DJANGO = {"site", "index"}
#: What can differ between light and dark.
OF_COLOURS = ("color-contrast", "link-in-text-block")
FIND_VIOLATIONS = """async (rules) =>
    (await axe.run(document, {resultTypes: ["violations"], ...rules})).violations.flatMap(
    (rule) => rule.nodes.slice(0, 3).map((node) => `${rule.id}: ${node.html.slice(0, 160)}`))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which comes with a package for Playwright."""
    package = importlib.util.find_spec("axe_playwright_python")
    assert package is not None and package.origin is not None, "make test-browser installs it"
    return (Path(package.origin).parent / "axe.min.js").read_text()


def violations(visitor: Visitor, axe: str, *rules: str) -> list[str]:
    """Return what axe finds on the page that is shown, with the element; all rules are asked unless some are given."""
    if not visitor.page.evaluate("() => 'axe' in window"):
        visitor.page.evaluate(axe)
    visitor.page.evaluate("() => document.getAnimations().forEach((each) => each.finish())")
    found: list[Any] = visitor.page.evaluate(FIND_VIOLATIONS, {"runOnly": list(rules)} if rules else {})
    return [str(each) for each in found]


def test_axe_finds_nothing_on_any_page(
    visitor: Callable[..., Visitor], mail: Queue, dead: Queue, server: PrivateServer, axe: str
):
    names = fill_pages(mail, dead, server)
    # What axe does to look at colours is not what the policy is for; the page itself is checked under it elsewhere.
    root = visitor(bypass_csp=True).log_in(User.objects.create_superuser("root"))
    problems: dict[str, None] = {}
    for name, path in PAGES.items():
        if name in OF_DJANGO:
            continue
        root.open(path.format(**names))
        for width in WIDTHS:
            root.page.set_viewport_size({"width": width, "height": 900})
            for scheme, rules in (("light", ()), ("dark", OF_COLOURS)):
                root.page.emulate_media(color_scheme=scheme)
                for found in violations(root, axe, *rules):
                    problems.setdefault(f"{name} at {width} px in {scheme}: {found}")
    assert not problems, "\n".join(problems)


def test_axe_finds_a_header_without_text_and_a_field_with_a_title_only(root: Visitor, mail: Queue, axe: str):
    root.open("/admin/rsmq/queue/")
    root.page.evaluate("document.querySelector('#content').insertAdjacentHTML('beforeend', "
                       "'<table><tr><th></th></tr></table><input title=\"x\">')")  # fmt: skip

    found = str(violations(root, axe))

    assert "empty-table-header" in found and "label-title-only" in found
