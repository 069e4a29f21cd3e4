"""A linear student that passes many times over the same n = κN samples: memorisation and generalisation.

In the eigenbasis of the samples' covariance the mean weights answer the data mode by mode, w_j = q_j h_j with
q the projected labels, and SGD noise adds a variance ν_j around them. All modes of the eigenvalue s behave
alike:

    dh/dα = −η[(s + λ + Δ)h − 1]
    dν/dα = −2η(s + λ + Δ)ν + (η²/B)(s + Δ)(E_train + ΔQ + ς²)

with learning rate η, weight decay λ, batch B, fresh noise of variance Δ on inputs and ς² on labels. One
number, the training error, couples them. Samples are drawn with replacement. The eigenvalues are the Gauss
nodes of the law of Marchenko and Pastur (``FiniteData``) or those of given data (``FiniteData.from_data``).
With batches that are a share of the input dimension training is a map, not a flow (``LargeBatch``).

Given data (``OwnData``) are advanced exactly, mode by mode. Their spectra are stiff, and there may be
thousands of modes. Two facts make them cheap. Modes of the same eigenvalue behave alike, and behave smoothly
in it: a few dozen eigenvalues stand for all, by interpolation. And between two changes of the controls every
mode relaxes exponentially towards what one common number, the training error, feeds it: that number alone is
found by collocation, the rest is exact (docs/decisions/016-exponential-collocation.md).
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from math import factorial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Float, Settings, float64
from optlearn._dynamics.system import System
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.spectrum import marchenko_pastur_nodes, marchenko_pastur_tail

SETTINGS = MappingProxyType(
    {"learning_rate": 0.5, "weight_decay": 0.0, "batch": 1.0, "input_noise": 0.0, "label_noise": 0.0}
)
# The relative error of the test error is about the square of this, times up to a hundred.
UNRESOLVED = 1e-4
# Eigenvalues far below this, in units of their mean, behave alike: they are learned only after dozens of
# passes.
SMALL = 0.03
# Collocation points in a panel, and panels in an advance, each twice as long as the previous one.
POINTS, PANELS = 6, 5
# Terms of the series that starts the recurrence of ``exponential_moments`` below 1.
TERMS = 16


class Modes(System):
    """Base of linear students on fixed samples; a subclass defines three mean squares of its state.

    The state holds ``response`` h and ``variance`` ν, each (J,). Weights start at random (variance Q) or at
    zero, uncorrelated with the task.

    Attributes:
        eigenvalues: (J,) s of the samples' covariance XᵀX/n, whose mean is about 1.
    """

    eigenvalues: Float[Array, " J"]

    limits = MappingProxyType({**dict.fromkeys(SETTINGS, (0.0, np.inf)), "batch": (1.0, np.inf)})

    @property
    def names(self) -> dict[str, int]:
        """``response`` and ``variance``, one entry a mode."""
        return dict.fromkeys(("response", "variance"), len(self.eigenvalues))

    @property
    def parameters(self) -> Any:
        """Learning rate η, weight decay λ, batch B, variances of fresh input noise and label noise."""
        return SETTINGS

    @checked
    def start(self, Q: float = 0.0) -> dict[str, np.ndarray]:
        """Weights of squared norm NQ at random, or zero: the state at α = 0."""
        zero = np.zeros(len(self.eigenvalues))
        return {"response": zero, "variance": zero + Arguments("start").number("Q", Q, 0.0)}

    def drift(self, x: Array, u: Settings) -> Array:
        """The equations above."""
        eta, extra, s = u["learning_rate"], u["input_noise"], self.eigenvalues
        decay = s + (u["weight_decay"] + extra)
        residual = self.train_error(x) + extra * self.norm(x) + u["label_noise"]
        return {
            "response": -eta * (decay * x["response"] - 1),
            "variance": -2 * eta * decay * x["variance"] + eta**2 / u["batch"] * residual * (s + extra),
        }

    @abstractmethod
    def train_error(self, x: Array) -> Float[Array, ""]:
        """Mean squared error on the samples."""

    @abstractmethod
    def test_error(self, x: Array) -> Float[Array, ""]:
        """Mean squared error on fresh samples."""

    @abstractmethod
    def norm(self, x: Array) -> Float[Array, ""]:
        """Q, squared norm of the weights over N."""

    def error(self, x: Array, u: Settings) -> Array:
        """The test error."""
        return self.test_error(x)

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """``train_error``, ``test_error``, their ``gap``, and the squared norm ``Q``."""
        train, test = self.train_error(x), self.test_error(x)
        return {"train_error": train, "test_error": test, "gap": test - train, "Q": self.norm(x)}


class FiniteData(Modes):
    """Teacher-student regression on n = κN Gaussian samples, in the limit of large N.

    Labels are y = w*·x/√N + σz, with ‖w*‖² = TN. The test error is measured against labels without noise.

    Args:
        kappa: κ = n/N, samples per weight.
        noise: σ², variance of the noise in the labels of the samples.
        T: squared norm of the teacher over N.
        nodes: number of Gauss nodes of the spectrum; errors fall exponentially, and 4√(s_max ∫η dα) + 4 nodes
            give 1e-11. Training longer than the nodes can describe is an error. Or a pair: eigenvalues and
            their shares.
    """

    shares: Float[Array, " J"]
    # Takes values at the nodes to their last coefficients in polynomials.
    tail: Float[Array, "coefficients J"]
    kappa: Float[Array, ""]
    noise: Float[Array, ""]
    T: Float[Array, ""]

    @checked
    def __init__(
        self, kappa: float = 1.0, noise: float = 0.25, T: float = 1.0, nodes: int | tuple[Array, Array] = 32
    ) -> None:
        check = Arguments("FiniteData")
        self.kappa = np.asarray(check.number("kappa", kappa, 0.0, open_below=True))
        self.noise = np.asarray(check.number("noise", noise, 0.0))
        self.T = np.asarray(check.number("T", T, 0.0, open_below=True))
        if isinstance(nodes, tuple):
            if len(nodes) != 2:
                check.fail("nodes", nodes, "must be a pair: eigenvalues, and their shares")
            self.eigenvalues = check.numbers("nodes[0]", nodes[0], lowest=0.0)
            self.shares = check.numbers("nodes[1]", nodes[1], self.eigenvalues.shape, lowest=0.0)
            if abs(self.shares.sum() - 1) > 1e-9:
                check.fail("nodes[1]", nodes[1], "must be shares that sum to 1")
            self.tail = np.zeros((0, len(self.shares)))
        else:
            law = float(self.kappa), check.count("nodes", nodes, 4)
            self.eigenvalues, self.shares = marchenko_pastur_nodes(*law)
            self.tail = marchenko_pastur_tail(*law)

    @staticmethod
    def from_data(X: Array, y: Array, X_test: Array, y_test: Array, **options: Any) -> "OwnData":
        """The same student on your own data, such as the features of a network; see ``OwnData``."""
        return own_data(X, y, X_test, y_test, **options)

    @property
    def label_power(self) -> Float[Array, " J"]:
        """(J,) D, mean square of the projected labels q."""
        return self.eigenvalues * (self.eigenvalues * self.T + self.noise / self.kappa)

    def train_error(self, x: Array) -> Float[Array, ""]:
        """Mean squared error on the samples."""
        s, h = self.eigenvalues, x["response"]
        learned = self.label_power * (s * h - 2) * h + s * x["variance"]
        return jnp.sum(self.shares * learned) + self.T + self.noise

    def test_error(self, x: Array) -> Float[Array, ""]:
        """Mean squared distance from labels without noise, Q − 2M + T."""
        return self.norm(x) - 2 * self.alignment(x) + self.T

    def norm(self, x: Array) -> Float[Array, ""]:
        """Q, squared norm of the weights over N."""
        return jnp.sum(self.shares * (self.label_power * x["response"] ** 2 + x["variance"]))

    def alignment(self, x: Array) -> Float[Array, ""]:
        """M, overlap of the weights with the teacher."""
        return self.T * jnp.sum(self.shares * self.eigenvalues * x["response"])

    @property
    def bayes_error(self) -> float:
        """The test error of the best estimator from these samples: a lower bound for every schedule."""
        ridge = self.noise / self.kappa
        return float(np.sum(self.shares * self.T * ridge / (self.eigenvalues * self.T + ridge)))

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Train and test error, their gap, Q, and the overlap ``M`` with the teacher."""
        return {**super().observables(x, u), "M": self.alignment(x)}

    def check(self, x: Array) -> str | None:
        """Raise if variances are negative, or the response has details between the nodes of the spectrum."""
        lowest, response = np.min(x["variance"]), np.asarray(x["response"])
        if lowest < -1e-9:
            return f"variance = {lowest:.3g}; a variance cannot be negative"
        details = np.max(np.abs(self.tail @ response), initial=0.0)
        if details > UNRESOLVED * np.sqrt(np.sum(self.shares * response**2)):
            count = len(self.eigenvalues)
            return f"response varies more than {count} nodes of the spectrum can describe; use more nodes"
        return None

    run_advice = ""


