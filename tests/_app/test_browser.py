"""The explorer in a real Chromium: load, move a slider, see the plot change, download, type nonsense."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

import optlearn as ol

pytest.importorskip("panel", reason="the explorer needs the extra app")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `make test-browser` installs it"
)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no Chromium on this machine: `make test-browser` installs it"
    ),
]

PATIENT = 120_000  # milliseconds; on an idle machine nothing here takes more than a few seconds
playwright.expect.set_options(timeout=PATIENT)
SLIDERS = {
    "dropout": "Label noise σ_n, slider",
    "denoising": "Noise at test time Δ_F, slider",
    "curriculum": "Weight decay λ, slider",
}


@contextmanager
def serving(*options):
    """The explorer as a user starts it: its address; at the end Ctrl-C, after which it ends in order."""
    explore = [sys.executable, "-m", "optlearn._cli", "explore", "dropout", "--no-browser", "--json"]
    command = [*explore, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        stop = threading.Timer(180, server.kill)  # so that a server that does not start is a failure
        stop.start()
        line = server.stdout.readline()
        stop.cancel()
        assert line, server.stderr.read()
        try:
            yield json.loads(line)["url"]
        finally:
            server.send_signal(signal.SIGINT)
            _, told = server.communicate(timeout=30)
    assert server.returncode == 0, told
    assert "Traceback" not in told


@pytest.fixture
def url():
    with serving() as address:
        yield address


@pytest.fixture
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


class Visit:
    """A page, with everything that it asked the network for and complained about."""

    def __init__(self, browser, url):
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.page.set_default_timeout(PATIENT)
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._console)
        self.page.goto(url)
        self.settle()

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    @property
    def status(self):
        return self.page.locator("#status").first

    @property
    def error(self):
        """The number in large letters."""
        return self.page.locator(".headline .number").text_content()

    def settle(self, words=re.compile("converged|Not solved")):
        """Wait until nothing is being solved."""
        playwright.expect(self.status).to_have_text(words)
        playwright.expect(self.status).to_have_attribute("aria-busy", "false")

    def chart(self):
        """What the chart of the schedule looks like."""
        return self.page.get_by_role("img", name="Chart of the optimal schedule").screenshot()

    def choose(self, scenario):
        self.page.get_by_label("Scenario", exact=True).select_option(scenario)
        playwright.expect(self.page.get_by_label(SLIDERS[scenario])).to_be_visible()
        playwright.expect(self.status).to_have_attribute("aria-busy", "true")
        self.settle()

    def press(self, slider, key):
        """Press a key on a slider, and wait for the new result."""
        before = self.error
        self.page.get_by_label(slider).press(key)
        playwright.expect(self.page.locator(".headline .number")).not_to_have_text(before)
        self.settle()

    def download(self, button):
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name=button, exact=True).click()
        return waiting.value.suggested_filename, waiting.value.path().read_text(encoding="utf-8")


def moving_a_slider_by_keyboard_changes_plot_and_numbers_and_the_download_is_what_is_shown(visit, scenario):
    before, chart = visit.error, visit.chart()
    visit.press(SLIDERS[scenario], "ArrowRight")
    assert visit.error != before
    assert visit.chart() != chart
    assert "1 start" in visit.status.text_content()  # warm

    name, text = visit.download("JSON")
    content = json.loads(text)
    assert name == f"{scenario}.json"
    assert f"{content['objective']:.6g}" == visit.error
    assert content["certificate"]["converged"]
    problem = getattr(ol.scenarios, scenario)(**content["arguments"])
    again = ol.evaluate(problem, ol.Schedule.from_json(text))
    assert again.objective == pytest.approx(content["objective"], rel=1e-9)


def a_wrong_value_is_told_by_name_and_range_and_nothing_else_changes(visit, scenario):
    box = visit.page.get_by_role("textbox", name="Learning rate η")
    before, chart, good = visit.error, visit.chart(), box.input_value()
    for text in ("fast", "-1"):
        box.fill(text)
        box.press("Enter")
        message = re.compile(f"eta must be a number from .* got {text}")
        told = visit.page.get_by_role("alert").filter(has_text=message)
        playwright.expect(told).to_be_visible()
        playwright.expect(box).to_have_attribute("aria-invalid", "true")
    assert visit.error == before
    assert visit.chart() == chart
    box.fill(good)
    box.press("Enter")
    playwright.expect(box).to_have_attribute("aria-invalid", "false")
    visit.settle()


def a_newer_value_supersedes_a_long_solve(visit):
    visit.page.get_by_role("button", name="Solve at full accuracy").click()
    playwright.expect(visit.status).to_have_attribute("aria-busy", "true")
    visit.press(SLIDERS["curriculum"], "ArrowRight")
    assert "(120 intervals, 1 start)" in visit.status.text_content()


def what_is_shown_is_in_the_address_and_survives_a_reload(visit):
    shown = visit.page.get_by_label(SLIDERS["curriculum"]).input_value()
    assert f"weight_decay={shown}" in visit.page.url
    visit.page.reload()
    visit.settle()
    assert visit.page.get_by_label(SLIDERS["curriculum"]).input_value() == shown


def axes_can_be_switched_back_and_forth(visit):
    axis = visit.page.get_by_label("Vertical axis").last
    chart = visit.page.get_by_role("img", name="Chart of the error over training")
    linear = chart.screenshot()
    axis.select_option("logarithmic")
    visit.page.wait_for_timeout(500)
    logarithmic = chart.screenshot()
    axis.select_option("linear")
    visit.page.wait_for_timeout(500)
    assert logarithmic != linear
    assert chart.screenshot() == linear


def a_simulation_can_be_stopped(visit):
    stop = visit.page.locator("#stop")
    playwright.expect(stop).to_be_disabled()
    visit.page.get_by_label("Input dimension N").select_option("10000")
    visit.page.get_by_role("button", name="Run the simulation").click()
    playwright.expect(stop).to_be_enabled()
    stop.click()
    playwright.expect(visit.page.locator("#status").last).to_have_text("Stopped.")
    playwright.expect(stop).to_be_disabled()


def costates_and_tables_can_be_read(visit):
    visit.page.get_by_label("Show", exact=True).select_option("costates")
    rows = visit.page.get_by_role("row").all_text_contents()
    assert {"optimum", "best two-switch", "random mix", "curriculum", "anti-curriculum"} <= {
        re.split(r"\d|–", row)[0] for row in rows
    }
    playwright.expect(visit.page.get_by_text("How much better could it be?")).to_be_visible()


def code_for_both_frameworks_and_a_table_can_be_downloaded(visit):
    for button, ending in (("CSV", ".csv"), ("PyTorch code", "_torch.py"), ("optax code", "_optax.py")):
        name, text = visit.download(button)
        assert name == f"curriculum{ending}"
        assert "difficulty" in text


def every_control_has_a_name_and_can_be_reached_by_keyboard(visit):
    tree = visit.page.locator("body").aria_snapshot()
    controls = re.findall(r"- (slider|textbox|combobox|checkbox|button)\b(.*)", tree)
    assert len(controls) > 15
    assert all('"' in rest for _, rest in controls), tree
    reached = set()
    visit.page.get_by_label("Scenario", exact=True).focus()
    for _ in range(60):
        reached.add(
            visit.page.evaluate(
                """() => { let e = document.activeElement
                     while (e.shadowRoot?.activeElement) e = e.shadowRoot.activeElement
                     return e.id || e.ariaLabel || e.tagName }"""
            )
        )
        visit.page.keyboard.press("Tab")
    wanted = {"scenario", "weight_decay", SLIDERS["curriculum"], "SUMMARY", "full", "reset", "json", "csv"}
    wanted |= {"torch", "optax", "curves", "quantity", "N", "seeds", "again", "run", "schedule", "error"}
    assert wanted <= reached


def a_narrow_screen_needs_no_sideways_scrolling(visit):
    visit.page.set_viewport_size({"width": 390, "height": 844})
    visit.page.wait_for_timeout(500)
    width = visit.page.evaluate("document.documentElement.scrollWidth")
    visit.page.set_viewport_size({"width": 1280, "height": 900})
    assert width <= 390


def everything_came_from_this_machine_and_nothing_complained(visit):
    host = re.match(r"http://(127\.0\.0\.1:\d+)/", visit.page.url)[1]
    foreign = [
        asked
        for asked in visit.requests
        if not re.match(rf"(blob:)?(http|ws)://{re.escape(host)}/|data:", asked)
    ]
    assert foreign == []
    assert len(visit.requests) > 5
    assert visit.complaints == []


# One server and one browser for all: a single test, whose parts are told apart by their names.
OF_EVERY_SCENARIO = (
    moving_a_slider_by_keyboard_changes_plot_and_numbers_and_the_download_is_what_is_shown,
    a_wrong_value_is_told_by_name_and_range_and_nothing_else_changes,
)
IN_THE_END = (
    a_newer_value_supersedes_a_long_solve,
    what_is_shown_is_in_the_address_and_survives_a_reload,
    axes_can_be_switched_back_and_forth,
    a_simulation_can_be_stopped,
    costates_and_tables_can_be_read,
    code_for_both_frameworks_and_a_table_can_be_downloaded,
    every_control_has_a_name_and_can_be_reached_by_keyboard,
    a_narrow_screen_needs_no_sideways_scrolling,
    everything_came_from_this_machine_and_nothing_complained,
)


def test_the_explorer_in_a_real_browser(browser, url, subtests):
    visit = Visit(browser, url)
    for scenario in SLIDERS:  # the first of which is shown already
        if scenario not in url:
            visit.choose(scenario)
        for claim in OF_EVERY_SCENARIO:
            with subtests.test(f"{claim.__name__}[{scenario}]"):
                claim(visit, scenario)
    for claim in IN_THE_END:
        with subtests.test(claim.__name__):
            claim(visit)


def test_a_server_that_is_gone_is_seen_and_one_that_is_back_is_found(browser):
    with serving() as url:
        visit, other = Visit(browser, url), Visit(browser, url)
        visit.press(SLIDERS["dropout"], "ArrowRight")
        port = re.search(r":(\d+)/", url)[1]
    for page in (visit.page, other.page):
        banner = page.get_by_role("alert").filter(has_text="Connection lost: the numbers below")
        playwright.expect(banner).to_be_visible()
        playwright.expect(banner).to_contain_text(f"optlearn explore --port {port}")
        playwright.expect(page.locator("#status").first).to_have_text(re.compile("^Connection lost"))
        playwright.expect(page.get_by_text(re.compile("^Solved"))).to_have_count(0)
    visit.page.get_by_label(SLIDERS["dropout"]).press("ArrowRight")  # kept, although nobody hears it
    playwright.expect(visit.page).to_have_url(re.compile("sigma_n=0.32"))
    with serving("--port", port):
        for one, value in ((visit, "0.32"), (other, "0.3")):
            playwright.expect(one.page.locator("#lost")).to_be_hidden()
            one.settle()
            assert one.page.get_by_label(SLIDERS["dropout"]).input_value() == value
        objective = ol.evaluate(
            ol.scenarios.dropout(sigma_n=0.32), ol.Schedule.from_json(visit.download("JSON")[1])
        ).objective
        assert f"{objective:.6g}" == visit.error


def test_a_scenario_that_does_not_exist_is_told(browser):
    with serving() as url:
        page = browser.new_page()
        page.set_default_timeout(PATIENT)
        page.goto(re.sub(r"\?.*", "?scenario=nope&eta=2", url))
        playwright.expect(page.locator("#status").first).to_have_text(
            "There is no scenario 'nope': choose one from the list."
        )
        page.get_by_label("Scenario", exact=True).select_option("dropout")
        playwright.expect(page.locator("#status").first).to_have_text(
            re.compile("converged"), timeout=PATIENT
        )
