"""Draw the phase diagram of ``sweeps.md``: python docs/make_diagram.py [FILE].

FILE is what ``python -m benchmarks.batched --side 100 --out FILE`` has written; by default the one in
benchmarks/measured, from a GPU.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import numpy as np

from optlearn.plotting.style import ShownFigure, save_figure, style

ROOT = Path(__file__).parent
MEASURED = ROOT.parent / "benchmarks" / "measured" / "curriculum_diagram.npz"
ETA, WEIGHT_DECAY = (1.0, 5.0), (0.0, 0.2)  # of benchmarks.batched


def main(path: Path) -> None:
    """The final error, and when hard samples come, over learning rate and regularisation."""
    with np.load(path) as file:
        timing = json.loads(str(file["timing"]))
        error, packed = file["objective"], file["hard"]
    side = round(timing["points"] ** 0.5)
    hard = np.unpackbits(packed, axis=1, count=timing["intervals"])
    when = hard @ (np.arange(timing["intervals"]) + 0.5) / timing["intervals"] / hard.sum(axis=1)
    with style():
        figure = ShownFigure(figsize=(8.4, 3.2), layout="constrained")
        panels = ((error, "final error", "viridis"), (when, "mean time of hard samples / α_F", "RdBu_r"))
        for axes, (values, label, colours) in zip(figure.subplots(1, 2), panels, strict=True):
            shown = axes.imshow(
                values.reshape(side, side).T, origin="lower", aspect="auto", extent=(*ETA, *WEIGHT_DECAY),
                cmap=colours, interpolation="nearest",
            )  # fmt: skip
            axes.set(xlabel="learning rate η", ylabel="weight decay λ")
            figure.colorbar(shown, ax=axes, label=label)
        save_figure(figure, ROOT / "images" / "sweep" / "curriculum_batch.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else MEASURED)
