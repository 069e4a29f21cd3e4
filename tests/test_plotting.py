"""Plots draw what they are given into the caller's axes; reports need nothing but themselves."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._trajectory import Trajectory


@pytest.fixture(scope="module")
def solution():
    return ol.solve(ol.scenarios.curriculum(), intervals=80, starts=1)


@pytest.fixture(scope="module")
def comparison(solution):
    return ol.compare(solution.problem, solution=solution)


@pytest.fixture
def axes():
    return Figure().subplots()


def simulated(seeds=6):
    rng = np.random.default_rng(0)
    alpha = np.linspace(0, 1, 5)
    values = {name: rng.normal(size=(seeds, 5)) for name in ("Q11", "error")}
    return Trajectory(alpha, values, ("Q11",))


def lines(axes):
    return {line.get_label(): np.array(line.get_data()) for line in axes.lines}


class TestSchedule:
    def test_draws_the_values_as_steps(self, solution, axes):
        found = ol.plot_schedule(solution.schedule, axes=axes)
        assert found is axes
        (stairs,) = axes.patches
        np.testing.assert_array_equal(stairs.get_data().values, solution.schedule["difficulty"])
        np.testing.assert_array_equal(stairs.get_data().edges, solution.schedule.grid)
        assert axes.get_ylabel() == "difficulty"
        assert axes.get_xlim() == (0, 12)

    def test_a_mixture_is_drawn_as_shares_that_fill_the_axes(self, solution, axes):
        schedule = solution.relaxed.schedule
        ol.plot_schedule(schedule, axes=axes)
        first, second = axes.patches
        shares = schedule.mixtures["difficulty"].shares
        np.testing.assert_allclose(first.get_data().values, shares[:, 0])
        np.testing.assert_allclose(second.get_data().values, 1)
        assert [t.get_text() for t in axes.get_legend().get_texts()] == ["0", "2"]

    def test_several_schedules_have_a_legend(self, comparison, axes):
        ol.plot_schedule(comparison.schedules, axes=axes)
        assert {t.get_text() for t in axes.get_legend().get_texts()} == set(comparison.schedules)

    def test_one_of_several_controls_must_be_named(self):
        schedule = ol.Schedule.constant(1, {"a": 1, "b": 2})
        with pytest.raises(SpecificationError, match="control must be one that every schedule has"):
            ol.plot_schedule(schedule)
        assert ol.plot_schedule(schedule, "b", color="red").get_ylabel() == "b"


class TestCourses:
    def test_order_parameters(self, solution, axes):
        ol.plot_order_parameters(solution.trajectory, axes=axes)
        drawn = lines(axes)
        assert set(drawn) == set(solution.trajectory.order_parameters)
        np.testing.assert_array_equal(drawn["Q11"][1], solution.trajectory["Q11"])
        assert set(lines(ol.plot_order_parameters(solution.trajectory, ["M11"]))) == {"M11"}
        matrix = [name for name in solution.trajectory.order_parameters if name.startswith("M")]
        assert set(lines(ol.plot_order_parameters(solution.trajectory, ["M"]))) == set(matrix)
        with pytest.raises(SpecificationError, match="at least one of"):
            ol.plot_order_parameters(solution.trajectory, [])

    def test_errors_with_a_band_over_seeds(self, solution, axes):
        runs = simulated()
        ol.plot_error({"theory": solution.trajectory, "runs": runs}, axes)
        drawn = lines(axes)
        np.testing.assert_array_equal(drawn["theory"][1], solution.trajectory["error"])
        np.testing.assert_allclose(drawn["runs"][1], runs.mean("error"))
        (band,) = axes.collections
        low, high = runs.band("error")
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() == pytest.approx(low.min())
        assert heights.max() == pytest.approx(high.max())


class TestEvidence:
    def test_certificate(self, solution, axes):
        ol.plot_certificate(solution, axes)
        words = [label.get_text() for label in axes.get_yticklabels()]
        assert words == ["Hamiltonian gap", "relaxation gap", "integration error", "budget error"]
        dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
        assert dots[0] == pytest.approx(solution.certificate.hamiltonian_gap)
        verdict = "converged" if solution.certificate.converged else "NOT CONVERGED"
        assert axes.get_title(loc="left").startswith(verdict)

    def test_compare(self, comparison, axes):
        ol.plot_compare(comparison, axes)
        dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
        assert dots == [row.objective for row in comparison.rows]
        names = [label.get_text().removesuffix(" (breaks limits)") for label in axes.get_yticklabels()]
        assert names == [row.name for row in comparison.rows]


def test_without_axes_a_figure_of_its_own_and_no_pyplot(solution):
    import sys

    before = "matplotlib.pyplot" in sys.modules
    axes = ol.plot_error(solution.trajectory)
    assert isinstance(axes.figure, Figure)
    assert axes.figure._repr_png_().startswith(b"\x89PNG")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_global_settings_are_left_alone(solution):
    import matplotlib

    before = dict(matplotlib.rcParams)
    solution.plot()
    assert dict(matplotlib.rcParams) == before


def test_a_solution_in_one_figure():
    solution = ol.solve(ol.scenarios.denoising_batch(), intervals=6, starts=1)
    figure = solution.plot()
    shown = [axes.get_ylabel() for axes in figure.axes if axes.get_visible()]
    assert shown == ["batch", "error", "order parameters", ""]
    assert "denoising_batch" in figure.get_suptitle()


VOID = {"meta", "br", "hr", "img", "link", "input"}


class _Page(HTMLParser):
    """Attributes that could load something, the text, and whether tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.loads, self.text, self.open, self.tags = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.note(attrs)

    def note(self, attrs):
        self.loads += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data", "action")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(text):
    page = _Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


