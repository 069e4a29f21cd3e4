import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from optlearn._io.files import load_dataset, save_dataset
from optlearn._progress import Progress
from optlearn.paper import fig4
from optlearn.practice import datasets

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
# Theory's improvement in % at Δ_F = 0.1 … 0.4, and what another program's training measured.
PREDICTED = [2.76, 7.96, 18.71, 37.56]
MEASURED = [2.9, 8.3, 20.8, 39.7]


@pytest.fixture(scope="module")
def drawn_digits():
    """Rings and bars in random places: a stand-in for MNIST."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:28, :28]
    labels = (np.arange(1000) % 2).astype(np.uint8)
    images = []
    for label in labels:
        cx, cy, r = 13.5 + rng.integers(-2, 3), 13.5 + rng.integers(-2, 3), rng.uniform(7, 9)
        ring = np.abs(np.hypot(x - cx, y - cy) - r) < 1.5
        bar = (np.abs(x - cx) < 1.5) & (np.abs(y - cy) < r)
        images.append(np.where(bar if label else ring, 255, 0))
    return datasets.ImageSet(np.array(images, np.uint8), labels)


@pytest.fixture(scope="module")
def stand_in(drawn_digits):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig4, "mnist", lambda split, data_dir: drawn_digits)
        said = []
        data = fig4.compute(progress=said.append, intervals=10, sets=2, further_sets=1)
    assert said[0] == Progress("fitting the clusters", 0, 6)
    assert said[-1] == Progress("training", 5, 6)
    return data


@pytest.fixture(scope="module")
def real():
    folder = Path(os.environ.get(datasets.ENVIRONMENT) or SHARED)
    if datasets.MNIST.missing(datasets.MNIST.locate(folder)):
        pytest.skip(f"MNIST is not in {folder}; set {datasets.ENVIRONMENT} to the folder that has it")
    return fig4.compute(quick=True, data_dir=folder)


def test_needs_mnist(tmp_path):
    with pytest.raises(datasets.MissingDataError):
        fig4.compute(data_dir=tmp_path)


@pytest.mark.slow
def test_shapes(stand_in):
    assert stand_in.noise.shape == (4, 10)
    assert stand_in.error.shape == (2, 4, 2, 51)
    assert stand_in.end_error.shape == (3, 4, 2, 2)
    assert stand_in.image.shape == (4, 6, 28, 28)
    assert stand_in.attrs["test_images"] == 1000 - 784
    np.testing.assert_array_equal(stand_in.alpha[[0, -1]], [0, 1])
    np.testing.assert_array_equal(stand_in.end_error[:2, ..., 1], stand_in.error[..., -1])
    # Both schedules begin with the same weights.
    np.testing.assert_array_equal(stand_in.error[:, :, 0, 0], stand_in.error[:, :, 1, 0])


@pytest.mark.slow
def test_drawn_and_checked_from_the_file(stand_in, tmp_path):
    save_dataset(stand_in, tmp_path / "data.nc")
    data = load_dataset(tmp_path / "data.nc")
    figure = fig4.plot(data)
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "fig4.png", dpi=40)
    checked = fig4.claims(data)
    assert len({claim.id for claim in checked}) == len(checked) == 12
    assert not next(claim for claim in checked if claim.id == "Omega22").holds


@pytest.mark.slow
def test_schedules_of_mnist(real):
    final = fig4._predicted(real)[:, -1]
    np.testing.assert_allclose(final, PREDICTED, rtol=0.01)
    assert real.converged.all()


@pytest.mark.slow
def test_training_on_mnist(real):
    sets = fig4._measured(real)[:, :, -1]
    mean, half = fig4.denoise.mean_interval(sets)
    assert np.all(np.abs(mean - MEASURED) < half)
    assert np.all(sets > 0)
    gaussian = real.gaussian_error.mean("set").values
    theory = real.theory_error.sel(terms="finite size").values[..., -1]
    np.testing.assert_allclose(theory, gaussian, rtol=0.03)


@pytest.mark.slow
def test_claims_about_mnist(real):
    holds = {claim.id: claim.holds for claim in fig4.claims(real)}
    wrong = {claim for claim, held in holds.items() if not held}
    # A misprint; and the images are not isotropic clusters, which shows in the error itself.
    assert wrong == {"Omega11", "isotropic-clusters", "errors-against-training"}
