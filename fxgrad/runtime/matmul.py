"""Matrix products of NumPy arrays by our own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels.matmul_plan import SUPPORTED, Matrix, Product, plan_product

__all__ = ["Prepared", "matmul", "prepare"]

_MOST_PLANS = 4096


Prepared = tuple[int, int, bool, Any]  # kernel (0: the result is zeros), plan, whether b comes first, what keeps the plan alive
_plans: dict[Any, Prepared] = {}


def matmul(a: np.ndarray, b: np.ndarray, strong: int = 0) -> np.ndarray:
    """a[g] @ b[g] for every g, of arrays [batch, m, k] and [batch, k, n] with any strides; the result is C-contiguous.

    The elements are the fixed sums of `fxgrad.kernels.matmul`, whatever the layout. `strong` names the operand whose zeros
    annihilate what they meet: 1 for a, 2 for b, 0 for neither.
    """
    dtype, shape, right = a.dtype, a.shape, b.shape
    key = (dtype, b.dtype, shape, a.strides, right, b.strides, strong)
    kernel, plan, swapped, _ = _plans.get(key) or _remember(key)
    if not kernel:
        return np.zeros((shape[0], shape[1], right[2]), dtype)
    out = np.empty((shape[0], shape[1], right[2]), dtype)
    operands = (b, a, out) if swapped else (a, b, out)
    _launch(kernel, plan, id(operands))
    return out


def _launch(*args: Any) -> None:
    """The launcher, which needs numba, takes this function's place at the first call."""
    from fxgrad.runtime.launch import launch

    global _launch
    _launch = launch
    launch(*args)


def _remember(key: Any) -> Prepared:
    dtype, other, a_shape, a_strides, b_shape, b_strides, strong = key
    if dtype not in SUPPORTED or dtype != other:
        raise TypeError(f"no product of {dtype} and {other}")
    if len(a_shape) != 3 or len(b_shape) != 3 or (a_shape[0], a_shape[2]) != b_shape[:2]:
        raise ValueError(f"shapes {a_shape} and {b_shape} do not fit: [batch, m, k] and [batch, k, n] are wanted")
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    found = _plans[key] = prepare(dtype, a_shape, a_strides, b_shape, b_strides, strong)
    return found


def prepare(
    dtype: np.dtype,
    a_shape: tuple[int, ...],
    a_strides: tuple[int, ...],
    b_shape: tuple[int, ...],
    b_strides: tuple[int, ...],
    strong: int = 0,
) -> Prepared:
    """The kernel and the plan for operands of these shapes and strides."""
    from fxgrad.compile.cache import kernel_addresses

    (g, m, k), n, size = a_shape, b_shape[2], dtype.itemsize
    if 0 in (g, m, n, k):
        return 0, 0, False, None
    a, b, c = (Matrix(0, s[0], s[0], s[1], s[2]) for s in (a_strides, b_strides, (m * n * size, n * size, size)))
    run = plan_product(Product(dtype, 1, g, m, n, k, a, b, c, strong))
    (address,) = kernel_addresses([run.kernel])
    return address, run.plan.ctypes.data, run.pointers == "bac", run.plan
