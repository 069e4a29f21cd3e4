"""Figures from small data: drawn from disk, claims that hold, and claims that can fail."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from optlearn._io.files import load_dataset, save_dataset
from optlearn.paper import fig1, fig2, fig3, figS_curriculum, figS_sims
from optlearn.paper.shared import Claim, crossing, load_claims, save_claims
from optlearn.plotting.style import save_figure

QUICK = (fig1, fig2)
every_figure = pytest.mark.parametrize(
    "module",
    [
        pytest.param(
            module, id=module.__name__.rpartition(".")[2], marks=[pytest.mark.slow] * (module not in QUICK)
        )
        for module in (fig1, fig2, fig3, figS_curriculum, figS_sims)
    ],
)


def by_id(module, data):
    found = module.claims(data)
    assert len({claim.id for claim in found}) == len(found)
    return {claim.id: claim for claim in found}


@every_figure
def test_figure_and_claims_from_saved_data(module, computed, tmp_path):
    data = load_dataset(save_dataset(computed(module), tmp_path / "data.nc"))
    before, figure = module.claims(computed(module)), module.plot(data)
    assert module.claims(data) == before
    assert isinstance(figure, Figure)
    letters = [axes.get_title(loc="left") for axes in figure.axes]
    assert letters[0] == "a)"
    for ending in ("png", "pdf"):
        save_figure(figure, tmp_path / f"f.{ending}")
        assert (tmp_path / f"f.{ending}").stat().st_size > 10_000
    save_claims(before, tmp_path / "claims.json")
    assert load_claims(tmp_path / "claims.json") == before


# What must hold on small data already; the rest depends on finer grids.
ROBUST = {
    fig1: {
        "non-monotone", "alignment", "irrelevant-norm", "anti-curriculum-at-high-regularisation",
        "joint-easy-to-hard", "warm-up", "annealing", "drop", "joint-gain", "mixing",
    },
    fig2: {"rescaling", "order", "correlation-lower", "cosine-slower", "no-dropout-first"},
    fig3: {"falls-then-rises", "higher-cosine", "faster-skip", "batch-grows", "batch-gain",
           "batch-non-monotone", "improvement"},
    figS_curriculum: {"joint-lowest-error"},
    figS_sims: {"curriculum-single-run", "dropout-single-run", "autoencoder-single-run"},
}  # fmt: skip


@every_figure
def test_claims_hold(module, computed):
    claims = by_id(module, computed(module))
    assert {name for name in ROBUST[module] if not claims[name].holds} == set()


@pytest.mark.slow
def test_simulations(computed):
    data = figS_sims.compute(seeds=9, dimensions=(400, 400, 400))
    assert set(data.variables) == set(computed(figS_sims).variables)
    assert [claim.id for claim in figS_sims.claims(data) if not claim.holds] == []
    assert isinstance(figS_sims.plot(data), Figure)


def scaled(name, factor, **where):
    """A change of the data: a variable, or a part of it, multiplied."""

    def change(data):
        index = {key: [value] for key, value in where.items()}
        data[name].loc[index] = data[name].loc[index] * factor
        return data

    return change


def replaced(name, values):
    def change(data):
        data[name].values[...] = values(data[name].values)
        return data

    return change


def falling(values):
    return np.sort(values, axis=-1)[..., ::-1]


def rising(values):
    return np.sort(values, axis=-1)


DOCTORED = [
    (fig1, "non-monotone", scaled("objective", 2.0, schedule="optimal")),
    (fig1, "non-monotone", scaled("hard_share", 0.0, schedule="optimal")),
    (fig1, "alignment", scaled("cosine", 2.0, schedule="curriculum")),
    (fig1, "irrelevant-norm", scaled("Q22", 9.0, schedule="curriculum")),
    (fig1, "anti-curriculum-at-high-regularisation", scaled("final_error", 1.01, strategy="anti-curriculum")),
    (fig1, "joint-easy-to-hard", replaced("joint_hard_share", falling)),
    (fig1, "warm-up", replaced("joint_rate", falling)),
    (fig1, "annealing", replaced("joint_rate", rising)),
    (fig1, "drop", replaced("joint_rate", np.ones_like)),
    (fig1, "joint-gain", scaled("joint_error", 1.5)),
    (fig1, "mixing", scaled("mixed_objective", 1.01)),
    (fig1, "certified", scaled("joint_converged", False)),
    (fig2, "rescaling", scaled("rescaling", 1.01)),
    (fig2, "order", scaled("error", 2.0, schedule="optimal")),
    (fig2, "correlation-lower", scaled("correlation", 3.0, schedule="constant")),
    (fig2, "cosine-slower", scaled("cosine", 2.0, schedule="constant")),
    (fig2, "no-dropout-first", scaled("activation", 0.9)),
    (fig2, "gradual-decrease", replaced("activation", rising)),
    (fig2, "less-active-with-noise", scaled("activation", 0.1, sigma_n=0.1)),
    (fig2, "onset-earlier", scaled("activation", 0.9, sigma_n=0.1)),
    (fig2, "decay-sharper", replaced("activation", lambda p: p[::-1].copy())),
    (fig2, "close-to-one-at-low-noise", scaled("activation", 0.5)),
    (fig3, "falls-then-rises", replaced("noise", falling)),
    (fig3, "more-noise-with-test-noise", replaced("noise", lambda noise: noise[::-1].copy())),
    (fig3, "improvement", scaled("improvement", 3.0)),
    (fig3, "higher-cosine", scaled("theta", 2.0, schedule="constant")),
    (fig3, "faster-skip", scaled("b", 0.1, schedule="optimal")),
    (fig3, "batch-grows", replaced("batch", falling)),
    (fig3, "batch-gain", scaled("batch_improvement", 2.0)),
    (fig3, "batch-non-monotone", replaced("inset_improvement", rising)),
    (figS_curriculum, "joint-lowest-error", scaled("error", 2.0, schedule="joint")),
    (figS_curriculum, "joint-both-goals", scaled("cosine", 0.5, schedule="joint")),
    (figS_sims, "curriculum-single-run", scaled("curriculum_Q11_theory", 1.5)),
    (figS_sims, "dropout-mean", scaled("dropout_error_theory", 1.5)),
    (figS_sims, "autoencoder-single-run", scaled("autoencoder_R11", 2.0)),
]


@pytest.mark.parametrize(
    ("module", "name", "change"),
    [
        pytest.param(
            *case, id=f"{case[0].__name__[15:]} {case[1]}", marks=[pytest.mark.slow] * (case[0] not in QUICK)
        )
        for case in DOCTORED
    ],
)
def test_claims_can_fail(module, name, change, computed):
    assert by_id(module, change(computed(module)))[name].holds is False


def test_every_claim_is_doctored_or_shared():
    """All claims of fig1-fig3 are seen to fail above; certificates share one function."""
    seen = {(module, name) for module, name, _ in DOCTORED}
    for module in (fig1, fig2, fig3):
        assert {(module, name) for name in ROBUST[module]} <= seen


def test_a_claim_holds_json_only():
    claim = Claim("a", "b", {0.25: np.float64("nan"), "n": np.arange(2)}, (np.float32(0.5),), np.bool_(True))
    assert claim.found == {"0.25": None, "n": [0, 1]}
    assert claim.expected == [0.5]
    assert claim.holds is True
    assert Claim.from_dict(claim.to_dict()) == claim


def test_crossing_interpolates():
    assert crossing(np.array([0.0, 1.0, 2.0]), [1.0, 0.8, 0.0], 0.9) == pytest.approx(0.5)
    assert np.isnan(crossing(np.array([0.0, 1.0]), [1.0, 1.0], 0.9))
