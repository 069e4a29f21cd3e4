"""The drift of any loss, against real SGD steps, hand calculations and its own symmetries."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from optlearn._theory.drift import default_quadrature, generic_drift, generic_error
from optlearn._theory.expectation import GaussHermite, QuasiMonteCarlo
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Break, Fields, Latents
from optlearn._theory.sampler import fields_read
from optlearn.models._committee import committee
from optlearn.models._curriculum import curriculum

# Losses below are made of sines: bounded, odd and entire, so that few Gauss-Hermite nodes are
# enough. Compiling is what takes time here, so let XLA optimise as little as it can.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@partial(jax.jit, static_argnames="quadrature", compiler_options=QUICK)
def flat_drift(model, x, u, quadrature):
    return model.layout.flatten(generic_drift(model, x, u, quadrature))


def drift_of(model, x, u=None, quadrature=GaussHermite(8), **overrides):  # noqa: B008
    settings = model.settings({**(u or {}), **overrides})
    found = np.asarray(flat_drift(model, jax.tree.map(jnp.asarray, x), settings, quadrature))
    return dict(zip(model.layout.names, found, strict=True))


def random_state(model, seed, v=0.7):
    """A state with overlaps of random vectors, among them the model's own constants."""
    rng = np.random.default_rng(seed)
    constants = np.block([[model.overlaps.T, model.overlaps.S], [model.overlaps.S.T, model.overlaps.Omega]])
    K, M = model.students, model.overlaps.T.shape[0]
    mix = rng.normal(0, 0.3, (K, len(constants)))
    own = rng.normal(0, 0.4, (K, K))
    along = mix @ constants
    return model.state(
        Q=(along @ mix.T + own @ own.T + (along @ mix.T + own @ own.T).T) / 2,
        M=along[:, :M],
        R=along[:, M:],
        v=v * rng.normal(size=(K, model.heads)),
        **dict.fromkeys(model.extras, 0.4),
    )


# --- (a) one step of SGD in weight space ----------------------------------------------------------
#
# The weights are N-dimensional vectors with the Gram matrix of the state, and jax.grad goes through
# x·w/√N and w·w/N. For Gaussian inputs the mean change of every order parameter in one step, times
# N, is drift + c/N **exactly**, where c depends on the state only: the fields do not know N, and
# the mean of xᵀx outside the span of the weights is N − rank. So 2·(mean at 2N) − (mean at N) has
# no finite-size error at all, whatever N is, and small vectors (cheap samples, small statistical
# errors) test the limit of large ones.
#
# 49 comparisons with |z| < 4.5 (two-sided probability 6.8e-6 each): a false alarm in 3 of 10⁴
# changes of the seeds, which are fixed.

Z_LIMIT = 4.5
CHUNK = 5_000
PADDED = 24


class Everything(LearningModel):
    """Clusters, variances under control, label noise, two heads, Q in loss and penalty."""

    def loss(self, fields, x, latent, u):
        head = (jnp.arange(2, dtype=jnp.int32) == latent["task"]).astype(float)
        hidden = jnp.sin(fields.student[0])
        output = (x.v @ head) @ hidden + 0.3 * x.Q[0, 1] * fields.student[1, 0]
        label = jnp.sin(fields.teacher[0, 0]) + u["sigma_n"] * fields.noise
        return (label - output) ** 2 / 2

    def penalty(self, x, u):
        return u["decay"] * (x.Q[0, 0] + 2 * x.Q[1, 0] + x.Q[1, 1] ** 2 + jnp.sum(x.v**2))

    def latents(self, u):
        tasks = Latents.choice(jnp.array([0.3, 0.7]), task=np.arange(2, dtype=np.int32))
        return Latents.clusters(self.clusters, u["cluster_probabilities"]).times(tasks)

    def variances(self, latent, u):
        first = jnp.where(latent["cluster"][0] == 0, 1.0, u["width"])
        return jnp.stack([first, 0.5 * u["width"] ** 2])


