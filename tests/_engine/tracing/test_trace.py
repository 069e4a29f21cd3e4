"""The CasADi form of a function agrees with JAX in value, Jacobian and Hessian."""

import inspect
import time
from functools import partial

import casadi
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._engine.tracing.trace import (
    UnsupportedPrimitive,
    dependencies,
    evaluate,
    interpretations,
    trace,
)
from optlearn._engine.tracing.values import sx_array, sx_vector
from optlearn._theory.sample import Fields

RELATIVE = 1e-10
POINT = np.array([0.31, -0.72, 1.43, 0.58])  # away from kinks and ties
MATRIX = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
PICK = jnp.array([2, 0, 0, -1])
UPPER = np.triu_indices(3)


def flat(tree):
    return jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(tree)])


def assert_close(actual, desired, what):
    actual, desired = np.asarray(actual), np.asarray(desired)
    scale = max(1.0, np.max(np.abs(desired), initial=0.0))
    np.testing.assert_allclose(actual, desired, rtol=RELATIVE, atol=RELATIVE * scale, err_msg=what)


# Compiling the reference is what takes time here, so let XLA optimise as little as it can.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def reference(fn, point, weights):
    """Value, Jacobian and Hessian of the weighted sum, from JAX in one compilation."""

    def both(x):
        value = flat(fn(x))
        return value, value

    def slopes(x):
        jacobian, value = jax.jacfwd(both, has_aux=True)(x)
        return weights @ jacobian, (value, jacobian)

    def everything(x):
        hessian, (value, jacobian) = jax.jacfwd(slopes, has_aux=True)(x)
        return value, jacobian, hessian

    return jax.jit(everything, compiler_options=QUICK)(point)


def assert_agrees(fn, point):
    """Compare fn (one vector argument) with its CasADi form, derivatives included.

    Its evaluation on numbers must agree too.
    """
    function = trace(lambda x: flat(fn(x)), point).function()
    x = casadi.SX.sym("x", point.size)
    value = function(x)
    weights = np.random.default_rng(1).normal(size=value.numel())
    jacobian = casadi.densify(casadi.jacobian(value, x))
    hessian = casadi.densify(casadi.hessian(casadi.dot(value, weights), x)[0])
    ours = casadi.Function("all", [x], [value, jacobian, hessian])(point)
    theirs = reference(fn, point, weights)
    assert_close(ours[0].full().ravel(), theirs[0], "value")
    assert_close(ours[1].full(), theirs[1], "Jacobian")
    assert_close(ours[2].full(), theirs[2], "Hessian")
    numbers = [np.ravel(leaf) for leaf in jax.tree.leaves(evaluate(fn, point))]
    assert_close(np.concatenate(numbers), theirs[0], "value on numbers")


