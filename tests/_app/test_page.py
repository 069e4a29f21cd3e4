"""The page without a browser: its controls, what it asks for, and what it shows."""

import ast
import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import optlearn as ol

pytest.importorskip("panel", reason="the explorer needs the extra app")

from bokeh.document import Document
from bokeh.models import ImportedStyleSheet, LinearScale, LogScale

from optlearn._app import words
from optlearn._app.messages import (
    FILES,
    Compared,
    Done,
    Failed,
    Optimum,
    Simulate,
    Solve,
    Usual,
    Waiting,
    defaults,
    files_of,
    parameters,
)
from optlearn._app.page import Page
from optlearn._app.parts import Chart, Line
from optlearn._app.server import Mailbox, use_local_files
from optlearn._progress import Progress
from optlearn._schedule import Schedule


class Recorder:
    """A worker that only notes what it is asked."""

    def __init__(self):
        self.asked, self.cancelled = [], 0

    def ask(self, client, request, heard):
        self.asked.append((request, heard))

    def cancel(self, client):
        self.cancelled += 1

    def tell(self, *events):
        for event in events:
            self.asked[-1][1](event)


@pytest.fixture
def workers():
    return Recorder(), Recorder()


@pytest.fixture
def page(workers):
    return Page(*workers, "dropout")


@pytest.fixture
def solved(page, workers, answers):
    workers[0].tell(*answers[0], Done())
    return page


@pytest.fixture
def optimum(answers):
    return next(event for event in answers[0] if isinstance(event, Optimum))


def test_it_asks_for_the_scenario_at_its_defaults(page, workers):
    (request, _) = workers[0].asked[0]
    assert request == Solve("dropout", defaults("dropout"))
    assert page.status.busy
    assert "dropout" in page.status.text


def test_a_page_that_waits_says_for_how_many(page, workers):
    for before, said in ((3, "3 solves before yours"), (1, "1 solve before yours")):
        workers[0].tell(Waiting(before))
        assert page.status.text == f"Solving dropout: {said} …"
        assert page.status.busy
    workers[0].tell(Failed("16 others are waiting already: try again in a moment", expected=True))
    assert "Not solved: 16 others are waiting already" in page.status.text


def test_every_control_has_a_label(solved):
    forms = (
        solved.scenario_form,
        solved.parameter_form,
        solved.action_form,
        solved.order_form,
        solved.simulation.form,
        solved.download_form,
    )
    names = [field["name"] for form in forms for field in form.fields]
    assert {p.name for p in parameters("dropout")} <= set(names)
    assert all(field["label"] for form in forms for field in form.fields)


def test_the_address_can_say_where_to_begin(workers):
    page = Page(*workers, "dropout", {"sigma_n": "0.2", "eta": "fast", "unknown": "1"})
    assert workers[0].asked[0][0].arguments["sigma_n"] == 0.2
    assert page.parameter_form.errors == {"eta": "eta must be a number from 0.2 to 2, got fast"}


def test_results_are_shown_in_charts_and_in_words(solved, optimum):
    (chart,) = solved.schedule_charts.values()
    (line,) = chart.lines
    np.testing.assert_array_equal(line.x[::2], optimum.schedule.grid[:-1])
    np.testing.assert_array_equal(line.y[::2], optimum.schedule["activation"])
    assert f"{optimum.objective:.6g}" in solved.headline.object
    assert {line.name for line in solved.error.lines} == {"optimum", *ol.scenarios.dropout().baselines}
    assert [line.name for line in solved.order.lines] == list(optimum.trajectory.order_parameters)
    assert "best constant" in solved.table.object
    assert "converged" in solved.certificate.object
    assert "Rescaling" in solved.schedule_words.object
    assert not solved.status.busy
    assert solved.status.tone == "good"


def test_moving_a_control_asks_anew_and_keeps_what_is_shown_until_then(solved, workers, optimum):
    shown = solved.headline.object
    solved._move("sigma_n", "0.32")
    assert workers[0].asked[-1][0].arguments["sigma_n"] == 0.32
    assert solved.headline.object == shown
    assert solved.optimum is optimum
    count = len(workers[0].asked)
    solved._move("sigma_n", "0.320")
    assert len(workers[0].asked) == count  # nothing has changed


