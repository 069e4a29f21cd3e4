"""A model of one's own: a ReLU student with a Huber loss on three Gaussian clusters.

Only the loss is written; its ODE and both simulators follow. Run: python examples/own_model.py
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import optlearn as ol


class RobustMixture(ol.LearningModel):
    def loss(self, fields, x, latent, u):
        label = jnp.array([0.0, 1.0, 2.0])[latent["cluster"][0]]
        error = jnp.abs(label - jnp.sum(jax.nn.relu(fields.student[0])))
        return jnp.where(error < u["width"], error**2 / 2, u["width"] * (error - u["width"] / 2))


model = RobustMixture(
    students=2,
    clusters=(3,),
    overlaps=ol.Overlaps(Omega=[[1.0, 0.2, 0.0], [0.2, 1.5, 0.3], [0.0, 0.3, 2.0]]),
    parameters={"learning_rate": 0.5, "width": 1.0},
    breaks=(ol.Break("student", 0, 0), ol.Break("student", 0, 1)),  # where ReLU bends
)
start = model.state(Q=[[0.3, 0.05], [0.05, 0.2]], R=[[0.1, 0.3, 0.2], [0.2, 0.1, 0.3]])
schedule = ol.Schedule.from_function(8, {"learning_rate": lambda a: 0.8 / (1 + a / 4)}, 40)

theory = ol.integrate(model, schedule, start=start, quadrature=ol.AutoQuadrature(1e-4))
runs = {m: ol.simulate(model, schedule, start=start, N=500, mode=m) for m in ("overlaps", "weights")}
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for axis, name in zip(axes, ("error", "Q11", "R23"), strict=True):
    axis.plot(theory.alpha, theory[name], "k", label="theory")
    for mode, run in runs.items():
        axis.fill_between(run.alpha, *run.band(name), alpha=0.4, label=f"{mode}, N = 500")
    axis.set(xlabel="training time α", ylabel=name)
axes[0].legend()
figure.savefig("own_model.png", dpi=150)
