"""A learning model: one loss over the local fields of a sample, and the distribution of the data."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Derivatives, Float, Settings, float64
from optlearn._dynamics.own_code import Known, Part
from optlearn._dynamics.system import Resolved, System, as_floats
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._theory.expectation import AbstractQuadrature, AutoQuadrature, Quadrature, Table
from optlearn._theory.order import OrderParameters, OverlapLayout, Overlaps, Shapes
from optlearn._theory.sample import Break, Fields, Latent, Latents
from optlearn._theory.spectrum import Spectrum, variances_by_cluster

# Imports inside methods below: drift, checks and quadrature are written in terms of this class.


class Recurrence(NamedTuple):
    """How the rows W of all students change in a step: W ← W + (carry/N) W − (response/√N) G x.

    Row k of G is the ``update`` of student k, or its gradient. Rows that no loss reads can thus act as
    memory: a velocity accumulates another row's updates, an average follows another row.

    Attributes:
        response: (K, K) response of each row to all gradients; plain SGD has η on the diagonal.
        carry: (K, K) linear change of each row in terms of all rows.
    """

    response: Float[Array, "K K"]
    carry: Float[Array, "K K"]


class ClosedMoments(NamedTuple):
    """Closed forms of the expectations in the drift, for inputs without centroids."""

    slope: Float[Array, "K n"]  # E[∂g_k/∂field], by the fields of students and teachers
    spread: Float[Array, "K K"]  # E[g gᵀ], of one sample and inputs of variance 1
    v: Float[Array, "K H"]  # E[∂loss/∂v]


class LearningModel(System):
    """What is learned, from which data, and with which loss. Subclass it and write ``loss``.

    The drift of the order parameters, the generalisation error and both simulators follow.

    Args:
        students: K, hidden units of the student.
        overlaps: T, S, Omega: the number of teachers and centroids, and their overlaps.
        parameters: default value of everything that ``loss`` and the other methods read from ``u``.
            Any of them may be a control. The theory itself reads
            ``learning_rate`` (required), ``batch`` (default 1), ``<name>_rate`` for each of ``extras``;
            ``readout_rate``, and ``<name>_rate`` for each of ``trained`` (default: the learning rate).
        slots: L, vectors in one sample.
        clusters: centroids of each slot (0: mean zero); they add up to the size of Omega.
        heads: H, trained readout heads (0: the readout is not trained).
        trained: name → shape of further trained weights, namely everything behind the first layer:
            ``{"hidden": (3, 2), "bias": (3,)}``. The loss reads them as ``x.trained["hidden"]``.
        extras: names of further trained scalars, which enter ``bulk``.
        running: names of further scalars that follow samples instead of a gradient; see ``statistics``.
        untracked: entries of Q, M, R (by name) that stay zero and affect nothing.
        normals: number of standard normals of a sample beside the label noise, for random rules.
        redrawn: slots that are drawn anew for each of the ``batch`` views of one sample. Empty: a
            batch consists of ``batch`` fresh samples.
        breaks: where the loss has jumps or kinks.
        even: whether loss and metric do not change when all fields (and normals) change sign together;
            quadratures then need half their points.
        finite_size: whether extras also learn from terms of order 1/N relative to ``bulk``: the
            centroids' part of ``xᵀx/N`` and the loss itself; N is then the parameter ``N``.
        spectrum: spectrum of the inputs' covariance; None: isotropic inputs. ``loss``, ``metric``,
            ``penalty`` and the other methods still see whole order parameters and overlaps, summed over
            blocks.
        drift_quadrature, error_quadrature: quadratures of drift and error, set by ``resolved``; None: closed
            forms where they exist.
        drift_breaks: the ``breaks`` at which the drift's quadrature is cut, set by ``resolved``: it need not
            be cut where only the metric jumps. None: all.
    """

    start_advice = "No weight vectors have these overlaps."
    run_advice = "A smaller learning rate, or one that decays, usually keeps the dynamics bounded."

    limits = MappingProxyType(
        {**dict.fromkeys(("learning_rate", "sigma_n", "weight_decay"), (0.0, np.inf)), "batch": (1.0, np.inf)}
    )
    # Whether closed forms and observables accept order parameters with an axis of blocks under a spectrum.
    reads_blocks = False

    students: int = field(static=True, kw_only=True)
    overlaps: Overlaps = field(kw_only=True)
    parameters: dict[str, Array] = field(kw_only=True, converter=as_floats)
    slots: int = field(static=True, kw_only=True, default=1)
    clusters: tuple[int, ...] = field(static=True, kw_only=True, default=())
    heads: int = field(static=True, kw_only=True, default=0)
    trained: Mapping[str, tuple[int, ...]] = field(
        static=True, kw_only=True, default=Shapes(), converter=Shapes.of
    )
    extras: tuple[str, ...] = field(static=True, kw_only=True, default=())
    running: tuple[str, ...] = field(static=True, kw_only=True, default=())
    untracked: frozenset[str] = field(static=True, kw_only=True, default=frozenset(), converter=frozenset)
    normals: int = field(static=True, kw_only=True, default=0)
    redrawn: tuple[int, ...] = field(static=True, kw_only=True, default=())
    breaks: tuple[Break, ...] = field(static=True, kw_only=True, default=())
    even: bool = field(static=True, kw_only=True, default=False)
    finite_size: bool = field(static=True, kw_only=True, default=False)
    spectrum: Spectrum | None = field(kw_only=True, default=None)
    drift_quadrature: Quadrature | None = field(kw_only=True, default=None)
    error_quadrature: Quadrature | None = field(kw_only=True, default=None)
    drift_breaks: tuple[Break, ...] | None = field(static=True, kw_only=True, default=None)

    def __check_init__(self) -> None:
        from optlearn._theory.checks import check_sizes, check_spectrum

        check_sizes(self)
        if self.spectrum is not None:
            check_spectrum(self)
        elif self.overlaps.by_block:
            raise SpecificationError("overlaps with an axis of blocks need a spectrum, got None")
        needed = ["learning_rate", *(f"{extra}_rate" for extra in self.extras)]
        for name in [*needed, "N"] if self.finite_size else needed:
            if name not in self.parameters:
                raise SpecificationError(f"parameters must hold {name!r}; got {list(self.parameters)}")

    # --- what a model defines --------------------------------------------------------------------

    @abstractmethod
    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Float[Array, ""]:
        """Loss of one sample, a scalar. SGD follows its gradient."""

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Float[Array, "L K"]:
        """(L, K) the rule g of one sample: weights change by −(η/√N) g x. By default the loss's gradient.

        A rule of your own may jump and need not be a gradient. It may read all fields, but nothing else of
        the sample. Readouts and extras still follow the loss.
        """
        return jax.grad(self.loss)(fields, x, latent, u).student

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """Name → N times the change of each ``running`` scalar by one sample; averaged over a batch."""
        return {}

    def recurrence(self, x: OrderParameters, u: Settings) -> Recurrence | None:
        """How rows change; None: every row by −η times its gradient only."""
        return None

    def scales(
        self, x: OrderParameters, u: Settings, squares: Float[Array, "*B K"] | None
    ) -> Float[Array, "*B K"] | None:
        """Factors of the rate of each unit's weights, in each block of a spectrum; None: 1 everywhere.

        ``x`` has its axis of blocks. ``squares`` is N times the mean square of the gradient of a weight; None
        in simulations, which see samples instead of means.
        """
        return None

    def weight_memory(self, x: OrderParameters, variance: Float[Array, " N"], N: int, u: Settings) -> Any:
        """Initial memory of an optimiser that stores something for each weight; None without one.

        Arrays are (K, N), for simulations on weights; ``variance`` is that of the inputs' entries. The theory
        of such an optimiser is in ``scales``.
        """
        return None

    def weight_steps(
        self, gradients: Float[Array, "K N"], memory: Any, u: Settings
    ) -> tuple[Float[Array, "K N"], Any]:
        """The step of weights with a ``weight_memory``, and the memory after it."""
        raise NotImplementedError

    def trained_rate(self, name: str, u: Settings) -> Array:
        """Learning rate of the trained weights ``name``: their own, or that of the first layer."""
        return u.get(f"{name}_rate", u["learning_rate"])

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The quantity that the generalisation error averages; by default the loss without label noise."""
        clean = replace(fields, noise=jnp.zeros_like(fields.noise))
        return self.loss(clean, x, latent, u)

    def penalty(self, x: OrderParameters, u: Settings) -> Float[Array, ""]:
        """Regularisation g̃(Q, v, trained), a scalar."""
        return jnp.zeros(())

    def latents(self, u: Settings) -> Latents:
        """Distribution of the discrete variables of a training sample."""
        return Latents.clusters(self.clusters or (0,) * self.slots, u.get("cluster_probabilities"))

    def variances(self, latent: Latent, u: Settings) -> Float[Array, " L"]:
        """(L,) variance of the input entries of each slot."""
        return jnp.ones(self.slots)

    def block_variances(self, latent: Latent, u: Settings) -> Float[Array, "L B"]:
        """(L, B) factors of ``variances`` in the blocks of a spectrum, for the sample's clusters."""
        assert self.spectrum is not None
        if self.spectrum.variance.ndim == 1:
            return variances_by_cluster(self.spectrum, self.slots)
        return self.assignment(latent) @ jnp.asarray(self.spectrum.variance)

    def input_power(self, latent: Latent, u: Settings) -> Float[Array, " L"]:
        """(L,) mean of xᵀx/N in each slot, without the centroids' part."""
        variances = self.variances(latent, u)
        if self.spectrum is None:
            return variances
        return variances * (self.block_variances(latent, u) @ jnp.asarray(self.spectrum.share))

    def bulk(
        self, gram: Float[Array, "L L"], x: OrderParameters, latent: Latent, u: Settings
    ) -> Float[Array, ""]:
        """Extensive part of the loss, per input dimension.

        It reads ``gram = xᵀx/N`` (L, L) and extras. The whole loss of a sample is
        ``N · bulk + loss``. Only extras learn from it.
        """
        return jnp.zeros(())

    def test_settings(self, u: Settings) -> Settings:
        """Settings at test time."""
        return u

    def test_latents(self, u: Settings) -> Latents:
        """Distribution of the discrete variables of a test sample; gets the test settings."""
        return self.latents(u)

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """dx/dα in closed form, if there is one."""
        return None

    def closed_moments(self, x: OrderParameters, u: Settings) -> ClosedMoments | None:
        """The expectations in a drift under a ``recurrence``, if there are closed forms."""
        return None

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """Generalisation error in closed form, if there is one; gets the training settings."""
        return None

    # --- what is derived from that ----------------------------------------------------------------

    @property
    def has_rule(self) -> bool:
        """Whether weights follow a rule of the model's own."""
        return type(self).update is not LearningModel.update

    @float64
    def drift(
        self, x: OrderParameters, u: Settings, quadrature: AbstractQuadrature | None = None
    ) -> OrderParameters:
        """dx/dα, in closed form if there is one and no ``quadrature`` is given, else by quadrature."""
        from optlearn._theory.drift import generic_drift

        return self._expectation("closed_drift", generic_drift, x, u, quadrature or self.drift_quadrature)

    @float64
    def error(self, x: OrderParameters, u: Settings, quadrature: AbstractQuadrature | None = None) -> Array:
        """Generalisation error, in closed form if there is one and no ``quadrature`` is given."""
        from optlearn._theory.drift import generic_error

        return self._expectation("closed_error", generic_error, x, u, quadrature or self.error_quadrature)

    def _expectation(
        self, form: str, generic: Callable[..., Any], x: OrderParameters, u: Settings, quadrature: Any
    ) -> Any:
        """``generic`` by quadrature; without one, the closed form if there is one."""
        from optlearn._theory.drift import default_quadrature

        closed = self.closed(form, x, u) if quadrature is None else None
        return generic(self, x, u, quadrature or default_quadrature(self)) if closed is None else closed

    def closed(self, form: str, x: OrderParameters, u: Settings) -> Any:
        """``closed_drift`` or ``closed_error``, if it supports the model's spectrum."""
        if self.spectrum is not None and not self.reads_blocks:
            return None
        return getattr(self, form)(x, u)

    def outputs(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``error`` and the observables, scalars."""
        if self.spectrum is None or self.reads_blocks:
            return super().outputs(x, u)
        return {"error": self.error(x, u), **self.summed.observables(self.total(x), u)}

    @property
    def teachers(self) -> int:
        """M, teachers."""
        return self.overlaps.T.shape[-1]

    @property
    def centroids(self) -> int:
        """C, centroids of all slots."""
        return self.overlaps.Omega.shape[-1]

    @cached_property
    def layout(self) -> OverlapLayout:
        """Names and flat form of the order parameters."""
        return OverlapLayout(
            students=self.students,
            teachers=self.teachers,
            centroids=self.centroids,
            heads=self.heads,
            extras=self.extras + self.running,
            untracked=self.untracked,
            blocks=None if self.spectrum is None else self.spectrum.blocks,
            trained=Shapes.of(self.trained),
        )

    # --- blocks of a spectrum ---------------------------------------------------------------------

    @property
    def block_overlaps(self) -> Overlaps:
        """The overlaps; under a spectrum with an axis of blocks, each of which has its share."""
        if self.spectrum is None or self.overlaps.by_block:
            return self.overlaps
        share = self.spectrum.share
        return jax.tree.map(lambda part: share[:, None, None] * part[None], self.overlaps)

    @property
    def summed(self) -> Self:
        """The model as seen by its loss: with overlaps summed over blocks."""
        if self.spectrum is None or not self.overlaps.by_block:
            return self
        return replace(self, overlaps=jax.tree.map(lambda part: part.sum(axis=0), self.overlaps))

    def total(self, x: OrderParameters) -> OrderParameters:
        """Order parameters, summed over blocks if there is a spectrum."""
        if self.spectrum is None:
            return x
        return replace(x, Q=x.Q.sum(axis=-3), M=x.M.sum(axis=-3), R=x.R.sum(axis=-3))

    def state(self, **values: Array) -> OrderParameters:
        """A state from whole arrays (``Q=…``) and named entries (``Q11=1``); the rest is zero.

        Under a spectrum ``Q`` is (B, K, K) and ``Q11`` has B numbers. Values without an axis of blocks are
        totals of vectors in random directions: every block gets its share.
        """
        return self.layout.state(**{name: self._by_block(name, value) for name, value in values.items()})

    def _by_block(self, name: str, value: Array) -> Array:
        """A value for a state, with an axis of blocks if the model has one."""
        if self.spectrum is None or not self.layout.in_blocks(name):
            return value
        dimensions, share = np.ndim(value), self.spectrum.share
        columns = {"Q": self.students, "M": self.teachers, "R": self.centroids}
        if name in columns:
            if dimensions == 0:  # one number fills all entries
                value = np.full((self.students, columns[name]), float(value))
            return value if dimensions == 3 else share[:, None, None] * np.asarray(value, dtype=float)
        return value if dimensions else share * np.asarray(value, dtype=float)

    def initial_state(self, start: Any) -> OrderParameters:
        """The start of a problem: order parameters, or named entries as ``state`` takes them."""
        from optlearn._theory.checks import check_start

        return check_start(self, self.state(**start) if isinstance(start, Mapping) else start)

    def check_specification(self, x: OrderParameters, u: Settings) -> None:
        """Raise if probabilities, variances, losses or rules at ``x`` under ``u`` are invalid."""
        from optlearn._theory.checks import check_data, check_loss, warn_if_narrow

        check_data(self, u)
        check_loss(self, x, u)
        if self.spectrum is not None:
            warn_if_narrow(self, u)

    def parts(self) -> Iterator[Part]:
        """Functions that a user may have written, with arguments to trace them."""
        x, u = self.state(), self.settings()
        whole, model = self.total(x), self.summed

        def with_known_settings(name: str) -> Callable[..., Any]:
            owner = self if name in by_block else model
            return lambda *arguments: getattr(owner, name)(*arguments[:-1], Known("u", arguments[-1]))

        closed = ("closed_drift", "closed_error")
        blind = self.spectrum is not None and not self.reads_blocks
        by_block = () if blind else (*closed, "observables")

        yield "test_settings", lambda u: dict(with_known_settings("test_settings")(u)), (u,)
        for name in ("latents", "test_latents"):
            yield name, with_known_settings(name), (u,)
        for name in ("recurrence", "penalty", "observables", *(() if blind else closed)):
            yield name, with_known_settings(name), (x if name in by_block else whole, u)
        for name in self.trained:
            yield "trained_rate", partial(with_known_settings("trained_rate"), name), (u,)
        if type(self).scales is not LearningModel.scales:
            squares = np.zeros(np.shape(x.Q)[:-1])
            yield "scales", lambda x, u, squares: self.scales(x, Known("u", u), squares), (x, u, squares)
        shapes = jax.eval_shape(lambda u: self.latents(u).values, u)
        latent = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), shapes)
        yield "variances", with_known_settings("variances"), (latent, u)
        yield "bulk", with_known_settings("bulk"), (np.zeros((self.slots, self.slots)), whole, latent, u)
        L, K, M = self.slots, self.students, self.teachers
        fields = Fields(np.zeros((L, K)), np.zeros((L, M)), np.zeros(()), np.zeros(self.normals))
        of_rules = [name for name, has in (("update", self.has_rule), ("statistics", self.running)) if has]
        for name in ("loss", "metric", *of_rules):
            yield name, with_known_settings(name), (fields, whole, latent, u)

    def reads(self, name: str) -> bool:
        """Whether the theory itself reads a parameter: a rate, the batch, the input dimension, a break."""
        rates = {"learning_rate", *(f"{extra}_rate" for extra in self.extras)}
        heads = {"readout_rate"} if self.heads else set()
        places = {place.parameter[1] for place in self.breaks if place.parameter is not None}
        return name in {"batch", "N", *rates, *heads, *places}

    def check(self, x: OrderParameters) -> str | None:
        """Why no weight vectors have these overlaps; None if some do."""
        impossible = self.first_impossible(np.asarray(self.layout.flatten(x))[None])
        return None if impossible is None else impossible[1]

    def first_impossible(
        self, states: Float[np.ndarray, "T n"], tolerance: float | None = None
    ) -> tuple[int, str] | None:
        """Index of the first of flat states (T, n) that no weights can have, and the reason."""
        from optlearn._theory.checks import TOLERANCE, first_impossible

        return first_impossible(self, states, TOLERANCE if tolerance is None else tolerance)

    def round_off_guard(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function that keeps linearly dependent students dependent; see ``checks.cone_edge``."""
        from optlearn._theory.checks import cone_edge

        return cone_edge(self)

    def probes(self, x: OrderParameters) -> Float[np.ndarray, "3 n"]:
        """The start, and two states in which students have grown towards teachers and centroids."""
        from optlearn._theory.quadrature import probe_states

        return probe_states(self, x)

    def for_search(
        self, x: OrderParameters, u: Settings, horizon: float, quadrature: Any
    ) -> tuple[np.ndarray, Any]:
        """States where a search needs expectations, and the requested quadrature."""
        from optlearn._theory.quadrature import for_search

        states, default = for_search(self, x, u, horizon)
        return states, default if quadrature is None else quadrature

    def refined(self) -> Self | None:
        """A copy with finer, independent quadratures for its expectations; None with closed forms.

        The difference of a result under both estimates its error. A model whose ``closed_drift`` or
        ``closed_error`` contains a quadrature of its own refines that as well.
        """
        from optlearn._theory.quadrature import finer

        quadratures = (self.drift_quadrature, self.error_quadrature)
        if quadratures == (None, None):
            return None
        drift_quadrature, error_quadrature = (
            None if quadrature is None else finer(quadrature) for quadrature in quadratures
        )
        return replace(self, drift_quadrature=drift_quadrature, error_quadrature=error_quadrature)

    def coarser(self) -> Self | None:
        """A copy of the same structure with a much faster and less accurate drift, if there is one."""
        from optlearn._theory.quadrature import coarser

        table = self.drift_quadrature
        coarse = coarser(table) if isinstance(table, Table) else None
        return None if coarse is None else replace(self, drift_quadrature=coarse)

    def arranged(self, derivatives: Derivatives) -> Self:
        """A copy for programs with one kind of derivatives; sums over tables support one kind at a time."""
        rules = [
            replace(rule, derivatives=derivatives) if isinstance(rule, Table) else rule
            for rule in (self.drift_quadrature, self.error_quadrature)
        ]
        return replace(self, drift_quadrature=rules[0], error_quadrature=rules[1])

    def resolved(
        self, states: Array, u: Settings, quadrature: AbstractQuadrature | AutoQuadrature | None = None
    ) -> Resolved:
        """A copy with a quadrature for the expectations without closed forms; see ``quadrature.resolve``."""
        from optlearn._theory.quadrature import resolve

        return resolve(self, states, u, quadrature)

    def assignment(self, latent: Latent) -> Float[Array, "L C"]:
        """(L, C) weights of the centroids in the mean of each slot: one-hot rows, or zero rows."""
        centroids = self.centroids
        rows, offset = [], 0
        for slot, count in enumerate(self.clusters or (0,) * self.slots):
            if count:
                index = offset + latent["cluster"][slot]
                rows.append((jnp.arange(centroids, dtype=jnp.int32) == index).astype(float))
                offset += count
            else:
                rows.append(jnp.zeros(centroids))
        return jnp.stack(rows)