def test_a_wrong_value_is_refused_where_it_was_typed_and_the_result_stays(solved, workers, optimum):
    count = len(workers[0].asked)
    solved._move("sigma_n", "1e9")
    assert solved.parameter_form.errors == {"sigma_n": "sigma_n must be a number from 0 to 0.6, got 1e9"}
    assert len(workers[0].asked) == count
    assert solved.optimum is optimum
    assert solved.values["sigma_n"] == 0.3
    solved._move("sigma_n", "0.3")
    assert solved.parameter_form.errors == {}


def test_what_the_scenario_refuses_is_told_at_the_control_and_the_result_stays(solved, workers, optimum):
    solved._move("eta", "2")
    workers[0].tell(Failed("dropout(eta=2.0): must be below 2", expected=True))
    assert solved.parameter_form.errors == {"eta": "dropout(eta=2.0): must be below 2"}
    assert solved.status.tone == "bad"
    assert "must be below 2" in solved.status.text
    assert solved.optimum is optimum


def test_events_of_an_earlier_request_are_not_shown(solved, workers, answers):
    late = workers[0].asked[-1][1]
    solved._move("sigma_n", "0.32")
    before = solved.headline.object
    late(next(event for event in answers[1] if isinstance(event, Optimum)))
    assert solved.headline.object == before


def test_baselines_of_earlier_values_are_faded_until_the_new_ones_come(solved, workers, answers):
    second = answers[1]
    solved._move("sigma_n", "0.32")
    solved._move("alpha_F", "5.25")
    workers[0].tell(*[event for event in second if not isinstance(event, Compared)])
    assert {line.alpha for line in solved.error.lines if line.name != "optimum"} == {0.25}
    assert "stale" in solved.table.object
    workers[0].tell(*[event for event in second if isinstance(event, Compared)])
    assert {line.alpha for line in solved.error.lines} == {1.0}
    assert "stale" not in solved.table.object
    workers[0].tell(*[event for event in second if isinstance(event, Optimum)])  # a better solve of the same
    assert "stale" not in solved.table.object


def test_another_scenario_begins_at_its_own_defaults(solved, workers):
    solved._choose("scenario", "curriculum")
    assert workers[0].asked[-1][0].scenario == "curriculum"
    assert [f["name"] for f in solved.parameter_form.fields] == [p.name for p in parameters("curriculum")]


def test_full_accuracy_reset_and_stop(solved, workers):
    solved._act("full", "")
    assert workers[0].asked[-1][0].full
    solved._move("sigma_n", "0.4")
    solved._act("reset", "")
    assert solved.values == defaults("dropout")
    solved._act("stop", "")
    assert workers[0].cancelled == 1
    assert not solved.status.busy


def test_what_is_not_converged_says_so(page, workers, optimum):
    doubtful = replace(optimum.certificate, converged=False, reasons=("hamiltonian_gap 1e-2 exceeds 1e-6",))
    workers[0].tell(replace(optimum, certificate=doubtful), Done())
    assert page.status.text.startswith("Not converged")
    assert "hamiltonian_gap" in page.status.text
    assert page.status.tone == "warning"
    assert "not converged" in page.certificate.object
    assert [line.name for line in page.error.lines] == ["solution"]
    assert "optim" not in page.headline.object
    assert "not converged" in FILES["torch"](*page._solved, page.optimum).text


def test_what_a_usual_schedule_beats_is_no_optimum(page, workers, optimum, answers):
    compared = next(event for event in answers[0] if isinstance(event, Compared))
    best = compared.usual[0]
    for note, name in (("", "solution"), ("breaks a budget", "optimum")):
        better = replace(best, objective=0.9 * optimum.objective, note=note)
        workers[0].tell(optimum, Compared((better, *compared.usual[1:])))
        assert name in {line.name for line in page.error.lines}
        assert name in page.table.object


def test_the_simulation_is_that_of_the_schedule_that_is_shown(solved, workers, optimum):
    solved.simulation._set("N", "300")
    solved.simulation._set("run", "")
    (request, _) = workers[1].asked[-1]
    assert request == Simulate("dropout", defaults("dropout"), optimum.schedule, 300, 50)
    solved._move("sigma_n", "0.4")
    assert workers[1].cancelled  # it belongs to a schedule that is on its way out
    solved.simulation._set("again", "always")
    workers[0].tell(optimum, Done())
    assert workers[1].asked[-1][0].arguments["sigma_n"] == 0.4


