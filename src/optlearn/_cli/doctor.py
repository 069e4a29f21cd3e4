"""``optlearn doctor``: check the installation, and suggest fixes."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Literal

import typer

from optlearn import __version__
from optlearn._cli import inputs
from optlearn._cli.output import console, deliver
from optlearn._errors import count_of, how_to_install
from optlearn._io.provenance import version_of

NEEDED = ("jax", "jaxlib", "casadi", "numpy", "scipy", "xarray", "h5netcdf", "matplotlib")
# Extra → the module that it brings, and what it is for.
EXTRAS = {
    "torch": ("torch", "schedules in PyTorch"),
    "optax": ("optax", "schedules in optax"),
    "keras": ("keras", "schedules in Keras"),
    "optuna": ("optuna", "an Optuna pruner that forecasts"),
    "lightning": ("lightning", "schedules in Lightning"),
    "transformers": ("transformers", "schedules in Hugging Face's Trainer"),
    "cluster": ("distributed", "sweeps on a Dask cluster"),
    "app": ("panel", "the explorer"),
    "bounds": ("clarabel", "proven bounds"),
}
FAULTY_JAX = "0.10.2"

# A note: nothing is wrong, but something could be improved.
Status = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class Finding:
    """The result of one check, with advice."""

    name: str
    status: Status
    detail: str
    advice: str = ""


def run_doctor(as_json: inputs.Json = False) -> None:
    """Check the installation, solve a tiny problem, and suggest fixes.

    The exit code is 1 if a check fails.

    Example: optlearn doctor
    """
    from rich.table import Table
    from rich.text import Text

    findings: list[Finding] = []
    screen = console(stderr=as_json)
    for check in CHECKS:
        for finding in _examined(check):
            findings.append(finding)
            line = Table.grid(padding=(0, 2))
            colour = {"ok": "green", "note": "yellow", "wrong": "bold red"}[finding.status]
            line.add_column(width=5, justify="right", style=colour)
            line.add_row(finding.status, Text(f"{finding.name}: {finding.detail}"))
            screen.print(line)
            if finding.advice:
                # It may contain commands to copy, so do not wrap lines.
                screen.print(f"       {finding.advice}", style="dim", markup=False, soft_wrap=True)
    wrong = [finding for finding in findings if finding.status == "wrong"]
    result = {"optlearn": __version__, "sound": not wrong, "findings": [asdict(f) for f in findings]}
    failed = f"{count_of(len(wrong), 'check')} failed: see the advice above"
    verdict = failed if wrong else "the installation works"
    deliver(result, None, as_json, lambda: screen.print(f"\noptlearn {__version__}: {verdict}", markup=False))
    raise typer.Exit(1 if wrong else 0)


def _examined(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Run a check; one that raises is a finding too, and the others still run."""
    try:
        return list(check())
    except Exception as error:
        name = check.__name__.strip("_").replace("_", " ")
        detail = f"{type(error).__name__}: {error}"
        return [Finding(name, "wrong", detail, "Reinstall optlearn and its dependencies.")]


def _python() -> Iterator[Finding]:
    where = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield Finding("Python", "ok", where)


def _packages() -> Iterator[Finding]:
    versions = {name: version_of(name) for name in NEEDED}
    yield Finding("packages", "ok", ", ".join(f"{name} {v}" for name, v in versions.items() if v is not None))
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        advice = f"Install the missing packages: {sys.executable} -m pip install {' '.join(missing)}"
        yield Finding("packages", "wrong", f"missing: {', '.join(missing)}", advice)


def _jax_numbers() -> Iterator[Finding]:
    from optlearn._theory.expectation import wrong_rows

    have, batches = version_of("jax"), (16385, 20000, 32769)
    wrong = {batch: count for batch in batches if (count := wrong_rows(batch))}
    if not wrong:
        yield Finding("JAX arithmetic", "ok", "batched sums are correct (not affected by jax-ml/jax#39103)")
        return
    worst = ", ".join(f"{count} of {batch} rows" for batch, count in wrong.items())
    detail = f"JAX {have} returns wrong numbers: {worst} (jax-ml/jax#39103)"
    advice = f"Every expectation may be wrong. Install another version: pip install 'jax!={FAULTY_JAX}'"
    yield Finding("JAX arithmetic", "wrong", detail, advice)


def _precision() -> Iterator[Finding]:
    import jax.numpy as jnp

    from optlearn._arrays import float64

    dtype = float64(lambda: jnp.zeros(()).dtype)()
    advice = "Something resets jax_enable_x64: check JAX_ENABLE_X64 and your start-up files."
    result: tuple[Status, str] = ("ok", "") if dtype == jnp.float64.dtype else ("wrong", advice)
    yield Finding("precision", result[0], f"optlearn computes in {dtype}", result[1])


def _devices() -> Iterator[Finding]:
    import jax

    devices = jax.devices()
    names = ", ".join(sorted({f"{d.platform} ({d.device_kind})" for d in devices}))
    if all(d.platform == "cpu" for d in devices) and shutil.which("nvidia-smi"):
        advice = "To simulate on it: pip install 'jax[cuda12]' (or the version that your driver supports)."
        yield Finding("devices", "note", f"{names}; JAX does not see the NVIDIA GPU of this machine", advice)
    else:
        yield Finding("devices", "ok", names)


def _ipopt() -> Iterator[Finding]:
    import casadi

    version = f"CasADi {version_of('casadi')}"
    if casadi.has_nlpsol("ipopt"):
        yield Finding("IPOPT", "ok", f"in {version}")
    else:
        remedy = "Install CasADi's wheel: pip install --force-reinstall casadi."
        advice = f"{remedy} Until then use method='indirect'."
        yield Finding("IPOPT", "wrong", f"{version} was built without it", advice)


def _cache() -> Iterator[Finding]:
    kept = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if kept:
        yield Finding("compiled programs", "ok", f"are kept in {kept}")
    else:
        advice = "Set OPTLEARN_CACHE to a writable directory."
        yield Finding("compiled programs", "note", "are not kept between runs", advice)


def _extras() -> Iterator[Finding]:
    installed = [name for name, (module, _) in EXTRAS.items() if find_spec(module)]
    absent = {name: what for name, (module, what) in EXTRAS.items() if not find_spec(module)}
    if installed:
        yield Finding("extras", "ok", ", ".join(installed))
    if absent:
        purposes = ", ".join(f"{name} ({what})" for name, what in absent.items())
        advice = f"To install any of these: {how_to_install(*absent)}"
        yield Finding("extras", "note", f"not installed: {purposes}", advice)


def _tiny_problem() -> Iterator[Finding]:
    import optlearn as ol

    began = time.perf_counter()
    solution = ol.solve(ol.scenarios.dropout(), intervals=20, starts=2)
    seconds = time.perf_counter() - began
    gap = solution.certificate.hamiltonian_gap
    result = f"dropout, 20 intervals: error {solution.objective:.6f}, gap {gap:.1e}, {seconds:.1f} s"
    if solution.certificate.converged:
        yield Finding("a tiny problem", "ok", result)
    else:
        reasons = "; ".join(solution.certificate.reasons)
        advice = "Please report this with the output of `optlearn doctor --json`."
        yield Finding("a tiny problem", "wrong", f"{result}; not converged: {reasons}", advice)


CHECKS = (_python, _packages, _jax_numbers, _precision, _devices, _ipopt, _cache, _extras, _tiny_problem)
