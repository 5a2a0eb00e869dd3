"""The reduction tree in NumPy: for dtypes without kernels (complex), and what kernels are tested against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.kernels.spec import lanes_of_reduction, reduction_block

__all__ = ["reduce_tree"]


def reduce_tree(
    combine: Callable[[Any, Any], Any], identity: np.generic, x: np.ndarray, axes: tuple[int, ...], dtype: np.dtype | None = None
) -> np.ndarray:
    """Reduce `axes` in row-major order by the fixed tree of kernels/reduction.py; dtypes keep their own lane counts.

    `dtype` is what the elements stand for, if not what they are.
    """
    x = np.asarray(x)
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = tuple(x.shape[d] for d in kept)
    n = int(np.prod([x.shape[d] for d in axes], dtype=np.int64))
    if x.size == 0:
        return np.full(shape, identity, x.dtype)
    flat = np.transpose(x, (*kept, *axes)).reshape(*shape, n)
    lanes, block = lanes_of_reduction(dtype or x.dtype), reduction_block(dtype or x.dtype)
    total = np.full(shape, identity, x.dtype)
    for start in range(0, n, block):
        part = flat[..., start : start + block]
        missing = -part.shape[-1] % lanes
        part = np.concatenate([part, np.full((*shape, missing), identity, x.dtype)], -1).reshape(*shape, -1, lanes)
        held = np.full((*shape, lanes), identity, x.dtype)
        for i in range(part.shape[-2]):
            held = combine(held, part[..., i, :])
        while held.shape[-1] > 1:
            half = held.shape[-1] // 2
            held = combine(held[..., :half], held[..., half:])
        total = combine(total, held[..., 0])
    return total
