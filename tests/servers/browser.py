"""A real browser, driven by Playwright: Debian's Chromium, for the pages that people look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """Where the browser is; None: on this machine there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def opened() -> Iterator[Browser]:
    """The browser, for as long as the context lasts."""
    from playwright.sync_api import sync_playwright

    # Chromium refuses its sandbox to root, which CI is; the pages are our own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """A page as one kind of screen shows it, with all that it asked for and complained of."""

    def __init__(self, browser: Browser, path: Path, *, width: int, scheme: str) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())

    def close(self) -> None:
        self.page.context.close()