class TestReport:
    @pytest.fixture(scope="class")
    @staticmethod
    def page(solution, tmp_path_factory):
        return solution.report(tmp_path_factory.mktemp("report") / "r.html", baselines=True).read_text()

    def test_needs_nothing_else(self, page):
        found = parsed(page)
        assert all(link.startswith("#") for link in found.loads)  # inside the page
        assert not re.search(r"@import|url\((?!#)", page)
        assert not {"script", "link", "iframe", "img"} & found.tags
        assert 'name="viewport"' in page
        assert "prefers-color-scheme: dark" in page

    def test_says_what_it_should(self, page, solution, comparison):
        text = " ".join(parsed(page).text)
        assert f"{solution.objective:.8g}" in text
        assert all(row.name in text for row in comparison.rows)
        for words in (
            "How much better could it be?",
            "Are budgets met?",
            "Where it comes from",
            "jax version",
        ):
            assert words in text
        assert "curriculum(alpha_F=12.0, eta=3.0" in text
        assert page.count("<svg") == 6  # schedule, mixture, error, order parameters, comparison, certificate

    def test_follows_the_colour_of_the_page(self, page):
        assert "#000000" not in page
        assert "currentColor" in page

    def test_baselines_are_only_for_who_asks(self, solution, tmp_path):
        text = solution.report(tmp_path / "r.html").read_text()
        assert "anti-curriculum" not in text

    def test_names_are_escaped(self, solution, tmp_path):
        from dataclasses import replace

        nasty = replace(solution, problem=replace(solution.problem, name="<script>alert(1)</script>"))
        text = nasty.report(tmp_path / "r.html").read_text()
        assert "<script>" not in text
        assert "&lt;script&gt;" in text

    def test_notebooks_show_a_fragment(self, solution):
        text = solution._repr_html_()
        assert "script" not in parsed(text).tags
        assert "svg" in parsed(text).tags
        assert f"{solution.objective:.8g}" in text


def test_consoles_show_a_coloured_summary(solution):
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    Console(file=text, width=120, color_system=None).print(solution)
    assert text.getvalue().rstrip() == solution.summary()
    assert "█" in solution.summary()
