"""Drift evaluations per second of soft committees, K = M = 1, 2, 4, 8, in closed form."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from optlearn._dynamics.on_casadi import _function

import optlearn as ol
from optlearn._engine.functions import FlatSystem, pack
from optlearn._engine.tracing.values import Buffered

BATCH = 1024


def rate(call: Callable[[], object], seconds: float = 1.0) -> float:
    """Calls per second."""
    call()
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - began)


def states(model: ol.LearningModel, count: int) -> np.ndarray:
    """(count, n) random physical states."""
    generator = np.random.default_rng(0)
    K, M = model.students, model.overlaps.T.shape[0]
    own = generator.normal(size=(count, K, 4 * K)) * 0.3
    lean = generator.normal(size=(count, K, M)) * 0.3
    Q = own @ own.transpose(0, 2, 1) / (4 * K) + lean @ lean.transpose(0, 2, 1)
    made = [model.layout.flatten(model.state(Q=q, M=m)) for q, m in zip(Q, lean, strict=True)]
    return np.stack([np.asarray(flat) for flat in made])


def main() -> None:
    """Print the table."""
    print(
        f"{'K=M':>4} {'states':>7} {'CasADi, one state':>18} {'XLA, batch of ' + str(BATCH):>20}   per second"
    )
    with jax.enable_x64(True):
        for K in (1, 2, 4, 8):
            model = ol.models.committee(K=K, M=K, sigma_n=0.1)
            system = FlatSystem(model, ("learning_rate",))
            settings, x = model.settings(), states(model, BATCH)
            u, shares = np.array([[0.5]]), np.ones(1)
            function = _function("drift", system.mixed_drift, system, settings, x[0], u, shares)
            drift = Buffered(function)
            drift(pack((model, settings)), x[0], u, shares)
            single = rate(drift.evaluate)
            batched = jax.jit(
                jax.vmap(lambda flat, system=system, model=model, settings=settings: system.drift(
                    model, settings, flat, jnp.array([0.5])
                ))
            )  # fmt: skip
            inputs = jnp.asarray(x)
            many = BATCH * rate(lambda f=batched, i=inputs: f(i).block_until_ready())
            print(f"{K:>4} {x.shape[1]:>7} {single:>18,.0f} {many:>20,.0f}", flush=True)


if __name__ == "__main__":
    main()
