"""Attention: its sharpness, context length and number of heads over the course of training."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._control.families import BestOfLinear
from optlearn.scenarios._baselines import Baselines, at, mean_of, phases
from optlearn.scenarios._catalogue import Example, scenario

if TYPE_CHECKING:
    from optlearn.models._attention import Masked

What = Literal["temperature", "token_mask", "head_mask"]


@dataclass(frozen=True)
class _Kind:
    """What a control hides, and the smallest model in which it has an effect."""

    masked: "Masked"
    tokens: int = 2
    heads: int = 1
    alpha_F: float = 10.0
    eta: float = 1.0


_KINDS = {
    "temperature": _Kind("nothing"),
    "token_mask": _Kind("tokens", tokens=3),
    # The mean over two heads has smaller gradients and learns four times more slowly.
    "head_mask": _Kind("heads", heads=2, alpha_F=30.0, eta=4.0),
}


@scenario(
    citations=("cui2024high", "cui2024phase"),
    variants=({"control": "token_mask"}, {"control": "head_mask"}),
    # Its direct runs take minutes; ``test_attention`` compares sweeps with one, and with a general minimiser.
    example=Example({"temperature": [3.0, 0.8]}, 3, {"alpha_F": 4.0}, methods=("indirect",)),
)
def attention(
    control: What = "temperature",
    tokens: Annotated[int | None, (2, 4, 1)] = None,
    heads: Annotated[int | None, (1, 3, 1)] = None,
    alpha_F: Annotated[float | None, (1, 60, 1)] = None,
    eta: Annotated[float | None, (0.1, 8, 0.1)] = None,
    T: Annotated[float, (0.5, 4, 0.1)] = 1.0,
    sigma: Annotated[float, (0.5, 2, 0.1)] = 1.0,
    start_norm: float = 0.3,
    start_overlap: Annotated[float, (0, 0.2, 0.01)] = 0.1,
    start_other: Annotated[float, (0, 0.1, 0.01)] = 0.05,
    max_temperature: Annotated[float, (2, 10, 0.5)] = 5.0,
    masked_share: Annotated[float | None, (0, 1, 0.05)] = 0.5,
    tied: bool = False,
    accuracy: Annotated[float, (0.001, 0.1, 0.001)] = 0.1,
    points: Annotated[int, (256, 16384, 256)] = 8192,
) -> "ol.Problem":
    """How a dot-product attention layer should look at its tokens while it learns from a teacher.

    One layer, head dimension 1, fixed readout (the mean over heads); the softmax runs over the tokens that
    are averaged. Controls: ``temperature``, the inverse temperature β ≥ 0 of the student's scores, which is 1
    in the teacher and at test time; or ``mask``, the share of samples, from 0 to 1, in which every output
    token sees two tokens only ("token_mask"), or in which the student has one head only ("head_mask").
    Masked samples cost less, so a share ``masked_share`` of training has to be masked.

    Args:
        control: "temperature", "token_mask" or "head_mask".
        tokens: L, tokens in a sample (default 2; 3 for "token_mask").
        heads: heads of student and teacher (default 1; 2 for "head_mask").
        alpha_F: horizon, training steps divided by input dimension (default 10; 30 for "head_mask").
        eta: learning rate η (default 1; 4 for "head_mask").
        T: squared norm of the teacher's queries and keys over N, all orthogonal.
        sigma: standard deviation of the inputs.
        start_norm: squared norm of the student's queries and keys at the start, all orthogonal.
        start_overlap: their overlap with the teacher's queries and keys of the same head.
        start_other: their overlap with those of other heads.
        max_temperature: upper bound of β.
        masked_share: mean of ``mask`` over training; None: free.
        tied: the key of a head is its query.
        accuracy: relative accuracy of the drift, beyond two tokens and one head; a warning says if the
            quadrature misses it. Its error falls like 1/√``points``.
        points: largest number of points of that quadrature.
    """
    check = Arguments("attention")
    kind = _KINDS[check.one_of("control", control, _KINDS)]
    explicit = {"tokens": tokens, "heads": heads, "alpha_F": alpha_F, "eta": eta}
    sizes = {**asdict(kind), **{name: value for name, value in explicit.items() if value is not None}}
    horizon = sizes.pop("alpha_F")
    model = ol.models.attention(T=check.number("T", T, 0.0, open_below=True), sigma=sigma, tied=tied, **sizes)
    norm = check.number("start_norm", start_norm, 0.0, open_below=True)
    most = np.sqrt(norm * T)
    overlap = check.number("start_overlap", start_overlap, -most, most)
    start = _start(model, norm, overlap, check.number("start_other", start_other))
    if control == "temperature":
        highest = check.number("max_temperature", max_temperature, 1.0, open_below=True)
        controls = {"temperature": ol.Continuous(0.0, highest, guess=1.0)}
    else:
        controls = {"mask": ol.Continuous(0.0, 1.0)}
    quadrature = ol.AutoQuadrature(
        check.number("accuracy", accuracy, 0.0, 0.1, open_below=True), check.count("points", points, 256)
    )
    budgets: tuple[ol.Budget, ...] = ()
    if masked_share is not None:
        share = check.number("masked_share", masked_share, 0.0, 1.0)
        budgets = () if control == "temperature" else (ol.Budget("mask", mean=share),)
    return ol.Problem(
        model=model,
        start=start,
        horizon=check.number("alpha_F", horizon, 0.0, open_below=True),
        controls=controls,
        budgets=budgets,
        intervals=30,
        baselines=_baselines(control, bool(budgets)),
        quadrature=None if model.reduced else quadrature,
        name="attention" if control == "temperature" else f"attention, {control}",
    )


def _start(model: "ol.models.Attention", norm: float, overlap: float, other: float) -> "ol.OrderParameters":
    """Orthogonal weights, each with an overlap with its own teacher and with those of other heads."""
    size = model.students
    kinds = 1 if model.tied else 2
    same_kind = np.arange(size)[:, None] % kinds == np.arange(size)[None, :] % kinds
    same_node = np.eye(size, dtype=bool)
    return model.state(Q=norm * np.eye(size), M=np.where(same_node, overlap, np.where(same_kind, other, 0.0)))


def _baselines(control: str, budgeted: bool) -> Baselines:
    if control == "temperature":
        return {
            "temperature of the teacher": at("temperature", 1.0),
            "best constant": BestOfLinear("temperature", lambda grid: np.ones((len(grid) - 1, 1))),
            "best line": BestOfLinear("temperature", _line_basis),
        }
    if budgeted:
        return {
            "masked first": lambda problem, intervals: _in_turn(problem, first=1.0),
            "masked last": lambda problem, intervals: _in_turn(problem, first=0.0),
            "at random": at("mask", lambda problem: mean_of(problem, "mask")),
        }
    best_line = BestOfLinear("mask", _line_basis)
    return {"mask off": at("mask", 0.0), "mask on": at("mask", 1.0), "best line": best_line}


def _in_turn(problem: "ol.Problem", first: float) -> "ol.Schedule":
    """All masked samples first (1), or last (0)."""
    share = mean_of(problem, "mask")
    length = (share if first else 1 - share) * problem.horizon
    return phases(problem.horizon, (length, {"mask": first}), (problem.horizon - length, {"mask": 1 - first}))


def _line_basis(grid: np.ndarray) -> np.ndarray:
    """(I, 2): straight lines from one value at the start to another at the horizon."""
    middles = (grid[1:] + grid[:-1]) / (2 * grid[-1])
    return np.stack([1 - middles, middles], axis=1)
