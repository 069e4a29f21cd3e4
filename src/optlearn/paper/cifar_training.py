"""Train the paper's network on Cluttered CIFAR-10, many initialisations at once on one device.

It needs JAX and NumPy alone and imports nothing of optlearn, so that it also runs as a plain file on
a GPU machine without the package::

    python cifar_training.py --data DIR --out FILE

An input is a 32×64 image: a CIFAR-10 image on the left; on the right black (*easy*) or Gaussian noise of
standard deviation 1 for each pixel and channel (*hard*). Half of the images are easy. The schedule
with parameter `a` shows a % of all samples, easy ones, then the hard half, then the remaining easy ones;
each sample once.

What the paper leaves open, and what is done here:

- *Pixels* of the target are scaled to [0, 1], black being 0, and not standardised. Noise is not clipped.
- *Order of the samples.* The paper says both that the order within the easy and the hard samples varies
  with the repetition and that the training sequence is identical across repetitions. The order is
  `"shared"` by all repetitions unless `"per-seed"` is asked for. Which images are easy, their noise, and
  the test set are the same for all repetitions and all `a` either way.
- *Batches* of 16 are cut from the whole sequence, so one at a change of phase may hold both kinds.

Repetition `s` starts from the same weights for every `a`: errors of different `a` can be paired by seed.
Convolutions are matrix products of image patches, which batch over networks; arithmetic is in float32,
TF32 excluded. Where maxima of a pooling window tie, its gradient is shared equally.
"""

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Parameters = dict[str, Array]
Order = Literal["shared", "per-seed"]

SWEEP = tuple(range(0, 51, 5))
CLASSES = 10
SIDE = 32
TRAIN_FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_FILES = ("test_batch.bin",)


@dataclass(frozen=True)
class Settings:
    """Numbers of the experiment; the defaults are the paper's.

    Attributes:
        sigma: standard deviation of the noise on the right half of hard samples.
        batch: samples per step.
        learning_rate: constant step size of Adam.
        beta1: decay of Adam's mean gradient.
        beta2: decay of Adam's mean squared gradient.
        eps: Adam's addition to the denominator.
        data_seed: seed of the split into easy and hard, of the noise and of the order of the samples.
    """

    sigma: float = 1.0
    batch: int = 16
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    data_seed: int = 0


class Images(NamedTuple):
    """Labelled images.

    Attributes:
        pixels: (n, 32, 32, 3) bytes.
        labels: (n,) classes, 0 to 9.
    """

    pixels: np.ndarray
    labels: np.ndarray


class Cluttered(NamedTuple):
    """A cluttered set.

    Attributes:
        images: (n, 32, 64, 3) composites, float32.
        labels: (n,) classes, int32.
        hard: (n,) whether the right half is noise.
    """

    images: np.ndarray
    labels: np.ndarray
    hard: np.ndarray


class State(NamedTuple):
    """A network in training: its parameters and Adam's two moments and count of steps."""

    parameters: Parameters
    mean: Parameters
    square: Parameters
    step: Array


# Data


def find_cifar10(folder: str | Path) -> Path | None:
    """Folder of the official binary files: `folder` or its cifar-10-batches-bin; None if there is none."""
    for place in (Path(folder), Path(folder) / "cifar-10-batches-bin"):
        if all((place / name).is_file() for name in TRAIN_FILES + TEST_FILES):
            return place
    return None


def read_cifar10(folder: str | Path) -> tuple[Images, Images]:
    """Read CIFAR-10's training and test images from the official binary files.

    Args:
        folder: the files' folder, or the one that holds their cifar-10-batches-bin.

    Raises:
        FileNotFoundError: the files are not there.
    """
    place = find_cifar10(folder)
    if place is None:
        raise FileNotFoundError(
            f"no CIFAR-10 in {folder}: unpack cifar-10-binary.tar.gz of "
            "https://www.cs.toronto.edu/~kriz/cifar.html there"
        )
    return _read_files(place, TRAIN_FILES), _read_files(place, TEST_FILES)


