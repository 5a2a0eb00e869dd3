"""A memory-bound chain: relu(a*b + c), which moves 32 bytes an element operation by operation and 16 when fused."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.peers import FXGRAD, JAX, Spelling, contenders
from bench.run import BANDWIDTH, Run
from bench.timing import Group, Target


def relu(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.maximum(a * b + c, 0)


def torch_relu(torch: Any, a: Any, b: Any, c: Any) -> Any:
    return torch.relu(a * b + c)


SPELLING = Spelling(relu, torch=torch_relu, numexpr="where(a*b + c > 0, a*b + c, 0)")


def targets(n: int, threads: int) -> list[Target]:
    """Those of the issue: two threads against peers, one thread against the machine."""
    if threads == 1:
        return [Target("relu(a*b+c), 1e7, one thread", FXGRAD, 0.85, (BANDWIDTH,), "share")] if n > 100_000 else []
    if n > 100_000:
        return [Target("relu(a*b+c), 1e7", FXGRAD, 0.6, (JAX, "torch compiled"))]
    return [Target("relu(a*b+c), 1e5", FXGRAD, 0.4, (JAX,))]


def measure(run: Run) -> list[Group]:
    group = run.group("memory", "relu(a*b + c), float32", FXGRAD)
    rng = np.random.default_rng(0)
    for n, label in ((100_000, "1e5"), (10_000_000, "1e7")):
        args = [rng.standard_normal(run.size(n, 1000), dtype=np.float32) for _ in range(3)]
        moved = 4 * args[0].nbytes
        # What fits in the second-level cache is not bound by memory.
        limits = {BANDWIDTH: moved / run.limits(group).triad} if n > 100_000 else None
        run.row(
            group, f"n = {label}", contenders(run.peers, SPELLING, args), 1e-6, targets(n, run.threads),
            limits=limits, moved=moved, block=0.03,
        )  # fmt: skip
    group.notes.append(
        "GB/s counts each input read once and each output written once, whatever is really moved; the limit is that of a triad."
    )
    return [group]