ELEMENTWISE = {
    "add": lambda x: x + x[::-1],
    "sub": lambda x: 1.5 - x,
    "mul": lambda x: x * x[::-1],
    "div": lambda x: 1.0 / x + x / (2.0 + x[::-1]),
    "rem": lambda x: jax.lax.rem(x, jnp.full(4, 0.4)),
    "remainder": lambda x: x % 0.4,
    "neg": lambda x: -x,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": lambda x: jnp.arcsin(x / 2.0),
    "acos": lambda x: jnp.arccos(x / 2.0),
    "atan": jnp.arctan,
    "atan2": lambda x: jnp.arctan2(x, x[::-1]),
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "tanh": jnp.tanh,
    "asinh": jnp.arcsinh,
    "acosh": lambda x: jnp.arccosh(2.0 + x),
    "atanh": lambda x: jnp.arctanh(x / 2.0),
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": lambda x: jnp.log(1.0 + x * x),
    "log1p": lambda x: jnp.log1p(x * x),
    "sqrt": lambda x: jnp.sqrt(1.0 + x),
    "rsqrt": lambda x: jax.lax.rsqrt(1.0 + x),
    "cbrt": jnp.cbrt,
    "square": jnp.square,
    "integer_pow": lambda x: x**2 + x**5 - x**-3,
    "pow constant": lambda x: (1.0 + x) ** 2.5 + (1.0 + x) ** 2.0,
    "pow symbolic": lambda x: (1.0 + x) ** x[::-1],
    "pow base": lambda x: 1.7**x,
    "logistic": jax.nn.sigmoid,
    "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc,
    "erf_inv": lambda x: jax.scipy.special.erfinv(x / 2.0),
    "abs": lambda x: jnp.abs(x) * x,
    "sign": lambda x: jnp.sign(x) * jnp.sin(x),
    "max": lambda x: jnp.maximum(x * x, x),
    "min": lambda x: jnp.minimum(x * x, 0.4),
    "floor": lambda x: jnp.floor(3.0 * x) * x,
    "ceil": lambda x: jnp.ceil(3.0 * x) * x,
    "round": lambda x: jnp.round(3.0 * x) * x,
    "clip": lambda x: jnp.clip(x, -0.5, 1.0) ** 2,
    "clamp": lambda x: jax.lax.clamp(-0.5, x, 1.0) ** 2,
    "to integer": lambda x: (3.0 * x).astype(int).astype(float) * x,
    "integer division": lambda x: jax.lax.div((9.0 * x).astype(int), jnp.full(4, 2)).astype(float),
    "comparisons": lambda x: (
        jnp.stack([x == 0.31, x != 0.31, x < 0.4, x <= 0.31, x > 0.4, x >= 1.43]).astype(float)
        * jnp.stack([x] * 6)
    ),
    "logic": lambda x: jnp.where((x > 0.0) & ~(x > 1.0) | (x < -0.7), x**2, jnp.sin(x)),
    "xor": lambda x: jnp.where((x > 0.0) ^ (x > 1.0), x**2, 0.0),
    "is_finite": lambda x: jnp.where(jnp.isfinite(x), x**2, 0.0),
    "isnan": lambda x: jnp.where(jnp.isnan(x), 0.0, x**3),
    "softplus": jax.nn.softplus,
    "relu": lambda x: jax.nn.relu(x) ** 2,
    "gelu": jax.nn.gelu,
    "stop_gradient": lambda x: jax.nn.softmax(x),
    "logsumexp": jax.nn.logsumexp,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    assert_agrees(ELEMENTWISE[name], POINT)


@jax.custom_jvp
def cube(x):
    return x**3


@cube.defjvp
def cube_jvp(primals, tangents):
    return cube(primals[0]), 3.0 * primals[0] ** 2 * tangents[0]


@jax.custom_vjp
def fourth(x):
    return x**4


fourth.defvjp(lambda x: (fourth(x), x), lambda x, cotangent: (4.0 * x**3 * cotangent,))


def spd(x):
    """A positive definite (3, 3) matrix from a vector of four."""
    root = jnp.outer(x[:3], x[1:]) + 2.0 * jnp.eye(3)
    return root @ root.T


def solve_with_scan(x):
    def step(carry, row):
        carry = jnp.tanh(MATRIX @ carry) + row
        return carry, carry[0] * row

    return jax.lax.scan(step, x, jnp.outer(jnp.arange(1.0, 4.0), x))


def loop_with_index(x):
    return jax.lax.fori_loop(0, 5, lambda i, total: total * x[i % 4] + 1.0, 1.0)


def loop_with_numeric_condition(x):
    return jax.lax.while_loop(
        lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, carry[1] * jnp.sin(x)), (0, x)
    )[1]


