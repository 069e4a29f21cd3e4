"""When to grow the batch, planned from logs: a byte-level GPT on Python's own source code, AdamW.

Run: python examples/batch_ramp_gpt.py        (all steps with a toy network, on a CPU, two minutes)

On a GPU, with the real one (0.9M parameters; `plan` and `table` need no GPU):

    python examples/batch_ramp_gpt.py seconds seconds.json            (seconds a step, for each batch)
    python examples/batch_ramp_gpt.py pilots pilots.csv others.csv
    python examples/batch_ramp_gpt.py judge pilots.csv others.csv     (what the law says of runs not fitted)
    python examples/batch_ramp_gpt.py plan plans.json seconds.json pilots.csv
    python examples/batch_ramp_gpt.py --seeds 5 train plans.json plans.csv
    python examples/batch_ramp_gpt.py table plans.json plans.csv

All runs of a command are trained at once, vectorised over schedules and seeds: every run takes the same
micro-batch, adds up its gradients, and makes a step when its own batch is full. So runs of small and of large
batches see the same tokens at the same time; a seed fixes the initial weights and the stream of samples. Logs
have the columns run, step, lr, batch, loss; the loss is that of held-out files, in nats a byte.

`plan` writes, for a time and for a number of tokens, constant batches with several decays and the ramp that
the law calls best with two switches at most, and that ramp for shorter times; `table` compares them with what
training made of them, and draws both.
"""

import argparse
import csv
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from loss_curves_gpt import Size, adamw, initial, loss, sequences, source_code

# Here `batch` is that of a micro-batch, `steps` how many micro-batches a pilot sees. One layer cannot learn
# to copy: deeper ones do so in the middle of runs as short as these, and no law holds across that.
REAL = Size(256, 1, 4, 64, 16, 32000, 200, 1e-3, 320, 1024)
QUICK = Size(32, 1, 2, 32, 4, 1200, 20, 5e-3, 40, 128)
LARGER = (1, 2, 4, 8, 16)  # batches, in micro-batches
SHORTER = (1.0, 0.85, 0.7)  # times that ramps are planned for
DECAYS = (0.3, 0.6)  # of constant batches


# --- schedules: a rate and a batch for every step ------------------------------------------------


def wsd(decay):
    return lambda x: np.minimum(1.0, (1 - x) / decay) if decay else np.ones_like(x)


def run_of(shape, batches, size, micro):
    """Rates and batches of every step.

    Args:
        shape: rate, in that of the peak, as a function of the share of tokens that are seen.
        batches: pairs of a batch, in micro-batches, and the share of tokens that it takes.
        size: of the network and training.
        micro: micro-batches in all.
    """
    batch = np.concatenate([np.full(round(share * micro / many), many) for many, share in batches])
    seen = np.cumsum(batch) - batch / 2
    warm = np.minimum((np.arange(len(batch)) + 0.5) / size.warmup, 1.0)
    return size.peak * warm * shape(seen / batch.sum()), batch * size.batch


# Pairs of a batch, in micro-batches, and the share of the tokens that it takes. Pilots have two batches under
# a constant rate and a decay, a switch, lower rates, and the ends of the range.
PILOTS = {
    "32 constant": (wsd(0), [(2, 1.0)]),
    "128 constant": (wsd(0), [(8, 1.0)]),
    "32 wsd 30 %": (wsd(0.3), [(2, 1.0)]),
    "128 wsd 30 %": (wsd(0.3), [(8, 1.0)]),
    "32 then 128, constant": (wsd(0), [(2, 0.5), (8, 0.5)]),
    "64 wsd 60 %, half the peak": (lambda x: 0.5 * wsd(0.6)(x), [(4, 1.0)]),
    "16 wsd 30 %, half the peak": (lambda x: 0.5 * wsd(0.3)(x), [(1, 1.0)]),
    "256 wsd 30 %": (wsd(0.3), [(16, 1.0)]),
}
# Runs that the law has not seen, to judge it by.
OTHERS = {
    "16 wsd 30 %": (wsd(0.3), [(1, 1.0)]),
    "64 wsd 20 %": (wsd(0.2), [(4, 1.0)]),
    "64 linear": (wsd(1.0), [(4, 1.0)]),
    "256 wsd 60 %": (wsd(0.6), [(16, 1.0)]),
    "32 to 256, constant": (wsd(0), [(2, 0.6), (4, 0.1), (8, 0.1), (16, 0.2)]),
    "16, 64, 256, wsd 30 %": (wsd(0.3), [(1, 0.35), (4, 0.35), (16, 0.3)]),
}


