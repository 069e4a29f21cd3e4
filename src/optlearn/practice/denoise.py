"""Train the linear denoising autoencoder on actual images, by plain online SGD under a noise schedule.

The network is f(x̃) = b x̃ + Σ_k w_k λ̃_k/√N with λ̃_k = w_k·x̃/√N, its input x̃ = √(1−Δ) x + √Δ z with
z ~ N(0, I). A step uses one fresh image x, and goes down the gradient of L = ½‖x − f(x̃)‖²: w_k by η ∂L/∂w_k
and b by (η_b/N²) ∂L/∂b. This is the rule that the order parameters of ``models.autoencoder`` follow.

Comparisons of schedules are paired: on a training set, all schedules see the same images in the same order,
the same noise z and the same initial weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from optlearn._arguments import as_numbers
from optlearn._arrays import Array, Float, Int
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._trajectory import improvement
from optlearn.practice.steps import step_table


@dataclass(frozen=True)
class Training:
    """Training runs of the schedules on several training sets.

    Attributes:
        alpha: (T,) recorded training times, steps divided by N, from 0 to the end.
        error: (S, V, T) test error of training set s under schedule v.
        overlaps: (S, V, T, K, K) w_k·w_k'/N.
        skips: (S, V, T) skip b.
        weights: (S, V, K, N) final weights.
        names: names of the schedules.
    """

    alpha: Float[np.ndarray, " T"]
    error: Float[np.ndarray, "S V T"]
    overlaps: Float[np.ndarray, "S V T K K"]
    skips: Float[np.ndarray, "S V T"]
    weights: Float[np.ndarray, "S V K N"]
    names: tuple[str, ...]

    @property
    def skip(self) -> Float[np.ndarray, "S V"]:
        """(S, V) final skip."""
        return np.asarray(self.skips[..., -1])

    def improvement(self, of: str, over: str) -> Float[np.ndarray, "S T"]:
        """(S, T) improvement in percent of a schedule over another one, on the same training set.

        100 (E_over(α) − E_of(α)) / (E_over(0) − E_over(α)), the measure of the paper; NaN at α = 0.
        """
        better, reference = (self.error[:, self.names.index(name)] for name in (of, over))
        return improvement(reference, better)


def train(
    images: Array,
    weights: Array,
    schedules: Mapping[str, Schedule],
    second_moment: Array,
    test_noise: float | Sequence[float] | np.ndarray,
    *,
    eta: float = 5.0,
    skip_rate: float = 5.0,
    skip: float = 0.0,
    seed: int = 0,
    first_set: int = 0,
    records: int = 51,
) -> Training:
    """Online SGD: every image of a training set once, in the given order.

    Args:
        images: (S, P, N) the P images of each of S training sets, as rows of pixels.
        weights: (S, K, N) initial weights, or (K, N) for all sets.
        schedules: name → schedule of ``noise`` Δ, in units of α = steps/N, as long as the training: P/N.
        second_moment: (S, N, N) or (N, N) mean of x xᵀ over the test images; see ``held_out_moment``.
        test_noise: noise variance Δ_F of the test error, one number or one for each schedule.
        eta: learning rate η of the weights.
        skip_rate: learning rate η_b of the skip.
        skip: initial value of b.
        seed: seed of the noise; every training set has its own noise.
        first_set: index of the first training set, if these are part of many.
        records: how many times, from start to end, the test error is measured.
    """
    x = _floats("images", images, 3)
    sets, steps, N = x.shape
    names, count = tuple(schedules), len(schedules)
    noise = np.stack([_noise_of_steps(name, s, steps, N) for name, s in schedules.items()], axis=1)
    w = _floats("weights", weights, np.ndim(weights))
    if w.ndim not in (2, 3) or w.shape[-1] != N or w.shape[:-2] not in ((), (sets,)):
        raise SpecificationError(f"weights must have shape ({sets}, K, {N}) or (K, {N}), got {w.shape}")
    moment = _floats("second_moment", second_moment, np.ndim(second_moment))
    if moment.shape not in ((N, N), (sets, N, N)):
        raise SpecificationError(
            f"second_moment must have shape ({sets}, {N}, {N}) or ({N}, {N}), got {moment.shape}"
        )
    stops = np.unique(np.linspace(0, steps, max(2, records)).round().astype(int))
    test = np.broadcast_to(np.asarray(test_noise, dtype=float), (count,))
    runs = []
    # One training set at a time, so that its weights stay in the processor's cache.
    for s in range(sets):
        learner = _Learner(w if w.ndim == 2 else w[s], float(skip), count, eta, skip_rate)
        held_out = moment if moment.ndim == 2 else moment[s]
        rng = _stream("noise", seed, first_set + s)
        runs.append(_run(learner, x[s], noise, stops, held_out, test, rng))
    error, overlaps, skips, final = (np.stack(parts) for parts in zip(*runs, strict=True))
    good = np.isfinite(final).all(axis=(2, 3)) & np.isfinite(skips[..., -1])
    if not good.all():
        name = names[np.argwhere(~good)[0][1]]
        raise FloatingPointError(f"training diverged under schedule {name!r}: use a smaller learning rate")
    return Training(stops / N, error, overlaps, skips, final, names)


def mean_squared_error(weights: Array, skip: Array, second_moment: Array, noise: Array) -> np.ndarray:
    """E‖x − f(x̃)‖² on test images, averaged exactly over the added noise.

    The network is linear, so the average over noise and images depends on the images only through the mean of
    x xᵀ.

    Args:
        weights: (…, K, N).
        skip: (…) b.
        second_moment: (N, N) mean of x xᵀ.
        noise: Δ_F, broadcast against the skips.

    Returns:
        (…) mean squared errors per image (summed over pixels), without a factor ½.
    """
    w, b, moment = np.asarray(weights), np.asarray(skip), np.asarray(second_moment)
    delta = np.asarray(noise, dtype=float)
    N = w.shape[-1]
    keep = np.sqrt(1 - delta)
    gram = w @ np.swapaxes(w, -1, -2) / N
    projected = (w.reshape(-1, N) @ moment).reshape(w.shape)
    fields = projected @ np.swapaxes(w, -1, -2) / N
    power = np.trace(moment)
    miss = 1 - b * keep
    # x − f(x̃) = (1 − b√(1−Δ)) x − √(1−Δ) A x − √Δ (b + A) z with A = Σ_k w_k w_kᵀ/N of rank K.
    clean = miss**2 * power - 2 * miss * keep * _trace(fields) + keep**2 * _trace(gram @ fields)
    spread = N * b**2 + 2 * b * _trace(gram) + _trace(gram @ gram)
    return np.asarray(clean + delta * spread)


def reconstruct(images: Array, weights: Array, skip: float, noise: float, seed: int = 0) -> np.ndarray:
    """Corrupt images and denoise them.

    Args:
        images: (n, N).
        weights: (K, N).
        skip: b.
        noise: variance Δ of the noise.
        seed: seed of the noise: the same seed corrupts the same images in the same way.

    Returns:
        (2, n, N): the corrupted and the denoised images.
    """
    x, w = _floats("images", images, 2), _floats("weights", weights, 2)
    z = np.random.default_rng(seed).standard_normal(x.shape)
    noisy = np.sqrt(1 - noise) * x + np.sqrt(noise) * z
    return np.stack([noisy, skip * noisy + noisy @ w.T @ w / x.shape[1]])


def training_sets(count: int, sets: int, size: int, seed: int = 0) -> Int[np.ndarray, "S P"]:
    """(sets, size) random indices below ``count``, in random order, without repetition in a set."""
    if not 0 < size <= count:
        raise SpecificationError(f"size must be from 1 to {count}, the number of images, got {size}")
    return np.stack([_stream("images", seed, s).permutation(count)[:size] for s in range(sets)])


def held_out_moment(images: Array, training: Int[np.ndarray, "S P"]) -> Float[np.ndarray, "S N N"]:
    """Mean of x xᵀ over the images that are not in a training set.

    Args:
        images: (n, N) all images.
        training: (S, P) indices of the training images of each set.

    Returns:
        (S, N, N), one for the held-out images of each set.
    """
    x = _floats("images", images, 2)
    held_out = len(x) - training.shape[1]
    if held_out < 1:
        raise SpecificationError(f"training must leave images to test on, got all {len(x)}")
    total = x.T @ x
    return np.stack([total - x[chosen].T @ x[chosen] for chosen in training]) / held_out


def mean_interval(values: Array, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis, and the half-width of its confidence interval (Student's t).

    Args:
        values: (n, …) independent measurements; for pairs, their differences.
        level: confidence level of the interval.
    """
    data = np.asarray(values, dtype=float)
    n = len(data)
    if n < 2:
        return data.mean(axis=0), np.full(data.shape[1:], np.inf)
    width = stats.t.ppf((1 + level) / 2, n - 1) * data.std(axis=0, ddof=1) / np.sqrt(n)
    return data.mean(axis=0), np.asarray(width)


