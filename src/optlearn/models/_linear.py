"""Least squares by SGD on inputs with a spectrum: in the eigenbasis of the covariance, all is linear.

With the distance s_b = Q_b − 2M_b + T_b to the teacher in block b, the excess risk R = Σ_b c_b s_b, γ = η/N
and batches of B fresh Gaussian samples, the mean over runs obeys, exactly and at any N,

    s' = s − 2γ c s + γ² [c² s (1 + 1/B) + Nρ c (R + σ²)/B]                     (the recursion, one step)
    ds/dα = −2η c s + (η²/B) ρ c (R + σ²)                                       (its limit for ηλ₁/tr → 0).

For power laws the limit is wrong at any N, since λ₁/tr does not vanish: its optimum may diverge in reality.
Both are affine in s, so any stretch under constant settings is a power, or exponential, of a small matrix.
"""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings, float64
from optlearn._dynamics.system import System, as_floats
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.spectrum import NARROW, Spectrum
from optlearn.models._committee import Committee, committee

# Repeated squaring takes 2 to this power steps of the recursion at once.
DOUBLINGS = 20
# Number of blocks up to which this is faster than single steps.
MOST_SQUARED = 64
# Terms of the exponential's series, for matrices of norm up to a half.
TERMS = 14


class Linear(System):
    """Linear student and teacher, square loss, one pass over fresh data. Built by ``linear``.

    The state is ``excess``, s_b (B,). The error is R/2, as for a committee. Parameters (settings):
    ``learning_rate`` η, ``batch`` B and ``noise`` σ².

    Attributes:
        spectrum: of the inputs.
        teacher: (B,) T_b.
        noise_shape: (B,) mean of x²z² in each block over c_b, for input-dependent label noise z; ones for
            independent noise.
        N: input dimension.
        clock: steps per unit of training time.
        recursion: whether the state follows the recursion or its limit.
    """

    spectrum: Spectrum
    teacher: Float[Array, " B"]
    noise_shape: Float[Array, " B"]
    N: Float[Array, ""]
    clock: Float[Array, ""]
    parameters: dict[str, Array] = field(converter=as_floats)
    recursion: bool = field(static=True)
    halvings: int = field(static=True)

    limits = MappingProxyType(
        {"learning_rate": (0.0, np.inf), "batch": (1.0, np.inf), "noise": (0.0, np.inf)}
    )

    @property
    def names(self) -> dict[str, int]:
        """``excess``, one number for each block."""
        return {"excess": self.spectrum.blocks}

    def start(self, share: float = 1.0) -> dict[str, np.ndarray]:
        """Weights at zero: the whole teacher (or a ``share`` of it) is still to be learned."""
        return {"excess": share * np.asarray(self.teacher)}

    @property
    def longest(self) -> float:
        """A unit of training time for the limit; for the recursion, the steps that squaring takes."""
        return 2.0**DOUBLINGS / float(self.clock) if self.recursion else 1.0

    @property
    def step_length(self) -> float:
        """Training time of one step of the recursion; 0 for the limit, which is continuous."""
        return 1.0 / float(self.clock) if self.recursion else 0.0

    def drift(self, x: Array, u: Settings) -> Array:
        """The drift of the limit."""
        change = self._flow(u)
        return {"excess": change[:-1, :-1] @ x["excess"] + change[:-1, -1]}

    @float64
    def advance(self, x: Array, u: Settings, length: Array) -> Array:
        """The state after ``length``; a final fraction of a step changes it by that fraction."""
        state = jnp.append(jnp.asarray(x["excess"]), 1.0)
        if not self.recursion:
            # exp(A) − 1, by its series at A/2^k: squaring 1 + E is E → 2E + E², which keeps small numbers.
            scaled = self._flow(u) * (length / 2.0**self.halvings)
            terms = np.arange(float(TERMS), 1, -1)
            grown, _ = jax.lax.scan(lambda e, term: (scaled + scaled @ e / term, None), scaled, terms)
            grown, _ = jax.lax.scan(lambda e, _: (2 * e + e @ e, None), grown, None, length=self.halvings)
            return {"excess": (state + grown @ state)[:-1]}
        change, steps = self._step(u), length * self.clock
        # Lengths come from sums of intervals: round-off must not lose a step.
        whole = jnp.floor(steps + 1e-6)
        remainder = jnp.maximum(steps - whole, 0.0)
        state = self._after(change, state, whole)
        return {"excess": (state + remainder * (change @ state))[:-1]}

    def _after(self, change: Array, state: Array, steps: Array) -> Array:
        """The state after a whole number of steps ``1 + change``."""
        if self.spectrum.blocks > MOST_SQUARED:
            count = steps.astype(jnp.int64)
            return jax.lax.fori_loop(0, count, lambda _, now: now + change @ now, state)

        def doubled(carry: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
            power, now, left = carry
            half = jnp.floor(left / 2)
            now = now + (left - 2 * half) * (power @ now)
            # Unused powers might overflow.
            power = jnp.where(half > 0, 1.0, 0.0) * power
            return (2 * power + power @ power, now, half), None

        (_, state, _), _ = jax.lax.scan(doubled, (change, state, steps), None, length=DOUBLINGS + 1)
        return state

    def error(self, x: Array, u: Settings) -> Array:
        """R/2, half the excess risk."""
        return jnp.asarray(self.spectrum.variance) @ x["excess"] / 2

    def check(self, x: Array) -> str | None:
        """Raise if a square is negative."""
        lowest = np.min(x["excess"])
        return f"excess = {lowest:.3g}; a square cannot be negative" if lowest < -1e-9 else None

    @property
    def network(self) -> Committee:
        """The same student and teacher with order parameters Q, M, for simulations."""
        if self.spectrum.reduced or np.any(np.asarray(self.noise_shape) != 1):
            raise SpecificationError(
                "a reduced spectrum, or input-dependent label noise, represents data: train on the data, by "
                "ol.fit.regression(X, y).train(schedule)"
            )
        # SGD itself does not need a small ηλ₁/tr, so no warning is needed.
        spectrum = Spectrum(self.spectrum.variance, self.spectrum.share, largest=0.0)
        return committee(
            1,
            1,
            T=np.asarray(self.teacher)[:, None, None],
            activation="linear",
            sigma_n=float(np.sqrt(self.parameters["noise"])),
            eta=float(self.parameters["learning_rate"]),
            batch=float(self.parameters["batch"]),
            spectrum=spectrum,
        )

    def stationary_risk(self, **settings: Array) -> float:
        """The final R of training at constant settings; infinite if it diverges."""
        u = self.settings(settings)
        c, share = np.asarray(self.spectrum.variance), np.asarray(self.spectrum.share)
        eta, batch, noise = (float(u[name]) for name in ("learning_rate", "batch", "noise"))
        gamma = eta / float(self.N) if self.recursion else 0.0
        moved = 2 * batch - gamma * c * (batch + 1)
        if np.any(moved <= 0):
            return np.inf
        # The risk feeds back on itself through noise; with a gain of 1 or more it never settles.
        S = float(np.sum(eta * share * c / moved))
        return noise * S / (1 - S) if S < 1 else np.inf

    def _flow(self, u: Settings) -> Array:
        """(B + 1, B + 1) matrix of the limit, on (s, 1)."""
        eta, c = u["learning_rate"], jnp.asarray(self.spectrum.variance)
        fed = eta**2 / u["batch"] * self.spectrum.share * c
        return _affine(-2 * eta * c, fed, c, fed * u["noise"] * self.noise_shape)

    def _step(self, u: Settings) -> Array:
        """(B + 1, B + 1) change in one step of the recursion, on (s, 1)."""
        gamma, c = u["learning_rate"] / self.N, jnp.asarray(self.spectrum.variance)
        fed = gamma**2 / u["batch"] * self.N * self.spectrum.share * c
        kept = -2 * gamma * c + gamma**2 * c**2 * (1 + 1 / u["batch"])
        return _affine(kept, fed, c, fed * u["noise"] * self.noise_shape)


def _affine(diagonal: Array, fed: Array, weights: Array, constant: Array) -> Array:
    """[[diag + fed weightsᵀ, constant], [0, 0]]."""
    size = diagonal.shape[0]
    square = diagonal[:, None] * np.eye(size) + fed[:, None] * weights[None, :]
    top = jnp.concatenate([square, constant[:, None]], axis=1)
    return jnp.concatenate([top, jnp.zeros((1, size + 1))])


@checked
def linear(
    spectrum: Spectrum,
    teacher: Array = 1.0,
    noise: float = 0.0,
    N: int = 1000,
    eta: float = 0.5,
    batch: float = 1.0,
    recursion: bool | None = None,
    noise_shape: Array = 1.0,
    clock: float | None = None,
) -> Linear:
    """Least squares on inputs with a spectrum.

    Args:
        spectrum: of the inputs.
        teacher: (B,) T_b, squared norm of the teacher over N in each block; a number for a teacher in a
            random direction.
        noise: σ², variance of the noise in the labels.
        N: input dimension; a block holds a share of that many directions.
        eta: learning rate η.
        batch: fresh samples in each step.
        recursion: True: the exact mean in discrete time; False: the limit of small steps; None: the recursion
            if η λ₁/tr is above 0.1 or unknown.
        noise_shape: (B,) for input-dependent label noise; see ``Linear``.
        clock: steps per unit of training time; None: N.
    """
    check = Arguments("linear")
    blocks = check.blocks(spectrum)
    if blocks is None or spectrum.variance.ndim != 1:
        check.fail("spectrum", spectrum, "must be a Spectrum of one row of variances")
    norms = check.numbers("teacher", teacher, (blocks,), lowest=0.0)
    if np.ndim(teacher) == 0:
        norms = norms * np.asarray(spectrum.share)
    size = check.count("N", N)
    if not spectrum.reduced and blocks > size:
        check.fail("N", N, f"fewer directions than the {blocks} blocks of the spectrum")
    settings = {
        "learning_rate": check.number("eta", eta, 0.0),
        "batch": check.number("batch", batch, 1.0),
        "noise": check.number("noise", noise, 0.0),
    }
    if recursion is None:
        recursion = spectrum.largest is None or eta * spectrum.largest > NARROW
    stiffest = 2 * float(np.max(spectrum.variance))
    return Linear(
        spectrum=spectrum,
        teacher=norms,
        noise_shape=check.numbers("noise_shape", noise_shape, (blocks,), lowest=0.0),
        N=np.asarray(float(size)),
        clock=np.asarray(
            float(size) if clock is None else check.number("clock", clock, 0.0, open_below=True)
        ),
        parameters=settings,
        recursion=check.flag("recursion", recursion),
        # Rates up to 4 keep the norm of A/2^k below a half.
        halvings=max(1, int(np.ceil(np.log2(8 * stiffest)))),
    )