def everything():
    vectors = np.random.default_rng(5).normal(size=(6, 4))
    gram = vectors.T @ vectors / 6
    return Everything(
        students=2,
        slots=2,
        clusters=(2, 1),
        heads=2,
        overlaps=Overlaps(T=gram[:1, :1], S=gram[:1, 1:], Omega=gram[1:, 1:]),
        parameters={
            "learning_rate": 0.8,
            "readout_rate": 0.3,
            "sigma_n": 0.4,
            "decay": 0.1,
            "width": 0.7,
            "cluster_probabilities": [0.35, 0.65],
        },
    )


class ReadsQ12(LearningModel):
    """Off-diagonal Q from one side only, upper in the loss, lower in the penalty."""

    def loss(self, fields, x, latent, u):
        a, b, c = fields.student[0]
        return (fields.teacher[0, 0] - a) ** 2 / 2 + x.Q[0, 1] * jnp.sin(b) * a + x.Q[1, 2] * c**2

    def penalty(self, x, u):
        return 0.3 * x.Q[2, 0] ** 2


def reads_q12():
    return ReadsQ12(students=3, overlaps=Overlaps(T=1.3), parameters={"learning_rate": 0.6})


class Views(LearningModel):
    """Two views share the first slot, the mask and the label noise; the second slot is redrawn."""

    def loss(self, fields, x, latent, u):
        noisy = fields.student[0] + 0.8 * fields.student[1]
        label = jnp.sin(fields.teacher[0, 0]) + 0.5 * fields.noise
        return (label - latent["mask"] @ jnp.sin(noisy)) ** 2 / 2

    def latents(self, u):
        return Latents.clusters(self.clusters, u["cluster_probabilities"]).times(
            Latents.masks("mask", self.students, u["activation"])
        )


def views(redrawn=(1,), batch=3.0):
    return Views(
        students=2,
        slots=2,
        clusters=(2, 0),
        overlaps=Overlaps(T=1.0, S=[[0.3, -0.2]], Omega=[[1.0, 0.1], [0.1, 0.8]]),
        redrawn=redrawn,
        parameters={
            "learning_rate": 1.2,
            "batch": batch,
            "activation": 0.6,
            "cluster_probabilities": [0.4, 0.6],
        },
    )


class Signs(LearningModel):
    """A teacher's sign, shifted, for the students; batches of fresh samples."""

    def loss(self, fields, x, latent, u):
        label = jnp.where(fields.teacher[0, 0] > 0.2, 1.0, -1.0)
        return (label - jnp.sum(jnp.tanh(fields.student[0]))) ** 2 / 2


def signs(batch=2.0):
    return Signs(
        students=2,
        overlaps=Overlaps(T=[[1.0, 0.3], [0.3, 0.7]]),
        parameters={"learning_rate": 1.0, "batch": batch},
        breaks=(Break("teacher", 0, 0, 0.2),),
    )


class Skip(LearningModel):
    """A trained scalar that sees the extensive part of the loss."""

    def loss(self, fields, x, latent, u):
        hidden = jnp.sin(fields.student[0] + 0.5 * fields.student[1])
        return hidden @ x.Q @ hidden / 2 - (1 - x.extras["b"]) * fields.student[0] @ hidden

    def bulk(self, gram, x, latent, u):
        residual = jnp.stack([1 - x.extras["b"], -0.5 * x.extras["b"]])
        return residual @ gram @ residual / 2

    def variances(self, latent, u):
        return jnp.stack([u["width"], jnp.ones(())])


def skip(finite_size=False, N=24.0):
    return Skip(
        students=2,
        slots=2,
        clusters=(2, 0),
        overlaps=Overlaps(Omega=[[1.0, 0.2], [0.2, 1.5]]),
        extras=("b",),
        finite_size=finite_size,
        parameters={"learning_rate": 0.7, "b_rate": 0.9, "width": 0.6, "N": N},
    )


def vectors_with(x, overlaps, N):
    """(N, K), (N, M), (N, C) vectors with exactly these overlaps."""
    gram = np.block([[x.Q, x.M, x.R], [x.M.T, overlaps.T, overlaps.S], [x.R.T, overlaps.S.T, overlaps.Omega]])
    values, directions = np.linalg.eigh(gram)
    root = directions * np.sqrt(np.maximum(values, 0))
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(N, len(gram))))[0]
    vectors = np.sqrt(N) * frame @ root.T
    np.testing.assert_allclose(vectors.T @ vectors / N, gram, atol=1e-12)
    K, M = x.M.shape
    return vectors[:, :K], vectors[:, K : K + M], vectors[:, K + M :]