def _stream(purpose: str, seed: int, index: int) -> np.random.Generator:
    """Random numbers of one training set, independent for each purpose."""
    purposes = ("images", "noise")
    return np.random.default_rng(np.random.SeedSequence([seed, index], spawn_key=(purposes.index(purpose),)))


class _Learner:
    """V networks with equal starts: weights w (V, K, N) and skips b (V,)."""

    def __init__(self, weights: np.ndarray, skip: float, count: int, eta: float, skip_rate: float) -> None:
        self.w, self.b = np.repeat(weights[None], count, axis=0), np.full(count, skip)
        self.eta, self.skip_rate = eta, skip_rate

    def step(self, x: np.ndarray, z: np.ndarray, noise: np.ndarray) -> None:
        """One step of SGD on the image x (N,) with noise z (N,) of these variances (V,)."""
        w, N = self.w, len(x)
        noisy = np.sqrt(1 - noise)[:, None] * x + np.sqrt(noise)[:, None] * z
        hidden = (w @ noisy[:, :, None])[:, :, 0] / np.sqrt(N)
        residual = x - self.b[:, None] * noisy - (hidden[:, None] @ w)[:, 0] / np.sqrt(N)
        back = (w @ residual[:, :, None])[:, :, 0] / np.sqrt(N)
        # The weights are tied: they appear in the decoder (first term) and the encoder (second).
        rate = self.eta / np.sqrt(N)
        for k in range(w.shape[1]):
            w[:, k] += (rate * hidden[:, k, None]) * residual + (rate * back[:, k, None]) * noisy
        self.b += self.skip_rate / N**2 * np.sum(noisy * residual, axis=1)