ARRAYS = {
    "matmul": lambda x: MATRIX @ x + x @ MATRIX,
    "matrix product": lambda x: jnp.outer(x, x) @ MATRIX @ jnp.outer(x, jnp.sin(x)),
    "dot": lambda x: jnp.dot(x, x),
    "outer": lambda x: jnp.outer(x, jnp.exp(x)),
    "einsum batch": lambda x: jnp.einsum(
        "bij,bjk->kbi", x.reshape(2, 2, 1) * jnp.ones((2, 2, 3)), jnp.sin(MATRIX[:, :3] + x[0])
        .reshape(2, 2, 3).repeat(2, axis=1)[:, :3]
    ),
    "einsum trace": lambda x: jnp.einsum("ii,i->i", jnp.outer(x, x), x),
    "tensordot": lambda x: jnp.tensordot(
        jnp.outer(x, x).reshape(2, 2, 4), MATRIX.reshape(4, 2, 2), axes=((2, 0), (0, 2))
    ),
    "fancy index": lambda x: x[PICK] ** 2,
    "fancy rows": lambda x: jnp.outer(x, x)[PICK],
    "fancy columns": lambda x: jnp.outer(x, x**2)[:, PICK],
    "fancy pairs": lambda x: jnp.outer(x, x**2)[PICK, jnp.array([0, 1, 2, 3])],
    "fancy between": lambda x: jnp.outer(x, x**2).reshape(2, 2, 2, 2)[:, jnp.array([1, 0, 1]), 1],
    "take out of bounds": lambda x: jnp.take(x, jnp.array([1, 9]), mode="clip") ** 2,
    "take fill": lambda x: jnp.take(x**2, jnp.array([1, 9]), mode="fill", fill_value=3.0),
    "triu indices": lambda x: jnp.outer(x[1:], x[:3] ** 2)[UPPER],
    "traced triu indices": lambda x: jnp.outer(x[1:], x[:3] ** 2)[jnp.triu_indices(3)],
    "tril": lambda x: jnp.tril(jnp.outer(x, x)),
    "slices": lambda x: (x[::-1][1:3] ** 2, x[-1], x[::2], x.reshape(2, 2).T[0]),
    "empty": lambda x: jnp.concatenate([x[:0] * 2.0, x**2, jnp.sin(x[:0])]),
    "empty sum": lambda x: jnp.sum(x[:0]) + jnp.zeros((3, 0)) @ x[:0],
    "at set": lambda x: jnp.zeros(5).at[jnp.array([4, 1, 0, 2])].set(x**2),
    "at set row": lambda x: jnp.outer(x, x).at[1].set(jnp.cos(x)),
    "at set element": lambda x: x.at[1].set(x[0] ** 2),
    "at add repeated": lambda x: x.at[PICK].add(x**2),
    "at add out of bounds": lambda x: x.at[jnp.array([7, 1])].add(x[:2] ** 2),
    "at multiply": lambda x: x.at[PICK[1:2]].multiply(jnp.sin(x[3:]), unique_indices=True),
    "at max": lambda x: x.at[PICK].max(x**2),
    "at min block": lambda x: jnp.outer(x, x).at[1:3, jnp.array([3, 0])].min(0.1 * x[2]),
    "at columns": lambda x: jnp.zeros((3, 4)).at[:, jnp.array([3, 0])].add(
        jnp.outer(x[:3], x[:2] ** 2)
    ),
    "dynamic_slice": lambda x: jax.lax.dynamic_slice(x**2, (jnp.array(3),), (2,)),
    "dynamic_update_slice": lambda x: jax.lax.dynamic_update_slice(x, x[:2] ** 2, (1,)),
    "pad": lambda x: jax.lax.pad(jnp.outer(x, x), x[0], ((1, -1, 1), (-1, 2, 0))),
    "stack": lambda x: jnp.stack([x, x**2], axis=1),
    "tile repeat": lambda x: (jnp.tile(x**2, (2, 2)), jnp.repeat(x**3, 2), jnp.roll(x, 1)),
    "split": lambda x: jnp.split(x**2, [1, 3]),
    "diagonal": lambda x: (jnp.diag(x**2), jnp.diagonal(jnp.outer(x, x))),
    "trace": lambda x: jnp.trace(jnp.outer(x, x)),
    "where": lambda x: jnp.where(x > 0.0, jnp.sin(x), x**2),
    "where constant": lambda x: jnp.where(jnp.arange(4) > 1, jnp.sin(x), x**2),
    "select many": lambda x: jax.lax.select_n(
        jnp.array([2, 0, 1, 2]), x, jnp.sin(x), x**3
    ) + jax.lax.select_n((x * 2.0).astype(jnp.int32), x, jnp.sin(x), x**3),
    "sum": lambda x: (jnp.sum(x**2), jnp.sum(jnp.outer(x, x**2)[:3], axis=0)),
    "mean axis": lambda x: jnp.mean(jnp.outer(x, x**2)[:, :3], axis=1),
    "max": lambda x: jnp.max(x) * jnp.min(jnp.sin(x)),
    "prod": lambda x: jnp.prod(x[:3]) + jnp.prod(jnp.outer(x, x), axis=1)[0],
    "any all": lambda x: jnp.where(jnp.any(x > 1.0) & ~jnp.all(x > 1.0), x**2, x),
    "cumsum": lambda x: jnp.cumsum(x**2),
    "cumsum axis": lambda x: jnp.cumsum(jnp.outer(x, x**2)[:, :3], axis=1),
    "cumsum reversed": lambda x: jax.lax.cumsum(jnp.outer(x, x**2)[:3], axis=0, reverse=True),
    "cumprod": lambda x: jnp.cumprod(x),
    "cummax": lambda x: jax.lax.cummax(x**2),
    "norm": jnp.linalg.norm,
    "cholesky": lambda x: jnp.linalg.cholesky(spd(x)),
    "cholesky batch": lambda x: jnp.linalg.cholesky(jnp.stack([spd(x), spd(x + 1.0)])),
    "cho_solve": lambda x: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(spd(x)), True), x[:3]),
    "triangular": lambda x: [
        jax.scipy.linalg.solve_triangular(spd(x), x[1:], trans, lower, unit)
        for trans, lower, unit in [(0, True, False), (1, False, False), (1, True, True)]
    ],
    "triangular right": lambda x: jax.lax.linalg.triangular_solve(
        spd(x), jnp.outer(x, x[:3]), left_side=False, lower=True, transpose_a=True
    ),
    "triangular right plain": lambda x: jax.lax.linalg.triangular_solve(
        spd(x), jnp.outer(x, x[:3]), left_side=False, lower=False
    ),
    "scan": solve_with_scan,
    "scan reverse": lambda x: jax.lax.scan(lambda c, r: (c * r, c + r), 1.0, x, reverse=True),
    "fori_loop": loop_with_index,
    "while numeric": loop_with_numeric_condition,
    "associative_scan": lambda x: jax.lax.associative_scan(jnp.multiply, x),
    "cond": lambda x: jax.lax.cond(x[0] > 0.5, jnp.sin, jnp.cos, x),
    "cond constant": lambda x: jax.lax.cond(jnp.array(3) > 2, jnp.sin, jnp.cos, x),
    "switch": lambda x: jax.lax.switch(
        (x[0] * 7.0).astype(jnp.int32), [jnp.sin, jnp.cos, jnp.exp], x
    ),
    "vmap": lambda x: jax.vmap(lambda a, b: jnp.sin(a) * b @ x)(x, jnp.outer(x, x)),
    "vmap gather": lambda x: jax.vmap(lambda row, i: row[i] ** 2)(jnp.outer(x, x), PICK),
    "vmap scatter": lambda x: jax.vmap(lambda row, i: row.at[i].add(x[0]))(jnp.outer(x, x), PICK),
    "nested jit": lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) * y)(x),
    "remat": jax.checkpoint(lambda x: jnp.sin(x) * x),
    "custom_jvp": cube,
    "grad": jax.grad(lambda x: jnp.sum(jnp.sin(x) * x[PICK]) + jnp.max(x) + cube(x)[1]),
    "grad of scan": jax.grad(lambda x: jnp.sum(solve_with_scan(x)[1])),
    "grad of cholesky": jax.grad(lambda x: jnp.sum(jnp.linalg.cholesky(spd(x)) ** 2 * x[0])),
    "jacfwd": jax.jacfwd(lambda x: jnp.cumsum(x**3)),
    "hessian-vector": lambda x: jax.jvp(jax.grad(lambda y: jnp.prod(jnp.sin(y))), (x,), (x**2,))[1],
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_array_functions(name):
    assert_agrees(ARRAYS[name], POINT)