def one_step(model, x, u, N, samples, seed):
    """Mean and standard error of N·(change of the flat state) in one SGD step on weights."""
    vectors = vectors_with(x, model.overlaps, N)
    keys = jax.random.split(jax.random.key(seed), samples // CHUNK)
    first, second = _sums(
        model,
        int(u.get("batch", 1)),
        tuple(jnp.asarray(np.pad(v, [(0, PADDED - N), (0, 0)])) for v in vectors),
        (jnp.asarray(x.v), {name: jnp.asarray(value) for name, value in x.extras.items()}),
        {name: jnp.asarray(value) for name, value in u.items()},
        float(N),
        keys,
    )
    mean = np.asarray(first) / (len(keys) * CHUNK)
    variance = np.asarray(second) / (len(keys) * CHUNK) - mean**2
    return mean, np.sqrt(variance / (len(keys) * CHUNK))


@partial(jax.jit, static_argnums=1, compiler_options=QUICK)
def _sums(model, views, vectors, others, u, N, keys):
    """Sums of changes and of their squares; vectors are padded with zeros, so N may vary."""
    w, teachers, centroids = vectors
    v, extras = others
    present = (jnp.arange(PADDED, dtype=float) < N).astype(float)[None, :]
    latents = model.latents(u)
    L = model.slots
    offsets = np.cumsum([0, *model.clusters])[:-1] if model.clusters else []

    def overlaps_of(w, v, extras):
        return OrderParameters(w.T @ w / N, w.T @ teachers / N, w.T @ centroids / N, v, extras)

    def objective(trained, inputs, latent, noise):
        w, v, extras = trained
        fields = Fields(inputs @ w / jnp.sqrt(N), inputs @ teachers / jnp.sqrt(N), noise)
        state = overlaps_of(w, v, extras)
        bulk = N * model.bulk(inputs @ inputs.T / N, state, latent, u) if model.extras else 0.0
        return model.loss(fields, state, latent, u) + model.penalty(state, u), bulk

    def draw(key):
        which, inputs, noise = jax.random.split(key, 3)
        number = jax.random.categorical(which, jnp.log(latents.probabilities))
        latent = {name: value[number] for name, value in latents.values.items()}
        deviations = jnp.sqrt(model.variances(latent, u))[:, None]
        x_l = deviations * present * jax.random.normal(inputs, (L, PADDED))
        means = [
            centroids[:, int(offset) + latent["cluster"][slot]] if model.clusters[slot] else jnp.zeros(PADDED)
            for slot, offset in enumerate(offsets)
        ]
        if means:
            x_l = x_l + jnp.stack(means) / jnp.sqrt(N)
        return x_l, latent, jax.random.normal(noise)

    def gradient(key):
        keys = jax.random.split(key, views)
        if model.redrawn:
            shared, latent, noise = draw(key)
            # Views differ in the redrawn slots only, which have no mean here.
            deviations = jnp.sqrt(model.variances(latent, u))[:, None] * present
            fresh = jax.vmap(lambda k: deviations * jax.random.normal(k, (L, PADDED)))(keys)
            redrawn = np.isin(np.arange(L), model.redrawn)[None, :, None]
            inputs = jnp.where(redrawn, fresh, shared[None])
            one = jax.grad(lambda t, i: objective(t, i, latent, noise)[0])
            each = jax.vmap(one, (None, 0))((w, v, extras), inputs)
        else:
            drawn = jax.vmap(draw)(keys)
            each = jax.vmap(jax.grad(lambda t, d: objective(t, *d)[0]), (None, 0))((w, v, extras), drawn)
            if model.extras:
                bulk = jax.vmap(jax.grad(lambda t, d: objective(t, *d)[1]), (None, 0))((w, v, extras), drawn)
                each = (each[0], each[1], jax.tree.map(jnp.add, each[2], bulk[2]))
        return jax.tree.map(lambda g: g.mean(axis=0), each)

    def change(key):
        by_w, by_v, by_extras = gradient(key)
        new = (
            w - u["learning_rate"] * by_w,
            v - u.get("readout_rate", u["learning_rate"]) / N * by_v,
            {n: extras[n] - u[f"{n}_rate"] / N**2 * by_extras[n] for n in extras},
        )
        after, before = overlaps_of(*new), overlaps_of(w, v, extras)
        return N * (model.layout.flatten(after) - model.layout.flatten(before))

    def chunk(total, key):
        changes = jax.vmap(change)(jax.random.split(key, CHUNK))
        return (total[0] + changes.sum(0), total[1] + (changes**2).sum(0)), None

    zero = jnp.zeros(model.layout.size)
    return jax.lax.scan(chunk, (zero, zero), keys)[0]


CASES = {
    "everything": (everything(), 60_000, GaussHermite(8, 3)),
    "symmetrised": (reads_q12(), 60_000, GaussHermite(12)),
    "augmentation": (views(), 40_000, GaussHermite(4, 3)),
    "batch": (signs(), 60_000, GaussHermite(24)),
    "skip": (skip(), 60_000, GaussHermite(10)),
}


LONG = {"augmentation", "batch", "skip"}  # compile for seconds


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in CASES]
)
def test_one_step_of_sgd_on_weights(case):
    model, samples, quadrature = CASES[case]
    x = random_state(model, 1)
    u = model.settings()
    small, small_error = one_step(model, x, u, PADDED // 2, samples, 1)
    large, large_error = one_step(model, x, u, PADDED, samples, 2)
    drift = np.array([*drift_of(model, x, quadrature=quadrature).values()])
    error = np.sqrt((2 * large_error) ** 2 + small_error**2)
    z = (2 * large - small - drift) / error
    # A standard error is a few percent of the largest entry at most.
    assert np.all(error < 0.06 * np.abs(drift).max()), error
    assert np.all(np.abs(z) < Z_LIMIT), dict(zip(model.layout.names, z.round(1), strict=True))


@pytest.mark.slow
def test_finite_size_skip_is_exact_at_its_own_size():
    # With finite_size, the drift of b is not a limit: it holds at the N of the settings.
    model = skip(finite_size=True, N=10.0)
    x = random_state(model, 1)
    # SGD itself knows nothing of finite_size: without the flag, compiled code is used again.
    mean, error = one_step(skip(), x, model.settings(), 10, 60_000, 3)
    exact = drift_of(model, x, quadrature=GaussHermite(12))["b"]
    leading = drift_of(skip(), x, quadrature=GaussHermite(12))["b"]
    b = model.layout.names.index("b")
    assert abs(mean[b] - exact) < Z_LIMIT * error[b]
    assert abs(mean[b] - leading) > 3 * Z_LIMIT * error[b]


# --- (b) by hand ----------------------------------------------------------------------------------


class Linear(LearningModel):
    """e = Σ_m λ*_m + σ z − Σ_k λ_k of the first slot − κ Σ_k λ_k of the second; loss e²/2."""

    def loss(self, fields, x, latent, u):
        output = jnp.sum(fields.student[0])
        if self.slots == 2:
            output = output + u["kappa"] * jnp.sum(fields.student[1])
        label = jnp.sum(fields.teacher[0]) + u["sigma_n"] * fields.noise
        return (label - output) ** 2 / 2

    def variances(self, latent, u):
        width = u["widths"] @ (jnp.arange(2, dtype=jnp.int32) == latent["cluster"][0]).astype(float)
        return jnp.stack([width, u["width2"]][: self.slots])


def linear(slots=1, batch=1.0, redrawn=()):
    return Linear(
        students=2,
        slots=slots,
        clusters=(2, 0)[:slots],
        redrawn=redrawn,
        overlaps=Overlaps(
            T=[[1.0, 0.2], [0.2, 0.5]],
            S=[[0.3, -0.1], [0.0, 0.2]],
            Omega=[[1.0, 0.1], [0.1, 0.8]],
        ),
        parameters={
            "learning_rate": 0.6,
            "batch": batch,
            "sigma_n": 0.4,
            "widths": [0.9, 0.3],
            "width2": 1.7,
            "kappa": 0.5,
            "cluster_probabilities": [0.3, 0.7],
        },
    )


def linear_by_hand(model, x):
    """dQ without and with its η² part, dM, dR, and the second moments of e (same, other view)."""
    u = model.settings()
    o, eta = model.overlaps, u["learning_rate"]
    G = np.block([[x.Q, x.M, x.R], [x.M.T, o.T, o.S], [x.R.T, o.S.T, o.Omega]])
    sign = np.array([-1.0, -1, 1, 1, 0, 0])  # of students, teachers, centroids in e
    second = np.array([-1.0, -1, 0, 0, 0, 0]) * u["kappa"] * (model.slots == 2)
    pull = np.zeros((6, 2))
    spread = cross = 0.0
    for c, p in enumerate(u["cluster_probabilities"]):
        mean, width = G[4 + c], u["widths"][c]
        # E[e φ] for every field φ of slot 1 and 2; D₂ = −e in slot 1 and −κe in slot 2.
        first_slot = width * G @ sign + mean * (sign @ mean)
        other_slot = u["kappa"] * u["width2"] * G @ second * (model.slots == 2)
        pull += p * np.outer(-first_slot - other_slot, np.ones(2))
        shared = width * sign @ G @ sign + (sign @ mean) ** 2 + u["sigma_n"] ** 2
        square = shared + u["width2"] * second @ G @ second
        carried = width + u["kappa"] ** 2 * u["width2"] * (model.slots == 2)
        spread += p * carried * square
        cross += p * width * shared
    A = -eta * pull
    return A[:2] + A[:2].T, A[2:4].T, A[4:].T, spread, cross


def as_arrays(model, drift):
    return model.layout.unflatten(np.array([*drift.values()]))


@pytest.mark.parametrize("slots", [1, 2])
def test_linear_networks_by_hand(slots):
    model = linear(slots)
    x = random_state(model, 2)
    found = as_arrays(model, drift_of(model, x, quadrature=GaussHermite(3)))
    dQ, dM, dR, spread, _ = linear_by_hand(model, x)
    np.testing.assert_allclose(found.Q, dQ + 0.6**2 * spread, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.M, dM, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.R, dR, rtol=0, atol=1e-11)


def test_two_bends_in_one_slot_by_hand():
    # ReLU student and teacher: both fields are cut, the second where it depends on the first.
    model = committee(K=1, M=1, activation="relu", T=0.8, eta=0.7)
    Q, M, T, eta = 0.5, -0.3, 0.8, 0.7
    found = drift_of(model, model.state(Q11=Q, M11=M), quadrature=GaussHermite(40))
    cosine = M / np.sqrt(Q * T)
    angle = np.arccos(cosine)
    both = np.sqrt(Q * T) * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)
    on = T * (np.pi - angle + np.sin(angle) * cosine) / (2 * np.pi)  # E[1(λ>0) r(λ*)²]
    assert found["M11"] == pytest.approx(eta * (on - M / 2), abs=1e-8)
    spread = on - 2 * both + Q / 2
    assert found["Q11"] == pytest.approx(2 * eta * (both - Q / 2) + eta**2 * spread, abs=1e-8)


