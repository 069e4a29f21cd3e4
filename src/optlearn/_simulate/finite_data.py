"""SGD in many passes over fixed samples, as described by the equations of ``FiniteData``."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Int, float64
from optlearn._dynamics.checks import check_problem
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._simulate.record import check_cost, check_finite, record_steps, run_info
from optlearn._trajectory import Trajectory
from optlearn.models._finite_data import FiniteData, OwnData

SAMPLINGS = ("replacement", "shuffle")
# Maximum number of entries in the samples of runs that are made together.
AT_ONCE = 20_000_000
Data = tuple[Array, Array, Array, Array]


class Samples(NamedTuple):
    """Training data of one run, and how its weights are evaluated."""

    X: Float[Array, "n N"]
    y: Float[Array, " n"]
    start: Float[Array, " N"]
    judge: Callable[[Float[Array, " N"]], dict[str, Float[Array, ""]]]


class StepSettings(NamedTuple):
    """Settings of every step (steps,), in order of time; ``used``: samples drawn before it."""

    rate: Float[Array, " steps"]
    decay: Float[Array, " steps"]
    batch: Int[Array, " steps"]
    input_noise: Float[Array, " steps"]
    label_noise: Float[Array, " steps"]
    used: Int[Array, " steps"]


@checked
@float64
def simulate_finite_data(
    model: FiniteData | OwnData | Any,
    schedule: Schedule,
    *,
    N: int | None = None,
    data: Data | None = None,
    seeds: int = 8,
    sampling: str = "replacement",
    seed: int = 0,
    start: Any = None,
    parameters: Mapping[str, Array] | None = None,
    record: int | Sequence[float] | np.ndarray = 101,
) -> Trajectory:
    """Train a linear student by SGD on samples that stay the same.

    With ``sampling="replacement"`` every step draws its samples from all of them; this is the process that
    the theory describes. With "shuffle" every pass takes each sample once, in a new random order, as training
    loops do. **That is a different process**: its noise partly cancels within a pass, so errors differ from
    the theory by an amount that does not vanish at large N. At small rates it is close to full gradient
    descent.

    Args:
        model: ``FiniteData``, data from ``FiniteData.from_data``, or a problem with one of these.
        schedule: controls; step μ has those at α = μ/N.
        N: input dimension, for ``FiniteData``: every seed draws its own teacher and round(κN) samples.
        data: (X, y, X_test, y_test) as passed to ``from_data``.
        seeds: number of independent runs.
        sampling: "replacement" or "shuffle".
        seed: seed of the random numbers.
        start: state at α = 0; by default ``model.start()``, or that of the problem.
        parameters: settings that differ from the model's own.
        record: number of times to record, or the training times α.

    Returns:
        A Trajectory with a seed axis: ``train_error``, ``test_error``, ``gap``, ``error`` (the test error)
        and ``Q``; for ``FiniteData`` also ``M``.
    """
    began = time.perf_counter()
    if not isinstance(model, FiniteData | OwnData) and hasattr(model, "model"):
        start = model.start if start is None else start
        parameters = {**model.parameters, **(parameters or {})}
        model = model.model
    _check(model, N, data, seeds, seed, sampling, schedule)
    start, settings = check_problem(model, model.start() if start is None else start, schedule, parameters)
    Q = _random_start(start)
    if isinstance(model, OwnData):
        N = model.N
        X, y, X_test, y_test = (jnp.asarray(np.asarray(part, dtype=float)) for part in data or ())
        draw = partial(_given_samples, X, y, X_test, y_test, np.sqrt(model.input_power / N), Q)
        count, held = model.n, 0
    else:
        assert N is not None
        count = max(2, round(float(model.kappa) * N))
        draw = partial(_drawn_samples, N, count, float(model.T), float(model.noise), Q)
        held = count * N
    stops = record_steps(record, schedule, N)
    total = int(stops[-1])
    kept = held + len(StepSettings._fields) * total
    check_cost("simulate_finite_data", N=N, steps=total, seeds=seeds, numbers_a_step=N, numbers_held=kept)
    steps, largest = _steps(schedule, settings, N, total, seed)
    passes = int(steps.used[-1] + largest) // count + 1 if len(steps.used) else 1
    shuffled = passes if sampling == "shuffle" else 0
    noisy = bool(np.any(steps.input_noise > 0)), bool(np.any(steps.label_noise > 0))
    run = partial(_train, draw, _Step(largest, count, shuffled, noisy), steps, jnp.asarray(stops))
    together = max(1, min(seeds, AT_ONCE // max(held, 1)))
    values = jax.jit(lambda keys: jax.lax.map(run, keys, batch_size=together))(
        jax.random.split(jax.random.key(seed), seeds)
    )
    values = {name: np.asarray(recorded) for name, recorded in values.items()}
    names = tuple(values)
    check_finite(np.stack([values[name][:, -1] for name in names], axis=-1), names, stops[-1] / N)
    values |= {"gap": values["test_error"] - values["train_error"], "error": values["test_error"]}
    info = run_info(began, mode="weights", sampling=sampling, N=N, seeds=seeds, seed=seed, stops=stops)
    return Trajectory(stops / N, values, names, info)


def _check(model: Any, N: Any, data: Any, seeds: int, seed: int, sampling: str, schedule: Schedule) -> None:
    if not isinstance(model, FiniteData | OwnData):
        raise SpecificationError(f"model must be FiniteData, got {type(model).__name__}")
    check = Arguments("simulate_finite_data")
    check.one_of("sampling", sampling, SAMPLINGS)
    check.count("seeds", seeds)
    check.count("seed", seed, 0)
    if schedule.mixtures:
        raise SpecificationError("schedule must not mix values within an interval on finite data")
    if data is not None and not isinstance(model, OwnData):
        check.fail("data", type(data).__name__, "must be left out, since FiniteData draws its own samples")
    if isinstance(model, OwnData):
        if data is None or len(data) != 4 or np.shape(data[0]) != (model.n, model.N):
            raise SpecificationError(
                "data must be the (X, y, X_test, y_test) that the model was made from, got "
                + ("None" if data is None else f"X of shape {np.shape(data[0])}")
            )
    else:
        check.count("N", N, 2)


def _random_start(start: Mapping[str, np.ndarray]) -> float:
    """Q of random weights; no other start can be drawn."""
    variance = np.asarray(start["variance"])
    if np.any(np.asarray(start["response"]) != 0) or np.ptp(variance) > 1e-12:
        raise SpecificationError("start must be model.start(Q=…): SGD begins at random weights or at zero")
    return float(variance[0])


def _steps(
    schedule: Schedule, settings: Mapping[str, Array], N: int, steps: int, seed: int
) -> tuple[StepSettings, int]:
    """Settings of every step, and the largest batch."""
    index = np.searchsorted(schedule.first_steps(N), np.arange(steps), side="right") - 1

    def by_step(name: str) -> np.ndarray:
        values = schedule[name] if name in schedule.controls else np.full(schedule.intervals, settings[name])
        return np.asarray(values, dtype=float)[index]

    batch = by_step("batch")
    if steps and batch.min() < 1:
        raise SpecificationError(f"batch must be at least 1, got {batch.min():g}")
    # A batch size between two whole numbers is realised by a random choice of these.
    whole = np.floor(batch + np.random.default_rng(seed).random(steps)).astype(np.int64)
    used = np.cumsum(whole) - whole
    names = ("learning_rate", "weight_decay", "input_noise", "label_noise")
    rate, decay, on_inputs, on_labels = map(by_step, names)
    return StepSettings(rate, decay, whole, on_inputs, on_labels, used), int(whole.max()) if steps else 1


def _drawn_samples(N: int, count: int, T: float, noise: float, Q: float, key: Array) -> Samples:
    keys = jax.random.split(key, 4)
    X = jax.random.normal(keys[0], (count, N))
    teacher = _vector(keys[1], N, T)
    y = X @ teacher / np.sqrt(N) + np.sqrt(noise) * jax.random.normal(keys[2], (count,))

    def judge(w: Array) -> dict[str, Array]:
        return {"M": w @ teacher / N, "test_error": jnp.sum((w - teacher) ** 2) / N}

    return Samples(X, y, _vector(keys[3], N, Q), judge)


def _given_samples(
    X: Array, y: Array, X_test: Array, y_test: Array, scale: float, Q: float, key: Array
) -> Samples:
    N = X.shape[1]

    def judge(w: Array) -> dict[str, Array]:
        return {"test_error": jnp.mean((X_test @ w / (scale * np.sqrt(N)) - y_test) ** 2)}

    return Samples(X / scale, y, _vector(key, N, Q), judge)


def _vector(key: Array, N: int, squared_norm: float) -> Array:
    """A vector in a random direction, with squared norm N times the given number."""
    g = jax.random.normal(key, (N,))
    return g * jnp.sqrt(squared_norm * N / jnp.sum(g**2))


def _train(
    draw: Callable[[Array], Samples], step: "_Step", steps: StepSettings, stops: Array, key: Array
) -> dict[str, Array]:
    """One run: the quantities recorded at every stop (T,)."""
    samples_key, order_key, noise_key = jax.random.split(key, 3)
    samples = draw(samples_key)
    N = samples.X.shape[1]
    orders = step.orders(order_key)

    def to_stop(carry: tuple[Array, Array], stop: Array) -> tuple[tuple[Array, Array], dict[str, Array]]:
        done, w = carry
        w = jax.lax.fori_loop(done, stop, lambda mu, w: step(samples, steps, orders, noise_key, mu, w), w)
        residuals = samples.X @ w / np.sqrt(N) - samples.y
        measured = {"Q": w @ w / N, **samples.judge(w), "train_error": jnp.mean(residuals**2)}
        return (stop, w), measured

    _, recorded = jax.lax.scan(to_stop, (jnp.zeros_like(stops[0]), samples.start), stops)
    return recorded


@dataclass(frozen=True)
class _Step:
    """One step of SGD."""

    largest: int  # batch
    count: int  # number of samples
    passes: int  # number of passes with an order of their own; 0: samples are drawn with replacement
    noisy: tuple[bool, bool]  # whether inputs, and labels, get fresh noise

    def orders(self, key: Array) -> Array:
        """(passes, n) order of the samples in each pass, if shuffled."""
        keys = jax.random.split(key, max(1, self.passes))
        return jax.vmap(lambda k: jax.random.permutation(k, self.count))(keys)

    def __call__(
        self, samples: Samples, steps: StepSettings, orders: Array, key: Array, mu: Array, w: Array
    ) -> Array:
        N = w.shape[0]
        setting = StepSettings(*(jnp.asarray(values)[mu] for values in steps))
        draws, inputs, labels = jax.random.split(jax.random.fold_in(key, mu), 3)
        place = jnp.arange(self.largest)
        if self.passes:
            taken = setting.used + place
            chosen = orders[taken // self.count, taken % self.count]
        else:
            chosen = jax.random.randint(draws, (self.largest,), 0, self.count)
        x, y = samples.X[chosen], samples.y[chosen]
        if self.noisy[0]:
            x = x + jnp.sqrt(setting.input_noise) * jax.random.normal(inputs, x.shape)
        if self.noisy[1]:
            y = y + jnp.sqrt(setting.label_noise) * jax.random.normal(labels, y.shape)
        residual = jnp.where(place < setting.batch, x @ w / np.sqrt(N) - y, 0.0)
        pull = residual @ x / (setting.batch.astype(w.dtype) * np.sqrt(N))
        return w - setting.rate * (pull + setting.decay / N * w)