def read_schedules(path):
    """{name: (rates, batches)} of a file of schedules in steps."""
    schedules = {}
    for name, schedule in json.loads(Path(path).read_text())["schedules"].items():
        index = np.searchsorted(schedule["grid"], np.arange(schedule["grid"][-1]) + 0.5) - 1
        schedules[name] = tuple(np.asarray(schedule[c])[index] for c in ("learning_rate", "batch"))
    return schedules


# --- training ------------------------------------------------------------------------------------


def lanes(schedules, size):
    """Rates (runs, micro-batches), whether a step ends there and its batch, and the steps done after it."""
    counts = [np.rint(batch / size.batch).astype(int) for _, batch in schedules]
    longest = -(-max(map(sum, counts)) // size.log_every) * size.log_every
    shape = (len(schedules), longest)
    rates, ends, many, done = (np.zeros(shape, kind) for kind in (np.float32, bool, np.float32, np.int32))
    for i, ((rate, _), count) in enumerate(zip(schedules, counts, strict=True)):
        last = np.cumsum(count) - 1
        ends[i, last] = True
        rates[i, : last[-1] + 1], many[i, : last[-1] + 1] = np.repeat(rate, count), np.repeat(count, count)
        done[i] = np.cumsum(ends[i])
    return rates, ends, many, done


def train(schedules, seeds, size, log):
    """Train schedules (name → rates and batches) with all seeds at once, and write the log."""
    runs = [(name, seed) for seed in range(seeds) for name in schedules]
    rates, ends, many, done = lanes([schedules[name] for name, _ in runs], size)
    seed = jnp.asarray([s for _, s in runs])
    train_data, test_data = (jnp.asarray(part) for part in source_code())
    print(f"{len(runs)} runs of up to {rates.shape[1]} micro-batches")

    def chunk(weights, moments, summed, seed, step, rate, end, many, first):
        def one(carry, given):
            weights, moments, summed, step = carry
            rate, end, many, micro = given
            key = jax.random.fold_in(jax.random.key(seed), micro)
            gradient = jax.grad(loss)(weights, sequences(train_data, key, size.batch, size), size)
            summed = jax.tree.map(jnp.add, summed, gradient)
            mean = jax.tree.map(lambda g: g / jnp.maximum(many, 1.0), summed)
            stepped = (*adamw(weights, moments, mean, rate, step), jax.tree.map(jnp.zeros_like, summed))
            kept = jax.tree.map(
                lambda new, old: jnp.where(end, new, old), stepped, (weights, moments, summed)
            )
            return (*kept, step + end), None

        given = (rate, end, many, first + jnp.arange(size.log_every))
        return jax.lax.scan(one, (weights, moments, summed, step), given)[0]

    def tested(weights):
        keys = jax.random.split(jax.random.key(0), size.held_out // size.batch)
        each = jax.lax.map(lambda key: loss(weights, sequences(test_data, key, size.batch, size), size), keys)
        return each.mean()

    advance = jax.jit(jax.vmap(chunk, in_axes=(0,) * 8 + (None,)), donate_argnums=(0, 1, 2))
    test = jax.jit(jax.vmap(tested))
    weights = jax.vmap(lambda s: initial(jax.random.key(1000 + s), size))(seed)
    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(3)]
    moments, summed, step = tuple(zeros[:2]), zeros[2], jnp.zeros(len(runs), jnp.int32)
    rows, began = [], time.time()
    for first in range(0, rates.shape[1], size.log_every):
        part = slice(first, first + size.log_every)
        weights, moments, summed, step = advance(
            weights, moments, summed, seed, step, rates[:, part], ends[:, part], many[:, part], first
        )
        losses = np.asarray(test(weights))
        for i, (name, s) in enumerate(runs):
            rows += logged(f"{name} / seed {s}", (rates[i], ends[i], many[i], done[i]), part, losses[i], size)
        if first == 0 or (first // size.log_every + 1) % 10 == 0:
            seconds = time.time() - began
            print(f"{part.stop}: {losses.min():.4f} to {losses.max():.4f}, {seconds:.0f} s", flush=True)
    rows.sort(key=lambda row: (row[0], row[1]))
    with Path(log).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("run", "step", "lr", "batch", "loss"), *rows])