class Steps(LearningModel):
    """The student is pushed along the inputs on which the teacher's field exceeds a threshold."""

    def loss(self, fields, x, latent, u):
        return -jnp.where(fields.teacher[0, 0] > 0.2, 1.0, 0.0) * fields.student[0, 0]

    def variances(self, latent, u):
        return jnp.stack([u["width"]])


def test_a_jump_in_a_field_with_a_mean_by_hand():
    model = Steps(
        students=1,
        clusters=(1,),
        overlaps=Overlaps(T=0.9, S=[[-0.4]], Omega=1.3),
        parameters={"learning_rate": 0.7, "width": 0.6},
        breaks=(Break("teacher", 0, 0, 0.2),),
    )
    x = model.state(Q11=0.5, M11=0.3, R11=0.35)
    found = drift_of(model, x, quadrature=GaussHermite(48))
    scale = np.sqrt(0.6 * 0.9)
    reduced = (0.2 + 0.4) / scale
    above, density = stats.norm.sf(reduced), stats.norm.pdf(reduced) / scale
    assert found["M11"] == pytest.approx(0.7 * (-0.4 * above + 0.6 * 0.9 * density), abs=1e-11)
    assert found["R11"] == pytest.approx(0.7 * (1.3 * above + 0.6 * -0.4 * density), abs=1e-11)
    push = 2 * 0.7 * (0.35 * above + 0.6 * 0.3 * density)
    assert found["Q11"] == pytest.approx(push + 0.7**2 * 0.6 * above, abs=1e-11)


