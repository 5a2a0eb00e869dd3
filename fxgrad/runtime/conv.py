"""Convolutions of NumPy arrays by our own kernels, now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.ir.types import Aval
from fxgrad.kernels.matmul_plan import SUPPORTED
from fxgrad.primitives.shape import inverse

__all__ = ["conv_call"]


class _Call(NamedTuple):
    """A product of one phase: kernels and plans by address, the pointers of each; the part of w it takes, copied in `order`."""

    runs: list[tuple[int, int, str]]
    passed: int
    part: tuple[slice, ...] | None  # None: w as it is
    order: tuple[int, ...]


def conv_call(avals: Sequence[Aval], params: dict[str, Any], out: Aval, otherwise: Callable) -> Callable:
    """The primitive `conv` prepared for operands of these types; dtypes without kernels go to `otherwise`.

    The result is a view of an array with its batch axes (which are groups of channels) last, before the free ones of w.
    """
    if out.dtype not in SUPPORTED:
        return otherwise
    if 0 in (avals[0].size, avals[1].size, out.size):
        return lambda x, w: np.zeros(out.shape, out.dtype)
    from fxgrad.compile.conv_layout import ConvLayout
    from fxgrad.compile.layout import contiguous
    from fxgrad.runtime.launch import launch

    operands = [contiguous(a.shape, a.dtype.itemsize) for a in avals]
    nb, nw = len(params["batch"][0]), avals[1].ndim - sum(len(params[name][1]) for name in ("batch", "contract", "windows"))
    lying = (*range(nb, out.ndim - nw), *range(nb), *range(out.ndim - nw, out.ndim))
    memory = contiguous(tuple(out.shape[d] for d in lying), out.dtype.itemsize)
    layout = ConvLayout(params, out.dtype, operands, memory.transposed(inverse(lying)))
    if layout.copied is None:
        lying, memory = tuple(range(out.ndim)), contiguous(out.shape, out.dtype.itemsize)
        layout = ConvLayout(params, out.dtype, operands, memory)
    assert layout.copied is not None
    calls, alive = _calls(layout, params["windows"][1], avals[1].ndim)
    make = np.zeros if len(calls) < len(layout.phases) else np.empty  # places that meet nothing are written by nobody
    order = layout.orders[0] if layout.copied else None
    back = None if lying == tuple(range(out.ndim)) else inverse(lying)
    shape, dtype = memory.shape, out.dtype

    def kernel_call(x: Any, w: Any) -> Any:
        x = np.ascontiguousarray(x if order is None else x.transpose(order))
        result = make(shape, dtype)
        for runs, passed, part, its_order in calls:
            b = np.ascontiguousarray(w if part is None else w[part].transpose(its_order))
            arrays = {"a": x, "b": b, "c": result}
            if passed:
                arrays["p"] = np.empty(passed, np.uint8)
            for kernel, plan, pointers in runs:
                some = tuple([arrays[n] for n in pointers])
                launch(kernel, plan, id(some))
        return result if back is None else result.transpose(back)

    kernel_call.alive = alive  # type: ignore[attr-defined]  # plans, of which the calls know the addresses
    return kernel_call


def _calls(layout: Any, windows: tuple[int, ...], ndim: int) -> tuple[list[_Call], list[Any]]:
    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.kernels.conv_plan import plan_windows

    calls, alive = [], []
    for phase in layout.phases:
        if phase.product is None:
            continue
        runs = plan_windows(phase.product)
        alive += runs
        addresses = kernel_addresses([r.kernel for r in runs])
        by_address = [(address, r.plan.ctypes.data, r.pointers) for address, r in zip(addresses, runs, strict=True)]
        part = [slice(None)] * ndim
        for axis, (first, step, count) in zip(windows, phase.taps, strict=True):
            part[axis] = slice(first, first + (count - 1) * step + 1, step)
        calls.append(_Call(by_address, runs[0].passed, tuple(part) if phase.w_copied else None, layout.orders[1]))
    return calls, alive
