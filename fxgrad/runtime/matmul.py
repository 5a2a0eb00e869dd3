"""Matrix products of NumPy arrays by our own kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.config import config
from fxgrad.ir.types import Aval
from fxgrad.kernels.matmul_plan import SUPPORTED, Matrix, Product, plan_product

__all__ = ["Prepared", "matmul", "prepare", "product_call"]

_MOST_PLANS = 4096


class Prepared(NamedTuple):
    """The last run of a product, and those before it: kernel and plan by address, pointers as in `Run`."""

    kernel: int  # 0: the result is zeros
    plan: int
    pointers: str
    before: tuple[tuple[int, int, str], ...]
    passed: int  # bytes of memory that they pass on
    alive: Any  # what keeps the plans in memory


_plans: dict[Any, Prepared] = {}


def matmul(a: np.ndarray, b: np.ndarray, strong: int = 0) -> np.ndarray:
    """a[g] @ b[g] for every g, of arrays [batch, m, k] and [batch, k, n] with any strides; the result is C-contiguous.

    The elements are the fixed sums of `fxgrad.kernels.matmul`, whatever the layout. `strong` names the operand whose zeros
    annihilate what they meet: 1 for a, 2 for b, 0 for neither.
    """
    dtype, shape, right = a.dtype, a.shape, b.shape
    key = (dtype, b.dtype, shape, a.strides, right, b.strides, strong)
    kernel, plan, pointers, before, passed, _ = _plans.get(key) or _remember(key)
    if not kernel:
        return np.zeros((shape[0], shape[1], right[2]), dtype)
    out = np.empty((shape[0], shape[1], right[2]), dtype)
    if before:
        arrays = {"a": a, "b": b, "c": out, "p": np.empty(passed, np.uint8)}
        for first, its_plan, its_pointers in (*before, (kernel, plan, pointers)):
            some = tuple([arrays[n] for n in its_pointers])
            _launch(first, its_plan, id(some))
    else:
        operands = (a, b, out) if pointers == "abc" else (b, a, out)
        _launch(kernel, plan, id(operands))
    return out


def product_call(avals: Sequence[Aval], params: dict[str, Any], out: Aval, otherwise: Callable) -> Callable:
    """The primitive `dot` prepared for operands of these types; other layouts than the usual one go to `otherwise`."""
    dtype = out.dtype
    if dtype not in SUPPORTED or 0 in (*avals[0].shape, *avals[1].shape):
        return otherwise
    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.compile.layout import contiguous
    from fxgrad.compile.product_layout import ProductLayout
    from fxgrad.runtime.launch import address_of, expected_table, launch_checked

    operands = [contiguous(a.shape, dtype.itemsize) for a in avals]
    layout = ProductLayout(params, dtype, operands, contiguous(out.shape, dtype.itemsize))
    if layout.copied != []:
        return otherwise
    runs = plan_product(layout.product())
    if len(runs) > 1:  # large: what it costs to look at the arrays does not count
        return otherwise
    (kernel,) = kernel_addresses([runs[0].kernel])
    pointers, plan = runs[0].pointers, address_of(runs[0].plan)
    shape, empty, swapped = out.shape, np.empty, pointers == "bac"
    expected = expected_table(avals[::-1] if swapped else avals)

    def slow(x: Any, y: Any) -> Any:
        with np.errstate(all="ignore"):
            return otherwise(x, y)

    def kernel_call(x: Any, y: Any) -> Any:
        result = empty(shape, dtype)
        t = (y, x, result) if swapped else (x, y, result)
        if config.matmul != "own" or launch_checked(kernel, plan, id(t), expected):
            return slow(x, y)
        return result

    return kernel_call


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
        return Prepared(0, 0, "", (), 0, None)
    a, b, c = (Matrix(0, s[0], s[0], s[1], s[2]) for s in (a_strides, b_strides, (m * n * size, n * size, size)))
    runs = plan_product(Product(dtype, 1, g, m, n, k, a, b, c, strong))
    addresses = kernel_addresses([r.kernel for r in runs])
    *before, last = ((address, r.plan.ctypes.data, r.pointers) for address, r in zip(addresses, runs, strict=True))
    return Prepared(*last, tuple(before), runs[0].passed, runs)