def _run(
    learner: _Learner,
    images: Float[np.ndarray, "P N"],
    noise: Float[np.ndarray, "P V"],
    stops: Int[np.ndarray, " T"],
    moment: Float[np.ndarray, "N N"],
    test_noise: Float[np.ndarray, " V"],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Errors (V, T), overlaps (V, T, K, K) and skips (V, T) at the ``stops``, and final weights."""
    steps, N = images.shape
    recorded = set(stops.tolist())
    weights, skips = [], []
    for step in range(steps + 1):
        if step in recorded:
            weights.append(learner.w.copy())
            skips.append(learner.b.copy())
        if step < steps:
            learner.step(images[step], rng.standard_normal((N,)), noise[step])
    w, b = np.stack(weights, axis=1), np.stack(skips, axis=1)
    error = mean_squared_error(w, b, moment, test_noise[:, None])
    return error, w @ np.swapaxes(w, -1, -2) / N, b, learner.w


def _noise_of_steps(name: str, schedule: Schedule, steps: int, N: int) -> Float[np.ndarray, " P"]:
    """Noise of every SGD step: step μ has the noise at α = μ/N."""
    if abs(schedule.horizon * N - steps) > 0.5:
        raise SpecificationError(
            f"schedule {name!r} ends at α = {schedule.horizon:g}, which is {schedule.horizon * N:g} steps at "
            f"N = {N}; the training set has {steps} images"
        )
    values = step_table(schedule, "noise", steps=steps, N=None, purpose=f"schedule {name!r}").all()
    if not np.all((values >= 0) & (values <= 1)):
        raise SpecificationError(f"schedule {name!r}: noise must be from 0 to 1")
    return values


def _floats(name: str, value: Array, axes: int) -> np.ndarray:
    array = as_numbers(value)
    if array is None or array.ndim != axes or not np.all(np.isfinite(array)):
        raise SpecificationError(f"{name} must be finite numbers in {axes} axes, got shape {np.shape(value)}")
    return array


def _trace(matrices: np.ndarray) -> np.ndarray:
    return np.asarray(np.trace(matrices, axis1=-2, axis2=-1))
