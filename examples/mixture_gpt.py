"""The order of data, planned from logs: a byte-level GPT on Python and C++ sources, of which C++ is scarce.

Run: python examples/mixture_gpt.py        (all steps with a toy network, on a CPU, two minutes)

On a GPU, with the real one (3M parameters, 3,000 steps), all of the experiment in one command, or its parts
(`plan`, `front` and `table` need no GPU):

    python examples/mixture_gpt.py all FOLDER                            (what is in the folder is kept)
    python examples/mixture_gpt.py pilots pilots.csv
    python examples/mixture_gpt.py plan round1.json pilots.csv           (fit, robust plan, next pilot)
    python examples/mixture_gpt.py train round1.json round1.csv
    python examples/mixture_gpt.py plan round2.json pilots.csv round1.csv
    python examples/mixture_gpt.py baselines baselines.csv               (12 tuned mixtures, to be beaten)
    python examples/mixture_gpt.py --seeds 4 train round2.json round2.csv --beside "20 %, wsd 20"
    python examples/mixture_gpt.py table pilots.csv round1.csv baselines.csv round2.csv --fitted 1
    python examples/mixture_gpt.py front front.json pilots.csv           (five points between both losses)

A fifth of all samples may be C++. All runs of a command are trained at once, vectorised over schedules and
seeds; a seed fixes the initial weights and the stream of samples of each domain, the same for all schedules,
so schedules are compared in pairs. Logs have the columns run, step, lr, share_python, share_cpp, loss_python
and loss_cpp; losses are those of held-out files, in nats a byte. ``--texts FILE`` reads the texts from an
.npz file (arrays python_train, python_test, cpp_train, cpp_test) instead of from this machine.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from loss_curves_gpt import Size, adamw, initial, loss

BUDGET = 0.2  # share of all samples that may be C++
DOMAINS = ("python", "cpp")
FRONT = (0.15, 0.3, 0.5, 0.7, 0.85)  # weights of python
LONG = (  # trained for twice as long
    "20 %, wsd 20", "rising, wsd 30", "10 %, then 60 %, wsd 30", "33 % in the last 60 %, wsd 30",
    "45 % in the last 44 %, wsd 30", "50 % in the last 40 %, wsd 20",
)  # fmt: skip

REAL = Size(steps=3000, warmup=150, log_every=50, held_out=384)  # sequences held out of each domain
QUICK = Size(32, 1, 2, 32, 8, 300, 20, 5e-3, 10, 128)

# --- schedules: rates and shares of C++ as functions of the share x of training ----------------------


def constant(x):
    return np.ones_like(x)


def wsd(percent):
    return lambda x: np.minimum(1.0, (1 - x) / (percent / 100))


def level(share):
    return lambda x: np.full_like(x, share)


def late(share):
    """All of the budget at one share, at the end."""
    return lambda x: np.where(x > 1 - BUDGET / share, share, 0.0)


def alternating(x):
    return 2 * BUDGET * (np.floor(10 * x) % 2)


def rising(x):
    return 2 * BUDGET * x


def burst(x):
    """Half of the budget all along, the rest in the last fifth."""
    return np.where(x > 0.8, 0.6, BUDGET / 2)


# A constant rate and decays, all at the end, alternating, two levels of share.
PILOTS = {
    "20 %, constant": (constant, level(0.2)),
    "20 %, linear": (wsd(100), level(0.2)),
    "alternating, constant": (constant, alternating),
    "all at the end, wsd 20": (wsd(20), late(1.0)),
    "50 % in the last 40 %, wsd 20": (wsd(20), late(0.5)),
    "5 %, wsd 20": (wsd(20), level(0.05)),
}
BASELINES = {
    "20 %, wsd 20": (wsd(20), level(0.2)),
    "20 %, wsd 40": (wsd(40), level(0.2)),
    "rising, wsd 30": (wsd(30), rising),
    "10 %, then 60 %, wsd 30": (wsd(30), burst),
    **{
        f"{share:.0%} in the last {BUDGET / share:.0%}, wsd {decay}".replace("%", " %"): (
            wsd(decay),
            late(share),
        )
        for share, decay in (
            (0.25, 30), (1 / 3, 30), (0.4, 30), (0.45, 20), (0.45, 30), (0.45, 40), (0.5, 30), (0.6, 30),
        )
    },
}  # fmt: skip


def per_step(shapes, size):
    """(steps,) rates, after a linear warm-up, and (steps,) shares of C++."""
    rate, share = shapes
    step = np.arange(size.steps) + 0.5
    warm = np.minimum(step / size.warmup, 1.0)
    return size.peak * warm * rate(step / size.steps), share(step / size.steps)


def read_schedules(path, size):
    """{name: (rates, shares of C++)} of a file of schedules in steps."""
    schedules = {}
    for name, schedule in json.loads(Path(path).read_text()).items():
        at = np.arange(schedule["grid"][-1]) + 0.5
        index = np.searchsorted(schedule["grid"], at) - 1
        schedules[name] = tuple(np.asarray(schedule[c])[index] for c in ("learning_rate", "share_cpp"))
    return schedules


# --- data ------------------------------------------------------------------------------------------


def texts(path=None):
    """{name_train, name_test: bytes} of both domains: files of this machine, every 20th to test on."""
    if path is not None:
        return dict(np.load(path))
    library = Path(sysconfig.get_path("stdlib"))
    headers = (sysconfig.get_path("include"), "/usr/include", sysconfig.get_path("purelib"))
    files = {
        "python": sorted(f for f in library.rglob("*.py") if "site-packages" not in f.parts),
        "cpp": sorted({f for top in headers for kind in ("*.h", "*.hpp") for f in Path(top).rglob(kind)}),
    }
    parts = {}
    for name, found in files.items():
        if len(found) < 40:
            raise SystemExit(f"only {len(found)} {name} files on this machine: give texts by --texts")
        found = found[:: max(len(found) // 3000, 1)]
        test = found[::20]
        for part, chosen in (("train", [f for f in found if f not in set(test)]), ("test", test)):
            parts[f"{name}_{part}"] = np.frombuffer(b"".join(f.read_bytes() for f in chosen), np.uint8)
    return parts


def counts(shares, batch):
    """(steps,) how many samples of each batch are C++: exact on the budget, never off by a whole sample."""
    return np.diff(np.floor(np.cumsum(np.append(0.0, batch * shares)) + 1e-6)).astype(np.int32)


# --- training --------------------------------------------------------------------------------------


class Trainer:
    """Trains many schedules at once; compiled once for a number of runs."""

    def __init__(self, size, parts):
        self.size = size
        data = {name: jnp.asarray(part) for name, part in parts.items()}
        lengths = [len(parts[f"{name}_train"]) - size.context - 1 for name in DOMAINS]
        offset = len(parts["python_train"])
        both = jnp.concatenate([data["python_train"], data["cpp_train"]])

        def batch(key, count):
            each = [
                jax.random.randint(k, (size.batch,), 0, length)
                for k, length in zip(jax.random.split(key), lengths, strict=True)
            ]
            start = jnp.where(jnp.arange(size.batch) < count, offset + each[1], each[0])
            return both[start[:, None] + jnp.arange(size.context + 1)].astype(jnp.int32)

        def chunk(weights, moments, seed, rate, count, first):
            def one(carry, given):
                rate, count, step = given
                tokens = batch(jax.random.fold_in(jax.random.key(seed), step), count)
                gradient = jax.grad(loss)(carry[0], tokens, size)
                return adamw(*carry, gradient, rate, step), None

            steps = first + jnp.arange(size.log_every)
            return jax.lax.scan(one, (weights, moments), (rate, count, steps))[0]

        def tested(weights):
            def of(part):
                starts = jnp.linspace(0, len(part) - size.context - 1, size.held_out).astype(jnp.int32)
                starts = starts.reshape(-1, size.batch)
                at = starts[..., None] + jnp.arange(size.context + 1)
                return jax.lax.map(lambda i: loss(weights, part[i].astype(jnp.int32), size), at).mean()

            return jnp.stack([of(data[f"{name}_test"]) for name in DOMAINS])

        self.advance = jax.jit(jax.vmap(chunk, in_axes=(0, 0, 0, 0, 0, None)), donate_argnums=(0, 1))
        self.test = jax.jit(jax.vmap(tested))
        self.initial = jax.jit(jax.vmap(lambda s: initial(jax.random.key(1000 + s), size)))

    def train(self, runs, report=print):
        """Rows of the log of ``runs``: (name, seed, rates, shares of C++), all of one length."""
        size = self.size
        seed = jnp.asarray([s for _, s, _, _ in runs])
        rates = np.stack([r for _, _, r, _ in runs]).astype(np.float32)
        shown = np.stack([counts(share, size.batch) for *_, share in runs])
        weights = self.initial(seed)
        moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
        every, fine = size.log_every, max(size.log_every // 5, 1)
        rows, began = [], time.time()
        for first in range(0, rates.shape[1], every):
            part = slice(first, first + every)
            weights, moments = self.advance(weights, moments, seed, rates[:, part], shown[:, part], first)
            losses = np.asarray(self.test(weights))
            for i, (name, s, *_) in enumerate(runs):
                for end in range(first + fine, first + every + 1, fine):
                    block = slice(end - fine, end)
                    share = shown[i, block].mean() / size.batch
                    at_end = [f"{x:.5f}" if end == first + every else "" for x in losses[i]]
                    rate = f"{rates[i, block].mean():.6g}"
                    rows.append(
                        (f"{name} / seed {s}", end, rate, f"{1 - share:.6g}", f"{share:.6g}", *at_end)
                    )
            if first == 0 or (first + every) % (10 * every) == 0:
                seconds = time.time() - began
                mean = losses.mean(axis=1)
                report(f"step {first + every}: {mean.min():.4f} to {mean.max():.4f}, {seconds:.0f} s")
        return rows


def write(log, rows):
    """A log of all rows, sorted by run."""
    columns = ("run", "step", "lr", "share_python", "share_cpp", "loss_python", "loss_cpp")
    with Path(log).open("w", newline="") as file:
        rows = sorted(rows, key=lambda row: (row[0], row[1]))
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def train(trainer, wanted, log):
    """Train schedules (name, rates, shares, seeds), all seeds of all of them at once, and write the log."""
    runs = [(name, seed, rates, shares) for name, rates, shares, seeds in wanted for seed in seeds]
    print(f"{log}: {len(runs)} runs", flush=True)
    write(log, trainer.train(runs))


def with_seeds(schedules, seeds):
    """Schedules {name: (rates, shares)} as ``train`` wants them."""
    return [(name, *schedule, seeds) for name, schedule in schedules.items()]


# --- what optlearn makes of the logs ---------------------------------------------------------------


def save(path, schedules):
    """Schedules in steps as JSON."""
    names = ("learning_rate", "share_cpp")
    plain = {
        title: {"grid": s.grid.tolist(), **{name: s[name].tolist() for name in names}}
        for title, s in schedules.items()
    }
    Path(path).write_text(json.dumps(plain))


def plan(logs, path, size, robust):
    """Fit the logs, and write the robust optimum, the best of a family, and the next pilot."""
    import optlearn as ol

    fit = ol.laws.fit([str(log) for log in logs], warmup=size.warmup, peak=size.peak)
    print(fit.summary())
    bounds, number = (0.0, size.peak), len(logs)
    solution = ol.solve(
        fit.problem(size.steps, bounds, robust=robust, budgets={"cpp": BUDGET}, intervals=40),
        method="indirect",
        starts=1,
    )
    print(solution.summary())
    best = fit.family("cpp", BUDGET, size.steps, bounds)[0]
    print(f"best of the family: {best.shape}, {best.settings}, {best.objective:.4f} ± {best.error:.4f}")
    schedules = {
        f"plan {number}": fit.schedule(solution),
        f"plan {number} family": best.schedule,
        f"pilot {number}": ol.laws.next_pilot(fit, size.steps, bounds, domain="cpp", budget=BUDGET),
    }
    for name, schedule in schedules.items():
        ends = {domain: (low[-1], high[-1]) for domain, (low, high) in fit.interval(schedule).items()}
        losses = {domain: loss[-1] for domain, loss in fit.predict(schedule).items()}
        words = [f"{d} {losses[d]:.4f} ({ends[d][0]:.4f} to {ends[d][1]:.4f})" for d in DOMAINS]
        print(f"{name}: {', '.join(words)}, mean {np.mean(list(losses.values())):.4f}")
    save(path, schedules)


def front(logs, path, size, weights=FRONT):
    """Plans between the losses of both domains, within the family: free ones go where the law is wrong."""
    import optlearn as ol

    fit = ol.laws.fit([str(log) for log in logs], warmup=size.warmup, peak=size.peak)
    schedules = {}
    for weight in weights:
        both = {"python": weight, "cpp": 1 - weight}
        best = fit.family("cpp", BUDGET, size.steps, (0.0, size.peak), weights=both)[0]
        schedules[f"front {100 * weight:.0f}"] = best.schedule
        losses = {domain: round(loss, 4) for domain, loss in best.losses.items()}
        print(f"weight {weight}: {best.shape}, {best.settings}, {losses}")
    save(path, schedules)


def table(logs, fitted, size):
    """Trained final losses, differences from the best in pairs, predictions of the first logs."""
    import optlearn as ol
    from optlearn.laws import read_mixtures

    fit = ol.laws.fit([str(log) for log in logs[:fitted]], warmup=size.warmup, peak=size.peak)
    finals, told = {}, {}
    for curve in read_mixtures([str(log) for log in logs]):
        name, _, seed = curve.name.rpartition(" / seed ")
        finals.setdefault(name, {})[seed] = np.mean([curve.losses[d][-1] for d in DOMAINS])
        told[name] = np.mean([fit.predict(curve)[d][-1] for d in DOMAINS])
    mean = {name: np.mean(list(values.values())) for name, values in finals.items()}
    best = min(mean, key=mean.get)
    print(f"{'schedule':<34} trained  predicted  above {best}")
    for name in sorted(mean, key=mean.get):
        gaps = np.array([v - finals[best][s] for s, v in finals[name].items() if s in finals[best]])
        above = f"{gaps.mean():+.4f}" if len(gaps) else "no seed in common"
        error = f" ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.4f}" if len(gaps) > 1 else ""
        print(f"{name:<34} {mean[name]:.4f}   {told[name]:.4f}     {above}{error}")


def everything(size, parts, folder, seeds, robust):
    """All steps in a row; logs and schedules go to the folder, and what is there already is not made again.

    One or two seeds for pilots and baselines; ``seeds`` others, by which nothing was chosen, for plans and
    the two best baselines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trainer, early = Trainer(size, parts), range(1 if size is QUICK else 2)
    late_seeds = range(2, 2 + seeds)

    def trained(name, wanted):
        log = folder / f"{name}.csv"
        if not log.exists():
            train(trainer, wanted(), log)
        return log

    def planned(command, name, logs):
        """Planning runs beside training, on the CPU, in 64 bits."""
        if (folder / f"{name}.json").exists():
            return None
        words = [sys.executable, __file__, "--robust", str(robust), command, folder / f"{name}.json", *logs]
        if size is QUICK:
            words.insert(2, "--quick")
        report = (folder / f"{name}.txt").open("w")
        return subprocess.Popen(words, env={**os.environ, "JAX_PLATFORMS": "cpu"}, stdout=report)

    def made(process, name):
        if process is not None:
            if process.wait():
                raise SystemExit(f"{name} was not planned: see {folder / name}.txt")
            print((folder / f"{name}.txt").read_text(), flush=True)
        return read_schedules(folder / f"{name}.json", size)

    def tuned(shapes):
        return {name: per_step(shape, size) for name, shape in shapes.items()}

    pilots = trained("pilots", lambda: with_seeds(tuned(PILOTS), early))
    first, points = planned("plan", "round1", [pilots]), planned("front", "front", [pilots])
    baselines = trained("baselines", lambda: with_seeds(tuned(BASELINES), early))
    best = sorted(BASELINES, key=final_means(baselines).get)[:2]
    judges = trained("best", lambda: with_seeds(tuned({n: BASELINES[n] for n in best}), late_seeds))

    def new(plans, judged):
        """Plans that no baseline is; a plan that is one of the best two has their runs."""
        twins = {name: twin(plan, tuned(PILOTS | BASELINES)) for name, plan in plans.items()}
        for name, other in twins.items():
            if other:
                print(f"{name} is {other}")
        chosen = {n: p for n, p in plans.items() if twins[n] is None or (judged and twins[n] not in best)}
        return {n: p for n, p in chosen.items() if n.startswith("plan") == judged}

    plans = made(first, "round1") | made(points, "front")

    def round1():
        return with_seeds(new(plans, True), late_seeds) + with_seeds(new(plans, False), early)

    logs = [pilots, trained("round1", round1)]
    second = planned("plan", "round2", logs)
    twice = replace(size, steps=2 * size.steps)
    double = {f"long: {name}": per_step((PILOTS | BASELINES)[name], twice) for name in LONG}
    long = trained("long", lambda: with_seeds(double, early[:1]))
    plans2 = new(made(second, "round2"), True)
    if plans2:
        logs.append(trained("round2", lambda: with_seeds(plans2, late_seeds)))
    table([*logs, baselines, judges], 1, size)
    table([pilots, long], 1, size)


