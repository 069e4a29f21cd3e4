"""Tables of the page about laws, from data that you have.

    python docs/make_laws.py --curves DIR                 (public curves of language models, 25M and 100M)
    python docs/make_laws.py --supercollapse DIR          (logs/ of github.com/shikaiqiu/supercollapse)
    python docs/make_laws.py --modded DIR                 (records/ of github.com/KellerJordan/modded-nanogpt)
    python docs/make_laws.py --gemstone DIR     (wandb_dfs/ of github.com/mcleish7/gemstone-scaling-laws)

    python docs/make_laws.py --stored benchmarks/measured/batch_ramp_gpt.csv.gz
                                                          (runs of examples/batch_ramp_gpt.py on one GPU)

prints them; each option alone prints what it has data for, the coverage of forecasts over all that are given.
A folder of ``--curves`` is ``DIR/25M/*.csv`` and ``DIR/100M/*.csv`` with the columns step, lr and loss.
"""

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr
from scipy.stats import t as student_t

import optlearn as ol
from optlearn.laws import Curve

WARMUP = 2160  # steps of the public curves of language models, before their first loss
FITTED = ("cosine_24000", "constant_24000", "wsdcon_9")
CUTS = (0.2, 0.4, 0.6)  # of a run, after which it is forecast
PILOTS = ("const", "linear 20 %", "linear")
SHARES = {"×¼": 0.25, "×½": 0.5, "×1": 1.0, "×2": 2.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("curves", "supercollapse", "modded", "gemstone"):
        parser.add_argument(f"--{name}", type=Path, metavar="DIR")
    parser.add_argument("--stored", type=Path, metavar="FILE")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ol.laws.LawWarning)
    families: list[Family] = []
    parts: list[Part] = []
    if given.curves:
        sizes = {size: public(given.curves / size) for size in ("25M", "100M")}
        language(sizes)
        priors(sizes)
        families.append(Family("Llama 25M", sizes["25M"], sizes["100M"], WARMUP))
        families.append(Family("Llama 100M", sizes["100M"], sizes["25M"], WARMUP))
        alone = [Family(f"Llama {size}, no prior", runs, {}, WARMUP) for size, runs in sizes.items()]
        coverage(alone)
        parts += [*of_language("25M", "100M", sizes), *of_language("100M", "25M", sizes)]
    if given.supercollapse:
        transformers, networks = (widths(given.supercollapse / f"{n}_schedules.pkl") for n in ("c5m", "mlp"))
        others("transformer", transformers)
        others("MLP", networks)
        for width in (1024, 1280, 2048):
            families.append(
                Family(f"transformer {width}", flat(transformers[width]), flat(transformers[768]), 0)
            )
        families.append(Family("MLP 1024", flat(networks[1024]), flat(networks[512]), 0))
        parts += [*of_widths("transformer", transformers), *of_widths("MLP", networks)]
    if given.stored:
        batches(given.stored)
    if given.modded:
        speedrun(given.modded)
    if given.gemstone:
        shapes = gemstones(given.gemstone)
        cooldowns(shapes)
        parts += [part for count in (1, 3, 5) for part in of_gemstones(shapes, count)]
    if parts:
        unseen(parts)
    if families:
        coverage(families)


# --- public curves of language models -----------------------------------------------------------


def public(folder: Path) -> dict[str, Curve]:
    files = [file for file in sorted(folder.glob("*.csv")) if file.stem != "published-optimum"]
    return {curve.name: curve for curve in ol.laws.read_curves(files)}


def language(sizes: Mapping[str, Mapping[str, Curve]]) -> None:
    """Three curves are fitted, six are judged."""
    print("\nfitted to three curves, errors of the six others")
    for size, curves in sizes.items():
        began = time.process_time()
        fit = ol.laws.fit([curves[name] for name in FITTED], warmup=WARMUP)
        errors = fit.errors([curve for name, curve in curves.items() if name not in FITTED])
        seconds = time.process_time() - began
        print(f"  {size:5}", "  ".join(f"{k} {v:.5f}" for k, v in errors.items()), f" {seconds:.1f} CPU s")


