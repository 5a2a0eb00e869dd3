"""Matrix products: square ones with either operand transposed, and a batch of small ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.peers import FXGRAD, Spelling, contenders
from bench.run import MATMUL, Run
from bench.timing import Group, Target

SIZES = (128, 256, 512, 1024, 2048)


def product(left: bool, right: bool, xp: Any, a: Any, b: Any) -> Any:
    return (a.T if left else a) @ (b.T if right else b)


def batched(xp: Any, a: Any, b: Any) -> Any:
    return a @ b


def square(run: Run, dtype: str, name: str) -> Group:
    group = run.group(f"{name}_{dtype}", f"Square matrix products, {dtype}", FXGRAD)
    peak = run.limits(group).matmul[dtype]
    rng = np.random.default_rng(0)
    for n in run.size(SIZES, (8,)):
        a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
        for left in (False, True):
            for right in (False, True):
                plain = not left and not right
                # The peers that are no target only where nothing is transposed: the table is long enough.
                f: Callable = partial(product, left, right)
                found = contenders(run.peers, Spelling(f, compiled=False), [a, b])
                found = found if plain else {k: v for k, v in found.items() if k in (FXGRAD, "numpy")}
                target = Target(f"matmul {dtype}, {_threads(run)}", FXGRAD, 1.05, ("numpy",))
                label = f"{n}: {'a.T' if left else 'a'} @ {'b.T' if right else 'b'}"
                work = 2 * n**3
                tolerance = 1e-4 if dtype == "float32" else 1e-12
                run.row(group, label, found, tolerance, [target], limits={MATMUL: work / peak}, work=work)
    group.notes.append("The limit is the best time of NumPy's 1024x1024 product, in proportion to the operations.")
    return group


def batches(run: Run, name: str) -> Group:
    group = run.group(f"{name}_batched", "64 products of 128x32 by 32x128", FXGRAD)
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        args = [rng.standard_normal(shape).astype(dtype) for shape in ((64, 128, 32), (64, 32, 128))]
        target = Target(f"batched matmul {dtype}, {_threads(run)}", FXGRAD, 0.7, ("numpy",))
        found = contenders(run.peers, Spelling(batched, compiled=False), args)
        run.row(group, dtype, found, 1e-5, [target], work=2 * 64 * 128 * 32 * 128)
    return group


def _threads(run: Run) -> str:
    return "one thread" if run.threads == 1 else f"{run.threads} threads"


def measure(run: Run) -> list[Group]:
    return [square(run, "float32", "matmul"), square(run, "float64", "matmul"), batches(run, "matmul")]
