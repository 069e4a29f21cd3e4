"""Learning from rewards: a perceptron that only learns whether a whole episode went well.

In an episode the student takes T decisions y_t = sign λ_t, and is rewarded if enough of them agree with the
teacher. It then reinforces all of them, w ← w + (η r/√N) (1/T) Σ_t y_t x_t, with r = 1 for a reward and −p,
the penalty, without one. Inputs of an episode are independent, so a decision depends on the others only
through their number of mistakes, which is binomial: the moments of a rule over T slots reduce to those of one
slot.
"""

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings
from optlearn._signatures import checked
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Break, Fields, Latent
from optlearn.models._averages import safe_root
from optlearn.models._rules import RuleMoments, SignLearner


class RewardLearner(SignLearner):
    """One unit that learns decisions from rewards for episodes. Built by ``reward_learner``.

    Parameters (settings): ``learning_rate`` η; ``batch``, episodes in a step; ``decisions`` T, up to the
    number of slots; ``mistakes``, how many a rewarded episode may contain; ``penalty`` p of an unrewarded
    episode. Decisions and mistakes are whole numbers; in between, closed forms interpolate smoothly in T and
    mix both numbers of mistakes. The error is the share of wrong decisions.
    """

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """Every decision of the episode, weighted with the episode's reward."""
        choices = jnp.sign(fields.student)
        taken = jnp.clip(u["decisions"] - np.arange(float(self.slots)), 0.0, 1.0)[:, None]
        mistakes = jnp.sum(taken * (1 - choices * jnp.sign(fields.teacher)) / 2)
        rewarded = jnp.clip(u["mistakes"] + 1 - mistakes, 0.0, 1.0)
        value = rewarded - u["penalty"] * (1 - rewarded)
        return -value / u["decisions"] * taken * choices

    def moments(self, rho: Array, u: Settings) -> RuleMoments:
        """Moments of one decision, right or wrong, among T − 1 others."""
        T, allowed, penalty = u["decisions"], u["mistakes"], u["penalty"]
        right = 1 - jnp.arctan2(safe_root(1 - rho**2), rho) / np.pi

        def value(others: Array, spare: Array) -> Array:
            """Mean of r if ``others`` decisions may contain ``spare`` mistakes."""
            rewarded = self._at_most(spare, others, right)
            return rewarded - penalty * (1 - rewarded)

        after_right, after_wrong = value(T - 1, allowed), value(T - 1, allowed - 1)
        rewarded = self._at_most(allowed, T, right)
        along, against = (1 + rho) * after_right, (1 - rho) * after_wrong
        return RuleMoments(
            student=-(along + against) / np.sqrt(2 * np.pi),
            teacher=-(along - against) / np.sqrt(2 * np.pi),
            square=(rewarded + penalty**2 * (1 - rewarded)) / T,
        )

    def _at_most(self, mistakes: Array, decisions: Array, right: Array) -> Float[Array, ""]:
        """Probability of at most so many mistakes if each decision is right with probability ``right``."""
        total, ways = jnp.zeros(()), jnp.ones(())  # number of ways to choose the wrong decisions
        for count in range(self.slots):
            counted = jnp.clip(mistakes + 1 - count, 0.0, 1.0)
            # Beyond the number of decisions there are no ways, even if the power would be infinite.
            power = jnp.exp(jnp.maximum(decisions - count, 0.0) * jnp.log(right))
            total = total + counted * ways * (1 - right) ** count * power
            ways = ways * jnp.maximum(decisions - count, 0.0) / (count + 1)
        return total


@checked
def reward_learner(
    decisions: int = 3,
    mistakes: int = 0,
    penalty: float = 0.0,
    eta: float = 1.0,
    max_decisions: int | None = None,
) -> RewardLearner:
    """A perceptron that learns from rewards: the RL perceptron.

    Args:
        decisions: number of decisions T in an episode.
        mistakes: how many mistakes a rewarded episode may contain.
        penalty: p, how strongly an episode without a reward is unlearned.
        eta: learning rate η.
        max_decisions: maximum of ``decisions``; None: T.
    """
    check = Arguments("reward_learner")
    T = check.count("decisions", decisions)
    most = T if max_decisions is None else check.count("max_decisions", max_decisions, T)
    breaks = [Break(kind, slot, 0) for slot in range(most) for kind in ("teacher", "student")]
    return RewardLearner(
        students=1,
        slots=most,
        overlaps=Overlaps(T=np.eye(1)),
        parameters={
            "learning_rate": check.number("eta", eta, 0.0),
            "batch": 1.0,
            "decisions": float(T),
            "mistakes": float(check.count("mistakes", mistakes, 0, T - 1)),
            "penalty": check.number("penalty", penalty, 0.0),
        },
        breaks=tuple(breaks),
    )
