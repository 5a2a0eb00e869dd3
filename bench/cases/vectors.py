"""Products with vectors, which are as fast as memory: dot of two vectors, and a matrix with a vector on either side."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.peers import FXGRAD, Spelling, contenders
from bench.run import BANDWIDTH, Run
from bench.timing import Group, Target


def dot(xp: Any, x: Any, y: Any) -> Any:
    return xp.dot(x, y)


def matvec(xp: Any, a: Any, x: Any) -> Any:
    return a @ x


def vecmat(xp: Any, a: Any, x: Any) -> Any:
    return x @ a


def measure(run: Run) -> list[Group]:
    group = run.group("vectors", "Products with vectors", FXGRAD)
    limits = run.limits(group)
    rng = np.random.default_rng(0)
    side = run.size(4096, 32)
    for dtype in ("float32", "float64"):
        # Positive numbers: a sum of either sign may be far smaller than its terms, and tell little about being right.
        for n in run.size((10_000, 10_000_000), (100, 1000)):
            args = [rng.uniform(0.0, 1.0, n).astype(dtype) for _ in range(2)]
            add(run, group, f"dot, n = {n:g}, {dtype}", dot, args, limits.read if n > 100_000 else None)
        args = [rng.uniform(0.0, 1.0, shape).astype(dtype) for shape in ((side, side), (side,))]
        add(run, group, f"a @ x, {side}x{side}, {dtype}", matvec, args, limits.read)
        add(run, group, f"x @ a, {side}x{side}, {dtype}", vecmat, args, limits.read)
    return [group]


def add(run: Run, group: Group, label: str, f: Any, args: list[np.ndarray], bandwidth: float | None) -> None:
    moved = sum(v.nbytes for v in args)
    limits = {BANDWIDTH: moved / bandwidth} if bandwidth else None
    found = contenders(run.peers, Spelling(f, compiled=False), args)
    run.row(group, label, found, 1e-3, [Target(label, FXGRAD, 1.1, ("numpy",))], limits=limits, moved=moved)