def test_progress_names_what_is_being_solved_and_how_far_it_is(page, workers):
    workers[0].tell(Progress("direct, from the best of them", iteration=3))
    assert page.status.text == "Solving dropout: direct, from the best of them, iteration 3 …"
    assert page.status.busy


def test_a_scenario_that_does_not_exist_is_told_and_nothing_else_is_shown(workers, answers):
    page = Page(*workers, "nope", {"eta": "3"})
    assert page.status.text == "There is no scenario 'nope': choose one from the list."
    assert page.status.tone == "bad"
    assert workers[0].asked == []
    assert page.scenario_form.values == {"scenario": ""}
    assert set(page.action_form.values.values()) == {"disabled"}
    page._choose("scenario", "dropout")
    workers[0].tell(*answers[0], Done())
    assert page.status.tone == "good"
    assert page.action_form.values == {"full": "", "reset": "", "stop": "disabled"}


def test_what_the_address_asks_for_in_vain_is_told(workers):
    page = Page(*workers, "dropout", {"eta": "1", "<b>nope": "1"})
    assert "The address names &lt;b&gt;nope, which dropout does not have." in page.about.object


def test_a_stopped_switch_of_scenario_shows_nothing_of_the_one_before(solved, workers, answers):
    solved._choose("scenario", "curriculum")
    assert solved.optimum is None
    assert solved.download_form.values["json"] == "disabled"
    solved._act("stop", "")
    assert solved.status.text == "Stopped. Nothing is solved yet."
    assert solved.schedule_charts == {}
    for chart in (solved.error, solved.order, solved.simulation.chart):
        assert [line.name for line in chart.lines] == [""]
    for text in (solved.headline, solved.table, solved.schedule_words, solved.certificate):
        assert text.object == ""
    workers[0].tell(*answers[0])  # on its way when it was stopped
    assert solved.optimum is None
    solved._download("json", "")  # does nothing


def test_stop_ends_a_simulation(solved, workers):
    assert solved.action_form.values["stop"] == "disabled"
    for stop in (lambda: solved._act("stop", ""), lambda: solved.simulation._set("halt", "")):
        solved.simulation._set("run", "")
        assert solved.action_form.values["stop"] == solved.simulation.form.values["halt"] == ""
        cancelled, late = workers[1].cancelled, workers[1].asked[-1][1]
        stop()
        assert workers[1].cancelled == cancelled + 1
        late(Progress("simulating"))
        assert solved.simulation.status.text == "Stopped."
        assert not solved.simulation.status.busy
        assert solved.action_form.values["stop"] == solved.simulation.form.values["halt"] == "disabled"
        assert solved.status.tone == "good"  # what is solved is still solved


def test_axes_are_logarithmic_where_that_shows_more_and_where_it_is_asked_for(solved):
    assert not solved.error.logarithmic  # it falls by a factor of five
    solved._rescale("error", "logarithmic")
    assert solved.error.logarithmic
    assert isinstance(solved.error.figure.y_scale, LogScale)
    assert solved.simulation.chart.logarithmic
    solved._rescale("error", "linear")
    assert isinstance(solved.error.figure.y_scale, LinearScale)
    falling = Line("error", np.array([0.0, 1.0]), np.array([1.0, 1e-3]))
    chart = Chart("error")
    chart.show([falling])
    assert chart.logarithmic
    chart.show([falling, Line("zero", np.array([0.0, 1.0]), np.array([1.0, 0.0]))])
    assert not chart.logarithmic


def test_an_axis_that_cannot_be_logarithmic_says_why(solved, optimum, workers):
    off = np.zeros_like(optimum.schedule["activation"])
    solved._rescale("schedule", "logarithmic")
    assert solved.schedule_axis.errors == {}
    solved._solve()
    workers[0].tell(replace(optimum, schedule=Schedule(optimum.schedule.grid, {"activation": off})))
    assert solved.schedule_axis.errors == {"schedule": "Some values are 0 or below: the axis stays linear."}


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (0.03, "the same as that of <b>usual</b> (0.03), the best of the usual schedules."),
        (0.03 + 1e-12, "the same as that of"),
        (0.04, "25 % below <b>usual</b>"),
        (0.02, "1.0e-02 above <b>usual</b>"),
    ],
)
def test_the_headline_compares_with_the_best_of_the_usual(optimum, best, said):
    mine = replace(optimum, objective=0.03)
    text = words.headline(mine, Compared((Usual("usual", best, None),)))
    assert said in text
    assert "-0.0e" not in text


