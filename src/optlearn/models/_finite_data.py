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
"""

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings
from optlearn._dynamics.system import System
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.spectrum import marchenko_pastur_nodes, marchenko_pastur_tail

if TYPE_CHECKING:
    from optlearn.models._own_data import OwnData

SETTINGS = MappingProxyType(
    {"learning_rate": 0.5, "weight_decay": 0.0, "batch": 1.0, "input_noise": 0.0, "label_noise": 0.0}
)
# Errors of the test error are about the square of this, times up to a hundred.
UNRESOLVED = 1e-4


class Modes(System):
    """What all linear students on fixed samples share; a subclass knows three errors of its state.

    The state holds ``response`` h and ``variance`` ν, each (J,). Weights start at random (variance Q) or at
    zero, without knowledge of the task.

    Attributes:
        eigenvalues: (J,) s of the samples' covariance XᵀX/n, whose mean is about 1.
    """

    eigenvalues: Float[Array, " J"]

    limits = MappingProxyType({"learning_rate": (0.0, np.inf), "batch": (1.0, np.inf)})

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
        kappa: κ = n/N, samples for each weight.
        noise: σ², variance of the noise in the labels of the samples.
        T: squared norm of the teacher over N.
        nodes: how many Gauss nodes of the spectrum; errors fall exponentially, and 4√(s_max ∫η dα) + 4 give
            1e-11. Training that goes on for longer than the nodes can describe is an error. Or a pair:
            eigenvalues and their shares.
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
            self.eigenvalues, self.shares = _given_nodes(check, nodes)
            self.tail = np.zeros((0, len(self.shares)))
        else:
            law = float(self.kappa), check.count("nodes", nodes, 4)
            self.eigenvalues, self.shares = marchenko_pastur_nodes(*law)
            self.tail = marchenko_pastur_tail(*law)

    @staticmethod
    def from_data(X: Array, y: Array, X_test: Array, y_test: Array, **options: Any) -> "OwnData":
        """The same student on data of your own, such as the features of a network; see ``OwnData``."""
        from optlearn.models._own_data import own_data

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
        """The test error of the best estimator from these samples, a floor of every schedule."""
        ridge = self.noise / self.kappa
        return float(np.sum(self.shares * self.T * ridge / (self.eigenvalues * self.T + ridge)))

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Train and test error, their gap, Q, and the overlap ``M`` with the teacher."""
        return {**super().observables(x, u), "M": self.alignment(x)}

    def check(self, x: Array) -> str | None:
        """Variances are not negative; the response has no details between the nodes of the spectrum."""
        lowest, response = np.min(x["variance"]), np.asarray(x["response"])
        if lowest < -1e-9:
            return f"variance = {lowest:.3g}; a variance cannot be negative"
        details = np.max(np.abs(self.tail @ response), initial=0.0)
        if details > UNRESOLVED * np.sqrt(np.sum(self.shares * response**2)):
            count = len(self.eigenvalues)
            return f"response is finer than {count} nodes of the spectrum describe; give more nodes"
        return None

    run_advice = ""


@checked
class LargeBatch(System):
    """``FiniteData`` with batches of βN samples: steps of finite size, w ← w − ε ∇(batch error)/2.

    Time counts steps, so horizons and the ends of intervals are whole numbers. ``learning_rate`` is the step
    size ε, stable below 2/s_max for the full batch; ``batch`` is β = B/N.

    Args:
        data: the samples.
        distinct: whether the samples of a batch are all different; with β = κ that is gradient descent on all
            of them, without noise. Else they are drawn with replacement.
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

    @property
    def longest(self) -> float:
        """One step."""
        return 1.0

    def start(self, Q: float = 0.0) -> dict[str, np.ndarray]:
        """Weights of squared norm NQ at random, or zero: the state before the first step."""
        return self.data.start(Q)

    def advance(self, x: Array, u: Settings, length: Array) -> Array:
        """The state after one step, or where it is if ``length`` is shorter than that."""
        epsilon, beta, s = u["learning_rate"], u["batch"], self.data.eigenvalues
        keep = 1 - epsilon * (s + u["weight_decay"])
        spared = 1 - beta / self.data.kappa if self.distinct else 1.0
        fed = epsilon**2 / beta * spared * self.data.train_error(x)
        moved = {"response": keep * x["response"] + epsilon, "variance": keep**2 * x["variance"] + fed * s}
        # A map has nothing between its steps; ends of intervals carry round-off.
        arrived = length > 1 - 1e-9
        return {name: jnp.where(arrived, moved[name], x[name]) for name in moved}

    def error(self, x: Array, u: Settings) -> Array:
        """The test error."""
        return self.data.error(x, u)

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Those of the data."""
        return self.data.observables(x, u)

    def check_specification(self, x: Array, u: Settings) -> None:
        """Raise for batches that cannot be drawn."""
        most = float(self.data.kappa) if self.distinct else np.inf
        Arguments("LargeBatch").number("batch", float(u["batch"]), 0.0, most, open_below=True)
        super().check_specification(x, u)


def _given_nodes(check: Arguments, nodes: tuple[Array, Array]) -> tuple[np.ndarray, np.ndarray]:
    values, shares = (np.asarray(part, dtype=float) for part in nodes)
    fits = values.ndim == 1 and len(values) and shares.shape == values.shape
    if not (fits and np.all(values >= 0) and np.all(shares >= 0) and abs(shares.sum() - 1) < 1e-9):
        check.fail("nodes", nodes, "must be eigenvalues of at least 0, and as many shares that sum to 1")
    return values, shares
