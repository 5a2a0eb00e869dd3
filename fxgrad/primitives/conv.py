"""Convolutions: products some of whose axes are windows that slide over each other.

With axes as in `dot` (batch, contract, free) and, for each spatial dimension, one axis of either operand:

    out[b, i, r..., j] = sum over t..., c of x[b, i, p..., c] * w[b, t..., c, j]
    where p * x_dilation = r * stride + t * w_dilation - low

and x is 0 outside, and t for which p would not be whole are left out. Both derivatives are convolutions of the same form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.kernels.matmul_plan import SUPPORTED
from fxgrad.primitives.base import Doc, Linear, Primitive, add_tangents, register, type_error
from fxgrad.primitives.dot import Pair, free_axes
from fxgrad.primitives.shape import Ints, inverse, reverse, transpose

__all__ = ["conv", "has_window_kernel"]


def _typ(
    x: Aval, w: Aval, *, batch: Pair, contract: Pair, windows: Pair, out: Ints, stride: Ints, low: Ints,
    x_dilation: Ints, w_dilation: Ints, windows_first: bool, strong: int | None,
) -> list[Aval]:  # fmt: skip
    if x.dtype != w.dtype or x.dtype.kind not in "fciu":
        raise type_error("conv", (x, w), "Both operands are numbers of one dtype; convert first.")
    for a, b in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        if x.shape[a] != w.shape[b]:
            raise type_error("conv", (x, w), f"Axis {a} of the first and axis {b} of the second have different lengths.")
    lengths = {len(v) for v in (*windows, out, stride, low, x_dilation, w_dilation)}
    if len(lengths) != 1 or min((*stride, *x_dilation, *w_dilation, 1)) < 1 or min((*out, 0)) < 0:
        raise type_error("conv", (x, w), "Every window has a size >= 0, and a stride and dilations >= 1.")
    shape = [x.shape[i] for i in batch[0]]
    shape += [x.shape[i] for i in free_axes(x.ndim, *(group[0] for group in (batch, contract, windows)))]
    shape += out
    shape += [w.shape[i] for i in free_axes(w.ndim, *(group[1] for group in (batch, contract, windows)))]
    return [Aval(tuple(shape), x.dtype)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
    (x, w), (tx, tw) = primals, tangents
    terms = [
        None if tx is None else conv(tx, w, **params | {"strong": 0}),
        None if tw is None else conv(x, tw, **params | {"strong": 1}),
    ]
    return [conv(x, w, **params)], [add_tangents(terms)]


def _transpose(cts: Sequence[Any], inputs: Sequence[Any], **params: Any) -> list:
    x, w = inputs
    return (
        [_to_x(cts[0], aval_of(x), w, **params), None]
        if isinstance(x, Linear)
        else [None, _to_w(cts[0], x, aval_of(w), **params)]
    )


class _Roles:
    """The axes of the operands, and of the result, by what becomes of them."""

    def __init__(self, x: Aval, w: Aval, batch: Pair, contract: Pair, windows: Pair):
        self.free = tuple(free_axes(a.ndim, batch[i], contract[i], windows[i]) for i, a in enumerate((x, w)))
        nb, nx, ns = len(batch[0]), len(self.free[0]), len(windows[0])
        first, second, third = nb + nx, nb + nx + ns, nb + nx + ns + len(self.free[1])
        self.batch = tuple(range(nb))
        self.x_free, self.windows, self.w_free = (tuple(range(*r)) for r in ((nb, first), (first, second), (second, third)))


def _to_x(
    g: Any, x: Aval, w: Any, *, batch: Pair, contract: Pair, windows: Pair, out: Ints, stride: Ints, low: Ints,
    x_dilation: Ints, w_dilation: Ints, windows_first: bool, strong: int | None,
) -> Any:  # fmt: skip
    """The cotangent, spread by the stride, meets the kernel turned around; the one with the smaller window is the kernel."""
    roles, wa = _Roles(x, aval_of(w), batch, contract, windows), aval_of(w)
    taps = tuple(wa.shape[d] for d in windows[1])
    sizes = tuple(x.shape[d] for d in windows[0])
    small = math.prod(taps) <= math.prod(out)
    steps, extents = (w_dilation, taps) if small else (stride, out)
    turned = tuple((n - 1) * s - lo for n, s, lo in zip(extents, steps, low, strict=True))
    shared = {"out": sizes, "stride": x_dilation, "low": turned, "windows_first": True}
    if small:
        kernel = reverse(w, axes=windows[1])
        z = conv(
            g, kernel, batch=(roles.batch, batch[1]), contract=(roles.w_free, roles.free[1]), windows=(roles.windows, windows[1]),
            x_dilation=stride, w_dilation=w_dilation, strong=0, **shared,
        )  # fmt: skip
        # z has the axes: batch, x's free axes, windows, then x's contracted ones in the order in which w holds them
        order = _in_x(batch[0], roles.free[0], windows[0], contract)
    else:
        kernel = reverse(g, axes=roles.windows)
        z = conv(
            w, kernel, batch=(batch[1], roles.batch), contract=(roles.free[1], roles.w_free), windows=(windows[1], roles.windows),
            x_dilation=w_dilation, w_dilation=stride, strong=1, **shared,
        )  # fmt: skip
        partner = dict(zip(contract[1], contract[0], strict=True))
        order = (*batch[0], *(partner[i] for i in sorted(contract[1])), *windows[0], *roles.free[0])
    return transpose(z, perm=inverse(order))


def _in_x(batch: Ints, free: Ints, windows: Ints, contract: Pair) -> Ints:
    partner = dict(zip(contract[1], contract[0], strict=True))
    return (*batch, *free, *windows, *(partner[i] for i in sorted(contract[1])))


def _to_w(
    g: Any, x: Any, w: Aval, *, batch: Pair, contract: Pair, windows: Pair, out: Ints, stride: Ints, low: Ints,
    x_dilation: Ints, w_dilation: Ints, windows_first: bool, strong: int | None,
) -> Any:  # fmt: skip
    """Where x meets the cotangent: positions of the kernel are what slides, places of the result are summed over."""
    roles = _Roles(aval_of(x), w, batch, contract, windows)
    z = conv(
        x, g, batch=(batch[0], roles.batch), contract=(roles.free[0], roles.x_free), windows=(windows[0], roles.windows),
        out=tuple(w.shape[d] for d in windows[1]), stride=w_dilation, low=low, x_dilation=x_dilation, w_dilation=stride,
        windows_first=not windows_first, strong=1,
    )  # fmt: skip
    partner = dict(zip(*contract, strict=True))
    order = (*batch[1], *(partner[i] for i in sorted(contract[0])), *windows[1], *roles.free[1])
    return transpose(z, perm=inverse(order))


def _batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, batch: Pair, contract: Pair, windows: Pair, **params: Any
) -> tuple[list, list[bool]]:
    def up(pair: Pair) -> Pair:
        return tuple(tuple(i + moved for i in axes) for axes, moved in zip(pair, batched, strict=True))  # type: ignore[return-value]

    groups, summed, sliding = up(batch), up(contract), up(windows)
    if all(batched):
        groups = (0, *groups[0]), (0, *groups[1])
    z = conv(*args, batch=groups, contract=summed, windows=sliding, **params)
    if all(batched):
        return [z], [True]
    position = len(groups[0])  # where the batch axis landed: the first of its operand's free axes
    if batched[1]:
        position += len(free_axes(aval_of(args[0]).ndim, groups[0], summed[0], sliding[0])) + len(sliding[0])
    ndim = aval_of(z).ndim
    return [transpose(z, perm=(position, *(i for i in range(ndim) if i != position)))], [True]


def _numpy(*args: Any, **params: Any) -> np.ndarray:
    """The kernels; dtypes that have none are computed in wider ones."""
    from fxgrad.runtime.eager import operation

    x, w = map(np.asarray, args)
    dtype = x.dtype
    wide = dtype if dtype in SUPPORTED else np.dtype(np.float32 if dtype.kind == "f" else np.int32)
    avals = [Aval(x.shape, wide), Aval(w.shape, wide)]
    z = operation(conv, avals, params)(x.astype(wide, copy=False), w.astype(wide, copy=False))
    return z.astype(dtype, copy=False)


def has_window_kernel(dtype: np.dtype) -> bool:
    """Whether compiled programs convolve arrays of this dtype by kernels of their own."""
    return dtype in SUPPORTED


conv = register(
    Primitive(
        "conv",
        "host",
        _typ,
        Doc(
            "sum of products over contracted axes and windows that slide over x",
            "g against the kernel turned around; x against g",
            "Dumoulin, Visin (2016), A guide to convolution arithmetic",
        ),
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        numpy=_numpy,
        cheap=False,
    )
)
