"""A run in progress: where it will end, when to decay its rate, and whether that was right.

Run: python examples/forecast.py        (a few seconds on a CPU)

Least squares with a power-law spectrum by SGD: three short runs of a small one as a prior, one run of a large
one under a constant rate, which is forecast after 40 %: alone, and with a branch of it whose rate falls to 0
over the last 10 % of the steps done, which shows what a decay gains. The decays that both planned are then
trained beside eight others. The mean loss of every step is known exactly, so there is something to compare
with.
"""

import argparse

import numpy as np

import optlearn as ol

PEAK = 0.3


def learner(dimension, noise):
    """A function from rates (steps,) to the mean loss after every step."""
    variance = np.arange(1, dimension + 1.0) ** -1.4
    variance /= variance.sum()

    def train(rates):
        left, losses = np.ones(dimension), []
        for rate in rates:
            kick = rate**2 * variance * (variance @ left + noise)
            left = left * (1 - 2 * rate * variance + 2 * (rate * variance) ** 2) + kick
            losses.append((variance @ left + noise) / 2)
        return np.array(losses)

    return train


def decay(steps, length):
    """(steps,) the peak, then a linear decay to 0 over the last ``length`` steps."""
    return PEAK * np.minimum(1.0, (steps - np.arange(steps) - 0.5) / length)


def log(train, rates, every=10):
    return {
        "step": np.arange(every, len(rates) + 1, every),
        "lr": rates[every - 1 :: every],
        "loss": train(rates)[every - 1 :: every],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=6000, help="of the large run")
    steps = parser.parse_args().steps
    short = steps // 3
    small, large = learner(256, 0.2), learner(1024, 0.25)
    pilots = {
        "constant": np.full(short, PEAK),
        "decay 20 %": decay(short, 0.2 * short),
        "half": np.full(short, PEAK / 2),
    }
    prior = ol.laws.fit({name: log(small, rates) for name, rates in pilots.items()}, warmup=0)
    print(prior.summary())

    done = int(0.4 * steps)
    run = log(large, np.full(done, PEAK))
    branch = log(large, decay(done, 0.1 * done))
    forecasts = {
        name: ol.laws.forecast({"run": run}, steps, prior=prior, pilots=pilots, warmup=0)
        for name, pilots in (("alone", None), ("with a branch", {"branch": branch}))
    }
    for name, forecast in forecasts.items():
        print(f"{name}: {forecast.summary()}")

    trained = {
        share: large(decay(steps, share * steps))[-1] for share in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    }
    best = min(trained.values())
    for share, loss in trained.items():
        print(f"decay over {share:4.0%}: {loss:.5f} ({100 * (loss / best - 1):+.2f} %)")
    for name, forecast in forecasts.items():
        planned = large(decay(steps, forecast.decay.length))[-1]
        loss, low, high = forecast.finals["wsd"]
        share, above = forecast.decay.length / steps, 100 * (planned / best - 1)
        print(
            f"planned {name}, over {share:.0%}: {planned:.5f} ({above:+.2f} %); "
            f"forecast {loss:.5f} ({low:.5f} to {high:.5f})"
        )


if __name__ == "__main__":
    main()
