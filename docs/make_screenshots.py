"""The explorer as a series of pictures, in a real Chromium: `make screenshots` writes docs/images/explorer/.

At 1280 and at 390 pixels: solved; a bad value; the server killed; the server back; a second tab.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

FOLDER = Path(__file__).parent / "images" / "explorer"
WIDTHS = {"": (1280, 900), "-narrow": (390, 844)}
PATIENT = 120_000  # milliseconds


@contextmanager
def serving(port: int = 0) -> Iterator[str]:
    """The explorer as a user starts it, and its address; killed at the end."""
    explore = [sys.executable, "-m", "optlearn._cli", "explore", "curriculum", "--no-browser", "--json"]
    with subprocess.Popen([*explore, "--port", str(port)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.send_signal(signal.SIGINT)


def visit(browser: Browser, url: str, width: int, height: int) -> Page:
    """A page that has been solved."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(url)
    settle(page)
    return page


def settle(page: Page) -> None:
    """Wait until nothing is being solved."""
    expect(page.locator("#status").first).to_have_text(re.compile("converged|Not solved"))
    expect(page.locator("#status").first).to_have_attribute("aria-busy", "false")


def picture(page: Page, name: str) -> None:
    """What the page shows now, from its top."""
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(700)  # fades and charts come to rest
    page.screenshot(path=FOLDER / f"{name}.png")


def main() -> None:
    """Make all pictures."""
    expect.set_options(timeout=PATIENT)
    FOLDER.mkdir(parents=True, exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium)
        with serving() as url:
            pages = {suffix: visit(browser, url, *size) for suffix, size in WIDTHS.items()}
            for suffix, page in pages.items():
                picture(page, f"solved{suffix}")
            second = visit(browser, re.sub(r"\?.*", "?scenario=dropout&eta=fast", url), *WIDTHS[""])
            picture(second, "second-tab")
            second.close()
            for suffix, page in pages.items():
                box = page.get_by_label("Learning rate η", exact=True)
                box.fill("fast")
                box.press("Enter")
                expect(page.get_by_text(re.compile("must be a number"))).to_be_visible()
                box.scroll_into_view_if_needed()
                page.wait_for_timeout(700)
                page.screenshot(path=FOLDER / f"bad-value{suffix}.png")
                box.fill("3")
                box.press("Enter")
                settle(page)
        for suffix, page in pages.items():
            expect(page.get_by_role("alert").filter(has_text="Connection lost")).to_be_visible()
            picture(page, f"lost{suffix}")
        with serving(int(re.findall(r":(\d+)/", url)[0])):
            for suffix, page in pages.items():
                expect(page.locator("#lost")).to_be_hidden()
                settle(page)
                picture(page, f"back{suffix}")
        browser.close()


if __name__ == "__main__":
    main()