def test_a_batch_divides_the_second_order_term():
    model = linear()
    x = random_state(model, 2)
    dQ, dM, _, spread, _ = linear_by_hand(model, x)
    for batch in (1.0, 2.0, 7.5):
        found = as_arrays(model, drift_of(model, x, quadrature=GaussHermite(3), batch=batch))
        np.testing.assert_allclose(found.Q, dQ + 0.6**2 * spread / batch, rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.M, dM, rtol=0, atol=1e-11)


@pytest.mark.parametrize("batch", [1.0, 4.0, 1e15])
def test_views_of_one_sample_by_hand(batch):
    model = linear(2, redrawn=(1,))
    x = random_state(model, 2)
    found = as_arrays(model, drift_of(model, x, quadrature=GaussHermite(3), batch=batch))
    dQ, dM, dR, spread, cross = linear_by_hand(model, x)
    eta2 = 0.6**2 * (spread / batch + (1 - 1 / batch) * cross)
    np.testing.assert_allclose(found.Q, dQ + eta2, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.M, dM, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.R, dR, rtol=0, atol=1e-11)
    # The cross term is not small, and not the plain one: the formula is really tested.
    assert 0.1 < cross / spread < 0.9


def test_one_view_is_one_fresh_sample():
    augmented, plain = views((1,), 1.0), views((), 1.0)
    x = random_state(plain, 4)
    quadrature = GaussHermite(4, 3)
    first, second = drift_of(augmented, x, quadrature=quadrature), drift_of(plain, x, quadrature=quadrature)
    for name in first:
        assert first[name] == pytest.approx(second[name], rel=0, abs=1e-13), name


