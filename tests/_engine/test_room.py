"""A process that compiles again and again does not run out of memory maps, of which XLA would die."""

import subprocess
import sys
from pathlib import Path

import jax
import pytest

import optlearn as ol
from optlearn._engine import build

GRANTED = Path("/proc/sys/vm/max_map_count")


def end_of_training(nodes):
    model = ol.models.FiniteData(nodes=nodes)
    schedule = ol.Schedule.constant(1.0, {"learning_rate": 0.5})
    return ol.integrate(model, schedule, start=model.start(), record=2, backend="xla")["test_error"][-1]


@pytest.mark.slow
def test_programs_are_forgotten_where_maps_are_few_and_made_anew_when_asked_for(monkeypatch):
    monkeypatch.setattr(build, "_MADE", {})
    first = end_of_training(9)
    before = set(build._MADE)
    monkeypatch.setattr(build, "CROWDED", 0.0)
    asked = []
    monkeypatch.setattr(jax, "clear_caches", lambda: asked.append(True))  # other tests need what is there
    assert end_of_training(10) == pytest.approx(first, abs=1e-6)
    assert before
    assert not before & set(build._MADE)
    assert asked
    assert end_of_training(9) == first


# The first pages of a mapping, every other one protected, are a map each: few are left for programs.
MANY = """
import ctypes, mmap, sys
from pathlib import Path
from tests._engine.test_room import GRANTED, end_of_training

end_of_training(9)
taken = sum(1 for _ in Path("/proc/self/maps").open("rb"))
pages = int(GRANTED.read_text()) - taken - int(sys.argv[1])
memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for page in range(0, pages, 2):
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page * mmap.PAGESIZE), mmap.PAGESIZE, 1)
for nodes in range(10, 10 + int(sys.argv[2])):
    end_of_training(nodes)
    print(nodes, sum(1 for _ in Path("/proc/self/maps").open("rb")), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not GRANTED.exists(), reason="only Linux counts maps")
def test_many_structures_are_compiled_in_a_process_with_few_maps_left():
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", MANY, "300", "8"], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
