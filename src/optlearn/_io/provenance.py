"""The provenance of a result: time, versions, git revision, and the code itself."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from optlearn import __version__

_PACKAGE = Path(__file__).parent.parent


def provenance() -> dict[str, str]:
    """Time, versions and, in a git checkout, the revision."""
    return {"created": datetime.now(UTC).isoformat(timespec="seconds"), **_versions()}


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # few commands need it

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions_of(*packages: str) -> dict[str, str]:
    """The versions of optlearn, Python and those packages that are installed, by name."""
    versions = {"optlearn": __version__, "python": platform.python_version()}
    return versions | {name: version for name in packages if (version := version_of(name)) is not None}


@cache
def code_digest() -> str:
    """Digest of the running optlearn sources."""
    total = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        total.update(path.relative_to(_PACKAGE).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


@cache
def _versions() -> dict[str, str]:
    versions = versions_of("jax", "casadi", "numpy")
    named = {f"{name}_version": version for name, version in versions.items()}
    revision = _revision()
    return named if revision is None else {**named, "git_revision": revision}


def _revision() -> str | None:
    """Revision of the git checkout of this file; None if git does not track this file."""

    def git(*arguments: str) -> Any:
        return subprocess.run(
            ["git", "-C", str(_PACKAGE), *arguments],
            capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        # A package installed inside another repository is not part of it.
        git("ls-files", "--error-unmatch", "__init__.py")
        return str(git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"))
    except (OSError, subprocess.SubprocessError):
        return None
