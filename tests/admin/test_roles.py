"""The table of roles in docs/how-to/admin.md matches the code: each address is requested in each role."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.urls import reverse

from rsmq_django.admin import operations, queue_actions, reliable_queues, schedules
from rsmq_django.core import Queue
from tests.admin.test_docs import PAGE
from tests.admin.test_every_address import _arguments, things  # noqa: F401 - a fixture

ROLES = ("view", "operate", "change")
#: Beside what begins with "view_"; "change" has all.
OPERATING = {
    "view_body", "send_message", "pause_queue", "move_message", "redrive_message", "run_schedule", "pause_schedule",
    "control_worker", "seek_topic", "settle_reliablequeue", "redrive_reliablequeue", "move_reliablequeue",
    "cancel_workflow",
}  # fmt: skip
#: Addresses of which each operation has a permission of its own: parameter, and its values.
VARIANTS = {
    "message_operate": ("action", operations.OPERATIONS),
    "queue_bulk": ("action", queue_actions.OPERATIONS),
    "schedule_operate": ("action", schedules.OPERATIONS),
    "reliablequeue_settle": ("action", reliable_queues.SETTLINGS),
}


def codenames_of(role: str) -> Any:
    ours = Permission.objects.filter(content_type__app_label="rsmq")
    if role == "change":
        return ours
    viewing = ours.filter(codename__startswith="view_").exclude(codename="view_body")
    return viewing if role == "view" else viewing | ours.filter(codename__in=OPERATING)


def requests_of(things: dict[str, str]) -> Iterator[tuple[str, str, dict[str, str]]]:  # noqa: F811
    """Return the name in the table, the address and the data of each request."""
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label != "rsmq":
            continue
        for url in model_admin.get_urls():
            if url.name is None:
                continue
            name = url.name.removeprefix("rsmq_")
            address = reverse(f"admin:{url.name}", kwargs=_arguments(url, things.get(str(model._meta.model_name))))
            parameter, values = VARIANTS.get(name, ("", [""]))
            for value in values:
                yield f"{name} {value}".strip(), address, {parameter: value} if parameter else {}


def is_allowed(browser: Browser, address: str, data: dict[str, str]) -> bool:
    answer = browser.get(address)
    if answer.status_code == 405:
        answer = browser.post(address, data)
    return answer.status_code != 403 and "/login/" not in answer.headers.get("Location", "")


def rows_of_docs() -> dict[str, tuple[bool, ...]]:
    """Return the names in the table, a pattern for several, and which roles may."""
    section = PAGE.partition("## Roles")[2].partition("\n## ")[0]
    found = {}
    for line in re.findall(r"^\| .*`.* \|$", section, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = tuple(cell == "yes" for cell in cells[1:])
    return found


@pytest.fixture
def roles(mail: Queue) -> dict[str, Browser]:
    browsers = {"anonymous": Browser(), "staff": Browser()}
    browsers["staff"].force_login(User.objects.create_user("staff", is_staff=True))
    for role in ROLES:
        user = User.objects.create_user(role, is_staff=True)
        user.user_permissions.set(codenames_of(role))
        browsers[role] = Browser()
        browsers[role].force_login(user)
    return browsers


@pytest.mark.deadline(600)  # it opens every page as every role
def test_each_address_has_the_permissions_in_the_table_of_roles(roles: dict[str, Browser], things: dict[str, str]):  # noqa: F811
    documented, used, wrong = rows_of_docs(), set(), []

    for name, address, data in requests_of(things):
        may = tuple(is_allowed(browser, address, data) for browser in roles.values())
        if any(may):  # Django's pages that have no use here refuse everybody
            pattern = name if name in documented else "*_" + name.partition("_")[2]
            used.add(pattern)
            if documented.get(pattern) != may:
                wrong.append((name, may))

    assert not wrong, f"correct the table of roles in docs/how-to/admin.md: {wrong}"
    assert not set(documented) - used


def test_the_table_has_the_permissions_of_operators():
    section = PAGE.partition("## Roles")[2].partition("\n## ")[0]

    assert set(re.findall(r"`rsmq\.(\w+)`", section)) == OPERATING | {"view_body"}
