"""Training steps (loss, gradients, AdamW) of the transformer block and a GPT of 10 million parameters: time and peak memory."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from typing import Any

from bench.peers import FXGRAD, TORCH
from bench.processes import fresh
from bench.run import MATMUL, Run
from bench.timing import Group, Row, Target, summary
from bench.training import BlockTraining, GPTTraining, Training

OPTAX, FUSED_STEP = "jax jit, optax", "torch eager, fused AdamW"
MEMORY_RUNS = 3
# label -> (how it is made, made tiny, most of torch's time, most of JAX's)
PROBLEMS = {
    "block": ("BlockTraining(8, 128, 256, 8)", "BlockTraining(1, 4, 8, 2)", 0.9, 0.75),
    "GPT": ("GPTTraining(8, 128)", "GPTTraining(1, 4, vocab=7, width=8, heads=2, layers=1)", 0.95, 0.5),
}
# As in footprint.py: a small step loads what is loaded at the first call; then the high-water mark starts from the arguments.
SCRIPT = """
import ctypes, gc, json
from bench.peers import Peers
from bench.training import BlockTraining, GPTTraining
peers = Peers({threads})
def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
make = lambda training: {program}
make({small})()
step = make({large})
{first}
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
for _ in range(3):
    step()
print(json.dumps(max(status("VmHWM") - before, 4096)))
"""
PROGRAMS = {
    FXGRAD: "training.fxgrad()",
    OPTAX: "training.jax(peers.jax, peers.module('optax'))",
    TORCH[0]: "training.torch(peers.torch)",
    FUSED_STEP: "training.torch(peers.torch, fused=True)",
}


def contenders(run: Run, training: Training, compiled: bool) -> dict[str, Callable[[], Any]]:
    peers = run.peers
    found = {FXGRAD: training.fxgrad()}
    if peers.jax is not None and peers.module("optax") is not None:
        found[OPTAX] = training.jax(peers.jax, peers.module("optax"))
    if peers.torch is not None:
        found[TORCH[0]] = training.torch(peers.torch)
        found[FUSED_STEP] = training.torch(peers.torch, fused=True)
        compiler = peers.torch_compile() if compiled else None
        if compiler is not None:
            found[TORCH[1]] = training.torch(peers.torch, compiler)
    return found


def made(text: str) -> Training:
    return eval(text, {"BlockTraining": BlockTraining, "GPTTraining": GPTTraining})


def times(run: Run) -> Group:
    group = run.group("training", "Training steps: loss, gradients, AdamW", FXGRAD)
    limits = run.limits(group)
    for label, (large, small, torch, jax) in PROBLEMS.items():
        training = made(run.size(large, small))
        work = f"training step of the {label}"
        targets = [Target(work, FXGRAD, torch, (TORCH[0], FUSED_STEP)), Target(work, FXGRAD, jax, (OPTAX,))]
        found = contenders(run, training, compiled=label == "block" and not run.tiny)
        limit = {MATMUL: training.flops / limits.matmul["float32"]}
        name = f"{label}: {run.size(large, small)}, float32"
        run.row(group, name, found, 1e-4, targets, limits=limit, work=training.flops, block=0.3)
    group.notes += [
        "Parameters and the optimizer's state are donated by fxgrad and JAX, changed in place by torch.",
        "torch uses its own layers, scaled_dot_product_attention and AdamW: as it comes, and fused in the column so named.",
        "torch.compile takes half a minute for the block and minutes for the GPT, which it does not get.",
        "Results are compared by the loss and the first moments, which are a tenth of the gradients.",
        "The limit counts the matrix products alone, at the rate of NumPy's 1024x1024 product.",
    ]
    return group


def memory(run: Run) -> Group:
    group = run.group("training_memory", "Peak memory of a training step", FXGRAD, unit="B", sampled="processes")
    if not sys.platform.startswith("linux"):
        group.notes.append("Not measured: it needs Linux's /proc.")
        return group
    peers = run.peers
    there = {FXGRAD: True, OPTAX: peers.jax and peers.module("optax"), TORCH[0]: peers.torch, FUSED_STEP: peers.torch}
    for label, (large, small, _, _) in PROBLEMS.items():
        found: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(run.size(MEMORY_RUNS, 1)):
                for name, program in PROGRAMS.items():
                    if there[name] is None:
                        continue
                    # torch makes the optimizer's state in the first step
                    first = "step()" if name.startswith("torch") else ""
                    script = SCRIPT.format(
                        threads=run.threads, small=small, large=run.size(large, small), program=program, first=first
                    )
                    found.setdefault(name, []).append(fresh(script, cache))
        targets = [Target(f"peak memory of the {label}'s step", FXGRAD, 0.7, (OPTAX,))]
        targets.append(Target(f"peak memory of the {label}'s step", FXGRAD, 0.7, (TORCH[0], FUSED_STEP)))
        run.add(
            group,
            Row(
                f"{label}: {run.size(large, small)}, float32",
                {name: summary(samples) for name, samples in found.items()},
                targets,
            ),
        )
    group.notes.append(
        "The growth of the process's resident memory (VmHWM, reset before, minus VmRSS) over three steps. Parameters, the "
        "optimizer's state, libraries and compiled code are there before; gradients are part of it."
    )
    return group


def measure(run: Run) -> list[Group]:
    return [times(run), memory(run)]
