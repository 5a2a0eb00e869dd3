"""Random numbers: drawing an array of them from a key (NumPy and torch: from their generators)."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxgrad as fx
from bench.peers import FXGRAD, JAX, Spelling, contenders
from bench.run import Run
from bench.timing import Group, Target

NUMPY = {"uniform": "random", "normal": "standard_normal"}
TORCH = {"uniform": "rand", "normal": "randn"}


def spelling(name: str, n: int, dtype: str, jax: Any) -> Spelling:
    generator = np.random.default_rng(0)

    def of_jax(xp: Any, key: Any) -> Any:
        return getattr(jax.random, name)(jax.random.wrap_key_data(key), (n,), dtype)

    return Spelling(
        lambda xp, key: getattr(generator, NUMPY[name])(n, dtype),
        fxgrad=lambda xp, key: getattr(fx.random, name)(key, (n,), dtype),
        jax=of_jax,
        torch=lambda torch, key: getattr(torch, TORCH[name])(n, dtype=getattr(torch, dtype)),
        compiled=False,
    )


def measure(run: Run) -> list[Group]:
    n = run.size(10_000_000, 4096)
    group = run.group("random", f"Random numbers, {n:,} at a time", FXGRAD)
    key = fx.random.key(0)
    for dtype in ("float32", "float64"):
        for name in NUMPY:
            found = contenders(run.peers, spelling(name, n, dtype, run.peers.jax), [key])
            targets = [Target(f"{name}, {dtype}", FXGRAD, 0.6, (JAX,))]
            run.row(group, f"{name} {dtype}", found, float("inf"), targets, moved=n * np.dtype(dtype).itemsize)
    group.notes.append("fxgrad and JAX draw from a key, by Threefry-2x32; NumPy (PCG64) and torch from a generator with a state.")
    group.notes.append(
        "Everybody's numbers are others, so they are not compared here; tests/test_random.py tests the distributions."
    )
    return [group]