@checked
class LargeBatch(System):
    """``FiniteData`` with batches of βN samples: steps of finite size, w ← w − ε ∇(batch error)/2.

    Time counts steps, so horizons and the ends of intervals are whole numbers. ``learning_rate`` is the step
    size ε, stable below 2/s_max for the full batch; ``batch`` is β = B/N.

    Args:
        data: the samples.
        distinct: whether the samples of a batch are all different; with β = κ this is gradient descent on all
            of them, without noise. Otherwise they are drawn with replacement.
    """

    data: FiniteData
    distinct: bool = field(static=True, default=False)

    @property
    def names(self) -> dict[str, int]:
        """``response`` and ``variance``, one entry a mode."""
        return self.data.names

    @property
    def parameters(self) -> Mapping[str, float]:
        """Step size ε, weight decay λ and batch β = B/N."""
        return {"learning_rate": 0.3, "weight_decay": 0.0, "batch": 0.5}

    limits = MappingProxyType(dict.fromkeys(("learning_rate", "weight_decay", "batch"), (0.0, np.inf)))

    @property
    def longest(self) -> float:
        """One step."""
        return 1.0

    def start(self, Q: float = 0.0) -> dict[str, np.ndarray]:
        """Weights of squared norm NQ at random, or zero: the state before the first step."""
        return self.data.start(Q)

    def advance(self, x: Array, u: Settings, length: Array) -> Array:
        """The state after one step, or unchanged if ``length`` is shorter than a step."""
        epsilon, beta, s = u["learning_rate"], u["batch"], self.data.eigenvalues
        keep = 1 - epsilon * (s + u["weight_decay"])
        spared = 1 - beta / self.data.kappa if self.distinct else 1.0
        fed = epsilon**2 / beta * spared * self.data.train_error(x)
        moved = {"response": keep * x["response"] + epsilon, "variance": keep**2 * x["variance"] + fed * s}
        # A map has no states between its steps; ends of intervals carry round-off.
        arrived = length > 1 - 1e-9
        return {name: jnp.where(arrived, moved[name], x[name]) for name in moved}

    def error(self, x: Array, u: Settings) -> Array:
        """The test error."""
        return self.data.error(x, u)

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Observables of the data."""
        return self.data.observables(x, u)

    def check_specification(self, x: Array, u: Settings) -> None:
        """Raise for batches that cannot be drawn."""
        most = float(self.data.kappa) if self.distinct else np.inf
        Arguments("LargeBatch").number("batch", float(u["batch"]), 0.0, most, open_below=True)
        super().check_specification(x, u)


# --- given data ---------------------------------------------------------------------------------------


class Quadratic(NamedTuple):
    """A mean square as a function of the state: constant + hᵀAh − 2a·h + b·ν."""

    constant: Float[Array, ""]
    A: Float[Array, "J J"]
    a: Float[Array, " J"]
    b: Float[Array, " J"]

    def of_response(self, h: Array) -> Array:
        """The part without variances, for responses (…, J)."""
        return self.constant + jnp.sum((h @ self.A) * h, axis=-1) - 2 * h @ self.a

    def __call__(self, x: Array) -> Array:
        """Its value in the state ``x``."""
        return self.of_response(x["response"]) + jnp.sum(self.b * x["variance"])


class OwnData(Modes):
    """A linear or ridge student on given data. Built by ``FiniteData.from_data``.

    Inputs are divided by their root mean square, so that the mean eigenvalue is 1 and a learning rate below
    twice the batch is stable. In the units of your own training loop (loss ½(f − y)², original inputs) the
    learning rate is η / ``input_power``, and the weight decay λ · ``input_power`` / N.

    Attributes:
        train, test, squared_norm: the three mean squares.
        input_power: mean of ‖x‖² over the original samples.
        N: input dimension.
        n: number of samples.
    """

    train: Quadratic
    test: Quadratic
    squared_norm: Quadratic
    input_power: float = field(static=True)
    N: int = field(static=True)
    n: int = field(static=True)

    def train_error(self, x: Array) -> Array:
        """Mean squared error on the samples."""
        return self.train(x)

    def test_error(self, x: Array) -> Array:
        """Mean squared error on the test samples, label noise included."""
        return self.test(x)

    def norm(self, x: Array) -> Array:
        """Q, squared norm of the weights over N, for inputs of mean square 1."""
        return self.squared_norm(x)

    @property
    def longest(self) -> float:
        """Training time in which the stiffest mode, at η = 1, is still resolved."""
        return 2.0 ** (PANELS - 1) / float(np.max(self.eigenvalues))

    @float64
    def advance(self, x: Array, u: Settings, length: Array) -> Array:
        """Advance panel by panel; the first ones are short because stiff modes move right after a change."""
        fractions = jnp.asarray(np.diff(np.append(0.0, 2.0 ** np.arange(1 - PANELS, 1))))
        end, _ = jax.lax.scan(lambda state, part: (self._panel(state, u, part * length), None), x, fractions)
        return end

    def _panel(self, x: Array, u: Settings, d: Array) -> Array:
        """Exponential collocation: the residual is a polynomial over the panel, everything else is exact."""
        eta, extra, s = u["learning_rate"], u["input_noise"], jnp.asarray(self.eigenvalues)
        ends, coefficients = collocation(POINTS)
        y = jnp.outer(ends, eta * d * (s + (u["weight_decay"] + extra)))  # (m + 1, J): points, and the end
        decay, first = jnp.exp(-y), exponential_moments(y, 1)[0]
        h = decay * x["response"][None] + eta * d * ends[:, None] * first
        kept = decay**2 * x["variance"][None]
        fed = eta**2 / u["batch"] * d * (s + extra)
        # (m + 1, m, J): response of each mode to a residual of 1 at a point, with its Lagrange polynomial.
        reach = jnp.einsum("ilk,kij,j->ilj", coefficients, exponential_moments(2 * y, POINTS), fed)
        weights = self.train.b + extra * self.squared_norm.b
        mean = self.train.of_response(h) + extra * self.squared_norm.of_response(h) + u["label_noise"]
        unfed = mean[:-1] + kept[:-1] @ weights
        residual = jnp.linalg.solve(jnp.eye(POINTS) - reach[:-1] @ weights, unfed)
        return {"response": h[-1], "variance": kept[-1] + residual @ reach[-1]}


def exponential_moments(z: Array, count: int) -> Array:
    """(count, …) ∫₀¹ exp(−z(1 − t)) tᵏ/k! dt for k = 0 … count − 1 and z ≥ 0."""
    small = z < 1
    # Below 1 the recurrence is stable downwards from a series, above 1 upwards.
    near, far = jnp.where(small, z, 0.5), jnp.where(small, 2.0, z)
    term = jnp.full(jnp.shape(z), 1 / factorial(count))
    last = term
    for i in range(1, TERMS):
        term = -term * near / (count + i)
        last = last + term
    down = [last]
    for k in range(count - 1, 0, -1):
        down.append(1 / factorial(k) - near * down[-1])
    up = [-jnp.expm1(-far) / far]
    for k in range(1, count):
        up.append((1 / factorial(k) - up[-1]) / far)
    return jnp.stack([jnp.where(small, a, b) for a, b in zip(reversed(down), up, strict=True)])


@cache
def collocation(points: int) -> tuple[Float[np.ndarray, " ends"], Float[np.ndarray, "ends points points"]]:
    """Gauss points on [0, 1] and the end (m + 1,), and coefficients c (m + 1, m, m) of integrals up to them.

    ∫₀ᵗ exp(−z(t − t')) ℓ_l(t') dt' = Σ_k c_{ilk} φ_k(zt) for the point t = t_i, Lagrange's polynomials ℓ_l on
    the points, and φ_k the ``exponential_moments``.
    """
    nodes = (np.polynomial.legendre.leggauss(points)[0] + 1) / 2
    ends = np.append(nodes, 1.0)
    powers = np.arange(points)
    lagrange = np.linalg.inv(nodes[:, None] ** powers).T  # (l, k)
    factorials = np.array([float(factorial(k)) for k in powers])
    return ends, ends[:, None, None] ** (powers + 1) * (lagrange * factorials)


@checked
def own_data(X: Array, y: Array, X_test: Array, y_test: Array, *, nodes: int | None = 40) -> OwnData:
    """A linear student on given data.

    Args:
        X: (n, N) inputs or features of the samples.
        y: (n,) their labels, any numbers.
        X_test: (n_test, N) held-out inputs.
        y_test: (n_test,) their labels.
        nodes: maximum number of eigenvalues, which then represent all; None: use all.
    """
    X, y, X_test, y_test = _checked(X, y, X_test, y_test)
    if nodes is not None:
        Arguments("from_data").count("nodes", nodes, 4)
    n, N = X.shape
    power = float(np.mean(np.sum(X**2, axis=1)))
    scale = np.sqrt(power / N)
    X, X_test = X / scale, X_test / scale
    s, basis = np.linalg.eigh(X.T @ X / n)
    # Eigenvalues of directions without data are round-off, and nothing is learned there.
    s = np.where(s < 1e-12 * s[-1], 0.0, s)
    projected = X_test @ basis
    q = np.where(s > 0, basis.T @ (X.T @ y) * np.sqrt(N) / n, 0.0)
    towards = projected.T @ y_test * np.sqrt(N) / len(y_test)
    H = projected.T @ projected / len(y_test)
    eigenvalues, spread = compress(s, nodes)

    def quadratic(constant: float, A: np.ndarray, a: np.ndarray, b: np.ndarray) -> Quadratic:
        """Converts a mean square in all modes to one in the nodes."""
        return Quadratic(np.asarray(constant), spread.T @ A @ spread / N, a @ spread / N, b @ spread / N)

    return OwnData(
        eigenvalues=eigenvalues,
        train=quadratic(float(np.mean(y**2)), np.diag(q**2 * s), q**2, s),
        test=quadratic(float(np.mean(y_test**2)), q[:, None] * H * q, q * towards, np.diag(H)),
        squared_norm=quadratic(0.0, np.diag(q**2), np.zeros(N), np.ones(N)),
        input_power=power,
        N=N,
        n=n,
    )


def compress(
    s: Float[np.ndarray, " N"], nodes: int | None
) -> tuple[Float[np.ndarray, " J"], Float[np.ndarray, "N J"]]:
    """(J,) eigenvalues that represent all (N,), and the interpolation (N, J) from them.

    Chebyshev points in log(s + SMALL): responses and variances are smooth there, at any training time.
    """
    if nodes is None or nodes >= len(s):
        return s, np.eye(len(s))
    place = np.log1p(s / SMALL)
    angles = (np.arange(nodes) + 0.5) * np.pi / nodes
    points = np.cos(angles)
    at = 2 * place / place.max() - 1
    # Barycentric interpolation; an eigenvalue that coincides with a point gets that point's value.
    weights = (-1.0) ** np.arange(nodes) * np.sin(angles)
    difference = at[:, None] - points
    exact = difference == 0
    table = weights / np.where(exact, 1.0, difference)
    table = np.where(exact.any(axis=1, keepdims=True), exact, table)
    return SMALL * np.expm1((points + 1) / 2 * place.max()), table / table.sum(axis=1, keepdims=True)


def _checked(X: Any, y: Any, X_test: Any, y_test: Any) -> list[np.ndarray]:
    check = Arguments("from_data")
    arrays = []
    for names, pair in ((("X", "y"), (X, y)), (("X_test", "y_test"), (X_test, y_test))):
        numbers = [as_numbers(part) for part in pair]
        for name, part, value in zip(names, numbers, pair, strict=True):
            if part is None:
                check.fail(name, value, "must be numbers")
        inputs, labels = (np.asarray(part) for part in numbers)
        lowest = 2 if names[0] == "X" else 1
        if inputs.ndim != 2 or inputs.shape[0] < lowest or inputs.shape[1] < 1:
            check.fail(names[0], inputs, f"must be a table of at least {lowest} samples (rows) by features")
        if labels.shape != inputs.shape[:1]:
            check.fail(names[1], labels, f"must be {len(inputs)} labels, one for each row of {names[0]}")
        for name, array in zip(names, (inputs, labels), strict=True):
            if not np.all(np.isfinite(array)):
                check.fail(name, array, "must be finite")
        arrays += [inputs, labels]
    if arrays[0].shape[1] != arrays[2].shape[1]:
        check.fail("X_test", arrays[2], f"must have the {arrays[0].shape[1]} features of X")
    if not np.any(np.ptp(arrays[0], axis=0) > 0):
        check.fail("X", arrays[0], "must have a feature that is not constant")
    return arrays