def _read_files(place: Path, names: Sequence[str]) -> Images:
    size = 1 + 3 * SIDE * SIDE
    parts = []
    for name in names:
        record = np.fromfile(place / name, np.uint8)
        if record.size == 0 or record.size % size:
            raise ValueError(f"{place / name} is not a CIFAR-10 binary file: {record.size} bytes")
        parts.append(record.reshape(-1, size))
    records = np.concatenate(parts)
    pixels = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Images(np.ascontiguousarray(pixels), records[:, 0])


def split_order(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Split n samples at random into halves; the easy and the hard ones, each in a random order."""
    if n % 2:
        raise ValueError(f"{n} samples have no halves")
    order = rng.permutation(n).astype(np.int32)
    return order[: n // 2], order[n // 2 :]


def clutter(images: Images, hard: np.ndarray, sigma: float, rng: np.random.Generator) -> Cluttered:
    """Put the distractor beside each image: noise for the samples `hard`, black for all others."""
    n = len(images.labels)
    composite = np.zeros((n, SIDE, 2 * SIDE, 3), np.float32)
    composite[:, :, :SIDE] = images.pixels.astype(np.float32) / np.float32(255)
    for sample in np.sort(hard):  # one by one: a second copy of all the noise is not needed
        noise = rng.standard_normal((SIDE, SIDE, 3), np.float32)
        composite[sample, :, SIDE:] = np.float32(sigma) * noise
    is_hard = np.zeros(n, bool)
    is_hard[hard] = True
    return Cluttered(composite, images.labels.astype(np.int32), is_hard)


def schedule(easy: np.ndarray, hard: np.ndarray, a: float) -> np.ndarray:
    """Easy-hard-easy sequence of samples.

    Args:
        easy: easy samples in the order in which they are shown.
        hard: hard samples, likewise.
        a: percentage of all samples that are easy and come first.
    """
    n = len(easy) + len(hard)
    first = round(a * n / 100)
    if not math.isclose(first, a * n / 100, abs_tol=1e-9) or not 0 <= first <= len(easy):
        raise ValueError(f"{a} % of {n} samples is not a number of easy samples from 0 to {len(easy)}")
    return np.concatenate([easy[:first], hard, easy[first:]])


# Network

# Layer → inputs of one unit, number of units.
_SHAPES = {
    "conv1": (9 * 3, 32),
    "conv2": (9 * 32, 64),
    "conv3": (9 * 64, 64),
    "linear1": (64 * 4 * 8, 256),
    "linear2": (256, CLASSES),
}


def init_parameters(key: Array) -> Parameters:
    """Weights and biases uniform within ±1/√(inputs of a unit): PyTorch's defaults."""
    parameters = {}
    for layer_key, (layer, (inputs, units)) in zip(
        jax.random.split(key, len(_SHAPES)), _SHAPES.items(), strict=True
    ):
        bound = 1 / math.sqrt(inputs)
        weight_key, bias_key = jax.random.split(layer_key)
        draw = partial(jax.random.uniform, dtype=jnp.float32, minval=-bound, maxval=bound)
        parameters[f"{layer}.weight"] = draw(weight_key, (inputs, units))
        parameters[f"{layer}.bias"] = draw(bias_key, (units,))
    return parameters


def dense(x: Array, weight: Array, bias: Array) -> Array:
    """Affine layer on the last axis of x (rows, inputs)."""
    return jnp.matmul(x, weight, precision=jax.lax.Precision.HIGHEST) + bias[None, :]


def convolve(x: Array, weight: Array, bias: Array) -> Array:
    """3×3 convolution with padding 1 as a product of patches and weights.

    Args:
        x: (batch, height, width, channels).
        weight: (9·channels, units), rows ordered by row and column of the window, then channel.
        bias: (units,).
    """
    batch, height, width, channels = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    patches = jnp.concatenate(windows, axis=-1).reshape(batch * height * width, 9 * channels)
    return dense(patches, weight, bias).reshape(batch, height, width, -1)


def pool(x: Array) -> Array:
    """Maxima over 2×2 windows of (batch, height, width, channels)."""
    batch, height, width, channels = x.shape
    return jnp.max(x.reshape(batch, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def logits(parameters: Parameters, images: Array) -> Array:
    """Scores (batch, 10) of the classes for composites (batch, 32, 64, 3)."""
    x = images
    for layer in ("conv1", "conv2", "conv3"):
        # ReLU after the maximum, with which it commutes: a quarter of the work.
        x = jax.nn.relu(pool(convolve(x, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"])))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(dense(x, parameters["linear1.weight"], parameters["linear1.bias"]))
    return dense(x, parameters["linear2.weight"], parameters["linear2.bias"])


def cross_entropy(parameters: Parameters, images: Array, labels: Array) -> Array:
    """Mean cross-entropy of a batch."""
    scores = jax.nn.log_softmax(logits(parameters, images))
    return -jnp.mean(jnp.sum(scores * jax.nn.one_hot(labels, CLASSES, dtype=scores.dtype), axis=-1))


# Training


def init_state(key: Array) -> State:
    """Fresh network."""
    parameters = init_parameters(key)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    return State(parameters, zeros, zeros, jnp.zeros((), jnp.float32))


def adam_step(state: State, gradient: Parameters, settings: Settings) -> State:
    """One step of Adam, as Kingma and Ba wrote it."""
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: settings.beta1 * m + (1 - settings.beta1) * g, state.mean, gradient)
    square = jax.tree.map(
        lambda v, g: settings.beta2 * v + (1 - settings.beta2) * g * g, state.square, gradient
    )
    # 1 − βᵗ without cancellation.
    mean_bias = -jnp.expm1(step * math.log(settings.beta1))
    square_bias = -jnp.expm1(step * math.log(settings.beta2))

    def move(p: Array, m: Array, v: Array) -> Array:
        return p - settings.learning_rate * (m / mean_bias) / (jnp.sqrt(v / square_bias) + settings.eps)

    return State(jax.tree.map(move, state.parameters, mean, square), mean, square, step)


def train_step(state: State, images: Array, labels: Array, settings: Settings) -> tuple[State, Array]:
    """Learn one batch; the new state, and the batch's loss before the step."""
    loss, gradient = jax.value_and_grad(cross_entropy)(state.parameters, images, labels)
    return adam_step(state, gradient, settings), loss


@partial(jax.jit, static_argnames=("settings", "shared"))
def train(
    states: State, images: Array, labels: Array, batches: Array, settings: Settings, shared: bool
) -> tuple[State, Array]:
    """Train all networks through one sequence of batches each.

    Args:
        states: networks, a leading axis of seeds in every array.
        images: (n, 32, 64, 3) composites.
        labels: (n,) classes.
        batches: samples of each step, (steps, batch) if shared, else (steps, seeds, batch).
        settings: the experiment's numbers.
        shared: whether all networks see the same batches.

    Returns:
        The trained networks, and the losses (steps, seeds).
    """
    data_axis = None if shared else 0
    advance = jax.vmap(partial(train_step, settings=settings), in_axes=(0, data_axis, data_axis))

    def body(states: State, samples: Array) -> tuple[State, Array]:
        return advance(states, images[samples], labels[samples])

    return jax.lax.scan(body, states, batches)


@jax.jit
def mistakes(parameters: Parameters, images: Array, labels: Array) -> Array:
    """Which samples each network gets wrong.

    Args:
        parameters: of the networks, a leading axis of seeds in every array.
        images: (chunks, n, 32, 64, 3) composites.
        labels: (chunks, n) classes.

    Returns:
        (chunks, seeds, n) booleans.
    """

    def wrong(chunk: tuple[Array, Array]) -> Array:
        scores = jax.vmap(logits, in_axes=(0, None))(parameters, chunk[0])
        return jnp.argmax(scores, axis=-1).astype(jnp.int32) != chunk[1][None, :]

    return jax.lax.map(wrong, (images, labels))


@dataclass(frozen=True)
class Sweep:
    """Outcome of a sweep over `a`.

    Attributes:
        a: (A,) percentages.
        seeds: (S,) seeds of the initial weights.
        order: whether the sequence of samples is shared by the seeds.
        error: (A, S) share of the test set that is misclassified after training.
        error_easy: the same among the easy test samples.
        error_hard: the same among the hard test samples.
        loss: (A, L) training loss in L equal parts of the training, mean over the seeds.
        chance_error: error of always guessing the commonest class of the test set.
        train_samples: size of the training set.
        test_samples: size of the test set.
        seconds: wall time, compilation included.
    """

    a: tuple[float, ...]
    seeds: tuple[int, ...]
    order: Order
    error: np.ndarray
    error_easy: np.ndarray
    error_hard: np.ndarray
    loss: np.ndarray
    chance_error: float
    train_samples: int
    test_samples: int
    seconds: float


def sweep(
    train_images: Images,
    test_images: Images,
    *,
    a: Sequence[float] = SWEEP,
    seeds: Sequence[int] = tuple(range(30)),
    order: Order = "shared",
    settings: Settings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Train one network per seed for each value of `a`, and measure its error on the test set.

    Args:
        train_images: training images; their number must be a multiple of the batch size.
        test_images: test images; a multiple of 100, or fewer than 100.
        a: percentages of easy samples that come first.
        seeds: seeds of the initial weights; all are trained at once.
        order: `"shared"` for the same sequence in all repetitions, `"per-seed"` for easy and hard
            samples shuffled anew for each.
        settings: the experiment's numbers; the paper's if not given.
        progress: called with the number of values of `a` that are done, and that of all.
    """
    began = time.perf_counter()
    settings = settings or Settings()
    n, n_test = len(train_images.labels), len(test_images.labels)
    if n % settings.batch:
        raise ValueError(f"{n} training samples are not a multiple of the batch size {settings.batch}")
    chunk = min(100, n_test)
    if n_test % chunk:
        raise ValueError(f"{n_test} test samples are not a multiple of {chunk}")
    if order not in get_args(Order):
        raise ValueError(f"order must be one of {get_args(Order)}, not {order!r}")

    train_set, test_set, easy, hard = build(train_images, test_images, settings)
    orders = [(easy, hard)]
    if order == "per-seed":
        shuffles = [np.random.default_rng([settings.data_seed, 1, seed]) for seed in seeds]
        orders = [(rng.permutation(easy), rng.permutation(hard)) for rng in shuffles]

    images, labels = jnp.asarray(train_set.images), jnp.asarray(train_set.labels)
    test_x = jnp.asarray(test_set.images.reshape(-1, chunk, SIDE, 2 * SIDE, 3))
    test_y = jnp.asarray(test_set.labels.reshape(-1, chunk))
    start = jax.vmap(init_state)(jnp.stack([jax.random.key(seed) for seed in seeds]))

    errors, losses = [], []
    for done, value in enumerate(a, 1):
        sequences = np.stack([schedule(*groups, value) for groups in orders])
        batches = sequences.reshape(len(orders), -1, settings.batch).swapaxes(0, 1)
        shared = order == "shared"
        trained, loss = train(
            start, images, labels, jnp.asarray(batches[:, 0] if shared else batches), settings, shared
        )
        wrong = np.asarray(mistakes(trained.parameters, test_x, test_y))
        wrong = wrong.swapaxes(0, 1).reshape(len(seeds), n_test)
        groups = (np.ones(n_test, bool), ~test_set.hard, test_set.hard)
        errors.append([wrong[:, group].mean(axis=1) for group in groups])
        parts = np.array_split(np.asarray(loss, np.float64).mean(axis=1), min(25, len(loss)))
        losses.append([part.mean() for part in parts])
        if progress is not None:
            progress(done, len(a))
    error, error_easy, error_hard = np.moveaxis(np.array(errors), 1, 0)
    return Sweep(
        a=tuple(a),
        seeds=tuple(seeds),
        order=order,
        error=error,
        error_easy=error_easy,
        error_hard=error_hard,
        loss=np.array(losses),
        chance_error=float(1 - np.bincount(test_set.labels, minlength=CLASSES).max() / n_test),
        train_samples=n,
        test_samples=n_test,
        seconds=time.perf_counter() - began,
    )


def build(
    train_images: Images, test_images: Images, settings: Settings
) -> tuple[Cluttered, Cluttered, np.ndarray, np.ndarray]:
    """Make the fixed parts of the experiment.

    Returns:
        Training set, test set, and the easy and the hard training samples in the shared order.
    """
    rng = np.random.default_rng([settings.data_seed, 0])
    easy, hard = split_order(len(train_images.labels), rng)
    _, test_hard = split_order(len(test_images.labels), rng)
    train_set = clutter(train_images, hard, settings.sigma, rng)
    test_set = clutter(test_images, test_hard, settings.sigma, rng)
    return train_set, test_set, easy, hard


# Result files


def to_json(sweeps: Sequence[Sweep], settings: Settings, provenance: dict[str, Any]) -> dict[str, Any]:
    """Table of one or more sweeps over the same `a` and seeds, with all that is needed to repeat it."""
    first = sweeps[0]
    if len({(s.a, s.seeds, s.train_samples, s.test_samples) for s in sweeps}) > 1:
        raise ValueError("the sweeps differ in more than the order of the samples")
    return {
        "experiment": "Cluttered CIFAR-10, easy-hard-easy schedules",
        "provenance": provenance,
        "settings": asdict(settings)
        | {"train_samples": first.train_samples, "test_samples": first.test_samples},
        "chance_error": round(first.chance_error, 6),
        "a": list(first.a),
        "seeds": list(first.seeds),
        "sweeps": {
            s.order: {
                "seconds": round(s.seconds, 1),
                "error": np.round(s.error, 6).tolist(),
                "error_easy": np.round(s.error_easy, 6).tolist(),
                "error_hard": np.round(s.error_hard, 6).tolist(),
                "loss": np.round(s.loss, 4).tolist(),
            }
            for s in sweeps
        },
    }


def describe_run() -> dict[str, Any]:
    """Where, when and by which code a sweep is run."""
    device = jax.devices()[0]
    return {
        "device": f"{device.device_kind} ({device.platform})",
        "jax": jax.__version__,
        "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "source_sha256": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder of the CIFAR-10 binary files")
    parser.add_argument("--out", required=True, type=Path, help="JSON file to write")
    parser.add_argument("--a", type=float, nargs="+", default=SWEEP, help="percentages")
    parser.add_argument("--seeds", type=int, default=30, help="number of initialisations")
    parser.add_argument("--order", nargs="+", choices=get_args(Order), default=["shared"])
    parser.add_argument("--limit", type=int, help="use only this many training images")
    parser.add_argument("--test-limit", type=int, help="use only this many test images")
    parser.add_argument("--note", default="", help="free text kept in the file, e.g. the commit")
    options = parser.parse_args(arguments)

    train_images, test_images = read_cifar10(options.data)
    train_images = Images(*(part[: options.limit] for part in train_images))
    test_images = Images(*(part[: options.test_limit] for part in test_images))
    provenance = describe_run() | {"note": options.note}
    print(provenance, flush=True)
    sweeps = []
    for order in options.order:
        began = time.perf_counter()

        def report(done: int, of: int, order: str = order, began: float = began) -> None:
            print(f"{order} {done}/{of} {time.perf_counter() - began:.1f} s", flush=True)

        result = sweep(
            train_images,
            test_images,
            a=options.a,
            seeds=range(options.seeds),
            order=order,
            progress=report,
        )
        sweeps.append(result)
        for value, errors in zip(result.a, result.error, strict=True):
            print(f"{order} a={value:g}: {errors.mean():.5f} ± {errors.std(ddof=1):.5f} (sd)", flush=True)
        table = to_json(sweeps, Settings(), provenance)  # after each: a killed run keeps what is done
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
