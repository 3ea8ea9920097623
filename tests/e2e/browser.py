"""A real browser, one for all tests of a module: Debian's Chromium, without a window."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).parent.parent.parent
ARTEFACTS = Path(os.environ.get("FENCEHOLD_ARTEFACTS", ROOT / ".artefacts")) / "dashboard"
"""Where pictures of pages are kept, to be looked at."""
AXE = Path(__file__).parent / "node/node_modules/axe-core/axe.min.js"
PATIENCE_MS = int(os.environ.get("FENCEHOLD_BROWSER_PATIENCE_MS", "60000"))
_NETWORKS_MAX = 20
"""How often a page is opened again because the network is another."""
DESK = {"viewport": {"width": 1360, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True}


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser, ended at the end."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "install chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody with a window of their own: nobody else's cookies, and a note of all that goes wrong in it."""

    def __init__(self, browser: Browser, port: int, scheme: str = "http", **options: Any) -> None:
        self.base = f"{scheme}://127.0.0.1:{port}/dashboard/"
        self.context = browser.new_context(**{**DESK, **options})
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.wrongs: list[str] = []
        self.page.on("pageerror", lambda error: self.wrongs.append(str(error)))
        self.page.on("console", self._note)

    def _note(self, said: ConsoleMessage) -> None:
        # A refused request is told in the page, and by the browser, too.
        is_known = "Failed to load resource" in said.text or "ERR_" in said.text
        if said.type == "error" and not is_known:
            self.wrongs.append(said.text)

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def go(self, path: str = "") -> Page:
        """Open a page, and wait until it is live."""
        self._open(self.base + path)
        self.page.locator(".live.is-live").wait_for()
        return self.page

    def _open(self, address: str) -> None:
        for _ in range(_NETWORKS_MAX):
            try:
                self.page.goto(address)
                return
            except PlaywrightError as error:
                # Another test made a network namespace meanwhile: Chromium drops what it was loading.
                if "ERR_NETWORK_CHANGED" not in str(error):
                    raise
        self.page.goto(address)

    def picture(self, name: str) -> None:
        """Keep a picture of the page."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    def check_accessible(self) -> None:
        """Have axe look at it: labels, contrast, roles, and all else it knows."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        told = [
            f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
            for each in found["violations"]
        ]
        assert not told, "\n".join(told)
