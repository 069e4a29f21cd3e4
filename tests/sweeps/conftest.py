import sys
from pathlib import Path

import pytest

import optlearn as ol

MODULES = Path(__file__).parent / "modules"
TIMES = ("seconds", "cpu_seconds", "part")


@pytest.fixture(scope="session", autouse=True)
def _own_modules():
    """``import tiny`` works here and, since they get this path, in spawned processes."""
    sys.path.insert(0, str(MODULES))
    yield
    sys.path.remove(str(MODULES))


@pytest.fixture(scope="session")
def tiny(_own_modules):
    import tiny

    return tiny


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where ``serial`` is stored."""
    return tmp_path_factory.mktemp("sweep") / "out"


@pytest.fixture(scope="session")
def serial(tiny, folder):
    """The sweep that all others are compared with."""
    return ol.sweep(tiny.plain, tiny.OVER, out=folder, reduce=tiny.ends, executor="serial", **tiny.QUICK)


@pytest.fixture
def same(serial):
    """Asserts that a dataset holds the results of ``serial``, all but times and who computed what."""

    def check(dataset, leave_out=()):
        for name, values in serial.drop_vars([*TIMES, *leave_out]).items():
            assert dataset[name].dims == values.dims
            if values.dtype.kind == "f":
                close = abs(dataset[name] - values) <= 1e-9
                assert bool((close | (dataset[name].isnull() & values.isnull())).all()), name
            else:
                assert dataset[name].equals(values), name

    return check
