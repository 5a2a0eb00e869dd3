"""Peak memory of the transformer block's step, above its arguments, in fresh processes."""

from __future__ import annotations

import sys
import tempfile

from bench.cases.transformer import LARGE
from bench.peers import FUSED_ATTENTION, FXGRAD, JAX, TORCH
from bench.processes import fresh
from bench.run import Run
from bench.timing import Group, Row, Target, summary

RUNS = 3  # they differ by some pages
# A small step first, where that compiles nothing for the large one: it loads what is loaded at the first call. The large step is
# compiled but, where the library can do that, not run. Then the heap is trimmed and the kernel's high-water mark reset.
SCRIPT = """
import ctypes, gc, json
from bench.block import Problem
from bench.peers import Peers
peers = Peers({threads})
small, large = Problem({small}, "float32"), Problem({large}, "float32")
def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
{program}
result = None
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
for _ in range(3):
    result = None
    result = step()
print(json.dumps(max(status("VmHWM") - before, 4096)))  # it is counted in pages
"""
PROGRAMS = {
    FXGRAD: "small.fxgrad()(); step = large.fxgrad()",
    JAX: "small.jax(peers.jax)(); step = large.jax(peers.jax)",
    TORCH[0]: "small.torch(peers.torch)(); step = large.torch(peers.torch)",
    FUSED_ATTENTION: "small.torch(peers.torch, fused=True)(); step = large.torch(peers.torch, fused=True)",
    TORCH[1]: "step = large.torch(peers.torch, peers.torch_compile()); step()",
}


def measure(run: Run) -> list[Group]:
    group = run.group("footprint", "Peak memory of a step", FXGRAD, unit="B", sampled="processes")
    if not sys.platform.startswith("linux"):
        group.notes.append("Not measured: it needs Linux's /proc.")
        return [group]
    size, small = run.size(LARGE, (1, 4, 8, 2)), run.size((1, 16, 256, 8), (1, 4, 8, 2))
    torch = run.peers.torch
    peers = {FXGRAD: True, JAX: run.peers.jax, TORCH[0]: torch, FUSED_ATTENTION: torch, TORCH[1]: run.peers.torch_compile()}
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(run.size(RUNS, 1)):
            for name, program in PROGRAMS.items():
                if peers[name] is not None:
                    script = SCRIPT.format(threads=run.threads, small=small, large=size, program=program)
                    found.setdefault(name, []).append(fresh(script, cache))
    targets = [Target("peak memory of the block's step", FXGRAD, 0.8, (JAX,))]
    targets.append(Target("peak memory of the block's step", FXGRAD, 0.8, (*TORCH, FUSED_ATTENTION)))
    times = {name: summary(samples) for name, samples in found.items()}
    run.add(group, Row(f"transformer block, B,T,D,H = {','.join(map(str, size))}, float32", times, targets))
    group.notes.append(
        "The growth of the process's resident memory (VmHWM, reset before, minus VmRSS) over three steps, the result of the last "
        "step kept. Arguments, libraries and compiled code are there before; every library has compiled the step, freed what it "
        "could (malloc_trim), and holds no result. The gradients are part of it."
    )
    return [group]