def twin(plan, tuned, close=0.02):
    """The name of the tuned schedule that a plan is, but for rounding; None if it is none."""
    for name, schedule in tuned.items():
        rates, shares = (np.abs(a - b).mean() for a, b in zip(plan, schedule, strict=True))
        if rates < close * schedule[0].max() and shares < close * BUDGET:
            return name
    return None


def final_means(log):
    """{schedule: mean of both final losses over seeds} of a log."""
    finals = {}
    with Path(log).open(newline="") as file:
        for row in csv.DictReader(file):
            if row["loss_cpp"]:
                finals[row["run"]] = float(row["loss_python"]) + float(row["loss_cpp"])
    sums = {}
    for run, value in finals.items():
        sums.setdefault(run.rpartition(" / seed ")[0], []).append(value / 2)
    return {name: np.mean(values) for name, values in sums.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a toy network, for a CPU")
    parser.add_argument("--seeds", type=int, default=2, help="of weights and data")
    parser.add_argument("--texts", type=Path, help="an .npz file of texts instead of this machine's")
    commands = parser.add_subparsers(dest="command")
    parser.add_argument("--robust", type=int, default=6, help="plausible laws that a free plan is made for")
    commands.add_parser("all").add_argument("folder", type=Path)
    for name in ("pilots", "baselines"):
        commands.add_parser(name).add_argument("log", type=Path)
    for name in ("plan", "front", "train"):
        added = commands.add_parser(name)
        added.add_argument("schedules", type=Path)
        added.add_argument("log", type=Path, nargs=None if name == "train" else "+")
    added.add_argument("--beside", nargs="*", default=[], choices=BASELINES, metavar="NAME")
    added = commands.add_parser("table")
    added.add_argument("log", type=Path, nargs="+")
    added.add_argument("--fitted", type=int, default=1, help="how many of the logs are fitted")
    given = parser.parse_args()
    size = QUICK if given.quick or given.command is None else REAL
    parts = None if given.command in ("plan", "front", "table") else texts(given.texts)
    if given.command is None:
        everything(size, parts, Path("out") / "mixture_gpt", 2, 2)
    elif given.command == "all":
        everything(size, parts, given.folder, given.seeds, given.robust)
    elif given.command in ("pilots", "baselines"):
        chosen = PILOTS if given.command == "pilots" else BASELINES
        schedules = {name: per_step(shapes, size) for name, shapes in chosen.items()}
        train(Trainer(size, parts), with_seeds(schedules, range(given.seeds)), given.log)
    elif given.command == "train":
        schedules = read_schedules(given.schedules, size)
        schedules |= {name: per_step(BASELINES[name], size) for name in given.beside}
        train(Trainer(size, parts), with_seeds(schedules, range(given.seeds)), given.log)
    elif given.command == "plan":
        plan(given.log, given.schedules, size, given.robust)
    elif given.command == "front":
        front(given.log, given.schedules, size)
    else:
        table(given.log, given.fitted, size)


if __name__ == "__main__":
    main()
