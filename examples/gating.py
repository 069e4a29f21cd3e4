"""Gates that sharpen while they are learned: the optimal gain of a gated network.

Run: python examples/gating.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

SHOWN = {"optimum": "k", "best constant": "C2", "teacher's gate": "C3", "linear network": "0.6"}


def main(out: Path) -> None:
    problem = ol.scenarios.gating()
    comparison = ol.compare(problem)
    print(comparison)
    noisy = ol.solve(ol.scenarios.gating(sigma_n=0.5))
    figure, (gains, errors, cosines, norms) = plt.subplots(
        1, 4, figsize=(13, 3.3), layout="constrained", sharex=True
    )
    curves = {name: (comparison.schedules[name], color, "-") for name, color in SHOWN.items()}
    curves["optimum, label noise 0.5"] = (noisy.schedule, "k", ":")
    for name, (schedule, color, line) in curves.items():
        values = np.append(schedule["gate"], schedule["gate"][-1])
        gains.step(schedule.grid, values, color=color, linestyle=line, where="post", label=name)
    for name, color in SHOWN.items():
        run = ol.evaluate(problem, comparison.schedules[name])
        errors.semilogy(run.alpha, run["error"], color=color)
        norms.plot(run.alpha, run["Q11"], color=color)
        if name in ("optimum", "teacher's gate"):
            cosines.plot(run.alpha, run["cosine_value"], color=color, linestyle="--")
            cosines.plot(run.alpha, run["cosine_gate"], color=color)
        print(f"{name}: gate {run['cosine_gate'][-1]:.3f}, value {run['cosine_value'][-1]:.3f}")
    sgd = ol.simulate(problem, comparison.schedules["optimum"], N=1000, seeds=8, record=11)
    for axis, name in ((errors, "error"), (cosines, "cosine_gate"), (cosines, "cosine_value")):
        axis.plot(sgd.alpha, sgd.mean(name), "k.")
    gains.set(ylabel="gain γ of the gates", title="schedules", ylim=(-0.1, 3.2))
    gains.legend(fontsize=7, loc="upper left")
    errors.set(ylabel="error", title="error (points: SGD, N = 1000)")
    cosines.set(ylabel="cosine with the teacher", title="values (dashed), then gates")
    norms.set(ylabel="squared norm of the gate", title="noise in the gate")
    for axis in (gains, errors, cosines, norms):
        axis.set_xlabel("training time α")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/gating.png"))
    main(parser.parse_args().out)
