"""What the machine itself can do, measured in the process that compares with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxgrad.runtime.machine import machine_limits

__all__ = ["Limits", "measured_limits"]

SIDE = 1024
TRIES = 12


@dataclass(frozen=True)
class Limits:
    """Streams over memory in bytes a second (triad: two arrays read, one written), fma and matmul in flops a second by dtype."""

    read: float
    triad: float
    fma: dict[str, float]
    matmul: dict[str, float]


def _best(f: Callable[[], Any]) -> float:
    best = np.inf
    for _ in range(TRIES):
        start = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - start)
    return best


def _matmul(dtype: str) -> float:
    """Flops a second of NumPy's product of two square matrices, with the threads its BLAS has in this process."""
    x = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(dtype)
    return 2 * SIDE**3 / _best(lambda: x @ x)


def measured_limits(threads: int) -> Limits:
    """Measured anew, not those remembered: the machine may have other tenants, whose load changes."""
    found = machine_limits(threads, again=True)
    fma = {"float32": found.peak_float32, "float64": found.peak_float64}
    return Limits(found.read, found.triad, fma, {dtype: _matmul(dtype) for dtype in fma})