def test_redrawing_what_is_not_read_shares_everything():
    # κ = 0: the redrawn slot does nothing, all views are the same sample, and B drops out.
    model = linear(2, redrawn=(1,))
    x = random_state(model, 2)
    one, many = (drift_of(model, x, quadrature=GaussHermite(3), kappa=0.0, batch=b) for b in (1.0, 50.0))
    for name in one:
        assert one[name] == pytest.approx(many[name], abs=1e-12), name


def test_linear_error_by_hand():
    model = linear()
    x = random_state(model, 2)
    model = dataclasses.replace(model, parameters={**model.parameters, "sigma_n": 0.0})
    o = model.overlaps
    G = np.block([[x.Q, x.M, x.R], [x.M.T, o.T, o.S], [x.R.T, o.S.T, o.Omega]])
    sign = np.array([-1.0, -1, 1, 1, 0, 0])
    exact = sum(
        p * (width * sign @ G @ sign + (sign @ G[4 + c]) ** 2) / 2
        for c, (p, width) in enumerate(zip([0.3, 0.7], [0.9, 0.3], strict=True))
    )
    x = jax.tree.map(jnp.asarray, x)
    error = jax.jit(lambda u: generic_error(model, x, u, GaussHermite(3)))
    found = error(model.settings())
    np.testing.assert_allclose(found, exact, rtol=1e-11)
    # Label noise is no part of the error, even where the training loss has it.
    noisy = error(model.settings({"sigma_n": 2.0}))
    np.testing.assert_allclose(noisy, exact, rtol=1e-11)


# --- (c) rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "fine", "tolerance"),
    [(everything(), GaussHermite(10, 3), 1e-2), (signs(), GaussHermite(24), 4e-3)],
    ids=["smooth", "jump"],
)
def test_rules_can_be_swapped(model, fine, tolerance):
    x = random_state(model, 3)
    reference = np.array([*drift_of(model, x, quadrature=fine).values()])
    estimates = [
        np.array([*drift_of(model, x, quadrature=QuasiMonteCarlo(14, seed)).values()]) for seed in (0, 1)
    ]
    scale = max(1.0, np.abs(reference).max())
    for estimate in estimates:
        assert np.max(np.abs(estimate - reference)) < tolerance * scale
    # Two scramblings tell how large the error is.
    spread = np.max(np.abs(estimates[0] - estimates[1]))
    assert np.max(np.abs(np.mean(estimates, axis=0) - reference)) < 5 * spread


