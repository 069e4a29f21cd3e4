"""How large must N be for theory, and for the gain of an optimal schedule, to show in one run of SGD?

Run: python examples/finite_size.py [--largest 100000] [--work 3e7], or, to draw what a GPU has measured,
python examples/finite_size.py --data gpu_overlaps.json (see benchmarks/gpu_overlaps.py).
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from optlearn._io.files import load_dataset
from optlearn.sweeps import finite_size

DIMENSIONS = (100, 316, 1000, 3162, 10_000, 31_623, 100_000)
HORIZONS = {"curriculum": 12.0, "dropout": 5.0, "denoising": 0.8}
BASELINES = {
    "curriculum": ("curriculum", "anti-curriculum"),
    "dropout": ("no dropout", "best constant p = p_f"),
    "denoising": ("constant", "best constant"),
}
# Terms of order 1 of the denoising error, which the paper leaves out: without them the bias stays.
FIXED = {"denoising": {"finite_size": True}}
# Where fits begin: smaller N have corrections of higher order.
SMALLEST = {"denoising": 1000}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=1000, help="largest N")
    parser.add_argument("--work", type=float, default=2e6, help="seed-steps for each N and scenario")
    parser.add_argument("--data", type=Path, help="what was measured: gpu_overlaps.json, or a folder")
    parser.add_argument("--out", type=Path, default=Path("finite_size"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.data:
        found = from_file(options.data)
    else:
        N = [n for n in DIMENSIONS if n <= options.largest]
        found = {}
        for name, horizon in HORIZONS.items():

            def seeds(n, horizon=horizon):
                return int(np.clip(options.work / (horizon * n), 16, 20_000))

            def say(news):
                print(news.text)

            found[name] = finite_size.measure(
                name, N, seeds, baselines=BASELINES[name], fixed=FIXED.get(name), progress=say
            )
            found[name].to_netcdf(options.out / f"{name}.nc", engine="h5netcdf")
    for name, data in found.items():
        report(name, data)
    draw(found, options.out / "finite_size.png")


def from_file(path):
    """Datasets from the JSON of a GPU, or from the folder of an earlier run."""
    if path.is_dir():
        return {name: load_dataset(path / f"{name}.nc") for name in HORIZONS}
    study = json.loads(path.read_text())["study"]
    found = {}
    for name, rows in study.items():
        table = [
            [
                finite_size.Moments(theory, row["seeds"], *numbers)
                for theory, *numbers in zip(
                    row["theory"], row["mean"], row["variance"], row["fourth"], strict=True
                )
            ]
            for row in rows
        ]
        found[name] = finite_size.make_dataset(name, rows[0]["names"], [row["N"] for row in rows], table)
    return found


def report(name, data):
    print(f"{name}: seeds {dict(zip(data['N'].values.tolist(), data['seeds'].values.tolist(), strict=True))}")
    smallest = SMALLEST.get(name, 0)
    for schedule in data["schedule"].values:
        for what, law in (
            ("bias", finite_size.fit_bias(data, schedule, smallest)),
            ("variance", finite_size.fit_variance(data, schedule, smallest)),
        ):
            if law is None:
                print(f"  {schedule}: {what} is seen at fewer than two N")
                continue
            print(
                f"  {schedule}: {what} = {law.prefactor:.3g} N^-{law.exponent:.3f}, exponent ± "
                f"{law.exponent_error:.3f}, χ² = {law.chi2:.1f} for {law.points} points"
            )
    for baseline in data["schedule"].values[1:]:
        gain = data["theory"].sel(schedule=baseline) - data["theory"].sel(schedule="optimum")
        print(
            f"  over {baseline}: gain {float(gain[0]):.4g} (at N = {int(data['N'][0])}), larger than the "
            f"scatter above N = {finite_size.crossover(data, baseline):.3g}"
        )


def draw(found, path):
    figure, axes = plt.subplots(
        3, len(found), figsize=(10, 7.5), sharex=True, layout="constrained", squeeze=False
    )
    for column, (name, data) in zip(axes.T, found.items(), strict=True):
        N = np.asarray(data["N"], dtype=float)
        column[0].set_title(name)
        for number, schedule in enumerate(data["schedule"].values):
            row, colour = data.sel(schedule=schedule), f"C{number}"
            bias, error = np.asarray(row["bias"]), np.asarray(row["bias_error"])
            seen = np.abs(bias) > finite_size.SEEN * error
            line = {"color": colour, "fmt": "o", "markersize": 4, "capsize": 2}
            column[0].errorbar(N[seen], np.abs(bias[seen]), error[seen], **line)
            # What is not seen is an upper limit.
            limits = np.abs(bias[~seen]) + finite_size.SEEN * error[~seen]
            column[0].plot(N[~seen], limits, "v", color=colour, fillstyle="none", markersize=5)
            column[1].errorbar(N, row["variance"], row["variance_error"], **line, label=schedule)
            smallest = SMALLEST.get(name, 0)
            fits = (finite_size.fit_bias, finite_size.fit_variance)
            for ax, fit in zip(column, fits, strict=False):
                law, large = fit(data, schedule, smallest), N[smallest <= N]
                if law is not None:
                    ax.plot(large, np.abs(law(large)), color=colour, linewidth=1)
            if number:
                ratio, _ = finite_size.advantage(data, schedule)
                column[2].plot(N, ratio, "o-", color=colour, markersize=4, linewidth=1)
        column[1].legend(fontsize="small")
        column[2].axhline(1.0, color="grey", linewidth=0.8)
        column[2].set_xlabel("input dimension N")
        for ax in column:
            ax.set(xscale="log", yscale="log")
    axes[0, 0].set_ylabel("|mean − theory| (▽: upper limit)")
    axes[1, 0].set_ylabel("variance over seeds")
    axes[2, 0].set_ylabel("gain of the optimum / scatter")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
