"""Convolutions of NumPy arrays by our own kernels, now."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fxgrad.primitives.shape import inverse
from fxgrad.runtime.caches import on_clear

__all__ = ["convolve"]

_MOST_PLANS = 1024


class _Call(NamedTuple):
    """A product of one phase: kernels and plans by address, the pointers of each; the part of w it takes, copied in `order`."""

    runs: list[tuple[int, int, str]]
    passed: int
    part: tuple[slice, ...] | None  # None: w as it is
    order: tuple[int, ...]


class _Prepared(NamedTuple):
    shape: tuple[int, ...]
    lying: tuple[int, ...]  # the axes in the order in which they lie in memory
    zeros: bool  # whether places are left that no product writes
    order: tuple[int, ...] | None  # of x's axes, if it has to be copied
    calls: list[_Call]
    alive: list[Any]  # what keeps the plans in memory


_plans: dict[Any, _Prepared] = {}


@on_clear
def forget_plans() -> None:
    """Drop prepared convolutions (those in use stay valid)."""
    _plans.clear()


def convolve(x: np.ndarray, w: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    """The primitive `conv` of two arrays of one dtype that has kernels.

    The result is a view of an array with its batch axes (which are groups of channels) last, before the free ones of w.
    """
    from fxgrad.runtime.launch import launch

    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    key = (x.dtype, x.shape, w.shape, *sorted(params.items()))
    found = _plans.get(key) or _remember(key, x, w, params)
    out = (np.zeros if found.zeros else np.empty)([found.shape[d] for d in found.lying], x.dtype)
    if found.order is not None:
        x = np.ascontiguousarray(x.transpose(found.order))
    for call in found.calls:
        b = w if call.part is None else np.ascontiguousarray(w[call.part].transpose(call.order))
        arrays = {"a": x, "b": b, "c": out, "p": np.empty(call.passed, np.uint8)}
        for kernel, plan, pointers in call.runs:
            some = tuple([arrays[n] for n in pointers])
            launch(kernel, plan, id(some))
    return out.transpose(inverse(found.lying))


def _remember(key: Any, x: np.ndarray, w: np.ndarray, params: dict[str, Any]) -> _Prepared:
    from fxgrad.compile.cache import kernel_addresses
    from fxgrad.compile.conv_layout import ConvLayout
    from fxgrad.compile.layout import contiguous
    from fxgrad.ir.types import Aval
    from fxgrad.kernels.conv_plan import plan_windows
    from fxgrad.primitives.conv import conv

    (out,) = conv.typ(Aval(x.shape, x.dtype), Aval(w.shape, w.dtype), **params)
    if 0 in (x.size, w.size, out.size):
        return _Prepared(out.shape, tuple(range(out.ndim)), True, None, [], [])
    operands = [contiguous(a.shape, a.itemsize) for a in (x, w)]
    nb, nw = len(params["batch"][0]), w.ndim - sum(len(params[name][1]) for name in ("batch", "contract", "windows"))
    lying = (*range(nb, out.ndim - nw), *range(nb), *range(out.ndim - nw, out.ndim))
    memory = contiguous(tuple(out.shape[d] for d in lying), x.itemsize)
    layout = ConvLayout(params, x.dtype, operands, memory.transposed(inverse(lying)))
    if layout.copied is None:
        lying = tuple(range(out.ndim))
        layout = ConvLayout(params, x.dtype, operands, contiguous(out.shape, x.itemsize))
    assert layout.copied is not None
    calls, alive = [], []
    for phase in layout.phases:
        if phase.product is None:
            continue
        runs = plan_windows(phase.product)
        alive += runs
        addresses = kernel_addresses([r.kernel for r in runs])
        by_address = [(address, r.plan.ctypes.data, r.pointers) for address, r in zip(addresses, runs, strict=True)]
        part = [slice(None)] * w.ndim
        for axis, (first, step, count) in zip(params["windows"][1], phase.taps, strict=True):
            part[axis] = slice(first, first + (count - 1) * step + 1, step)
        calls.append(_Call(by_address, runs[0].passed, tuple(part) if phase.w_copied else None, layout.orders[1]))
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    zeros = len(calls) < len(layout.phases)
    found = _plans[key] = _Prepared(out.shape, lying, zeros, layout.orders[0] if layout.copied else None, calls, alive)
    return found