def test_default_quadrature_knows_the_dimension():
    assert default_quadrature(signs()) == GaussHermite(28)
    assert default_quadrature(linear()) == GaussHermite(10)
    assert isinstance(default_quadrature(views()), QuasiMonteCarlo)


# --- (d) derivatives ------------------------------------------------------------------------------


# Teachers of squared norm ¼, so that 20 nodes are accurate to 1e-8.
COMMITTEE = committee(K=2, M=1, T=0.25)
SINGULAR = {
    "zero": {},
    "aligned": {"Q": 0.25, "M": 0.25},
    "one of them": {"Q11": 0.25, "M11": 0.25},
    "opposed": {"Q": [[0.25, -0.25], [-0.25, 0.25]], "M": [[0.25], [-0.25]]},
    "regular": {"Q11": 0.2, "Q12": 0.05, "Q22": 0.12, "M11": 0.1, "M21": -0.08},
}


def with_slopes(drift):
    def both(flat, u, *quadrature):
        def value(flat):
            found = COMMITTEE.layout.flatten(drift(COMMITTEE.layout.unflatten(flat), u, *quadrature))
            return found, found

        slopes, found = jax.jacfwd(value, has_aux=True)(flat)
        return found, slopes

    return both


SLOPES = jax.jit(with_slopes(partial(generic_drift, COMMITTEE)), static_argnums=2, compiler_options=QUICK)
CLOSED_SLOPES = jax.jit(with_slopes(COMMITTEE.closed_drift), compiler_options=QUICK)


@pytest.mark.parametrize("place", SINGULAR)
def test_values_and_derivatives_at_singular_states(place):
    u = COMMITTEE.settings()
    flat = COMMITTEE.layout.flatten(COMMITTEE.state(**SINGULAR[place]))
    found, exact = SLOPES(flat, u, GaussHermite(20)), CLOSED_SLOPES(flat, u)
    for name, value, wanted, tolerance in zip(("drift", "jacobian"), found, exact, (1e-7, 1e-6), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=0, atol=tolerance, err_msg=name)


def test_derivative_by_state_and_settings_is_that_of_finite_differences():
    model = everything()
    flat = jnp.asarray(model.layout.flatten(random_state(model, 1)))
    u = {name: jnp.asarray(value) for name, value in model.settings().items()}
    rng = np.random.default_rng(0)
    direction = jnp.asarray(rng.normal(size=flat.shape))
    turn = {name: jnp.asarray(0.1 * rng.normal(size=np.shape(value))) for name, value in u.items()}

    def along(step):
        settings = {name: u[name] + step * turn[name] for name in u}
        x = model.layout.unflatten(flat + step * direction)
        return model.layout.flatten(generic_drift(model, x, settings, GaussHermite(4, 3)))

    value = jax.jit(along, compiler_options=QUICK)
    slope = jax.jit(jax.jacfwd(along), compiler_options=QUICK)(0.0)
    step = 1e-5
    numeric = (value(step) - value(-step)) / (2 * step)
    np.testing.assert_allclose(slope, numeric, rtol=0, atol=1e-7 * np.abs(numeric).max())


# --- (e) which fields are read --------------------------------------------------------------------


def test_fields_read_by_the_curriculum():
    reads = fields_read(curriculum())
    np.testing.assert_array_equal(reads.student, [[True, False], [False, True]])
    np.testing.assert_array_equal(reads.teacher, [[True], [False]])  # through a sign only
    assert not reads.noise


def test_fields_read_by_other_models():
    reads = fields_read(everything())
    np.testing.assert_array_equal(reads.student, [[True, True], [True, False]])
    np.testing.assert_array_equal(reads.teacher, [[True], [False]])
    assert reads.noise
    assert not fields_read(everything(), "metric").noise
    np.testing.assert_array_equal(fields_read(signs()).teacher, [[True, False]])