def priors(sizes: Mapping[str, Mapping[str, Curve]]) -> None:
    """All curves of one size as the prior of the other, of which part of a run is known, and a short drop."""
    print("\nprior from the other size: MAE of six unseen schedules")
    for of, other in (("100M", "25M"), ("25M", "100M")):
        prior = ol.laws.fit(list(sizes[other].values()), warmup=WARMUP)
        judged = [curve for name, curve in sizes[of].items() if name not in FITTED]
        cells = []
        for drop in (False, True):
            for last in (8000, 16000):
                known = [sizes[of]["constant_24000"].until(last)]
                if drop:
                    dropped = sizes[of]["wsdcon_9"]
                    known.append(
                        dropped.until(2000 + float(dropped.step[np.argmax(dropped.rate < dropped.rate[0])]))
                    )
                fit = ol.laws.fit(known, warmup=WARMUP, prior=prior)
                cells.append(f"{last}{' and a drop' if drop else ''}: {fit.errors(judged)['MAE']:.4f}")
        print(f"  {other} → {of}  ", ", ".join(cells))


# --- supercollapse ------------------------------------------------------------------------------


def widths(file: Path) -> dict[int, dict[tuple[float, str], Curve]]:
    """Width → (tokens, schedule) → run, after the first hundredth of its steps."""
    import pandas as pd

    runs: dict[int, dict[tuple[float, str], Curve]] = {}
    for _, row in pd.read_pickle(file).iterrows():
        name = row["schedule"] + (
            "" if row["decay_frac"] == 1 else f" {row['decay_frac']:.0%}".replace("%", " %")
        )
        columns = (np.asarray(row["history"][c], dtype=float) for c in ("step", "lr", "test_loss"))
        curve = Curve(f"{row['D']} {row['T']:.1e} {name}", *columns)
        runs.setdefault(int(row["D"]), {})[float(row["T"]), name] = curve
    return runs


def flat(runs: Mapping[tuple[float, str], Curve]) -> dict[str, Curve]:
    return {curve.name: curve for curve in runs.values()}


def others(network: str, of_width: Mapping[int, Mapping[tuple[float, str], Curve]]) -> None:
    """Fitted to three schedules of one horizon; final losses of the others, beside how far these spread."""
    print(f"\n{network}: fitted to {', '.join(PILOTS)} at one horizon; final losses of the others")
    pooled: list[tuple[float, float]] = []  # of each run judged at the pilots' horizon: error, spread
    for width, runs in of_width.items():
        longest = max(runs, key=lambda key: sum(t == key[0] for t, _ in runs))[0]  # with most schedules
        if not all((longest, pilot) in runs for pilot in PILOTS):
            continue
        began = time.process_time()
        fit = ol.laws.fit([runs[longest, pilot] for pilot in PILOTS])
        seconds = time.process_time() - began
        for label, share in SHARES.items():
            judged = [
                run for (tokens, name), run in runs.items()
                if tokens == share * longest and not (share == 1 and name in PILOTS)
            ]  # fmt: skip
            if len(judged) < 2:
                continue
            true = np.array([last(run) for run in judged])
            told = np.array([float(fit.predict(run)[-1]) for run in judged])
            errors, spread = np.abs(told / true - 1), true.std() / true.mean()
            error = errors.mean()
            if share == 1:
                pooled += [(run_error, spread) for run_error in errors]
            rank = spearmanr(told, true)[0] if len(judged) > 2 else np.nan
            print(
                f"  width {width:5} {label:3} {len(judged)} judged, error {error:.3%}, spread {spread:.3%}, "
                f"{error / spread:5.2f} spreads, rank {rank:.2f}, {seconds:.1f} CPU s"
            )
    error, spread = np.mean(pooled, axis=0)
    print(
        f"  all widths, ×1: {len(pooled)} judged, mean error {error:.3%} over mean spread {spread:.3%}: "
        f"{error / spread:.2f} spreads"
    )


def last(run: Curve) -> float:
    """The final loss, without the noise of a point: a mean over the last hundredth of the steps."""
    return float(run.loss[run.step >= 0.999 * run.steps].mean())


# --- modded-nanogpt ------------------------------------------------------------------------------

