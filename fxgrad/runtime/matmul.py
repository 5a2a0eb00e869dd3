"""Matrix products of NumPy arrays by our own kernels: which kernel, and its plan."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from fxgrad.kernels.matmul import (
    DOT_PLAN,
    MATVEC_PLAN,
    MATVEC_ROWS,
    PLAN,
    DotKernel,
    MatmulKernel,
    MatvecKernel,
    block_length,
)  # fmt: skip

__all__ = ["SUPPORTED", "Prepared", "matmul", "prepare"]

SUPPORTED = frozenset(np.dtype(n) for n in ("float32", "float64", "int32", "int64", "uint32", "uint64"))
_ROWS, _COLUMNS = 48, 64  # in a unit of work: multiples of every register block
_THIN = 64  # rows from which on packing b pays
_IN_PLACE = 128 * 1024  # bytes of a block of b that need no packing: they stay in the first two levels of the cache
_MOST_PLANS = 4096


Prepared = tuple[int, int, bool, Any]  # kernel (0: the result is zeros), plan, whether b comes first, what keeps the plan alive
_plans: dict[Any, Prepared] = {}


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """a[g] @ b[g] for every g, of arrays [batch, m, k] and [batch, k, n] with any strides; the result is C-contiguous.

    The elements are the fixed sums of `fxgrad.kernels.matmul`, whatever the layout. `out`, if given, is C-contiguous, of the
    result's shape and dtype, and apart from a and b.
    """
    dtype, shape, right = a.dtype, a.shape, b.shape
    key = (dtype, b.dtype, shape, a.strides, right, b.strides)
    kernel, plan, swapped, _ = _plans.get(key) or _remember(key)
    if out is None:
        out = np.empty((shape[0], shape[1], right[2]), dtype)
    if kernel:
        operands = (b, a, out) if swapped else (a, b, out)
        _launch(kernel, plan, id(operands))
    else:
        out.fill(0)
    return out


def _launch(*args: Any) -> None:
    """The launcher, which needs numba, takes this function's place at the first call."""
    from fxgrad.runtime.launch import launch

    global _launch
    _launch = launch
    launch(*args)


def _remember(key: Any) -> Prepared:
    dtype, other, a_shape, a_strides, b_shape, b_strides = key
    if dtype not in SUPPORTED or dtype != other:
        raise TypeError(f"no product of {dtype} and {other}")
    if len(a_shape) != 3 or len(b_shape) != 3 or (a_shape[0], a_shape[2]) != b_shape[:2]:
        raise ValueError(f"shapes {a_shape} and {b_shape} do not fit: [batch, m, k] and [batch, k, n] are wanted")
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    found = _plans[key] = prepare(dtype, a_shape, a_strides, b_shape, b_strides)
    return found


def prepare(
    dtype: np.dtype, a_shape: tuple[int, ...], a_strides: tuple[int, ...], b_shape: tuple[int, ...], b_strides: tuple[int, ...]
) -> Prepared:
    """The kernel and the plan for operands of these shapes and strides."""
    from fxgrad.compile.cache import kernel_addresses

    (g, m, k), n = a_shape, b_shape[2]
    (a_batch, a_row, a_k), (b_batch, b_k, b_column) = a_strides, b_strides
    size = dtype.itemsize
    if 0 in (g, m, n, k):
        return 0, 0, False, None
    if b_batch == 0 and g > 1 and (m == 1 or a_batch == m * a_row):  # the batches share b: they are rows
        g, m, a_row = 1, g * m, a_batch if m == 1 else a_row
    a_k, b_k = (size, b_k if n > 1 else size) if k == 1 else (a_k, b_k)
    b_column = b_column if n > 1 else size
    a_row = a_row if m > 1 else size
    strides = (a_batch, a_row, a_k, b_batch, b_k, b_column)
    kernel, fields, swapped = _choose(dtype, g, m, n, k, strides)
    (address,) = kernel_addresses([kernel])
    plan = np.array(fields, np.int64)
    return address, plan.ctypes.data, swapped, plan


def _choose(dtype: np.dtype, g: int, m: int, n: int, k: int, strides: tuple[int, ...]) -> tuple[Any, list[int], bool]:
    a_batch, a_row, a_k, b_batch, b_k, b_column = strides
    size = dtype.itemsize
    if m == n == 1:
        if k > block_length(dtype) and a_k == b_k == size:
            values = {"extent": g, "grain": 1, "k": k, "x_batch": a_batch, "y_batch": b_batch, "c_batch": size}
            return DotKernel(dtype), [values[f] for f in DOT_PLAN], False
    elif 1 in (m, n):
        matrix, vector = ((a_batch, a_row, a_k), (b_batch, b_k)) if n == 1 else ((b_batch, b_column, b_k), (a_batch, a_k))
        count = max(m, n)
        if matrix[1] == size or (matrix[2] == size and count >= MATVEC_ROWS):
            units = -(-count // MATVEC_ROWS)
            values = dict(zip(("a_batch", "a_row", "a_k", "x_batch", "x_k"), (*matrix, *vector), strict=True))
            values |= {"extent": g * units, "grain": 1, "units": units, "n": count, "k": k, "c_batch": count * size}
            return MatvecKernel(dtype), [values[f] for f in MATVEC_PLAN], n != 1
    return MatmulKernel(dtype), _matmul_plan(dtype, g, m, n, k, strides), False


def _matmul_plan(dtype: np.dtype, g: int, m: int, n: int, k: int, strides: tuple[int, ...]) -> list[int]:
    a_batch, a_row, a_k, b_batch, b_k, b_column = strides
    size, block = dtype.itemsize, min(k, block_length(dtype))
    by_columns = n > m and m <= 2 * _ROWS
    unit = _COLUMNS if by_columns else _ROWS
    units = -(-(n if by_columns else m) // unit)
    pack_b = b_column != size or (m > _THIN and block * n * size > _IN_PLACE)
    pack_a = a_k != size and n > (128 if a_row == size else 32)
    stretch = _packed_bytes() // (block_length(dtype) * size) if pack_b else n
    values = {
        "extent": g * units, "grain": 1, "units": units, "unit": unit, "by_columns": by_columns, "m": m, "n": n, "k": k,
        "pack_a": pack_a, "pack_b": pack_b, "stretch": min(n, stretch), "a_batch": a_batch, "a_row": a_row, "a_k": a_k,
        "b_batch": b_batch, "b_k": b_k, "b_column": b_column, "c_batch": m * n * size, "c_row": n * size,
    }  # fmt: skip
    return [int(values[f]) for f in PLAN]


@functools.cache
def _packed_bytes() -> int:
    """How much of b is packed at a time: half the second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        cache = int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
    except (OSError, ValueError):
        cache = 1 << 20
    return min(max(cache // 2, 1 << 18), 1 << 20)
