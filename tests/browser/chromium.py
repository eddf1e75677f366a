"""One Chromium, and pages that remember everything that went wrong on them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.test import Client

NAMES = ("chromium", "chromium-browser", "google-chrome")
ON_MACOS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
#: Without most of these a fresh Chromium looks for other hosts at every start.
FLAGS = (
    "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage"
).split()
#: A busy machine can stand still for seconds.
TIMEOUT_MS = 90_000


def find_chromium() -> str:
    """Return the path of the system's Chromium. Raises LookupError."""
    found = [path for path in map(shutil.which, NAMES) if path] + [path for path in ON_MACOS if Path(path).exists()]
    if not found:
        raise LookupError("no Chromium found (Debian: apt-get install chromium; macOS: Chromium or Chrome)")
    return found[0]


def launch(playwright: Any) -> Any:
    """Start Chromium."""
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=find_chromium(), args=flags)


class Visitor:
    """One person in front of a browser window of their own."""

    def __init__(self, chromium: Any, site: str, **window: Any) -> None:
        self.site = site
        self.context = chromium.new_context(base_url=site, **window)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.page = self.context.new_page()
        #: What a page should never do: errors on its console, requests that fail, requests to elsewhere.
        self.complaints: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_error)
        self.page.on("request", self._on_request)
        self.page.on("requestfailed", self._on_failure)
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: Any) -> None:
        # Browsers ask every site for its icon; that one is not ours to have.
        if message.type in ("error", "warning") and not message.location.get("url", "").endswith("/favicon.ico"):
            self.complaints.append(f"console of {self.page.url}: {message.text} ({message.location})")

    def _on_error(self, error: Any) -> None:
        self.complaints.append(f"error in a script on {self.page.url}: {error} {error.stack}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.site, "data:")):
            self.complaints.append(f"request to elsewhere: {request.url}")

    def _on_failure(self, request: Any) -> None:
        # Leaving a page ends what it was loading.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.complaints.append(f"request failed: {request.url} {request.failure}")

    def log_in(self, user: AbstractBaseUser) -> Visitor:
        """Be this user, without filling in the form."""
        client = Client()
        client.force_login(user)
        value = client.cookies[settings.SESSION_COOKIE_NAME].value
        self.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": self.site}])
        return self

    def open(self, path: str) -> Any:
        """Go to a page and return what the server answered."""
        return self.page.goto(path)

    def text(self) -> str:
        """Return what the page says to its reader."""
        return str(self.page.inner_text("body"))

    def follow(self, locator: Any) -> None:
        """Press what leads to another page, and wait until that is there: until then the page may say nothing."""
        with self.page.expect_navigation():
            locator.click()

    def click(self, name: str, *, role: str = "button") -> None:
        """Press a button or follow a link that leads to another page."""
        self.follow(self.page.get_by_role(role, name=name, exact=True).first)

    def wait_for_text(self, text: str) -> None:
        """Wait until the page says something."""
        self.page.get_by_text(text).first.wait_for()