# The record of 11/03 and "+shorten duration" of 11/06: file, steps and steps of the linear decay to 0.
SPEEDRUN = {
    "longer": ("d6b50d71-f419-4d26-bb39-a60d55ae7a04.txt", 4578, 1308),
    "shorter": ("4a71cc92-0f43-4058-a033-23e85c1e98f1.txt", 3200, 914),
}


def speedrun(folder: Path) -> None:
    """Two runs of a GPT of 124M that differ in the schedule only; each predicts the other."""
    runs = {}
    for name, (file, steps, decay) in SPEEDRUN.items():

        def rate(step: float, steps: int = steps, decay: int = decay) -> float:
            return 0.02 * min(1.0, (steps - step) / decay)

        (runs[name],) = ol.laws.read_curves({name: next(folder.rglob(file))}, rates={name: rate})
    print("\nmodded-nanogpt: the final loss of one run from the other alone (95 %)")
    for known, asked in (("longer", "shorter"), ("shorter", "longer")):
        fit = ol.laws.fit(runs[known], alone=True, warmup=0)
        told = float(fit.predict(runs[asked])[-1])
        low, high = (float(ends[-1]) for ends in fit.interval(runs[asked], level=0.95))
        true, other = (float(runs[name].loss[-1]) for name in (asked, known))
        print(
            f"  {asked}: {true:.4f}, predicted {told:.4f} ({low:.4f} to {high:.4f}), error "
            f"{abs(told / true - 1):.2%}; the runs differ by {abs(other / true - 1):.2%}"
        )


# --- Gemstones -----------------------------------------------------------------------------------

COOLDOWN = 0.1  # of the steps before it: a linear decay to 0


def gemstones(folder: Path) -> dict[str, tuple[list[Curve], list[Curve]]]:
    """Networks of 20 shapes: a constant rate and half of it; and decays, from about ten steps on.

    The files hold steps and validation losses. Rates are what the authors say: constant, its half, and a
    linear decay to 0 over 10 % of the steps done; they matter in units of the peak only.
    """
    import pandas as pd

    tables = {
        kind: pd.read_json(folder / f"wandb_df_for_fitting_{kind}.jsonl", lines=True).sort_values("step")
        for kind in ("hot_477", "lr_ablation_hot_477", "cool_begin", "cool_end")
    }
    for table in tables.values():
        table["run_name"] = table["run_name"].str.removeprefix("cooler_")
    networks = {}
    for name in sorted(set(tables["cool_end"]["run_name"])):
        own = {kind: table[table["run_name"] == name] for kind, table in tables.items()}
        (step, loss), (low_step, low_loss), (begins, _), (ends, finals) = (
            (part["step"].to_numpy(float), part["final_loss"].to_numpy(float)) for part in own.values()
        )
        decays = []
        for begin, end, final in zip(begins, ends, finals, strict=True):
            before = step <= begin
            at, losses = np.append(step[before], end), np.append(loss[before], final)
            rate = np.append(np.ones(before.sum()), 0.0)
            inside = np.linspace(begin, end, 22)[1:-1]  # between the two losses the rate falls
            between = (inside, (end - inside) / (end - begin))
            decays.append(Curve(f"decay from {begin:g}", at, rate, losses, None, between))
        flat = [
            Curve("constant", step, 0 * step + 1, loss),
            Curve("half", low_step, 0 * low_step + 0.5, low_loss),
        ]
        networks[name] = (flat, decays)
    return networks


def cooldowns(networks: Mapping[str, tuple[list[Curve], list[Curve]]]) -> None:
    """Final losses of decays, from the runs without one, and from one decay more."""
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    began = time.process_time()
    for known, decays in networks.values():
        middle = len(decays) // 2
        for one_decay in found:
            fit = ol.laws.fit([*known, decays[middle]] if one_decay else known, warmup=0)
            for i, decay in enumerate(decays):
                if i != middle:
                    low, high = (float(bound[-1]) for bound in fit.interval(decay, level=0.95))
                    true = decay.loss[-1]
                    flat = float(np.interp(decay.steps, known[0].step, known[0].loss))
                    error = float(fit.predict(decay)[-1]) / true - 1
                    found[one_decay].append((error, flat / true - 1, low <= true <= high))
    print(f"\nGemstones: final losses of {len(found[True])} decays of 20 networks")
    for one_decay, rows in found.items():
        errors, gains, held = np.array(rows, dtype=float).T
        pilots = "a constant rate, its half" + " and one decay" * one_decay
        print(
            f"  from {pilots}: error {np.abs(errors).mean():.2%} (bias {errors.mean():+.2%}) where a decay "
            f"gains {gains.mean():.2%}; 95 % intervals hold {held.mean():.0%}"
        )
    print(f"  {(time.process_time() - began) / 40:.1f} CPU s a fit and its intervals")