def logged(name, lane, part, loss, size):
    """Rows of a run at five of its steps in a part of the micro-batches, the last with a loss."""
    rates, ends, many, done = lane
    micro = np.arange(part.start, part.stop)[ends[part]]
    if not len(micro):
        return []
    chosen = micro[np.unique(np.linspace(0, len(micro) - 1, 6).astype(int)[1:])]
    return [
        (
            name,
            int(done[i]),
            f"{rates[i]:.8g}",
            int(many[i] * size.batch),
            f"{loss:.6f}" if i == micro[-1] else "",
        )
        for i in chosen
    ]


def seconds_a_step(size, path, steps=40):
    """Seconds of a step of a single run, for each batch, the best of three."""
    data = jnp.asarray(source_code()[0])
    table = {}
    for many in LARGER:
        batch = many * size.batch

        def one(carry, step, batch=batch):
            tokens = sequences(data, jax.random.fold_in(jax.random.key(0), step), batch, size)
            return adamw(*carry, jax.grad(loss)(carry[0], tokens, size), 1e-4, step), None

        weights = initial(jax.random.key(0), size)
        moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
        go = jax.jit(lambda carry, one=one: jax.lax.scan(one, carry, jnp.arange(steps))[0])
        jax.block_until_ready(go((weights, moments)))
        times = []
        for _ in range(3):
            began = time.perf_counter()
            jax.block_until_ready(go((weights, moments)))
            times.append((time.perf_counter() - began) / steps)
        table[batch] = min(times)
        print(f"batch {batch}: {1e3 * table[batch]:.3f} ms a step")
    Path(path).write_text(json.dumps(table))


# --- what optlearn makes of the logs -------------------------------------------------------------


def per_interval(rates, batches):
    """A schedule in steps of a rate and a batch for every step."""
    import optlearn as ol

    values = {"learning_rate": rates, "batch": batches}
    return ol.Schedule.piecewise(np.arange(len(rates) + 1.0), values)


