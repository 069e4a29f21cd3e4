"""The exact Markov chain of the overlaps at finite N: the cost of a step does not depend on N.

Given the Gram matrix G of students, teachers and centroids, the fields of an isotropic Gaussian input are
F ξ with F Fᵀ = G, and the components of inputs outside their span have a Wishart Gram matrix with N − n
degrees of freedom. The next G follows from these alone. (If G is singular, F has zero columns: then ξ has
entries along further orthonormal directions, so n and not the rank is subtracted.)

Under a spectrum all this holds block by block, with the N_b directions of a block in place of N. A block with
fewer directions than vectors is spanned by r = N_b eigenvectors of its Gram matrix.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Int, Key
from optlearn._pytrees import Pytree
from optlearn._simulate.normals import as_normal, as_share, chi_square, symmetric_uniforms
from optlearn._simulate.plan import Plan, Prepared
from optlearn._simulate.sample import draw_sample, row_steps, step_gradient, train_heads
from optlearn._theory.order import OrderParameters, gram_matrix
from optlearn._theory.sampler import partial_cholesky

# Number of steps whose random numbers are drawn together.
BLOCK = 32


class Draws(Pytree):
    """Random numbers of steps of one seed; ``xi`` and ``bartlett`` are block by block under a spectrum."""

    xi: Float[Array, "... inputs n"]  # components of the inputs' noise in the span of all vectors
    bartlett: Float[Array, "... inputs inputs"]  # lower-triangular: Wishart matrix B Bᵀ outside that span
    uniforms: Float[Array, "... uniforms"]
    noise: Float[Array, "... noises"]  # label noise and further normals


def initial_overlaps(start: OrderParameters, seeds: int) -> OrderParameters:
    """``start`` with a leading axis of seeds."""
    return jax.tree.map(
        lambda leaf: jnp.tile(jnp.asarray(leaf)[None], (seeds,) + (1,) * np.ndim(leaf)), start
    )


@jax.jit
def advance_overlaps(
    run: Prepared,
    keys: Key[Array, " S"],
    N: Float[Array, ""],
    state: OrderParameters,
    begin: Int[Array, ""],
    end: Int[Array, ""],
) -> OrderParameters:
    """SGD steps ``begin`` to ``end`` of every seed."""

    def block(number: Array, now: OrderParameters) -> OrderParameters:
        # Keyed by the block's position in the whole run, so that interrupting a run to record changes
        # nothing.
        def draw(key: Array) -> Draws:
            draw_steps = draw_blocks if run.plan.directions else draw_block
            return draw_steps(run.plan, jax.random.fold_in(key, number), N)

        draws = jax.vmap(draw, out_axes=1)(keys)
        offset = number * BLOCK

        def body(step: Array, now: OrderParameters) -> OrderParameters:
            here = jax.tree.map(lambda numbers: numbers[step - offset], draws)
            return jax.vmap(partial(chain_step, run, N, step))(now, here)

        return jax.lax.fori_loop(jnp.maximum(begin, offset), jnp.minimum(end, offset + BLOCK), body, now)

    return jax.lax.fori_loop(begin // BLOCK, (end + BLOCK - 1) // BLOCK, block, state)


def draw_block(plan: Plan, key: Array, N: Array) -> Draws:
    """Random numbers of BLOCK steps of one seed, the steps along the first axis."""
    L, n = plan.views.inputs, plan.vectors
    for_squares, xi, below, noise, uniforms = _numbers(plan, key, L * n, L * (L - 1) // 2)
    squares = chi_square(for_squares, N - n - jnp.arange(float(L))[None, :], (BLOCK, L))
    # Row l of Bartlett's factor: l normals, the root of a χ², zeros.
    diagonal = jnp.sqrt(squares)
    rows, first = [], 0
    for row in range(L):
        zeros = jnp.zeros((BLOCK, L - row - 1))
        parts = [below[:, first : first + row], diagonal[:, row : row + 1], zeros]
        rows.append(jnp.concatenate(parts, axis=1))
        first += row
    return Draws(xi.reshape(BLOCK, L, n), jnp.stack(rows, axis=1), uniforms, noise)


def draw_blocks(plan: Plan, key: Array, N: Array) -> Draws:
    """The same under a spectrum: every block has a span and a Wishart matrix of its own."""
    del N  # the blocks' directions replace it
    B, L, n = len(plan.directions), plan.views.inputs, plan.vectors
    for_squares, xi, table, noise, uniforms = _numbers(plan, key, B * L * n, B * L * L)
    # Directions outside the span; with fewer of them than inputs, a Wishart matrix is a product of normals.
    outside = np.array([max(0, size - n) for size in plan.directions])
    few = (outside < L)[:, None, None]
    degrees = np.maximum(outside[:, None] - np.arange(L), 1.0)
    squares = chi_square(for_squares, jnp.asarray(degrees)[None], (BLOCK, B, L))
    table = table.reshape(BLOCK, B, L, L)
    lower = jnp.tril(table, -1) + jnp.sqrt(squares)[..., None] * np.eye(L)[None, None]
    product = jnp.where((np.arange(L) < outside[:, None])[None, :, None, :], table, 0.0)
    return Draws(
        xi=xi.reshape(BLOCK, B, L, n) * _spanned(plan)[None, :, None, :],
        bartlett=jnp.where(few[None], product, lower),
        uniforms=uniforms,
        noise=noise,
    )


def _numbers(plan: Plan, key: Array, spans: int, wisharts: int) -> tuple[Array, ...]:
    """A key for χ² numbers; normals (BLOCK, …) of spans, of Wishart matrices and of noise; shares.

    All numbers of a block come from one call of the generator: it is slow to compile.
    """
    sizes = [spans, wisharts, plan.noises, plan.uniforms]
    for_numbers, for_squares = jax.random.split(key)
    numbers = symmetric_uniforms(for_numbers, (BLOCK, sum(sizes)))
    ends = [int(end) for end in np.cumsum(sizes)]
    # The normals are also drawn together and split afterwards.
    normals = as_normal(numbers[:, : ends[2]])
    xi, wishart, noise = jnp.split(normals, ends[:2], axis=1)
    return for_squares, xi, wishart, noise, as_share(numbers[:, ends[2] :])


def _spanned(plan: Plan) -> np.ndarray:
    """(B, n) which of the span's n coordinates exist: the last N_b in a block with fewer directions."""
    return np.array([np.arange(plan.vectors) >= plan.vectors - size for size in plan.directions], dtype=float)


