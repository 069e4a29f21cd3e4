"""Order parameters: flat form, names, construction, and the overlaps of the constants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optlearn._errors import SpecificationError
from optlearn._theory.order import OrderParameters, OverlapLayout, Overlaps


@st.composite
def layouts(draw):
    sizes = {
        "students": draw(st.integers(1, 4)),
        "teachers": draw(st.integers(0, 3)),
        "centroids": draw(st.integers(0, 3)),
        "heads": draw(st.integers(0, 3)),
        "extras": tuple(draw(st.lists(st.sampled_from(["b", "gain"]), unique=True))),
    }
    names = OverlapLayout(**sizes).names
    untracked = draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
    return OverlapLayout(**sizes, untracked=frozenset(untracked) - set(sizes["extras"]))


def expected_size(layout):
    K = layout.students
    full = K * (K + 1) // 2 + K * (layout.teachers + layout.centroids + layout.heads)
    return full + len(layout.extras) - len(layout.untracked)


@given(layouts(), st.sampled_from([(), (3,), (2, 3)]), st.integers(0, 2**32 - 1))
def test_round_trip(layout, batch, seed):
    flat = np.random.default_rng(seed).normal(size=(*batch, layout.size))
    x = layout.unflatten(flat)
    assert layout.size == expected_size(layout)
    assert x.Q.shape == (*batch, layout.students, layout.students)
    assert x.R.shape == (*batch, layout.students, layout.centroids)
    np.testing.assert_array_equal(x.Q, np.swapaxes(x.Q, -1, -2))
    again = layout.flatten(x)
    assert isinstance(again, np.ndarray)
    np.testing.assert_array_equal(again, flat)
    for i, name in enumerate(layout.names):
        np.testing.assert_array_equal(x[name], flat[..., i], err_msg=name)
    for name in layout.untracked:
        np.testing.assert_array_equal(x[name], np.zeros(batch), err_msg=name)


@pytest.mark.parametrize("heads", [0, 1, 2])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_numpy_and_jax_paths_agree(heads, batch):
    layout = OverlapLayout(3, 2, 1, heads, ("b",), frozenset({"Q12", "M31", "R11"}))
    flat = np.random.default_rng(0).normal(size=(*batch, layout.size))
    from_numpy, from_jax = layout.unflatten(flat), layout.unflatten(jnp.asarray(flat))
    for a, b in zip(jax.tree.leaves(from_numpy), jax.tree.leaves(from_jax), strict=True):
        assert isinstance(b, jax.Array)
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(layout.flatten(from_jax), flat)
    assert isinstance(layout.flatten(from_jax), jax.Array)


def test_names_and_their_order():
    layout = OverlapLayout(2, 1, 2, 2, ("b",), frozenset({"M21"}))
    wanted = "Q11 Q12 Q22 M11 R11 R12 R21 R22 v11 v12 v21 v22 b"
    assert layout.names == tuple(wanted.split())
    assert OverlapLayout(2, heads=1).names == ("Q11", "Q12", "Q22", "v1", "v2")


@pytest.mark.parametrize("heads", [1, 2])
def test_names_from_ten_nodes_on(heads):
    layout = OverlapLayout(12, 1, heads=heads)
    flat = np.arange(float(layout.size))
    x = layout.unflatten(flat)
    assert {"Q11", "Q1,10", "Q9,10", "Q10,12", "M99", "M12,1"} & set(layout.names) == {
        "Q11",
        "Q1,10",
        "Q9,10",
        "Q10,12",
        "M12,1",
    }
    assert len(set(layout.names)) == layout.size
    for i, name in enumerate(layout.names):
        assert x[name] == flat[i], name
    assert x["Q12,10"] == x["Q10,12"]
    built = layout.state(**{name: flat[i] for i, name in enumerate(layout.names)})
    np.testing.assert_array_equal(layout.flatten(built), flat)


@pytest.mark.parametrize(
    "name",
    ["", "Q", "Q1", "Q13", "Q31", "Q00", "Q111", "M12", "R11", "v11", "P11", "b", "Q1,", "Qab"],
)
def test_wrong_names(name):
    x = OverlapLayout(2, 1).state(Q=np.eye(2))
    with pytest.raises(KeyError, match="no order parameter"):
        x[name]


def test_state_from_matrices_and_entries():
    layout = OverlapLayout(2, 1, 1, 1, ("b",))
    x = layout.state(Q=[[1.0, 0.1], [0.1, 2.0]], Q12=0.3, M21=0.4, R=[[5.0], [6.0]], v2=7.0, b=8.0)
    assert isinstance(x, OrderParameters)
    np.testing.assert_array_equal(x.Q, [[1, 0.3], [0.3, 2]])
    np.testing.assert_array_equal(x.M, [[0], [0.4]])
    np.testing.assert_array_equal(x.R, [[5], [6]])
    np.testing.assert_array_equal(x.v, [[0], [7]])
    assert x["b"] == 8
    assert layout.state()["Q11"] == 0


def test_state_does_not_alias_its_arguments():
    Q = np.eye(2)
    x = OverlapLayout(2).state(Q=Q, Q12=0.5)
    assert Q[0, 1] == 0
    assert x.Q[1, 0] == 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"Q": [[1.0, 0.2], [0.3, 1.0]]}, "Q must be symmetric"),
        ({"Q33": 1.0}, "unknown order parameter 'Q33'; this model has Q11, Q12, Q22, M11, M21"),
        ({"b": 1.0}, "unknown order parameter 'b'"),
        ({"Q": np.eye(3)}, r"Q must have shape \(2, 2\) .*got \(3, 3\)"),
        ({"M": [0.1, 0.2, 0.3]}, r"M must have shape \(2, 1\) .*got \(3,\)"),
    ],
)
def test_state_errors(values, message):
    with pytest.raises(SpecificationError, match=message):
        OverlapLayout(2, 1).state(**values)


def test_derivative_by_an_off_diagonal_entry_counts_both_halves_of_q():
    layout = OverlapLayout(2, 1)
    weights = jnp.array([[1.0, 10.0], [100.0, 1000.0]])
    gradient = jax.grad(lambda flat: jnp.sum(weights * layout.unflatten(flat).Q))(jnp.zeros(layout.size))
    np.testing.assert_array_equal(gradient, [1, 110, 1000, 0, 0])
    # One that reads only the upper half still sees the entry once, and diagonals are not doubled.
    upper = jax.grad(lambda flat: layout.unflatten(flat).Q[0, 1] ** 2)(jnp.full(layout.size, 0.5))
    np.testing.assert_array_equal(upper, [0, 1, 0, 0, 0])


def test_overlaps_defaults_and_shapes():
    overlaps = Overlaps(T=2.0, Omega=[[1.0, 0.5], [0.5, 1.0]])
    assert (overlaps.T.shape, overlaps.S.shape, overlaps.Omega.shape) == ((1, 1), (1, 2), (2, 2))
    assert not np.any(overlaps.S)
    assert Overlaps().T.shape == (0, 0)
    # Singular is physical: two equal teachers.
    Overlaps(T=np.ones((2, 2)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"T": [[1.0, 0.5], [0.4, 1.0]]}, "T must be symmetric"),
        ({"Omega": [[1.0, 0.5], [0.4, 1.0]]}, "Omega must be symmetric"),
        ({"T": [1.0, 1.0]}, r"T must be a square matrix, got shape \(2,\)"),
        ({"T": np.ones((2, 3))}, r"T must be a square matrix, got shape \(2, 3\)"),
        ({"T": [[1.0, 2.0], [2.0, 1.0]]}, "not positive semidefinite .lowest eigenvalue -1"),
        ({"T": -1.0}, "not positive semidefinite"),
        ({"T": 1.0, "Omega": 1.0, "S": [[1.1]]}, "not positive semidefinite"),
        ({"T": 1.0, "Omega": 1.0, "S": [0.1]}, r"S has shape \(1,\).*it must be \(1, 1\)"),
        ({"T": 1.0, "S": [[0.1]]}, r"1 teachers and 0 centroids it must be \(1, 0\)"),
        ({"T": np.nan}, "not all numbers are finite"),
        ({"T": 1.0, "Omega": 1.0, "S": [[np.inf]]}, "not all numbers are finite"),
    ],
)
def test_overlaps_errors(values, message):
    with pytest.raises(SpecificationError, match=message):
        Overlaps(**values)
