"""Spectra: what they must be, and blocks that stand for many directions."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import AccuracyWarning, SpecificationError
from optlearn._theory.spectrum import power_law


@pytest.mark.parametrize(
    ("variance", "share", "message"),
    [
        ([1.0, 2.0], [0.5, 0.4], "sum to 1"),
        ([1.0, -2.0], [0.5, 0.5], "at least 0"),
        ([1.0, np.nan], [0.5, 0.5], "finite"),
        ([0.0, 0.0], [0.5, 0.5], "above 0 in some block"),
        ([1.0, 2.0, 3.0], [0.5, 0.5], "each of the 2 shares"),
        ([1.0, 2.0], [1.0, 0.0], "above 0"),
        ([], [], "one number for each block"),
        ("wide", [1.0], "array of numbers"),
    ],
)
def test_bad_blocks_are_refused(variance, share, message):
    with pytest.raises(SpecificationError, match=message):
        ol.Spectrum(variance, share)


@pytest.mark.parametrize("variances", [[1.0, -2.0], [1.0, np.nan], [0.0, 0.0], [], [[1.0]]])
def test_bad_directions_are_refused(variances):
    with pytest.raises(SpecificationError, match="finite numbers of at least 0"):
        ol.Spectrum.reduce(variances, blocks=1)


def test_more_blocks_than_directions_are_refused():
    with pytest.raises(SpecificationError, match="from 1 to 4"):
        ol.Spectrum.power_law(4, 1.5, blocks=8)
    with pytest.raises(SpecificationError, match="from 1 to 3"):
        ol.Spectrum.from_data(np.random.default_rng(0).normal(size=(50, 3)), blocks=4)
    with pytest.raises(SpecificationError, match="less than one direction"):
        ol.Spectrum([4.0, 0.5], [0.01, 0.99]).directions(20)


def test_one_direction_with_almost_all_variance_is_warned_of():
    with pytest.warns(AccuracyWarning, match="block 1 holds 99%"):
        ol.Spectrum([1000.0, 0.01], [0.001, 0.999])
    X = np.random.default_rng(0).normal(size=(200, 5)) * [100, 1, 1, 1, 1]
    with pytest.warns(AccuracyWarning, match="one direction has"):
        ol.Spectrum.from_data(X, blocks=3)


def test_a_large_rate_times_the_largest_share_is_warned_of():
    model = ol.models.committee(1, 1, spectrum=ol.Spectrum.power_law(1000, 1.5, 8), eta=0.5)
    with pytest.warns(AccuracyWarning, match="inaccurate at any N"):
        ol.integrate(model, ol.Schedule.constant(0.01, {"learning_rate": 0.5}), start=model.state(Q11=0.1))


@pytest.mark.parametrize("blocks", [4, 16, 32])
def test_blocks_conserve_what_error_and_noise_see(blocks):
    rng = np.random.default_rng(blocks)
    c, T = rng.exponential(size=300) ** 3, rng.exponential(size=300)
    spectrum, teacher, block_of = ol.Spectrum.reduce(c, T, blocks)
    assert spectrum.blocks <= blocks
    for b in range(spectrum.blocks):
        inside = block_of == b
        assert spectrum.variance[b] * teacher[b] == pytest.approx(c[inside] @ T[inside], rel=1e-12)
        assert spectrum.variance[b] * spectrum.share[b] == pytest.approx(c[inside].sum() / 300, rel=1e-12)
        assert c[inside].min() * (1 - 1e-9) <= spectrum.variance[b] <= c[inside].max() * (1 + 1e-9)


# Largest relative error of the risk with 4, 8, 16 and 32 blocks, to two digits (theory sheet).
REDUCED = {
    (10**3, 1.2): (0.095, 0.029, 0.0072, 0.0018),
    (10**3, 1.5): (0.23, 0.057, 0.0056, 0.0014),
    (10**3, 2.0): (0.63, 0.16, 0.014, 0.0022),
    (10**4, 1.5): (0.62, 0.11, 0.012, 0.0020),
    (10**5, 1.2): (0.31, 0.076, 0.026, 0.0021),
    (10**5, 1.5): (0.72, 0.18, 0.063, 0.0027),
    (10**5, 2.0): (0.84, 0.30, 0.046, 0.0050),
}


@pytest.mark.parametrize(
    ("N", "exponent"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case[0] > 10**4 else []) for case in REDUCED],
)
def test_errors_of_reductions(N, exponent):
    c = power_law(N, exponent)
    T = np.arange(1.0, N + 1) ** -0.5
    errors = np.array(
        [
            ol.Spectrum.reduce(c, T / (c @ T), blocks, training=5.0).spectrum.reduction_error
            for blocks in (4, 8, 16, 32)
        ]
    )
    expected = np.array(REDUCED[N, exponent])
    assert np.all(np.diff(errors) < 0)
    if exponent > 1.2:
        np.testing.assert_allclose(errors[:2], expected[:2], rtol=0.055)
    # Flat spectra have many directions in a bin, and errors of both signs, whose largest moves with details
    # of the bins; finer time grids change none of these numbers.
    assert np.all(errors < (1.05 if exponent > 1.2 else 1.22) * expected)
    assert np.all(errors > expected / 3)


def test_all_directions_are_exact():
    spectrum = ol.Spectrum.power_law(31, 1.5, blocks=None)
    assert spectrum.blocks == 31
    assert spectrum.reduction_error is None
    assert spectrum.variance @ spectrum.share == pytest.approx(1)
    assert spectrum.largest == pytest.approx(1 / np.sum(np.arange(1.0, 32) ** -1.5))


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_marchenko_pastur_has_its_moments(ratio):
    spectrum = ol.Spectrum.marchenko_pastur(ratio, 8)
    moments = [spectrum.share @ spectrum.variance**k for k in (0, 1, 2, 3)]
    y = 1 / ratio
    np.testing.assert_allclose(moments, [1, 1, 1 + y, 1 + 3 * y + y**2], rtol=1e-10)


def test_from_data_finds_the_variances_of_the_data():
    rng = np.random.default_rng(0)
    widths = np.repeat([3.0, 1.0, 0.2], [5, 15, 20])
    X = 4.0 + rng.normal(size=(40_000, 40)) * widths
    spectrum = ol.Spectrum.from_data(X, blocks=None)
    mean = np.mean(widths**2)
    np.testing.assert_allclose(np.sort(spectrum.variance), np.sort(widths**2) / mean, rtol=0.06)
    with pytest.warns(AccuracyWarning, match="one direction"):
        assert ol.Spectrum.from_data(X, centre=False).largest > 0.9


def test_reduced_spectra_have_no_directions_to_simulate():
    spectrum = ol.Spectrum.power_law(1000, 1.5, 8)
    assert abs(spectrum.share.sum() - 1) > 1e-3
    with pytest.raises(SpecificationError, match="blocks=None"):
        spectrum.directions(1000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"K": 2, "M": 2, "T": np.ones((3, 2, 2))}, "2 of these"),
        ({"K": 2, "M": 2, "spectrum": [1, 2]}, "must be a Spectrum"),
    ],
)
def test_models_refuse_what_does_not_fit(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        ol.models.committee(**{"spectrum": ol.Spectrum([1.0, 2.0], [0.5, 0.5]), **arguments})


def test_rows_of_a_spectrum_are_for_the_clusters_there_are():
    spectrum = ol.Spectrum(np.ones((3, 2)), [0.5, 0.5])
    with pytest.raises(SpecificationError, match="rows for 3 clusters; there are 2"):
        ol.models.imbalance(spectrum=spectrum)
    with pytest.raises(SpecificationError, match="need a spectrum"):
        ol.models.Committee(
            **{
                **{k: getattr(ol.models.committee(), k) for k in ("activation", "teacher_activation")},
                "students": 2,
                "overlaps": ol.Overlaps(T=np.ones((2, 1, 1))),
                "parameters": ol.models.committee().parameters,
                "teacher_readout": np.ones((1, 1)),
            }
        )


def test_clusters_that_commute_and_clusters_that_do_not():
    rng = np.random.default_rng(0)
    widths = np.array([[2.0, 2.0, 1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 3.0, 3.0, 1.0, 1.0]])
    tables = [3 * c + rng.normal(size=(100_000, 6)) * widths[c] for c in (0, 1)]
    spectrum = ol.Spectrum.commuting(tables, blocks=3)
    assert spectrum.variance.shape == (2, 3)
    assert spectrum.share.sum() == pytest.approx(1)
    expected = widths[:, ::2] ** 2 / np.mean(widths**2)
    order = np.argsort(expected.mean(axis=0))
    np.testing.assert_allclose(spectrum.variance, expected[:, order], rtol=0.05)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    with pytest.warns(AccuracyWarning, match=r"do not commute: \d+\.\d% of their squares"):
        ol.Spectrum.commuting([tables[0], tables[1] @ turn], blocks=3)
    with pytest.raises(SpecificationError, match="the same features"):
        ol.Spectrum.commuting([tables[0], tables[1][:, :5]])
    with pytest.raises(SpecificationError, match="from 1 to 6"):
        ol.Spectrum.commuting(tables, blocks=7)