def _factors(plan: Plan, G: Array) -> Array:
    """(B, n, n) F_b with F_b F_bᵀ = G_b, in the coordinates that exist."""
    n = plan.vectors
    factors = jax.vmap(lambda gram: partial_cholesky(gram, tuple(range(n)), jitter=0.0))(G)
    small = np.array([size < n for size in plan.directions])
    if not small.any():
        return factors
    values, vectors = jnp.linalg.eigh(G)
    widths = jnp.sqrt(jnp.maximum(values, 0.0)) * _spanned(plan)
    return jnp.where(small[:, None, None], vectors * widths[:, None, :], factors)


class Span(Pytree):
    """Inputs of a step in one block."""

    fields: Float[Array, "inputs n"]  # with students, teachers and centroids
    gram: Float[Array, "inputs inputs"]  # xᵀx/N


def _span(
    G: Array, F: Array, sigma: Array, a: Array, xi: Array, bartlett: Array, N: Array, centroids: int
) -> Span:
    """Fields and Gram matrix of inputs with standard deviations ``sigma`` (inputs, 1)."""
    first = G.shape[0] - centroids
    spread = sigma * (xi @ F.T)
    # x_l·x_l'/N of all inputs: centroid parts, their cross terms with the noise, and the noise itself.
    cross = a @ spread[:, first:].T
    noise = sigma * sigma.T * (xi @ xi.T + bartlett @ bartlett.T)
    gram = (a @ G[first:, first:] @ a.T + cross + cross.T + noise) / N
    return Span(a @ G[first:] + spread, gram)


def chain_step(run: Prepared, N: Array, step: Array, x: OrderParameters, draws: Draws) -> OrderParameters:
    """One step of one seed, all 1/N terms kept."""
    model, plan, K, M = run.model, run.plan, run.model.students, run.model.teachers
    sample = draw_sample(run, step, draws.uniforms)
    sigma, a = sample.sigma[:, None], sample.assignment
    G = gram_matrix(x, model.block_overlaps)
    if sample.block_sigma is None:
        F = partial_cholesky(G, tuple(range(plan.vectors)), jitter=0.0)
        span = whole = _span(G, F, sigma, a, draws.xi, draws.bartlett, N, model.centroids)
    else:
        widths = (sample.block_sigma * sigma).T[:, :, None]
        of_block = partial(_span, a=a, N=N, centroids=model.centroids)
        span = jax.vmap(lambda G, F, sigma, xi, W: of_block(G, F, sigma, xi=xi, bartlett=W))(
            G, _factors(plan, G), widths, draws.xi, draws.bartlett
        )
        whole = jax.tree.map(lambda part: part.sum(axis=0), span)
    student, teacher = whole.fields[:, :K], whole.fields[:, K : K + M]
    now = model.total(x)
    gradient = step_gradient(run, sample, student, teacher, draws.noise, now, whole.gram, N)
    scales = model.scales(x, sample.u, None)

    def moved(
        Q: Array, toward_teachers: Array, toward_centroids: Array, seen: Span, scale: Array | None = None
    ) -> tuple[Array, ...]:
        D, A = row_steps(model, gradient, now, sample.u, N, scale)
        student, teacher = seen.fields[:, :K], seen.fields[:, K : K + M]
        if A is not None:
            Q, toward_teachers, toward_centroids = A.T @ Q @ A, A.T @ toward_teachers, A.T @ toward_centroids
            student = student @ A
        turn = student.T @ D
        Q = Q - (turn + turn.T) + N * (D.T @ seen.gram @ D)
        return (
            (Q + Q.T) / 2,  # round-off over millions of steps would make it asymmetric
            toward_teachers - D.T @ teacher,
            toward_centroids - D.T @ seen.fields[:, K + M :],
        )

    blocks = moved if sample.block_sigma is None else jax.vmap(moved)
    scaled = () if scales is None else (scales,)
    Q, toward_teachers, toward_centroids = blocks(x.Q, x.M, x.R, span, *scaled)
    trained = train_heads(model, x, gradient, sample.u, N)
    return replace(trained, Q=Q, M=toward_teachers, R=toward_centroids)
