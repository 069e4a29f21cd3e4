"""The command as a process: it ends at once, but not before everything is said and done."""

import subprocess
import sys

import pytest


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


# A command that leaves what Python's end would clear up: an object, an exit function, unwritten text.
COMMAND = """
import atexit, sys
from optlearn._cli import __main__

class Told:
    def __del__(self):
        print("taken apart", flush=True)

def command():
    sys.stdout.write("said, ")
    sys.exit(int(sys.argv[1]))

told = Told()
atexit.register(print, "exit functions ran", flush=True)
import optlearn._cli
optlearn._cli.main = command
"""


@pytest.mark.parametrize("code", [0, 3])
def test_everything_is_said_and_memory_is_left_alone(code):
    done = run(COMMAND + "__main__.run()", str(code))
    assert done.stdout == "said, exit functions ran\n"
    assert (done.returncode, done.stderr) == (code, "")


WATCHERS = {
    "profiler": "sys.setprofile(lambda *event: None)\n",
    "debugger or coverage": "sys.settrace(lambda *event: None)\n",
    "thread": "import threading, time\nthreading.Thread(target=lambda: time.sleep(0.2)).start()\n",
}


@pytest.mark.parametrize("watcher", WATCHERS)
def test_who_waits_for_the_end_gets_it(watcher):
    back = "try: __main__.run()\nexcept SystemExit as end: print('back with', end.code)"
    done = run(COMMAND + WATCHERS[watcher] + back, "3")
    assert done.stdout.startswith("said, back with 3\nexit functions ran\n")