# --- batches -------------------------------------------------------------------------------------


def batches(file: Path) -> None:
    """Runs of several batches: those fitted, others, and plans beside constant batches, over seeds."""
    import pandas as pd

    table = pd.read_csv(file)
    parts = {
        part: ol.laws.read_curves({part: rows.drop(columns="part")}) for part, rows in table.groupby("part")
    }
    fit = ol.laws.fit(parts["pilots"])
    print(f"\n{fit.summary()}")
    for part, best in (("others", None), ("plans", "256 wsd 30%"), ("plans", "32 wsd 30%, by tokens")):
        finals: dict[str, dict[str, float]] = {}
        told: dict[str, float] = {}
        for curve in parts[part]:
            name, _, seed = curve.name.rpartition(" / seed ")
            if best is None or ("by tokens" in name) == ("by tokens" in best):
                finals.setdefault(name, {})[seed] = float(curve.loss[-1])
                told[name] = float(fit.predict(curve)[-1])
        means = {name: float(np.mean(list(losses.values()))) for name, losses in finals.items()}
        print(f"\n{part}: trained, predicted" + (f"; above {best} (95 %)" if best else ""))
        for name in sorted(means, key=lambda name: means[name]):
            line = f"  {name:26} {means[name]:.4f}  {told[name]:.4f}"
            if best is not None and name != best:
                gaps = np.array([loss / finals[best][seed] - 1 for seed, loss in finals[name].items()])
                half = student_t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5
                line += f"  {gaps.mean():+.2%} ({gaps.mean() - half:+.2%} to {gaps.mean() + half:+.2%})"
            print(line)
        true, guess = (np.array([table[name] for name in means]) for table in (means, told))
        error, spread = np.abs(guess / true - 1).mean(), true.std() / true.mean()
        print(f"  error {error:.2%}, spread {spread:.2%}, rank correlation {spearmanr(guess, true)[0]:.2f}")


# --- parts of runs, with a prior ------------------------------------------------------------------


class Part(NamedTuple):
    """Part of a constant run, and maybe of one with a decay, beside which fits of others are the prior."""

    name: str
    prior: Sequence[ol.laws.LawFit]
    known: Sequence[Curve]
    judged: Sequence[Curve]
    warmup: float


def of_language(size: str, other: str, sizes: Mapping[str, Mapping[str, Curve]]) -> list[Part]:
    """8,000 and 16,000 steps at a constant rate, without and with a drop of 2,000 steps."""
    prior, parts = [ol.laws.fit(list(sizes[other].values()), warmup=WARMUP)], []
    dropped = sizes[size]["wsdcon_9"]
    drop = dropped.until(2000 + float(dropped.step[np.argmax(dropped.rate < dropped.rate[0])]))
    for last_step in (8000, 16000):
        run = sizes[size]["constant_24000"].until(last_step)
        for name, known in (("a run", [run]), ("and a drop", [run, drop])):
            names = {curve.name for curve in known}
            judged = [curve for curve in sizes[size].values() if curve.name not in names]
            parts.append(Part(f"Llama {size}, {name}", prior, known, judged, WARMUP))
    return parts


def of_widths(network: str, of_width: Mapping[int, Mapping[tuple[float, str], Curve]]) -> list[Part]:
    """30 and 60 % of a run at a constant rate, without and with the first half of a linear decay."""
    horizon = max(t for t, name in of_width[2048])
    runs = {w: of_width[w] for w in of_width if all((horizon, pilot) in of_width[w] for pilot in PILOTS)}
    fits = {w: ol.laws.fit([c for (t, _), c in own.items() if t == horizon]) for w, own in runs.items()}
    parts = []
    for width, own in runs.items():
        constant, linear = own[horizon, "const"], own[horizon, "linear"]
        for other in runs:
            if other == width or (len(runs) > 3 and min(runs) not in (width, other)):
                continue
            for share in (0.3, 0.6):
                known = [constant.until(share * constant.steps), linear.until(0.5 * linear.steps)]
                judged = [curve for curve in own.values() if curve.name != constant.name]
                parts.append(Part(f"{network}, a run", [fits[other]], known[:1], judged, 0))
                judged = [curve for curve in judged if curve.name != linear.name]
                parts.append(Part(f"{network}, and a decay", [fits[other]], known, judged, 0))
    return parts


