"""AdaGrad with one scale for all weights: steps shrink with the gradients that have been seen."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.model import ClosedMoments, Latent, LearningModel, Recurrence
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields
from optlearn.models._around import Around, surroundings

SQUARES = "squares"


class AdaGradNorm(Around):
    """A model whose rate is η/√b, with b its start plus 1/N times all squared lengths of gradients so far.

    The running scalar ``squares`` is b; it starts at 1, or at what ``start`` is given.
    """

    def recurrence(self, x: OrderParameters, u: Settings) -> Recurrence:
        """Gradients over √b."""
        rate = u["learning_rate"] / jnp.sqrt(x.extras[SQUARES])
        return Recurrence(rate * np.eye(self.students), jnp.zeros((self.students, self.students)))

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """The squared length of the sample's gradient, of which a batch has a share."""
        rule = self.base.update(fields, self.inner(x), latent, u)
        square = jnp.sum(self.input_power(latent, u)[:, None] * rule**2)
        return super().statistics(fields, x, latent, u) | {SQUARES: square / u.get("batch", 1.0)}

    def closed_statistics(self, moments: ClosedMoments, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """The mean squared length."""
        power = 1.0 if self.spectrum is None else jnp.sum(self.spectrum.variance * self.spectrum.share)
        return {SQUARES: power * jnp.trace(moments.spread) / u.get("batch", 1.0)}

    def start(self, squares: float = 1.0, **values: Array) -> OrderParameters:
        """A state from entries of ``base``, and b, which must be above 0."""
        b = Arguments("start").number(SQUARES, squares, 0.0, open_below=True)
        x = super().start(**values)
        return replace(x, extras={**x.extras, SQUARES: np.asarray(b)})

    def around(self, x: OrderParameters) -> OrderParameters:
        """With b = 1."""
        return OrderParameters(x.Q, x.M, x.R, x.v, {**x.extras, SQUARES: np.ones(())})


@checked
def adagrad_norm(model: LearningModel) -> AdaGradNorm:
    """The same model, trained by AdaGrad-norm: the rate is η/√b, db/dα the mean squared length of gradients.

    Args:
        model: what learns, by plain SGD otherwise; without redrawn slots.

    Returns:
        A model with the further order parameter ``squares``, b; ``start(Q11=…, squares=1)`` is a state.
    """
    check = Arguments("adagrad_norm")
    if type(model).recurrence is not LearningModel.recurrence or model.redrawn:
        check.fail("model", type(model).__name__, "must move by plain SGD, on fresh samples")
    return AdaGradNorm(**surroundings(model, running=(*model.running, SQUARES)))