def test_custom_vjp():
    function = trace(fourth, POINT).function()
    np.testing.assert_allclose(function(POINT).full().ravel(), POINT**4, rtol=RELATIVE)
    slope = trace(jax.grad(lambda x: jnp.sum(fourth(x))), POINT).function()
    np.testing.assert_allclose(slope(POINT).full().ravel(), 4.0 * POINT**3, rtol=RELATIVE)


def test_branch_not_taken_spoils_neither_value_nor_derivative():
    def guarded(x):
        root = jnp.where(x > 0.0, jnp.sqrt(x), x**2)
        inverse = jnp.where(x == 0.0, 1.0, 1.0 / x)
        return root, inverse, jax.lax.cond(x[1] > 0.0, jnp.log, jnp.sin, x)

    point = np.array([0.0, -1.0, 4.0])
    x = casadi.SX.sym("x", 3)
    root, inverse, either = trace(guarded, point).function()(x)
    outputs = casadi.vertcat(root, inverse, either)
    values, slopes = casadi.Function("f", [x], [outputs, casadi.jtimes(outputs, x, np.ones(3))])(point)
    np.testing.assert_allclose(values.full()[:6, 0], [0.0, 1.0, 2.0, 1.0, -1.0, 0.25])
    np.testing.assert_allclose(values.full()[6:, 0], np.sin(point))
    np.testing.assert_allclose(slopes.full()[:6, 0], [0.0, -2.0, 0.25, 0.0, -1.0, -1.0 / 16.0])
    np.testing.assert_allclose(slopes.full()[6:, 0], np.cos(point))


def test_pytree_arguments_and_outputs():
    def fn(state, rates, nothing):
        assert nothing == {}
        force = rates["k"] @ state["x"] * rates["c"]
        return {"x": state["v"], "v": force}, jnp.sum(force)

    rng = np.random.default_rng(2)
    state = {"x": rng.normal(size=3), "v": rng.normal(size=2)}
    rates = {"k": rng.normal(size=(2, 3)), "c": 0.5}
    function = trace(fn, state, rates, {}).function("model")
    assert function.name() == "model"
    assert [function.size_in(i) for i in range(3)] == [(5, 1), (7, 1), (0, 1)]
    assert [function.size_out(i) for i in range(2)] == [(4, 1), (1, 1)]
    columns = [np.asarray(flat(state)), np.asarray(flat(rates)), np.zeros((0, 1))]
    derivative, total = function(*columns)
    expected = fn(state, rates, {})
    assert_close(derivative.full().ravel(), flat(expected[0]), "first output")
    assert_close(total.full().ravel(), [expected[1]], "second output")