def of_gemstones(networks: Mapping[str, tuple[list[Curve], list[Curve]]], others: int) -> list[Part]:
    """Half of a run at a constant rate, without and with a decay; ``others`` networks are the prior."""
    fits = [ol.laws.fit([*known, *decays], warmup=0) for known, decays in networks.values()]
    parts = []
    for i, ((constant, _), decays) in enumerate(networks.values()):
        prior = [fits[(i + 7 * k) % len(fits)] for k in range(1, others + 1)]
        middle = len(decays) // 2
        run = constant.until(decays[middle].steps)
        judged = [*decays[:middle], *decays[middle + 1 :]]
        for name, known in (("a run", [run]), ("and a decay", [run, decays[middle]])):
            parts.append(Part(f"Gemstones, {others} as prior, {name}", prior, known, judged, 0))
    return parts


def unseen(parts: Sequence[Part]) -> None:
    """How often intervals of fits with a prior hold final losses of schedules that they have not seen."""
    print("\nfits with a prior: how often intervals of 95 % hold final losses of other schedules")
    found: dict[str, list[tuple[bool, float, float]]] = {}
    for part in parts:
        fit = ol.laws.fit(part.known, prior=part.prior, warmup=part.warmup, same_unit=True)
        for curve in part.judged:
            told = float(fit.predict(curve)[-1])
            low, high = (float(bound[-1]) for bound in fit.interval(curve, level=0.95))
            true = curve.loss[-1]
            row = (low <= true <= high, abs(told / true - 1), (high - low) / told / 2)
            found.setdefault(part.name, []).append(row)
    for name, rows in found.items():
        held, errors, reach = np.mean(rows, axis=0)
        print(f"  {name:36} {held:4.0%} of {len(rows)}; mean error {errors:.2%}, half width {reach:.2%}")


# --- forecasts ----------------------------------------------------------------------------------


class Family(NamedTuple):
    """Runs to be forecast, and those of another size, if any, which are their prior."""

    name: str
    runs: Mapping[str, Curve]
    prior: Mapping[str, Curve]
    warmup: float


def coverage(families: Sequence[Family]) -> None:
    """Runs that are cut off, and forecast under the rates that they then had; intervals of 95 %."""
    print("\nforecasts after 20, 40 and 60 % of a run: how often intervals of 95 % hold the final loss")
    every: list[bool] = []
    for family in families:
        others = list(family.prior.values())
        prior = ol.laws.fit(others, warmup=family.warmup, same_unit=True) if others else None
        held: list[bool] = []
        errors: dict[float, list[float]] = {cut: [] for cut in CUTS}
        widths: list[float] = []
        for run in family.runs.values():
            rates = np.interp(np.arange(1, int(run.steps) + 1), *run.known)
            for cut in CUTS:
                known = run.until(cut * run.steps)
                if len(known.step) < 12:
                    continue
                try:
                    found = ol.laws.forecast(
                        known, int(run.steps), prior=prior, plan=rates, warmup=family.warmup
                    )
                except ol.SpecificationError:  # without a prior, too few losses
                    continue
                loss, low, high = found.finals["planned"]
                held.append(low <= run.loss[-1] <= high)
                errors[cut].append(abs(loss / run.loss[-1] - 1))
                widths.append((high - low) / loss / 2)
        every += held
        means = ", ".join(f"{np.mean(e):.2%}" for e in errors.values())
        held_by = f"{sum(held)} of {len(held)} ({np.mean(held):.0%})"
        print(f"  {family.name:20} {held_by}; mean error {means}; mean half width {np.mean(widths):.2%}")
    print(f"  all: {sum(every)} of {len(every)} ({np.mean(every):.0%})")


if __name__ == "__main__":
    main()