def test_dark_pages_have_colours_of_their_own(solved):
    light = list(solved.error._source.data["colour"])
    solved._darken(True)
    dark = list(solved.error._source.data["colour"])
    solved._darken(False)
    assert dark != light
    assert list(solved.error._source.data["colour"]) == light


def test_text_from_results_is_escaped(optimum):
    marked = replace(optimum, remarks=("<script>alert(1)</script>",))
    assert "<script>" not in words.certificate(marked)


def test_no_style_sheet_comes_from_elsewhere(page):
    document = Document()
    use_local_files(document)
    page.template()._init_doc(document, location=False)
    sheets = [sheet for root in document.roots for sheet in root.select({"type": ImportedStyleSheet})]
    assert sheets
    assert all(sheet.url.startswith("static/") for sheet in sheets), [sheet.url for sheet in sheets]


class Loop:
    """An event loop that is always at once."""

    def add_callback(self, call):
        call()


def test_events_wait_until_the_page_is_shown_and_keep_their_order():
    callbacks, called = [], []

    class Forgetful(Document):
        def add_next_tick_callback(self, callback):
            callbacks.append(callback)

    mailbox = Mailbox(Forgetful(), Loop())
    for number in range(3):
        mailbox.deliver(lambda number=number: called.append(number))
    assert not callbacks
    mailbox.open()
    for number in range(3, 5):
        mailbox.deliver(lambda number=number: called.append(number))
    for callback in reversed(callbacks):
        callback()
    assert called == [0, 1, 2, 3, 4]
    mailbox.close()
    before = len(callbacks)
    mailbox.deliver(lambda: called.append("late"))
    assert len(callbacks) == before


# --- downloads ------------------------------------------------------------------------------------


@pytest.fixture
def files(optimum):
    return {name: make("dropout", {"sigma_n": 0.3}, optimum) for name, make in FILES.items()}


def test_json_holds_the_solution_and_is_read_back(files, optimum):
    content = json.loads(files["json"].text)
    assert content["objective"] == optimum.objective
    assert content["arguments"] == {"sigma_n": 0.3}
    schedule = ol.Schedule.from_json(files["json"].text)
    np.testing.assert_array_equal(schedule["activation"], optimum.schedule["activation"])
    assert schedule.parameters == optimum.schedule.parameters


def test_csv_has_a_row_for_each_interval(files, optimum):
    rows = list(csv.DictReader(io.StringIO(files["csv"].text)))
    assert [float(row["activation"]) for row in rows] == optimum.schedule["activation"].tolist()


def test_scripts_are_offered_of_controls_that_they_can_follow(optimum):
    assert files_of(optimum) == tuple(FILES)
    effort = ol.Schedule.constant(1.0, {"gain": 1.5})
    assert files_of(replace(optimum, schedule=effort)) == ("json", "csv")


@pytest.mark.parametrize("framework", ["torch", "optax"])
def test_scripts_know_the_schedule_and_what_it_is_optimal_for(files, optimum, framework):
    file = files[framework]
    calls = [node for node in ast.walk(ast.parse(file.text)) if isinstance(node, ast.Call)]
    written = next(call for call in calls if ast.unparse(call.func) == "ol.Schedule.from_dict")
    schedule = ol.Schedule.from_dict(ast.literal_eval(written.args[0]))
    expected = optimum.schedule.merged()
    # Scripts hold eight digits.
    np.testing.assert_allclose(schedule.grid, expected.grid, rtol=1e-7)
    np.testing.assert_allclose(schedule["activation"], expected["activation"], rtol=1e-7)
    assert schedule.parameters == pytest.approx(expected.parameters, rel=1e-7)
    assert f"dropout(sigma_n=0.3): final error {optimum.objective:.8g} in theory" in file.text