def plan(path, table, logs, size):
    """Fit the logs; write ramps and constant batches of the same time, and of the same tokens."""
    import optlearn as ol

    fit = ol.laws.fit([str(log) for log in logs])
    print(fit.summary())
    seconds = {float(b): t for b, t in json.loads(Path(table).read_text()).items()}
    sizes = sorted(seconds)
    of_tokens = round(size.steps * size.batch / fit.batch)  # steps of the usual batch
    of_time = round(0.75 * of_tokens)
    wanted = {"batch": (sizes[0], sizes[-1]), "bounds": (0.0, size.peak)}
    asked = {
        f"ramp, {share:.0%} of the time": (round(share * of_time), 2, {"seconds": seconds})
        for share in SHORTER
    }
    asked["best constant batch"] = (of_time, 0, {"seconds": seconds})
    asked["ramp by tokens"] = (of_tokens, 2, {"tokens": True})
    schedules = {}
    for name, (steps, switches, price) in asked.items():
        problem = fit.problem(steps, robust=4, switches=switches, grain=steps // 50, **wanted, **price)
        solution = ol.solve(problem, method="indirect", starts=1)
        schedules[name] = fit.schedule(solution)
        print(f"{name}: batches {schedules[name].to_thresholds('batch', steps=int(schedules[name].horizon))}")
        print(solution.summary())
    for many in LARGER:
        batch = many * size.batch
        micro = round(of_time * seconds[fit.batch] / seconds[batch]) * many
        for decay in DECAYS[: 1 if many < 4 else 2]:
            schedules[f"{batch} wsd {decay:.0%}"] = per_interval(
                *run_of(wsd(decay), [(many, 1.0)], size, micro)
            )
    for many in LARGER[:2]:
        run = run_of(wsd(DECAYS[0]), [(many, 1.0)], size, size.steps)
        schedules[f"{many * size.batch} wsd {DECAYS[0]:.0%}, by tokens"] = per_interval(*run)
    told = {}
    for name, schedule in schedules.items():
        low, high = (ends[-1] for ends in fit.interval(schedule, level=0.95))
        told[name] = [float(fit.predict(schedule)[-1]), float(low), float(high)]
    plain = {
        name: {k: v for k, v in s.to_dict().items() if k in ("grid", "learning_rate", "batch")}
        for name, s in schedules.items()
    }
    Path(path).write_text(json.dumps({"schedules": plain, "predicted": told, "seconds": seconds}))


def table(path, logs):
    """Predicted and trained losses, pairs over seeds, and the time that ramps save."""
    from scipy.stats import t as student_t

    import optlearn as ol

    plans = json.loads(Path(path).read_text())
    schedules, seconds = read_schedules(path), {float(b): t for b, t in plans["seconds"].items()}
    finals = {}
    for curve in ol.laws.read_curves([str(log) for log in logs]):
        name, _, seed = curve.name.rpartition(" / seed ")
        finals.setdefault(name, {})[seed] = curve.loss[-1]

    def interval(values):
        half = student_t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
        return np.mean(values), np.mean(values) - half, np.mean(values) + half

    def beside(names):
        constant = [n for n in names if not n.startswith("ramp")]
        best = min(constant, key=lambda n: np.mean(list(finals[n].values())))
        for name in sorted(names, key=lambda n: np.mean(list(finals[n].values()))):
            batches = schedules[name][1]
            taken = sum(np.interp(batches, list(seconds), list(seconds.values())))
            gaps = [finals[name][s] / finals[best][s] - 1 for s in finals[name] if s in finals[best]]
            trained, (loss, low, high) = np.mean(list(finals[name].values())), plans["predicted"][name]
            line = f"{name:26} {taken:6.2f} s {len(batches):6} steps {batches.sum() / 1e3:6.0f}k samples  "
            line += f"predicted {loss:.4f} ({low:.4f} to {high:.4f}) trained {trained:.4f}"
            if name != best and len(gaps) > 1:
                line += "  above the best constant {:+.2%} ({:+.2%} to {:+.2%})".format(*interval(gaps))
            print(line)
        return best

    by_tokens = [name for name in schedules if name.endswith("by tokens")]
    beside(by_tokens)
    print()
    best = beside([name for name in schedules if name not in by_tokens])
    ramps = [f"ramp, {share:.0%} of the time" for share in SHORTER]
    saved = []
    for seed in finals[best]:
        losses = [finals[name][seed] for name in ramps]
        # Of the line through loss against the logarithm of time.
        slope, level = np.polyfit(np.log(SHORTER), losses, 1)
        saved.append(1 - np.exp((finals[best][seed] - level) / slope))
    print("a ramp has the loss of {} in {:.0%} less time ({:.0%} to {:.0%})".format(best, *interval(saved)))
    draw(schedules, plans["predicted"], finals, ["ramp, 100% of the time", best], path)


def draw(schedules, predicted, finals, compared, path):
    """Two schedules of rate and batch, and the final losses of all: predicted intervals, and trained runs."""
    import matplotlib.pyplot as plt

    figure, (rates, batches, losses) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    for name in compared:
        rate, batch = schedules[name]
        seen = np.cumsum(batch) / 1e3
        rates.plot(seen, rate, label=name)
        batches.step(seen, batch, label=name)
    rates.set(xlabel="thousand samples", ylabel="learning rate", ylim=(0, None))
    batches.set(xlabel="thousand samples", ylabel="batch", yscale="log")
    batches.legend()
    names = sorted(finals, key=lambda name: np.mean(list(finals[name].values())), reverse=True)
    for level, name in enumerate(names):
        losses.plot(predicted[name][1:], [level, level], color="0.8", lw=6)
        losses.plot(list(finals[name].values()), [level] * len(finals[name]), "k.", ms=4)
    losses.set_yticks(range(len(names)), names, fontsize=7)
    losses.set(xlabel="final loss (bars: predicted, 95 %; points: trained)")
    figure.savefig(Path(path).with_suffix(".png"), dpi=110)


def everything(size, folder):
    """All steps in a row; logs and schedules go to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds_a_step(size, folder / "seconds.json")
    runs = {name: run_of(*run, size, size.steps) for name, run in PILOTS.items()}
    train(runs, 1, size, folder / "pilots.csv")
    plan(folder / "plans.json", folder / "seconds.json", [folder / "pilots.csv"], size)
    train(read_schedules(folder / "plans.json"), 2, size, folder / "plans.csv")
    table(folder / "plans.json", [folder / "plans.csv"])


def judge(logs, others):
    """Final losses of runs that were not fitted, means over seeds."""
    from scipy.stats import spearmanr

    import optlearn as ol

    fit = ol.laws.fit([str(log) for log in logs])
    trained, told = {}, {}
    for curve in ol.laws.read_curves([str(log) for log in others]):
        name = curve.name.rpartition(" / seed ")[0]
        trained.setdefault(name, []).append(curve.loss[-1])
        told[name] = float(fit.predict(curve)[-1])
    for name, losses in trained.items():
        print(f"{name:26} trained {np.mean(losses):.4f}  predicted {told[name]:.4f}")
    true, guess = np.array([np.mean(losses) for losses in trained.values()]), np.array(list(told.values()))
    error, spread = np.abs(guess / true - 1).mean(), true.std() / true.mean()
    rank = spearmanr(guess, true)[0]
    print(f"{len(true)} runs not fitted: error {error:.2%}, spread {spread:.2%}, rank correlation {rank:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a toy network, for a CPU")
    parser.add_argument("--seeds", type=int, default=2, help="of weights and data")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("seconds").add_argument("table", type=Path)
    added = commands.add_parser("pilots")
    added.add_argument("log", type=Path)
    added.add_argument("others", type=Path)
    added = commands.add_parser("judge")
    added.add_argument("log", type=Path)
    added.add_argument("others", type=Path)
    added = commands.add_parser("plan")
    for name in ("plans", "table"):
        added.add_argument(name, type=Path)
    added.add_argument("log", type=Path, nargs="+")
    added = commands.add_parser("train")
    added.add_argument("plans", type=Path)
    added.add_argument("log", type=Path)
    added = commands.add_parser("table")
    added.add_argument("plans", type=Path)
    added.add_argument("log", type=Path, nargs="+")
    given = parser.parse_args()
    size = QUICK if given.quick or given.command is None else REAL
    if given.command is None:
        everything(size, Path("out") / "batch_ramp_gpt")
    elif given.command == "judge":
        judge([given.log], [given.others])
    elif given.command == "plan":
        plan(given.plans, given.table, given.log, size)
    elif given.command == "train":
        train(read_schedules(given.plans), given.seeds, size, given.log)
    elif given.command == "table":
        table(given.plans, given.log)
    elif given.command == "seconds":
        seconds_a_step(size, given.table)
    elif given.command == "pilots":
        for runs, log in ((PILOTS, given.log), (OTHERS, given.others)):
            train({n: run_of(*run, size, size.steps) for n, run in runs.items()}, given.seeds, size, log)


if __name__ == "__main__":
    main()
