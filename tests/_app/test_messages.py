"""Arguments of scenarios as controls of the page."""

import inspect
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optlearn import scenarios
from optlearn._app.messages import arguments, defaults, parameters, typed
from optlearn._errors import SpecificationError
from optlearn.scenarios._arguments import Choice, Flag, Number, arguments_of, around

SCENARIOS = list(scenarios.list_scenarios())
numbers = st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6) | st.just(0.0)


def named(scenario, name):
    (found,) = [p for p in parameters(scenario) if p.name == name]
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_controls_that_begin_at_its_own_defaults(scenario):
    found = parameters(scenario)
    assert any(isinstance(p, Number) and p.main for p in found)
    signature = inspect.signature(getattr(scenarios, scenario)).parameters
    for name, value in arguments(scenario, defaults(scenario)).items():
        assert value == signature[name].default
    for p in found:
        assert p.label
        assert not set("[]_") & set(p.label)
        assert p.help, f"{p.name} is not in the docstring"
        assert p.read(str(p.default).lower() if isinstance(p, Flag) else str(p.default)) == p.default


def test_entries_of_a_sequence_are_controls_of_their_own():
    values = {**defaults("curriculum"), "Delta[1]": 1.5}
    assert arguments("curriculum", values)["Delta"] == (0.0, 1.5)


@pytest.mark.parametrize("text", ["abc", "", "0,5", "nan", "inf", "-1", "6.5", "1e9"])
def test_a_wrong_number_is_refused_by_name_value_and_range(text):
    with pytest.raises(SpecificationError) as error:
        named("curriculum", "eta").read(text)
    assert str(error.value) == f"eta must be a number from 0.5 to 6, got {text or 'nothing'}"


def test_what_the_page_cannot_set_is_refused_with_the_reason():
    with pytest.raises(SpecificationError, match=r"T = \[\[1\]\]: has no control, since it is a matrix"):
        typed("dropout", {"T": [[1]]})
    with pytest.raises(SpecificationError, match="etta: dropout has no such control; it has sigma_n, eta"):
        typed("dropout", {"etta": 1})


@pytest.mark.parametrize(
    ("scenario", "given"),
    [
        ("gating", {"control": "switch"}),
        ("imbalance", {"objective": "mean", "variance": (1.0, 0.75)}),
        ("attention", {"tokens": 3, "alpha_F": 12.0}),
        ("attention", {"control": "token_mask", "masked_share": None}),
    ],
)
def test_what_the_scenario_takes_the_page_takes(scenario, given):
    read = {p.name: p for p in parameters(scenario)}
    values = {name: read[name].read(text) for name, text in typed(scenario, given).items()}
    made = arguments(scenario, {**defaults(scenario), **values})
    assert {name: made[name] for name in given} == given
    assert getattr(scenarios, scenario)(**made).horizon > 0


def test_what_may_be_left_to_the_scenario_may_be_left_empty():
    tokens = named("attention", "tokens")
    assert tokens.default is None
    assert tokens.read(" ") is None
    assert tokens.read("3") == 3
    with pytest.raises(SpecificationError, match="must be a whole number from 2 to 4, or empty, got 9"):
        tokens.read("9")


def test_entries_without_words_of_their_own_are_counted():
    def made_up(weights=(1.0, 2.0)):
        """Something."""

    assert [p.label for p in arguments_of(made_up, {}, (), {})] == ["Weights, first", "Weights, second"]


def test_a_count_must_be_whole():
    with pytest.raises(SpecificationError, match=r"K must be a whole number from 1 to 4, got 2\.5"):
        named("dropout", "K").read("2.5")
    assert named("dropout", "K").read(" 3 ") == 3


def test_choices_and_flags_know_their_words():
    start = named("denoising", "start")
    assert isinstance(start, Choice)
    with pytest.raises(SpecificationError, match="start must be one of fig3, figS, got fig9"):
        start.read("fig9")
    with pytest.raises(SpecificationError, match="joint must be true or false, got perhaps"):
        named("curriculum", "joint").read("perhaps")


@given(numbers)
def test_a_range_around_a_default_holds_it(default):
    low, high, step = around(default)
    assert low <= default <= high
    assert low < high
    assert 0 < step < high - low


@given(st.integers(0, 10**6))
def test_a_range_around_a_count_holds_it(default):
    low, high, step = around(default, whole=True)
    assert low <= default < high
    assert step == 1


def test_an_entry_without_ranges_works_through_the_signature():
    def made_up(
        strength: float = 0.4,
        parts: int = 3,
        matrix: object = None,
        kind: Literal["one", "two"] = "two",
        also: bool = True,
    ):
        """Something.

        Args:
            strength: how strong
                it is.
            parts: how many.
            matrix: of numbers.
            kind: of it.
            also: the rest.
        """

    strength, parts, kind, also, _ = arguments_of(made_up, {}, (), {"matrix": "a matrix"})
    assert (strength.label, strength.help) == ("Strength", "how strong it is.")
    assert (strength.low, strength.high, strength.step) == (0.1, 1.2, 0.02)
    assert (parts.whole, parts.low, parts.high) == (True, 1.0, 6.0)
    assert (kind.known, also.default) == (("one", "two"), True)