class ReadsAll(Signs):
    """The same loss, with a term that counts for nothing but is not seen to be zero."""

    def loss(self, fields, x, latent, u):
        every = jnp.sum(fields.teacher) + jnp.sum(fields.student)
        return super().loss(fields, x, latent, u) + 1e-30 * every


class ReadsAllCurriculum(type(curriculum())):
    def loss(self, fields, x, latent, u):
        every = jnp.sum(fields.teacher) + jnp.sum(fields.student)
        return super().loss(fields, x, latent, u) + 1e-30 * every


def remade(cls, model):
    fields = {part.name: getattr(model, part.name) for part in dataclasses.fields(model)}
    return cls(**fields)


@pytest.mark.parametrize(
    ("cls", "model", "nodes"),
    [(ReadsAll, signs(), 10), (ReadsAllCurriculum, curriculum(), 5)],
    ids=["signs", "curriculum"],
)
def test_fields_that_are_not_read_need_no_integral(cls, model, nodes):
    wide = remade(cls, model)
    assert np.all(fields_read(wide).student)
    assert np.all(fields_read(wide).teacher)
    x = random_state(model, 6)
    x = model.layout.unflatten(model.layout.flatten(x))  # untracked entries at zero
    narrow = drift_of(model, x, quadrature=GaussHermite(nodes))
    for name, value in drift_of(wide, x, quadrature=GaussHermite(nodes)).items():
        # The pivots come in another order, so the grids differ: equal as both are accurate.
        assert value == pytest.approx(narrow[name], abs=2e-3), name


# --- (f) symmetries -------------------------------------------------------------------------------


class Heads(LearningModel):
    """Odd activations and trained readouts."""

    def loss(self, fields, x, latent, u):
        output = x.v[:, 0] @ jnp.sin(fields.student[0])
        label = jnp.sum(jnp.sin(fields.teacher[0])) + u["sigma_n"] * fields.noise
        return (label - output) ** 2 / 2 + 0.1 * jnp.sum(x.Q**2) * fields.student[0, 0] ** 0


def heads():
    return Heads(
        students=3,
        heads=1,
        overlaps=Overlaps(T=[[1.0, 0.3], [0.3, 1.0]]),
        parameters={"learning_rate": 0.9, "sigma_n": 0.2},
    )


@settings(max_examples=15)
@given(st.permutations(range(3)), st.permutations(range(2)), st.integers(0, 100))
def test_renaming_students_and_teachers_renames_the_drift(order, teachers, seed):
    model = heads()
    x = random_state(model, seed)
    quadrature = QuasiMonteCarlo(14)
    before = as_arrays(model, drift_of(model, x, quadrature=quadrature))
    renamed = model.state(Q=x.Q[np.ix_(order, order)], M=x.M[np.ix_(order, teachers)], v=x.v[list(order)])
    after = as_arrays(model, drift_of(model, renamed, quadrature=quadrature))
    scale = max(1.0, np.abs(before.Q).max())
    # Another order gives another factor of the Gram matrix: equal to the accuracy of the quadrature.
    for have, want in [
        (after.Q, before.Q[np.ix_(order, order)]),
        (after.M, before.M[np.ix_(order, teachers)]),
        (after.v, before.v[list(order)]),
    ]:
        np.testing.assert_allclose(have, want, rtol=0, atol=5e-3 * scale)


@settings(max_examples=15)
@given(st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3), st.integers(0, 100))
def test_turning_a_student_and_its_readout_changes_nothing(turns, seed):
    model, turn = heads(), np.array(turns)
    x = random_state(model, seed)
    before = as_arrays(model, drift_of(model, x, quadrature=GaussHermite(5, 3)))
    turned = model.state(Q=x.Q * np.outer(turn, turn), M=x.M * turn[:, None], v=x.v * turn[:, None])
    after = as_arrays(model, drift_of(model, turned, quadrature=GaussHermite(5, 3)))
    np.testing.assert_allclose(after.Q, before.Q * np.outer(turn, turn), rtol=0, atol=1e-10)
    np.testing.assert_allclose(after.M, before.M * turn[:, None], rtol=0, atol=1e-10)
    np.testing.assert_allclose(after.v, before.v * turn[:, None], rtol=0, atol=1e-10)
