"""The overlap chain on a GPU: rates beside the CPU, and a finite-size study with many seeds.

Two steps, since a machine with a GPU may have nothing but jax and numpy:

    python benchmarks/gpu_overlaps.py export --out chains     # with optlearn and flatbuffers
    python benchmarks/gpu_overlaps.py run chains --out DIR    # with jax and numpy alone

``export`` solves the three scenarios of the paper and writes the chain of ``optlearn._simulate`` as StableHLO
(``jax.export``), for CPU and CUDA, with flatbuffers beside it, which reads it again. ``run`` checks that the
device gives the numbers of the CPU that exported, measures seed-steps per second, and then mean and variance
of the final error against N. It writes ``gpu_overlaps.json`` after every measurement;
``examples/finite_size.py --data`` draws it.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

DIMENSIONS = (100, 316, 1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
CHECK = {"N": 200, "seeds": 16}
# Steps whose inner loop is unrolled so many times; "library" is the loop of optlearn._simulate.
UNROLLS = (1, 4)
VARIANTS = ("library", *(f"blocks{unroll}" for unroll in UNROLLS))
SCENARIOS: dict[str, dict[str, Any]] = {
    "curriculum": {},
    "dropout": {},
    "denoising": {"finite_size": True},  # the terms of order 1 that the paper leaves out
}
BASELINES = {
    "curriculum": ("curriculum", "anti-curriculum"),
    "dropout": ("no dropout", "best constant p = p_f"),
    "denoising": ("constant", "best constant"),
}
PLATFORMS = ("cpu", "cuda")


# --- with optlearn: programs, schedules, and what the theory says -----------------------------------


def export(out: Path) -> None:
    """Write programs and numbers of all scenarios."""
    import flatbuffers
    import jax

    from optlearn.sweeps.finite_size import problem_at

    jax.config.update("jax_enable_x64", True)
    out.mkdir(parents=True, exist_ok=True)
    package = Path(flatbuffers.__file__).parent
    shutil.copytree(
        package, out / "flatbuffers", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    manifest: dict[str, Any] = {"jax": jax.__version__, "scenarios": {}}
    for name, arguments in SCENARIOS.items():
        solved: dict[Any, Any] = {}
        cases = {}
        for N in (CHECK["N"], *DIMENSIONS):
            problem, depends = problem_at(name, N, arguments)
            key = N if depends else None
            if key not in solved:
                solved[key] = _schedules(problem, name)
            cases[N] = _case(name, N, problem, *solved[key], out)
        _export_programs(name, cases[CHECK["N"]]["lanes"], out)
        for case in cases.values():
            del case["lanes"]
        manifest["scenarios"][name] = {"horizon": problem.horizon, "cases": cases}
        print(f"exported {name}", flush=True)
    (out / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _schedules(problem: Any, name: str) -> tuple[dict[str, Any], list[float]]:
    from optlearn._control.evaluate import evaluate
    from optlearn.sweeps.finite_size import schedules_of

    found = schedules_of(problem, BASELINES[name])
    return found, [float(evaluate(problem, s, record=2)["error"][-1]) for s in found.values()]


def _case(
    name: str, N: int, problem: Any, schedules: dict[str, Any], theory: list[float], out: Path
) -> dict[str, Any]:
    """Numbers of one scenario at one N, its arrays in a file; at the N of the check, errors too."""
    import jax

    from optlearn._simulate.batch import simulate_many, stack_lanes
    from optlearn._simulate.run import prepare

    lanes = [prepare(problem, schedule, None, N, None) for schedule in schedules.values()]
    leaves = {f"lane_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(stack_lanes(lanes)))}
    start = {f"start_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(lanes[0].start))}
    np.savez_compressed(out / f"{name}_{N}.npz", **leaves, **start)
    case: dict[str, Any] = {"names": list(schedules), "theory": theory, "lanes": lanes}
    if CHECK["N"] == N:
        same = [problem] * len(schedules)
        case["errors"] = simulate_many(same, list(schedules.values()), seed=0, **CHECK)[1].tolist()
    return case


def _export_programs(name: str, prepared: list[Any], out: Path) -> None:
    """Steps ``begin`` to ``end`` of any number of seeds, in several variants; and the final error."""
    import jax
    from jax import export as jax_export

    from optlearn._simulate.batch import advance_lanes, stack_lanes

    leaves, lane_tree = jax.tree.flatten(stack_lanes(prepared))
    start, state_tree = jax.tree.flatten(prepared[0].start)
    (seeds,) = jax_export.symbolic_shape("s")
    lane_shapes = [jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in leaves]
    state_shapes = [jax.ShapeDtypeStruct((len(prepared), seeds, *np.shape(x)), np.float64) for x in start]
    numbers = jax.ShapeDtypeStruct((seeds,), np.uint32)
    scalars = [jax.ShapeDtypeStruct((), kind) for kind in (np.float64, np.int64, np.int64)]

    def chain(advance: Callable[..., Any]) -> Callable[..., Any]:
        def program(lane: Any, numbers: Any, state: Any, N: Any, begin: Any, end: Any) -> Any:
            root = jax.random.key(0, impl="threefry2x32")
            keys = jax.vmap(lambda i: jax.random.fold_in(root, i))(numbers)  # those of simulate's seed 0
            lanes, x = jax.tree.unflatten(lane_tree, lane), jax.tree.unflatten(state_tree, state)
            return jax.tree.leaves(advance(lanes, keys, N, x, begin, end))

        return program

    def errors(lane: Any, state: Any) -> Any:
        lanes = jax.tree.unflatten(lane_tree, lane)
        last = {control: table[:, -1] for control, table in lanes.controls.values.items()}

        def one(model: Any, settings: Any, values: Any, x: Any) -> Any:
            return jax.vmap(lambda y: model.error(y, {**settings, **values}))(x)

        return jax.vmap(one)(lanes.model, lanes.settings, last, jax.tree.unflatten(state_tree, state))

    programs = {"library": chain(advance_lanes), **{f"blocks{u}": chain(_in_blocks(u)) for u in UNROLLS}}
    for variant, program in programs.items():
        made = jax_export.export(jax.jit(program), platforms=PLATFORMS)
        (out / f"{name}_{variant}.bin").write_bytes(
            made(lane_shapes, numbers, state_shapes, *scalars).serialize()
        )
    made = jax_export.export(jax.jit(errors), platforms=PLATFORMS)
    (out / f"{name}_error.bin").write_bytes(made(lane_shapes, state_shapes).serialize())


def _in_blocks(unroll: int) -> Callable[..., Any]:
    """``advance_lanes`` with an inner loop of fixed length, which a GPU runs without asking the host."""
    import jax
    import jax.numpy as jnp

    from optlearn._simulate.overlaps import BLOCK, chain_step, draw_block

    def advance(lanes: Any, keys: Any, N: Any, state: Any, begin: Any, end: Any) -> Any:
        def block(number: Any, now: Any) -> Any:
            draws = jax.vmap(
                lambda key: draw_block(lanes.plan, jax.random.fold_in(key, number), N), out_axes=1
            )(keys)
            steps = number * BLOCK + jnp.arange(BLOCK)

            def body(now: Any, item: Any) -> tuple[Any, None]:
                step, here = item

                def one_lane(lane: Any, x: Any) -> Any:
                    return jax.vmap(lambda y, numbers: chain_step(lane, N, step, y, numbers))(x, here)

                new = jax.vmap(one_lane)(lanes, now)
                inside = (step >= begin) & (step < end)
                return jax.tree.map(lambda a, b: jnp.where(inside, a, b), new, now), None

            return jax.lax.scan(body, now, (steps, draws), unroll=unroll)[0]

        return jax.lax.fori_loop(begin // BLOCK, (end + BLOCK - 1) // BLOCK, block, state)

    return advance


# --- with jax and numpy alone -----------------------------------------------------------------------


class Chain:
    """The programs of a scenario on one device."""

    def __init__(self, folder: Path, name: str, variant: str, device: Any) -> None:
        import jax
        from jax import export as jax_export

        self._folder, self._name, self._device = folder, name, device

        def program(kind: str) -> Any:
            made = jax_export.deserialize(bytearray((folder / f"{name}_{kind}.bin").read_bytes()))
            return jax.jit(made.call)

        self._advance, self._error = program(variant), program("error")

    def load(self, N: int) -> None:
        """Take the schedules and parameters of one N."""
        import jax

        with np.load(self._folder / f"{self._name}_{N}.npz") as file:
            count = sum(key.startswith("lane_") for key in file)
            lanes = [file[f"lane_{i}"] for i in range(count)]
            self._start = [file[f"start_{i}"] for i in range(len(file.files) - count)]
        self._N, self._lanes = N, [jax.device_put(leaf, self._device) for leaf in lanes]

    def start(self, seeds: int) -> list[Any]:
        """States (lanes, seeds, …) at the beginning."""
        import jax

        shape = (self._lanes[0].shape[0], seeds)
        return [jax.device_put(np.broadcast_to(x, (*shape, *x.shape)), self._device) for x in self._start]

    def advance(self, state: list[Any], first: int, begin: int, end: int) -> list[Any]:
        """Steps ``begin`` to ``end`` of the seeds from ``first`` on."""
        import jax

        seeds = state[0].shape[1]
        numbers = jax.device_put(np.arange(first, first + seeds, dtype=np.uint32), self._device)
        scalars = (np.float64(self._N), np.int64(begin), np.int64(end))
        return jax.block_until_ready(self._advance(self._lanes, numbers, state, *scalars))

    def errors(self, state: list[Any]) -> np.ndarray:
        """(lanes, seeds) generalisation errors."""
        return np.asarray(self._error(self._lanes, state))

    def seconds_a_step(self, seeds: int, seconds: float) -> tuple[float, float]:
        """Time of a step of all lanes and seeds; and of compilation."""
        self.load(1000)
        state = self.start(seeds)
        began = time.perf_counter()
        state = self.advance(state, 0, 0, 32)
        compiled = time.perf_counter() - began
        state = self.advance(state, 0, 32, 64)
        done, steps, taken, last = 64, 64, 0.0, 64
        while taken < seconds / 3:
            began = time.perf_counter()
            state = self.advance(state, 0, done, done + steps)
            taken = time.perf_counter() - began
            done, last = done + steps, steps
            steps = int(min(32 * steps, max(64, steps * seconds / max(taken, 1e-9))))
            steps -= steps % 32
        return taken / last, compiled


@cache
def chain_of(folder: Path, name: str, variant: str, device: Any) -> Chain:
    """The same programs, compiled once for each number of seeds."""
    return Chain(folder, name, variant, device)


class Report:
    """What has been measured so far, on disk after every measurement."""

    def __init__(self, folder: Path, device: Any) -> None:
        import jax

        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "gpu_overlaps.json"
        self.found: dict[str, Any] = {"rates": [], "study": {}}
        if self._path.exists():  # of another part, or of other scenarios
            self.found |= json.loads(self._path.read_text(encoding="utf-8"))
        self.found |= {"device": device.device_kind, "jax": jax.__version__}

    def keep(self, line: str) -> None:
        """Say and write."""
        print(line, flush=True)
        self._path.write_text(json.dumps(self.found, indent=1), encoding="utf-8")


def run(options: argparse.Namespace) -> None:
    """Measure rates, or moments of the error, or both."""
    sys.path.append(str(options.folder))  # flatbuffers
    import jax

    jax.config.update("jax_enable_x64", True)
    manifest = json.loads((options.folder / "manifest.json").read_text(encoding="utf-8"))
    scenarios = {name: manifest["scenarios"][name] for name in options.scenarios}
    device = jax.devices()[0]
    report = Report(options.out, device)
    seeds = sorted(options.seeds)
    if options.variant is None:
        name = next(iter(scenarios))
        variants = VARIANTS if device.platform != "cpu" else ("library",)
        step = {v: _rate(options, name, scenarios[name], v, device, seeds[-1], report) for v in variants}
        options.variant = min(step, key=lambda variant: step[variant])
    steps: dict[str, dict[int, float]] = {name: {} for name in scenarios}
    for name, scenario in scenarios.items():
        for count in seeds:
            steps[name][count] = _rate(options, name, scenario, options.variant, device, count, report)
        if options.part != "study" and device.platform != "cpu":
            _rate(options, name, scenario, "library", jax.devices("cpu")[0], 1000, report)
    if options.part == "rates":
        return
    for N in options.dimensions:
        for name, scenario in scenarios.items():
            chain = chain_of(options.folder, name, options.variant, device)
            result = _study(chain, scenario, N, steps[name], options.study_seconds)
            if result is None:
                report.keep(f"{name}, N = {N}: left out, it takes longer than {options.study_seconds:g} s")
                continue
            rows = report.found["study"].setdefault(name, [])
            rows[:] = sorted([row for row in rows if row["N"] != N] + [result], key=lambda row: row["N"])
            report.keep(f"{name}, N = {N}: {result['seeds']} seeds in {result['seconds']:.1f} s")


def _rate(
    options: argparse.Namespace,
    name: str,
    scenario: dict[str, Any],
    variant: str,
    device: Any,
    seeds: int,
    report: Report,
) -> float:
    """Seconds a step of all lanes and seeds; what else there is to say goes into the report."""
    chain = chain_of(options.folder, name, variant, device)
    lanes = len(scenario["cases"][str(CHECK["N"])]["names"])
    worst = _check(chain, scenario)
    step, compiled = chain.seconds_a_step(seeds, options.rate_seconds)
    rate = {
        "scenario": name,
        "device": device.device_kind,
        "variant": variant,
        "seeds": seeds,
        "lanes": lanes,
        "microseconds_a_step": 1e6 * step,
        "seed_steps_a_second": lanes * seeds / step,
        "compile_seconds": compiled,
        "difference_from_export": worst,
    }
    report.found["rates"].append(rate)
    report.keep(
        f"{name:>11} {rate['device']:>16} {variant:>8} {lanes} × {seeds:>8,} seeds: "
        f"{1e6 * step:>9.1f} µs a step, {rate['seed_steps_a_second']:.3g} seed-steps/s, "
        f"compiled in {compiled:.1f} s, differs by {worst:.1e}"
    )
    return step


def _check(chain: Chain, scenario: dict[str, Any]) -> float:
    """Largest relative difference from the errors that the exporting CPU found."""
    N, expected = CHECK["N"], np.array(scenario["cases"][str(CHECK["N"])]["errors"])
    chain.load(N)
    state = chain.advance(chain.start(CHECK["seeds"]), 0, 0, round(scenario["horizon"] * N))
    return float(np.max(np.abs(chain.errors(state) / expected - 1)))


def _study(
    chain: Chain, scenario: dict[str, Any], N: int, step: dict[int, float], seconds: float
) -> dict[str, Any] | None:
    """Moments of the final error of as many seeds as fit into the time; None if none do."""
    steps = round(scenario["horizon"] * N)
    fitting = [count for count, each in step.items() if steps * each <= seconds]
    if not fitting:
        return None
    batch = max(fitting)
    repeats = max(1, min(8, int(seconds / (steps * step[batch]))))
    chain.load(N)
    errors, began = [], time.perf_counter()
    first = 100_000_000 * DIMENSIONS.index(N)  # other seeds at every N
    for number in range(repeats):
        state = chain.start(batch)
        # Calls of a few seconds each.
        stride = max(32, int(5 / step[batch]) // 32 * 32)
        for begin in range(0, steps, stride):
            state = chain.advance(state, first + number * batch, begin, min(begin + stride, steps))
        errors.append(chain.errors(state))
    values = np.concatenate(errors, axis=1)
    case, mean = scenario["cases"][str(N)], values.mean(axis=1)
    centred = values - mean[:, None]
    return {
        "N": N,
        "names": case["names"],
        "theory": case["theory"],
        "seeds": values.shape[1],
        "mean": mean.tolist(),
        "variance": values.var(axis=1, ddof=1).tolist(),
        "fourth": (centred**4).mean(axis=1).tolist(),
        "not_finite": int(np.sum(~np.isfinite(values))),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("export")
    one.add_argument("--out", type=Path, default=Path("chains"))
    two = commands.add_parser("run")
    two.add_argument("folder", type=Path)
    two.add_argument("--out", type=Path, default=Path())
    two.add_argument("--part", choices=("rates", "study", "both"), default="both")
    two.add_argument("--scenarios", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    two.add_argument("--variant", choices=VARIANTS, help="of the loop (default: the fastest)")
    two.add_argument("--seeds", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    two.add_argument("--dimensions", type=int, nargs="+", choices=DIMENSIONS, default=list(DIMENSIONS))
    two.add_argument("--rate-seconds", type=float, default=2.0, help="for each rate")
    two.add_argument("--study-seconds", type=float, default=12.0, help="for each N of each scenario")
    options = parser.parse_args()
    if options.command == "export":
        export(options.out)
    else:
        run(options)


if __name__ == "__main__":
    main()
