"""A model around another: it sees a part of the state, and the rest is what the outer model adds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._theory.drift import rows_drift
from optlearn._theory.model import ClosedMoments, Latent, LearningModel
from optlearn._theory.order import OrderParameters, gram_matrix
from optlearn._theory.sample import Fields, Latents


class Around(LearningModel):
    """Learns what ``base`` learns, with further rows or scalars; their motion is up to subclasses.

    The first rows of all overlaps are those of ``base``, whose data, loss and metric are kept.
    """

    base: LearningModel = field(kw_only=True)

    def inner(self, x: OrderParameters, first: int = 0) -> OrderParameters:
        """The state as ``base`` knows it, with its rows from ``first`` on."""
        K = self.base.students
        rows = slice(first, first + K)
        return OrderParameters(
            Q=x.Q[..., rows, rows],
            M=x.M[..., rows, :],
            R=x.R[..., rows, :],
            v=x.v[..., :K, :],
            extras={name: x.extras[name] for name in self.base.layout.extras},
        )

    def inner_fields(self, fields: Fields, first: int = 0) -> Fields:
        """The fields of ``base``, with its rows from ``first`` on."""
        return replace(fields, student=fields.student[:, first : first + self.base.students])

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """That of ``base``."""
        return self.base.loss(self.inner_fields(fields), self.inner(x), latent, u)

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The rule of ``base``; nothing for further rows."""
        rule = self.base.update(self.inner_fields(fields), self.inner(x), latent, u)
        return jnp.pad(rule, ((0, 0), (0, self.students - self.base.students)))

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """Those of ``base``."""
        return self.base.statistics(self.inner_fields(fields), self.inner(x), latent, u)

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """That of ``base``."""
        return self.base.metric(self.inner_fields(fields), self.inner(x), latent, u)

    def penalty(self, x: OrderParameters, u: Settings) -> Array:
        """That of ``base``."""
        return self.base.penalty(self.inner(x), u)

    def latents(self, u: Settings) -> Latents:
        """Those of ``base``."""
        return self.base.latents(u)

    def variances(self, latent: Latent, u: Settings) -> Array:
        """Those of ``base``."""
        return self.base.variances(latent, u)

    def bulk(self, gram: Array, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """That of ``base``."""
        return self.base.bulk(gram, self.inner(x), latent, u)

    def test_settings(self, u: Settings) -> Settings:
        """Those of ``base``."""
        return self.base.test_settings(u)

    def test_latents(self, u: Settings) -> Latents:
        """Those of ``base``."""
        return self.base.test_latents(u)

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """That of ``base``."""
        return self.base.closed_error(self.inner(x), u)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """Those of ``base``."""
        return self.base.observables(self.inner(x), u)

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """From the closed moments of ``base``: further fields are normal along with its own."""
        plain = not (self.centroids or self.base.layout.extras)
        moments = self.base.closed_moments(self.inner(x), u) if plain else None
        if moments is None:
            return None
        K, rows = self.base.students, self.students
        seen = np.concatenate([np.arange(K), rows + np.arange(self.teachers)])
        towards = gram_matrix(x, self.block_overlaps)[..., seen] @ moments.slope.T
        spread = moments.spread / u.get("batch", 1.0)
        if self.spectrum is not None:
            variance, share = (p[:, None, None] for p in (self.spectrum.variance, self.spectrum.share))
            towards, spread = variance * towards, variance * share * spread[None]
        towards, spread = _padded(towards, 0, rows - K), _padded(spread, rows - K, rows - K)
        pull = jax.grad(self.summed.penalty)(self.total(x), u)
        dQ, dM, dR = rows_drift(self, x, u, towards, spread, (pull.Q + pull.Q.T) / 2)
        dv = -u.get("readout_rate", u["learning_rate"]) * (_padded(moments.v, rows - K, 0) + pull.v)
        return OrderParameters(dQ, dM, dR, dv, self.closed_statistics(moments, x, u))

    def closed_statistics(self, moments: ClosedMoments, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """Drift of the running scalars that are added."""
        del moments, x, u
        return {}

    @property
    def has_rule(self) -> bool:
        """Whether ``base`` has a rule of its own."""
        return self.base.has_rule

    @property
    def reads_blocks(self) -> bool:  # type: ignore[override]
        """Whether closed forms and observables of ``base`` do."""
        return self.base.reads_blocks

    @property
    def summed(self) -> Self:
        """With overlaps summed over blocks, those of ``base`` too."""
        if self.spectrum is None or not self.overlaps.by_block:
            return self
        return replace(super().summed, base=self.base.summed)

    def start(self, **values: Array) -> OrderParameters:
        """A state from entries of ``base``, as ``state`` takes them; what is added begins at rest."""
        return self.around(self.base.state(**values))

    def around(self, x: OrderParameters) -> OrderParameters:
        """A state of ``base`` with what is added at rest."""
        raise NotImplementedError

    def initial_state(self, given: Any) -> OrderParameters:
        """The start of a problem: a state, or entries of ``base`` as ``start`` takes them."""
        return super().initial_state(self.start(**given) if isinstance(given, Mapping) else given)


def _padded(table: Array, rows: int, columns: int) -> Array:
    """A table (…, a, b) with rows and columns of zeros added at its end."""
    return jnp.pad(table, [(0, 0)] * (table.ndim - 2) + [(0, rows), (0, columns)])


def surroundings(base: LearningModel, **changes: Any) -> dict[str, Any]:
    """Arguments of a model around ``base``: what it says of its data, with changes."""
    shared = (
        "students overlaps parameters slots clusters heads extras running untracked normals redrawn breaks "
        "even finite_size spectrum"
    )
    return {name: getattr(base, name) for name in shared.split()} | {"base": base} | changes


def new_parameters(base: LearningModel, further: dict[str, Array]) -> dict[str, Array]:
    """Parameters of ``base`` and further ones, none of which it may have."""
    for name in further:
        if name in base.parameters:
            raise SpecificationError(f"model must not have a parameter {name!r} of its own already")
    return {**base.parameters, **further}