def test_expressions_keep_structure_and_shapes():
    traced = trace(lambda x, k: {"a": k["m"] @ x, "b": jnp.sum(x)}, np.ones(2), {"m": np.ones((3, 2))})
    x = sx_array(casadi.SX.sym("x", 2), (2,))
    constant = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    result = traced.expressions(x, {"m": constant})
    assert result["a"].shape == (3,)
    assert result["a"].dtype == object
    assert result["b"].shape == ()
    assert result["b"].dtype == object
    # Constant ones and zeros leave no arithmetic behind.
    assert casadi.is_equal(result["a"][0], x[0])
    assert result["a"][2].is_zero()
    with pytest.raises(ValueError, match="shape"):
        traced.expressions(x, {"m": constant.T})
    with pytest.raises(ValueError, match="argument 1"):
        traced.expressions(x, {"wrong": constant})
    with pytest.raises(ValueError, match="2 arguments"):
        traced.expressions(x)


def test_vector_and_array_conversions_are_inverse():
    matrix = sx_array(casadi.SX.sym("x", 6), (2, 3))
    column = sx_vector(matrix.T)
    assert column.shape == (6, 1)
    assert str(column) == "[x_0, x_3, x_1, x_4, x_2, x_5]"
    assert casadi.is_equal(sx_vector(sx_array(column, (3, 2))), column)
    assert sx_vector(np.zeros((0, 3))).shape == (0, 1)
    mixed = np.empty(2, object)
    mixed[0], mixed[1] = casadi.SX(1, 1), 2.0  # a structural zero and a plain number
    assert sx_vector(mixed).nnz() == 2


def test_constants_stay_numeric():
    def fn(x, k):
        table = jnp.cumsum(jnp.arange(4.0)) * k + jax.scipy.special.erf(k)
        table = table.at[jnp.array([1, 1])].add(2.0).at[0].set(jnp.linalg.norm(table))
        order = jnp.argsort(table)
        roots = jax.lax.while_loop(lambda v: v < 9.0, lambda v: v * v, k + 1.0)
        numbers = (table, order, roots, jnp.zeros(3) / 0.0, jnp.arange(5) // 2 - jnp.arange(5) % 3)
        return x[order] * roots, numbers, jnp.outer(table, table)[:, order].T

    k = 0.7
    x = sx_array(casadi.SX.sym("x", 4), (4,))
    symbolic, numbers, matrix = trace(fn, np.ones(4), k).expressions(x, k)
    assert symbolic.dtype == object
    expected = jax.jit(fn, compiler_options=QUICK)(np.ones(4), k)
    for ours, theirs in zip([*numbers, matrix], [*expected[1], expected[2]], strict=True):
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_integer_argument_as_constant_index():
    traced = trace(lambda x, i: x[i] ** 2, np.ones(4), np.array([3, 1]))
    x = sx_array(casadi.SX.sym("x", 4), (4,))
    assert str(sx_vector(traced.expressions(x, np.array([3, 1])))) == "[sq(x_3), sq(x_1)]"
    with pytest.raises(UnsupportedPrimitive, match="depends on a symbol"):
        traced.function()


def test_halves_round_to_even():
    halves = np.array([0.5, 1.5, -2.5, -0.5, 3.5])
    rounded = trace(jnp.round, halves).function()(halves)
    np.testing.assert_array_equal(rounded.full().ravel(), np.round(halves))


def test_integer_powers_are_multiplied_out():
    function = trace(lambda x: x**2 + x**3.0, 1.0).function()
    assert "pow" not in str(function(casadi.SX.sym("x")))


def test_common_subexpressions_are_shared():
    function = trace(lambda x: (jnp.sin(x) * 2.0, jnp.sin(x) * 3.0), 1.0).function()
    operations = [function.instruction_id(i) for i in range(function.n_instructions())]
    assert operations.count(casadi.OP_SIN) == 1


def unsupported_line(x):
    return jnp.argmax(x) + 1  # the error names this line


def test_unsupported_primitive_is_named_with_its_source_line():
    line = inspect.getsourcelines(unsupported_line)[1] + 1
    traced = trace(unsupported_line, np.ones(3))
    with pytest.raises(UnsupportedPrimitive, match="'argmax'") as error:
        traced.function()
    assert f"test_trace.py:{line}" in str(error.value)
    assert "unsupported_line" in str(error.value)
    assert "XLA" in str(error.value)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[(x[0] * 2.0).astype(int)],
        lambda x: jax.lax.while_loop(lambda y: y < 9.0, lambda y: y * 2.0, x[0]),
        jnp.sort,
        lambda x: (x.astype(int) & 3).astype(float),
        lambda x: jax.lax.round(x, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
        lambda x: jnp.abs(jnp.fft.fft(x)),
        lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.eye(4), x),
    ],
    ids=["index", "while", "sort", "bits", "away from zero", "complex", "lu"],
)
def test_unsupported(fn):
    with pytest.raises(UnsupportedPrimitive):
        trace(fn, POINT).function()


