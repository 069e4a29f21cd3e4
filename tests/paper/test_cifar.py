"""Cluttered CIFAR-10: the training code on tiny data, and the figure on doctored tables."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn._progress import Progress
from optlearn.paper import cifar_training as training
from optlearn.paper import figS_cifar as figure
from optlearn.paper.cifar_training import Images, Settings
from optlearn.practice.datasets import ENVIRONMENT, ImageSet, MissingDataError

FAST = Settings(learning_rate=3e-3)


def striped(n, seed=0):
    """Images of noise whose mean colour tells the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n, dtype=np.uint8) % 10
    base = 25 * labels[:, None, None, None].astype(int)
    pixels = np.clip(base + rng.integers(-10, 11, (n, 32, 32, 3)), 0, 255).astype(np.uint8)
    return Images(pixels, labels)


def write_cifar10(folder, per_file=16):
    """A folder as the official one, with few images in each file."""
    folder.mkdir()
    for seed, name in enumerate(training.TRAIN_FILES + training.TEST_FILES):
        images = striped(per_file, seed)
        planes = images.pixels.transpose(0, 3, 1, 2).reshape(per_file, -1)
        np.concatenate([images.labels[:, None], planes], axis=1).tofile(folder / name)
    return folder


@pytest.fixture(scope="module", autouse=True)
def compile_sooner():
    """Nothing here runs long enough for XLA's optimisations to pay."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


# Data


def test_official_files_are_read(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    train, test = training.read_cifar10(tmp_path)
    assert train.pixels.shape == (80, 32, 32, 3)
    np.testing.assert_array_equal(test.pixels, striped(16, 5).pixels)
    np.testing.assert_array_equal(train.labels[16:32], striped(16, 1).labels)
    assert training.find_cifar10(tmp_path / "nowhere") is None
    with pytest.raises(FileNotFoundError, match="no CIFAR-10"):
        training.read_cifar10(tmp_path / "nowhere")


def test_a_damaged_file_is_refused(tmp_path):
    folder = write_cifar10(tmp_path / "bin")
    (folder / "data_batch_3.bin").write_bytes(b"12345")
    with pytest.raises(ValueError, match="data_batch_3"):
        training.read_cifar10(folder)


@pytest.mark.parametrize(("a", "phases"), [(0, (0, 100, 100)), (20, (40, 100, 60)), (50, (100, 100, 0))])
def test_schedule_is_easy_hard_easy_and_uses_each_sample_once(a, phases):
    easy, hard = training.split_order(200, np.random.default_rng(1))
    sequence = training.schedule(easy, hard, a)
    np.testing.assert_array_equal(np.sort(sequence), np.arange(200))
    expected = np.repeat([False, True, False], phases)
    np.testing.assert_array_equal(np.isin(sequence, hard), expected)
    # The order within each kind is that given, whatever a.
    np.testing.assert_array_equal(sequence[~expected], easy)
    np.testing.assert_array_equal(sequence[expected], hard)


@pytest.mark.parametrize("a", [-5, 55, 0.3])
def test_impossible_schedules_are_refused(a):
    with pytest.raises(ValueError, match="samples"):
        training.schedule(np.arange(10), np.arange(10, 20), a)


def test_sets_are_half_hard_and_fixed_by_the_data_seed():
    images, test_images = striped(40), striped(20, 7)
    first = training.build(images, test_images, Settings())
    again = training.build(images, test_images, Settings(learning_rate=1.0))
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    for cluttered, source in zip(first[:2], (images, test_images), strict=True):
        assert cluttered.images.dtype == np.float32
        np.testing.assert_allclose(cluttered.images[:, :, :32] * 255, source.pixels, atol=1e-4)
        right = cluttered.images[:, :, 32:]
        assert cluttered.hard.sum() == len(source.labels) // 2
        assert not right[~cluttered.hard].any()
        assert abs(right[cluttered.hard].std() - 1) < 0.02
        assert abs(right[cluttered.hard].mean()) < 0.02
    np.testing.assert_array_equal(np.sort(first[3]), np.flatnonzero(first[0].hard))


# Network


def test_convolution_is_the_library_s():
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (2, 8, 12, 3), jnp.float32)
    weight = jax.random.normal(keys[1], (27, 5), jnp.float32)
    bias = jax.random.normal(keys[2], (5,), jnp.float32)
    expected = jax.lax.conv_general_dilated(
        x, weight.reshape(3, 3, 3, 5), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = training.convolve(x, weight, bias)
    np.testing.assert_allclose(found, expected + bias[None, None, None, :], rtol=1e-5, atol=1e-5)


def test_pooling_takes_maxima():
    x = jax.random.normal(jax.random.key(0), (2, 4, 6, 3), jnp.float32)
    expected = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    np.testing.assert_array_equal(training.pool(x), expected)


def test_network_has_the_paper_s_layers_and_pytorch_s_initialisation():
    parameters = jax.jit(training.init_parameters)(jax.random.key(0))
    sizes = {name: value.shape for name, value in parameters.items()}
    assert sizes["conv1.weight"] == (27, 32)
    assert sizes["conv2.weight"] == (288, 64)
    assert sizes["conv3.weight"] == (576, 64)
    assert sizes["linear1.weight"] == (64 * 4 * 8, 256)
    assert sizes["linear2.weight"] == (256, 10)
    for layer in ("conv1", "conv2", "conv3", "linear1", "linear2"):
        weight = np.asarray(parameters[f"{layer}.weight"])
        bound = weight.shape[0] ** -0.5
        assert weight.dtype == np.float32
        assert 0.98 * bound < np.abs(weight).max() <= bound * (1 + 1e-6)
        assert abs(weight.std() / (bound / 3**0.5) - 1) < 0.05
        assert np.abs(parameters[f"{layer}.bias"]).max() <= bound * (1 + 1e-6)
    images = jax.ShapeDtypeStruct((2, 32, 64, 3), jnp.float32)
    assert jax.eval_shape(training.logits, parameters, images).shape == (2, 10)


def test_adam_is_the_textbook_s():
    settings = Settings()
    rng = np.random.default_rng(0)
    p, m, v = rng.normal(size=7), np.zeros(7), np.zeros(7)
    zeros = {"w": jnp.zeros(7, jnp.float32)}
    state = training.State({"w": jnp.asarray(p, jnp.float32)}, zeros, zeros, jnp.zeros((), jnp.float32))
    for t in range(1, 6):
        g = rng.normal(size=7) * 10.0 ** rng.integers(-4, 2)
        state = training.adam_step(state, {"w": jnp.asarray(g, jnp.float32)}, settings)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        p = p - 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(state.parameters["w"], p, rtol=1e-6, atol=1e-7)


# Training


@pytest.fixture(scope="module")
def trained():
    """A short sweep on which something can be learnt."""
    calls = []
    result = training.sweep(
        striped(160),
        striped(100, 9),
        a=(0, 25),
        seeds=(3, 4),
        settings=FAST,
        progress=lambda done, of: calls.append((done, of)),
    )
    return result, calls


@pytest.mark.slow
def test_sweep_learns(trained):
    result, calls = trained
    assert calls == [(1, 2), (2, 2)]
    assert result.error.shape == result.error_easy.shape == result.error_hard.shape == (2, 2)
    assert result.loss.shape == (2, 10)
    assert (result.loss[:, -3:].mean(axis=1) < result.loss[:, :3].mean(axis=1) - 0.1).all()
    assert result.chance_error == pytest.approx(0.9)
    np.testing.assert_allclose(result.error, (result.error_easy + result.error_hard) / 2)


@pytest.mark.slow
def test_networks_trained_together_are_independent(trained):
    result, _ = trained
    train_set, _, easy, hard = training.build(striped(160), striped(100, 9), FAST)
    images, labels = jnp.asarray(train_set.images), jnp.asarray(train_set.labels)
    batches = jnp.asarray(training.schedule(easy, hard, 25).reshape(-1, 16))
    losses = []
    for seeds in ((3, 4), (4, 3)):
        start = jax.vmap(training.init_state)(jnp.stack([jax.random.key(seed) for seed in seeds]))
        losses.append(training.train(start, images, labels, batches, FAST, True)[1])
    np.testing.assert_allclose(losses[0], losses[1][:, ::-1], rtol=1e-4)
    np.testing.assert_allclose(losses[0].mean(axis=1), result.loss[1], rtol=1e-5)
    alone = jax.jit(training.cross_entropy)(
        training.init_parameters(jax.random.key(4)), images[batches[0]], labels[batches[0]]
    )
    np.testing.assert_allclose(losses[0][0, 1], alone, rtol=1e-5)


@pytest.mark.slow
def test_own_order_for_each_seed(monkeypatch):
    seen = []

    def spy(states, images, labels, batches, settings, shared):
        seen.append((np.asarray(batches), shared))
        return states, jnp.ones((len(batches), 2), jnp.float32)

    monkeypatch.setattr(training, "train", spy)
    sets = striped(160), striped(100)
    for order in ("shared", "per-seed"):
        training.sweep(*sets, a=(0, 50), seeds=(0, 1), order=order)
    hard = training.build(*sets, Settings())[0].hard
    assert [batches.shape for batches, _ in seen] == [(10, 16), (10, 16), (10, 2, 16), (10, 2, 16)]
    assert [shared for _, shared in seen] == [True, True, False, False]
    first, second = (seen[2][0][:, seed].ravel() for seed in (0, 1))
    assert (first != second).any()
    for sequence in (seen[0][0].ravel(), seen[1][0].ravel(), first, second):
        np.testing.assert_array_equal(np.sort(sequence), np.arange(160))
    for sequence in (first, second):  # a = 0: hard first, for every seed
        np.testing.assert_array_equal(hard[sequence], np.repeat([True, False], 80))


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((24, 20), {}, "batch size"),
        ((32, 150), {}, "multiple of 100"),
        ((32, 20), {"order": "random"}, "order must be"),
    ],
)
def test_impossible_sweeps_are_refused(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        training.sweep(striped(sizes[0]), striped(sizes[1]), **options)


@pytest.mark.slow
def test_different_sweeps_do_not_share_a_table(trained):
    result, _ = trained
    other = dataclasses.replace(result, a=(0, 30))
    with pytest.raises(ValueError, match="differ"):
        training.to_json([result, other], FAST, {})


@pytest.mark.slow
def test_plain_file_needs_no_optlearn(tmp_path):
    write_cifar10(tmp_path / "bin")
    code = (
        "import sys, runpy; sys.modules['optlearn'] = None\n"
        f"sys.argv = ['x', '--data', {str(tmp_path / 'bin')!r}, '--out', {str(tmp_path / 'o.json')!r}, "
        "'--limit', '16', '--seeds', '2', '--a', '0', '50', '--note', 'here']\n"
        f"runpy.run_path({training.__file__!r}, run_name='__main__')\n"
        "heavy = {'optax', 'casadi', 'xarray'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # compiles sooner
    )
    assert done.returncode == 0, done.stderr
    table = json.loads(Path(tmp_path / "o.json").read_text())
    assert np.shape(table["sweeps"]["shared"]["error"]) == (2, 2)
    assert table["provenance"]["note"] == "here"
    assert table["settings"]["train_samples"] == 16


# Figure


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A folder without CIFAR-10, named by the environment."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    return tmp_path


@pytest.fixture
def some_data(monkeypatch):
    """Synthetic images in place of CIFAR-10."""

    def load(split, data_dir=None):
        images = striped(160 if split == "train" else 100)
        return ImageSet(images.pixels.transpose(0, 3, 1, 2), images.labels)

    monkeypatch.setattr(figure, "cifar10", load)
    monkeypatch.setattr(type(figure.CIFAR10), "missing", lambda self, folder: [])


@pytest.fixture
def stored(no_data):
    return figure.compute()


def doctored(data, means, order="shared", spread=0.0):
    """The same data with other mean errors for each a."""
    changed = data.copy(deep=True)
    noise = np.random.default_rng(0).normal(0, 0.002 + spread, changed.error.sel(order=order).shape)
    values = np.asarray(means, float)[:, None] + noise
    changed.error.loc[{"order": order}] = np.where(np.isnan(changed.error.sel(order=order)), np.nan, values)
    return changed


def outcome(data):
    return {claim.id: claim for claim in figure.claims(data)}


def test_stored_table_is_the_full_experiment(stored):
    assert stored.a.values.tolist() == list(range(0, 51, 5))
    settings = json.loads(stored.attrs["settings"])
    assert settings == dataclasses.asdict(Settings()) | {"train_samples": 50_000, "test_samples": 10_000}
    for order, seeds in figure.SEEDS.items():
        assert stored.error.sel(order=order).count() == 11 * seeds
    for entry in json.loads(stored.attrs["provenance"]):
        assert {"device", "jax", "date", "source_sha256", "note", "seconds"} <= set(entry)
    np.testing.assert_allclose(stored.error, (stored.error_easy + stored.error_hard) / 2, atol=1e-6)
    assert "image" not in stored


def test_claims_follow_the_data(stored):
    a = stored.a.values
    valley = 0.5 + 0.0001 * (a - 35) ** 2
    valley[0] = valley[-1] = 0.7
    good = outcome(doctored(stored, valley))
    for name in (
        "beats-anti-curriculum",
        "beats-curriculum",
        "a35-beats-both",
        "minimum",
        "extremes-highest",
    ):
        assert good[name].holds, name
    assert good["minimum"].found["a"] == 35
    assert good["minimum"].found["tied"] == [35]
    assert good["chance"].holds

    falling = outcome(doctored(stored, 0.7 - 0.002 * a))  # curriculum best
    assert falling["beats-anti-curriculum"].holds
    for name in ("beats-curriculum", "a35-beats-both", "minimum", "extremes-highest"):
        assert not falling[name].holds, name

    hill = outcome(doctored(stored, 0.7 - 0.0001 * (a - 25) ** 2))  # intermediate values worst
    for name in (
        "beats-anti-curriculum",
        "beats-curriculum",
        "a35-beats-both",
        "minimum",
        "extremes-highest",
    ):
        assert not hill[name].holds, name

    flat = outcome(doctored(stored, np.full(11, 0.5), spread=0.02))  # nothing but noise
    assert not flat["beats-anti-curriculum"].holds
    assert not flat["a35-beats-both"].holds

    assert not outcome(doctored(stored, np.full(11, 0.95)))["chance"].holds
    assert not outcome(stored.assign_attrs(chance_error=0.1))["chance"].holds


def test_claims_of_the_other_order_follow_its_data(stored):
    means = stored.error.sel(order="shared").mean("seed").values
    same = doctored(doctored(stored, means), means, "per-seed")
    assert not outcome(same)["sequence-matters"].holds
    assert outcome(doctored(same, means + 0.05, "per-seed"))["sequence-matters"].holds
    hill = 0.7 - 0.0001 * (stored.a.values - 25) ** 2
    assert not outcome(doctored(stored, hill, "per-seed"))["minimum-shuffled"].holds
    only = stored.sel(order=["shared"])
    assert not [name for name in outcome(only) if "shuffled" in name or "sequence" in name]


def test_max_t_test_allows_for_the_number_of_columns():
    rng = np.random.default_rng(3)
    p = np.array([figure.max_t_test(rng.normal(size=(20, 9))) for _ in range(60)])
    assert 0.35 < p.mean() < 0.65
    assert (p < 0.05).mean() < 0.15
    assert figure.max_t_test(rng.normal(size=(20, 9)) - 2) < 0.001
    assert figure.max_t_test(rng.normal(size=(20, 9)) + 2) > 0.9
    assert figure.max_t_test(np.full((1, 9), -1.0)) == 1


def test_plot_without_examples(stored, tmp_path):
    drawing = figure.plot(stored)
    assert len(drawing.axes) == 2
    drawing.savefig(tmp_path / "figure.png")


@pytest.mark.slow
def test_quick_trains_where_there_are_data(some_data, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "train", lambda states, *rest: (states, jnp.ones((5, 2), jnp.float32)))
    monkeypatch.setattr(figure, "QUICK_SAMPLES", 80)
    monkeypatch.setattr(figure, "QUICK_A", (0, 35, 50))
    lines = []
    data = figure.compute(quick=True, progress=lines.append, seeds=2)
    assert lines == [Progress("trained", done, 3) for done in (1, 2, 3)]
    assert data.error.shape == (1, 3, 2)
    assert data.image.shape == (2, 5, 32, 64, 3)
    assert data.attrs["chance_error"] == pytest.approx(0.9)
    assert all(claim.note.startswith("Cut down to 80 samples and 2 seeds") for claim in figure.claims(data))
    drawing = figure.plot(data)
    assert len(drawing.axes) == 12
    drawing.savefig(tmp_path / "figure.png")


def test_examples_are_easy_and_hard(some_data):
    image = figure.compute().image
    left, right = image.isel(column=slice(32)), image.isel(column=slice(32, 64))
    np.testing.assert_array_equal(left.sel(kind="easy"), left.sel(kind="hard"))
    assert not right.sel(kind="easy").any()
    assert abs(float(right.sel(kind="hard").std()) - 1) < 0.02


def test_training_needs_the_data(no_data):
    with pytest.raises(MissingDataError, match="cifar10"):
        figure.compute(run=True)
    assert figure.compute(quick=True).sizes["seed"] == 90  # nothing to train on: the stored table
    with pytest.raises(SpecificationError, match="run=True"):
        figure.compute(seeds=3)


@pytest.mark.slow
def test_a_table_from_elsewhere(no_data, trained):
    result, _ = trained
    path = no_data / "table.json"
    path.write_text(json.dumps(training.to_json([dataclasses.replace(result, a=(0, 50))], FAST, {})))
    with pytest.raises(SpecificationError, match="0, 50 and a value between"):
        figure.compute(table=path)
    three = dataclasses.replace(
        result,
        a=(0, 30, 50),
        **{
            name: np.repeat(getattr(result, name)[:1], 3, axis=0)
            for name in ("error", "error_easy", "error_hard", "loss")
        },
    )
    path.write_text(json.dumps(training.to_json([three], FAST, {})))
    data = figure.compute(table=path)
    assert data.order.values.tolist() == ["shared"]
    assert "a35-beats-both" not in outcome(data)
    assert not any(claim.holds for claim in figure.claims(data) if claim.id.startswith("beats"))
