"""Reductions of arrays in memory: to one number, and over the rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.peers import FXGRAD, JAX, TORCH, Spelling, contenders
from bench.run import BANDWIDTH, Run
from bench.timing import Group, Target


def square_sum(xp: Any, a: Any) -> Any:
    return xp.sum(a * a)


def mean(xp: Any, a: Any) -> Any:
    return xp.mean(a)


def var(xp: Any, a: Any) -> Any:
    return xp.var(a)


def torch_var(torch: Any, a: Any) -> Any:
    return torch.var(a, correction=0)


def column_sums(xp: Any, a: Any) -> Any:
    return xp.sum(a, axis=0)


def torch_column_sums(torch: Any, a: Any) -> Any:
    return torch.sum(a, dim=0)


# name -> spelling, how often the array must be read
WORK = {
    "sum(a*a)": (Spelling(square_sum), 1),
    "mean": (Spelling(mean), 1),
    "var": (Spelling(var, torch=torch_var), 2),
    "column sums": (Spelling(column_sums, torch=torch_column_sums), 1),
}


def measure(run: Run) -> list[Group]:
    group = run.group("reductions", "Reductions, float32", FXGRAD)
    limits = run.limits(group)
    rng = np.random.default_rng(0)
    side, n = run.size(4096, 64), run.size(10_000_000, 4096)
    for name, (spelling, passes) in WORK.items():
        shape = (side, side) if name == "column sums" else (n,)
        a = rng.uniform(0.0, 1.0, shape).astype(np.float32)
        label = f"{name}, {side}x{side}" if name == "column sums" else f"{name}, n = {n:g}"
        moved = a.nbytes * passes
        run.row(
            group, label, contenders(run.peers, spelling, [a]), 1e-3, [Target(name, FXGRAD, 1.05, (JAX, *TORCH))],
            limits={BANDWIDTH: moved / limits.read}, moved=moved,
        )  # fmt: skip
    group.notes.append("numexpr is left out: its float32 sum of 1e7 numbers is one running sum, and off by 1 %.")
    group.notes.append("GB/s counts one pass over the array (var: two, for the mean and for the deviations from it).")
    return [group]
