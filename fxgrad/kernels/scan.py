"""The linear recurrence h[i] = a[i]*h[i-1] + b[i], in sequence along one axis."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from fxgrad.ir.types import short_name

__all__ = ["RecurrenceKernel", "linear_recurrence", "running_product"]


class RecurrenceKernel:
    """Vectors across the columns, one step after the other; product and sum are rounded apart."""

    def __init__(self, dtype: np.dtype):
        name = short_name(dtype)
        self.dtype = dtype
        self.text = f"kernel recurrence(a: {name} unit, b: {name} unit) -> ({name} unit) {{\n  h[i] = a[i] * h[i-1] + b[i]\n}}"
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    def emit(self, module: Any, name: str) -> Any:
        from llvmlite import ir

        from fxgrad.kernels.loops import KERNEL_TYPE, Lanes, Loop, Nest, Row, advance, i64
        from fxgrad.kernels.spec import Operand
        from fxgrad.kernels.vector import Vec, constant

        fn = ir.Function(module, KERNEL_TYPE, name)
        fn.linkage = "internal"
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        lanes, nest = Lanes(b, 16 if self.dtype.itemsize <= 4 else 8), Nest(b, fn, 3)
        lo, hi = nest.split_columns()
        pointers, plan = nest.begin(), nest.plan
        columns = Loop(b, lo, hi, lanes.lanes)
        steps = Loop(b, i64(0), plan.m, 1, [constant(lanes.like, 0, self.dtype).v])
        moved = [advance(b, p, b.mul(s, steps.i)) for p, s in zip(pointers, plan.loop_strides, strict=True)]
        unit = Operand(self.dtype, "unit")
        (x, y), full, mask = Row(lanes, [unit] * 2, moved[:2], plan.vector_strides[:2]).load(columns.i, hi)
        following = x * Vec(b, steps.carried[0], self.dtype) + y
        first = b.icmp_signed("==", steps.i, i64(0))  # h[-1] is nothing, not 0: it must not meet an infinite a[0]
        h = Vec(b, b.select(first, y.v, following.v), self.dtype)
        Row(lanes, [unit], moved[2:], plan.vector_strides[2:]).store([h], columns.i, full, mask)
        steps.end([h.v])
        columns.end()
        nest.end()
        b.ret_void()
        return fn


def linear_recurrence(a: Any, b: Any, axis: int = -1, reverse: bool = False) -> np.ndarray:
    """h[i] = a[i]*h[i-1] + b[i] along `axis`, starting with h[0] = b[0]; from the other end with `reverse`.

    a and b have one shape and dtype. float16 is computed in float32; dtypes without kernels in NumPy.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == np.float16:
        with np.errstate(over="ignore"):
            return linear_recurrence(a.astype(np.float32), b.astype(np.float32), axis, reverse).astype(np.float16)
    if a.dtype not in (np.float32, np.float64):
        return _numpy_recurrence(a, b, axis, reverse)
    native = np.dtype(a.dtype.type)
    a, b = np.require(a, native, ["C", "A"]), np.require(b, native, ["C", "A"])
    out = np.empty(a.shape, a.dtype)
    if out.size:
        _run(a, b, out, axis % a.ndim, reverse)
    return out


def _run(a: np.ndarray, b: np.ndarray, out: np.ndarray, axis: int, reverse: bool) -> None:
    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.runtime.launch import launch

    size, n, inner = a.itemsize, a.shape[axis], math.prod(a.shape[axis + 1 :])
    rows = math.prod(a.shape[:axis])
    step = inner * size
    record = [(n - 1) * step if reverse else 0, size, -step if reverse else step, n * step]
    plan = np.array([inner if rows <= 1 else rows, 0, rows, 1, inner, n, rows, *record * 3], np.int64)
    (kernel,) = kernel_addresses([RecurrenceKernel(a.dtype)])
    operands = (a, b, out)
    launch(kernel, plan.ctypes.data, id(operands))


def _numpy_recurrence(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    x, y = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    h = np.empty(y.shape, y.dtype)
    order = range(len(h) - 1, -1, -1) if reverse else range(len(h))
    previous = None
    for i in order:
        h[i] = y[i] if previous is None else _product(x[i], h[previous]) + y[i]
        previous = i
    return np.ascontiguousarray(np.moveaxis(h, 0, axis))


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x * y; of complex numbers by real products, since NumPy's loop contracts them where the layout suits it."""
    if x.dtype.kind != "c":
        return x * y
    z = np.empty(np.shape(x), x.dtype)
    z.real = x.real * y.real - x.imag * y.imag
    z.imag = x.real * y.imag + x.imag * y.real
    return z


def running_product(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """Products of all elements up to each, in sequence along `axis`; for complex arrays."""
    turned = np.moveaxis(x, axis, 0)
    out = np.empty(turned.shape, x.dtype)
    n = len(out)
    for k in range(n):
        i, before = (n - 1 - k, n - k) if reverse else (k, k - 1)
        out[i] = turned[i] if k == 0 else _product(out[before], turned[i])
    return np.ascontiguousarray(np.moveaxis(out, 0, axis))