def test_unsupported_code_that_no_output_needs_is_skipped():
    def fn(x):
        jnp.argmax(x)
        return x * 2.0

    assert_agrees(fn, POINT)


def test_dependencies_see_step_functions():
    def fn(state, k):
        used = (
            jnp.sign(state["x"][1])
            + jnp.where(state["y"][0, 1] > 0.0, 1.0, 2.0)
            + jnp.floor(state["y"][1, 0])
        )
        return used + 0.0 * state["x"][0] + jnp.dot(k, jnp.array([0.0, 1.0])) * state["x"][2]

    marks = dependencies(fn, {"x": np.ones(3), "y": np.ones((2, 2))}, np.ones(2))
    assert marks["x"].dtype == bool
    assert marks["x"].tolist() == [False, True, True]
    assert marks["y"].tolist() == [[False, True], [True, False]]


def test_dependencies_with_index_argument_and_constant_result():
    marks = dependencies(lambda x, i: x[i], np.ones(3), np.array([2, 2]))
    assert marks.tolist() == [False, False, True]
    assert dependencies(lambda x: jnp.ones(2), np.ones(3)).tolist() == [False] * 3


def loss_with_label(fields, latent, labels):
    return labels[latent["cluster"][0]] - fields.student[0, 0]


def test_an_unknown_label_reads_no_field():
    fields = Fields(np.ones((2, 3)), np.ones((2, 1)), np.ones(()))
    latent = {"cluster": jax.ShapeDtypeStruct((2,), int)}
    for labels in (np.ones(4), jax.ShapeDtypeStruct((4,), float)):
        marks = dependencies(loss_with_label, fields, latent, labels)
        assert marks.student.tolist() == [[True, False, False], [False] * 3]
        assert not marks.teacher.any()
        assert not marks.noise


def test_an_unknown_task_reads_its_row():
    fields = Fields(np.ones((2, 3)), np.ones((2, 1)), np.ones(()))
    task = {"task": jax.ShapeDtypeStruct((), int)}
    marks = dependencies(lambda f, latent: f.student[0, latent["task"]], fields, task)
    assert marks.student.tolist() == [[True] * 3, [False] * 3]
    assert not marks.teacher.any()
    assert not marks.noise


