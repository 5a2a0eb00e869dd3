"""What the machine itself can do, measured."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numba
import numpy as np

__all__ = ["Limits", "machine_limits"]

ELEMENTS = 10_000_000
TRIES = 12


@dataclass(frozen=True)
class Limits:
    """triad and read: bytes a second, streaming (two arrays read and one written; one read); matmul: flops a second by dtype."""

    triad: float
    read: float
    matmul: dict[str, float]


@cache
def _triad() -> Any:
    @numba.njit("void(f4[::1], f4[::1], f4[::1], f4, i8, i8)", nogil=True)
    def triad(a: Any, b: Any, c: Any, s: Any, lo: Any, hi: Any) -> None:
        for i in range(lo, hi):
            a[i] = b[i] + s * c[i]

    return triad


@cache
def _read() -> Any:
    @numba.njit("f4(f4[::1], i8, i8)", nogil=True, fastmath=True)
    def read(a: Any, lo: Any, hi: Any) -> Any:
        total = np.float32(0)
        for i in range(lo, hi):
            total += a[i]
        return total

    return read


def _best(f: Any) -> float:
    best = np.inf
    for _ in range(TRIES):
        start = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - start)
    return best


def _bandwidth(threads: int) -> tuple[float, float]:
    a, b, c = (np.ones(ELEMENTS, np.float32) for _ in range(3))
    edges = [ELEMENTS * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:

        def together(f: Any) -> float:
            return _best(lambda: list(pool.map(lambda i: f(edges[i], edges[i + 1]), range(threads))))

        triad = together(lambda lo, hi: _triad()(a, b, c, np.float32(3), lo, hi))
        read = together(lambda lo, hi: _read()(a, lo, hi))
    return 3 * a.nbytes / triad, a.nbytes / read


def _matmul(dtype: str) -> float:
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(dtype)
    return 2 * 1024**3 / _best(lambda: x @ x)


def machine_limits(threads: int) -> Limits:
    return Limits(*_bandwidth(threads), {dtype: _matmul(dtype) for dtype in ("float32", "float64")})
