"""A curriculum in distributed training: two real processes of PyTorch share the samples of every step."""

import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

WORKER = """
    import sys

    import torch
    import torch.distributed as dist

    import optlearn as ol

    rank, folder = int(sys.argv[1]), sys.argv[2]
    world = int(sys.argv[3])
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.manual_seed(0)
    data = torch.randn(64, 8)
    schedule = ol.Schedule.piecewise([0, 1, 2], {"difficulty": [0.0, 2.0]})
    sampler = ol.practice.CurriculumSampler(schedule, [0, 1] * 32, batch_size=8 // world, steps=12)
    network = torch.nn.Linear(8, 1)
    model = torch.nn.parallel.DistributedDataParallel(network) if world > 1 else network
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shown = []
    for batch in sampler.loader(torch.arange(64)):
        optimizer.zero_grad()
        (model(data[batch]) - data[batch, :1]).square().mean().backward()
        optimizer.step()
        shown.append(batch.tolist())
    result = {"shown": shown, "weight": network.weight.detach(), "done": sampler.steps_done}
    torch.save(result, f"{folder}/{world}-{rank}")
    if world > 1:
        dist.destroy_process_group()
"""


def train(folder, world):
    """What each of so many processes has seen, and its weights at the end."""
    script = folder / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(folder), str(world)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(world)
    ]
    for process in started:
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told
    return [torch.load(folder / f"{world}-{rank}") for rank in range(world)]


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path):
    (alone,) = train(tmp_path, 1)
    both = train(tmp_path, 2)
    for step, together in enumerate(alone["shown"]):
        parts = [one["shown"][step] for one in both]
        assert sorted(index for part in parts for index in part) == sorted(together)
        assert all(len(part) == 4 for part in parts)
    # Easy samples (even numbers) in the first half of training, hard ones in the second: exactly.
    assert all(index % 2 == (step >= 6) for step, batch in enumerate(alone["shown"]) for index in batch)
    assert [one["done"] for one in both] == [12, 12]
    assert torch.equal(both[0]["weight"], both[1]["weight"])
    torch.testing.assert_close(both[0]["weight"], alone["weight"])