TABLE = np.arange(12.0).reshape(3, 4)
UNKNOWN = jax.ShapeDtypeStruct((), int)
UNKNOWNS = jax.ShapeDtypeStruct((2,), int)
ROW = np.array([[True] * 4, [False] * 4, [False] * 4])
COLUMN = np.array([[False, True, False, False]] * 3)
EVERYTHING = np.ones((3, 4), bool)
LOOKUPS = {
    "entry of a row": (lambda x, i: x[0, i], UNKNOWN, ROW),
    "entries of a row": (lambda x, i: x[0, i], UNKNOWNS, ROW),
    "entry of a column": (lambda x, i: x[i, 1], UNKNOWN, COLUMN),
    "column of an unknown row": (lambda x, i: x[i][1], UNKNOWN, COLUMN),
    "column of unknown rows": (lambda x, i: jnp.take(x, i, axis=0)[:, 1], UNKNOWNS, COLUMN),
    "both": (lambda x, i: x[i[0], i[1]], UNKNOWNS, EVERYTHING),
    "for each row": (lambda x, i: jax.vmap(lambda row: row[i])(x)[0], UNKNOWN, ROW),
    "slice": (lambda x, i: jax.lax.dynamic_slice(x, (0, i), (1, 2)), UNKNOWN, ROW),
    "of one entry": (lambda x, i: x[:1, 0][i[:0].sum() + i[0]], UNKNOWNS,
                     ROW & (np.arange(4) == 0)),
    "one known": (lambda x, i: x[0, jnp.stack([i, 2])][1], UNKNOWN, ROW),
    "written": (lambda x, i: jnp.zeros(4).at[i].set(x[0, 0])[1], UNKNOWN,
                ROW & (np.arange(4) == 0)),
    "moved away": (lambda x, i: x[i] - x[i], UNKNOWN, EVERYTHING),
    "branch": (lambda x, i: jax.lax.switch(i, [lambda: x[0, 2], lambda: x[0, 3]]), UNKNOWN,
               ROW & (np.arange(4) >= 2)),
    "given": (lambda x, i: x[0, i], np.array([1, 3]), ROW & (np.arange(4) % 2 == 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKUPS)
def test_dependencies_through_an_unknown_index(name):
    fn, index, expected = LOOKUPS[name]
    np.testing.assert_array_equal(dependencies(fn, TABLE, index), expected)


def doubled_until_large(x):
    limit, step = x[0], x[2]
    return jax.lax.while_loop(
        lambda carry: carry[0] < limit, lambda carry: (carry[0] * 2.0, carry[1] + step), (1.0, 0.0)
    )


NO_RULE = {
    "sort": lambda x: jnp.sort(x[:3])[0],
    "two entries of a sort": lambda x: jnp.diff(jnp.sort(x[:3]))[0],
    "argmax": lambda x: (jnp.argmax(x[:3]) == 1).astype(float),
    "entry at the maximum": lambda x: MATRIX[0, :3][jnp.argmax(x[:3])],
    "sort twice": lambda x: jnp.sort(x[:3]) - jnp.sort(x[:3]),
    "inside a scan": lambda x: jax.lax.scan(
        lambda c, row: (c + jnp.sort(row)[0], None), 0.0, jnp.outer(x[:3], x[:3])
    )[0],
    "inside a branch": lambda x: jax.lax.cond(x[0] > 0.0, jnp.sort, jnp.sin, x[:3])[0],
    "complex": lambda x: jnp.fft.fft(x[:3]).imag,
    "times i": lambda x: jax.lax.complex(0.0 * x[:3], x[:3]).imag,
    "solve": lambda x: jnp.linalg.solve(jnp.diag(x[:3]) + MATRIX[:3, :3], jnp.ones(3)),
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.outer(x[:3], x[:3]))[0],
    "random key": lambda x: jax.random.bernoulli(jax.random.key(0), x[:3]),
    "random seed": lambda x: jax.random.normal(jax.random.key(jnp.sum(x[:3]).astype(int))),
    "bits": lambda x: x[:3].astype(int) & 3,
    "callback": lambda x: jax.pure_callback(
        np.sum, jax.ShapeDtypeStruct((), float), x[:3], vmap_method="sequential"
    ),
}


@pytest.mark.parametrize("name", NO_RULE)
def test_dependencies_without_a_rule_are_never_too_small(name):
    assert dependencies(NO_RULE[name], POINT).tolist() == [True, True, True, False]


def test_dependencies_through_a_symbolic_while_loop():
    assert dependencies(doubled_until_large, np.ones(4)).tolist() == [True, False, True, False]


def test_dependencies_see_past_what_no_output_needs():
    def fn(x):
        top = jnp.argmax(x)
        return x[1] + 0.0 * top.astype(float)

    assert dependencies(fn, POINT).tolist() == [False, True, False, False]


NUMBERS = {
    "gather": lambda x: x[(x[2] * 2.0).astype(int)],
    "sort": lambda x: (jnp.sort(x), jnp.sort(x, descending=True), jnp.argsort(jnp.outer(x, x))),
    "sort with keys": lambda x: jax.lax.sort((jnp.floor(x), -x, x**2), num_keys=2),
    "argmax": lambda x: (jnp.argmax(x), jnp.argmin(jnp.outer(x, x), axis=0)),
    "special": lambda x: (jax.scipy.special.erf(x), jax.scipy.special.gammaln(x)),
    "while": lambda x: jax.lax.while_loop(lambda y: y < 9.0, lambda y: y * 2.0, x[0]),
    "bits": lambda x: (x * 9.0).astype(int) & 3 | 8,
    "bits of all": lambda x: jnp.bitwise_or.reduce((x * 9.0).astype(int)),
    "small integers": lambda x: jnp.cumsum((x * 19.0).astype(jnp.int8), dtype=jnp.int8),
    "integer power": lambda x: (x * 9.0).astype(int) ** jnp.arange(4),
    "rounding": lambda x: (jnp.round(x), jax.lax.round(x * 2.5)),
    "solve": lambda x: jnp.linalg.solve(MATRIX, x),
    "eigh": lambda x: jnp.linalg.eigvalsh(spd(x)),
    "complex": lambda x: jnp.abs(jnp.fft.fft(x) * 1j),
    "random": lambda x: x + jax.random.normal(jax.random.key(3), 4),
    "keys in a scan": lambda x: jax.lax.scan(
        lambda c, key: (c + jax.random.uniform(key), None), x, jax.random.split(jax.random.key(3))
    )[0],
    "empty": lambda x: (jnp.sum(x[:0]), jnp.any(x[:0] > 0), jnp.sort(x[:0]), x[:0] @ MATRIX[:0]),
    "empty maximum": lambda x: jnp.max(x[:0], initial=0.5),
    "histogram": lambda x: jnp.searchsorted(jnp.sort(x), 0.4),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_evaluate_knows_every_primitive(name):
    fn = NUMBERS[name]
    ours, theirs = evaluate(fn, POINT), jax.jit(fn, compiler_options=QUICK)(POINT)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert isinstance(mine, np.ndarray)
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        assert_close(mine, other, name)


def test_evaluate_takes_trees_and_leaves_them_alone():
    point = {"a": POINT.astype(np.float32), "b": jnp.arange(3), "c": 2}
    result = evaluate(lambda p: {"x": p["a"].at[p["b"]].set(0.0), "y": p["c"] * p["b"]}, point)
    assert result["x"].tolist() == [0.0, 0.0, 0.0, float(np.float32(0.58))]
    assert result["x"].dtype == np.float64
    assert result["y"].tolist() == [0, 2, 4]
    np.testing.assert_array_equal(point["a"], POINT.astype(np.float32))


def test_size_grows_with_the_work():
    def product(n):
        return trace(lambda a, b: a @ b, np.ones((n, n)), np.ones((n, n))).size

    def loop(length):
        return trace(
            lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c) * 2.0, None), x, None, length)[0],
            np.ones(5),
        ).size

    assert product(3) == 27
    assert product(6) == 216
    assert loop(10) == 10 * loop(1) == 100
    assert trace(jax.jit(lambda x: jnp.sin(x)), np.ones(7)).size == 7
    assert trace(lambda x: x, np.ones(7)).size == 0


