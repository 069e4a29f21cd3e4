#!/usr/bin/env bash
# A newcomer's first hour, from an empty folder with nothing but the wheel; what it prints is a page of the docs.
# usage: newcomer.sh WHEEL CONSTRAINTS [VENV]   (a virtual environment that has the wheel already, to save time)
set -euo pipefail
wheel=$(realpath "$1") constraints=$(realpath "$2") given=${3:+$(realpath "$3")}
folder=$(mktemp -d)
trap 'rm -rf "$folder"; sleep 1' EXIT # the last lines are still on their way
cd "$folder"
unset PYTHONPATH
export OPTLEARN_CACHE="$folder/cache" COLUMNS=88 NO_COLOR=1
exec > >(sed -u "s|$folder|~/first-hour|; s/ *$//") 2>&1

say() { # show a command, and do it
    printf '\n$ %s\n' "$1"
    eval "$1"
}

cp "$wheel" . && cp "$constraints" constraints.txt
say 'ls'
if [ -n "$given" ]; then
    ln -s "$given" venv
    . venv/bin/activate
else
    say 'python3 -m venv venv && . venv/bin/activate'
    say "pip install --quiet -c constraints.txt 'optlearn[torch] @ file://'\$PWD/$(basename "$wheel") 2>/dev/null"
fi
say 'optlearn doctor'
say 'optlearn solve curriculum --out solution.nc --export train.py'
say 'python train.py'
cat >resume.py <<'PY'
"""Train, stop halfway, continue in a new process: the weights must equal those of a run that never stopped."""

import sys

import torch

import optlearn as ol

schedule = ol.load("solution.nc").schedule
groups, steps = [0, 1] * 500, 60
data = torch.randn(1000, 20, generator=torch.manual_seed(0))


def train(last, state=None):
    torch.manual_seed(0)
    network = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sampler = ol.practice.CurriculumSampler(schedule, groups, batch_size=16, steps=steps)
    rate = ol.Schedule.from_function(1.0, {"learning_rate": lambda a: 1 - a}).to_torch(
        optimizer, steps=steps, peak=0.1
    )
    if state:
        for part, saved in zip((network, sampler, rate), state):
            part.load_state_dict(saved)
    for batch in sampler.loader(torch.arange(1000)):
        optimizer.zero_grad()
        (network(data[batch]) - data[batch, :1]).square().mean().backward()
        optimizer.step()
        rate.step()
        if sampler.steps_done == last:
            break
    return [part.state_dict() for part in (network, sampler, rate)]


if sys.argv[1] == "begin":
    torch.save(train(30), "checkpoint.pt")
    print("stopped at step 30 of 60")
else:
    resumed, whole = train(60, torch.load("checkpoint.pt")), train(60)
    same = torch.equal(resumed[0]["weight"], whole[0]["weight"])
    print("the resumed run ends with", "the weights of an uninterrupted run" if same else "OTHER weights")
    sys.exit(not same)
PY
say 'cat resume.py'
say 'python resume.py begin'
say 'python resume.py again'
say 'optlearn solve curriculum --set eta=fast || echo "exit code $?"'
say 'optlearn help arguments'
say 'optlearn explore --help'