def test_examples_may_be_shapes_and_single_precision():
    spec = jax.ShapeDtypeStruct((3,), np.float32)
    traced = trace(lambda x, c: x * c, spec, 2.0)
    assert traced.outputs.dtype == np.float64
    assert traced.function()([1.0, 2.0, 3.0], 2.0).full().ravel().tolist() == [2.0, 4.0, 6.0]


def test_tracing_is_fast_and_compiles_nothing(monkeypatch):
    def drift(x):
        hidden = jnp.tanh(jnp.outer(x, x) @ MATRIX[:, PICK])
        state = jnp.tile(x, 10)
        for _ in range(20):
            state = state + 0.1 * jnp.sin(state) * jnp.roll(state, 1)
            state = state.at[PICK].add(jnp.where(state[:4] > 0.0, hidden[0], 0.0))
        return state

    traced = trace(drift, POINT)
    assert traced.size > 5000
    monkeypatch.setattr(jax, "default_device", None)  # would fail if JAX evaluated a primitive
    started = time.process_time()
    traced.function()
    assert time.process_time() - started < 0.5
    evaluate(lambda x: jnp.sort(drift(jax.scipy.special.erf(x))), POINT)


@jax.jit
def _traced_once(x, place, nothing):
    """Named as an inner function that is shared (`optlearn._engine.functions`)."""
    return jnp.sin(x) * x[place.astype(int)], jnp.arange(3.0), nothing


def times_interpreted():
    return interpretations["_traced_once", ((4,), (3,), (0,))]


def test_a_shared_inner_function_is_interpreted_once():
    @partial(jax.jit, static_argnums=1)
    def _traced_once(x, power, nothing):
        return jnp.sin(x) ** power, jnp.arange(3.0), nothing

    def nested(x):
        once, numbers, empty = _traced_once(x, 2, jnp.zeros(0))
        return _traced_once(once, 2, empty)[0], numbers

    def doubled(x):
        return 2 * _traced_once(x[::-1], 2, jnp.zeros(0))[0]

    before = times_interpreted()
    for _ in range(2):
        assert_agrees(nested, POINT)
        assert_agrees(doubled, POINT)
    # Each function is also evaluated on numbers, which is no conversion: three calls in each of two rounds.
    assert times_interpreted() == before + 1 + 6
    numbers = trace(nested, POINT).expressions(casadi.SX.sym("x", 4))[1]
    assert numbers.dtype == float


def test_a_shared_inner_function_with_a_number_is_interpreted_for_itself():
    before = times_interpreted()
    for place in (1.0, 2.0):
        assert_agrees(lambda x, place=place: _traced_once(x, place, np.zeros(0))[0], POINT)
    assert times_interpreted() == before + 4
    with pytest.raises(UnsupportedPrimitive, match="an index or a loop condition depends on a symbol"):
        trace(lambda x: _traced_once(x, x[0], np.zeros(0))[0], POINT).function()
