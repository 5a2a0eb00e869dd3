"""How the operands of a convolution lie: which products with a window it comes down to, and which operands are copied first.

A dilated operand (the cotangent of a strided convolution) has holes. The places of the result fall into classes, each of which
meets every so-manieth position of the kernel and no hole: each is a product of its own, so nothing is multiplied by a hole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.compile.layout import Layout, collapse, contiguous
from fxgrad.kernels.conv_plan import Dim, WindowProduct
from fxgrad.kernels.matmul_plan import Matrix
from fxgrad.primitives.dot import free_axes

__all__ = ["ConvLayout", "Phase"]

Ints = tuple[int, ...]
_Level = tuple[int, Ints]  # the length of a loop, and the bytes by which it moves x, w and c
_MOST_BATCHES = 2


class Places(NamedTuple):
    """Places of the result first, first + step, ... in one dimension, and the positions of the kernel that they meet.

    Place r and position t meet at r * line_step + t * tap_step - low of x, all three counted within the class.
    """

    first: int
    step: int
    number: int
    tap_first: int
    tap_step_in_w: int
    taps: int  # 0: they meet none
    line_step: int
    tap_step: int
    low: int


class Phase(NamedTuple):
    """One class in each dimension: its product (None: zeros), the part of w it needs (copied first?), and its place in c.

    `taps` are the positions of the kernel (first, step, count) that are that part.
    """

    product: WindowProduct | None
    w: Layout
    w_copied: bool
    c: Layout
    taps: Sequence[tuple[int, int, int]] = ()


def classes(out: int, taps: int, stride: int, tap_step: int, low: int, dilation: int) -> list[Places]:
    """The classes of places in one dimension."""
    step, in_w = dilation // math.gcd(dilation, stride), dilation // math.gcd(dilation, tap_step)
    found = []
    for first in range(min(step, out)):
        count = -(-(out - first) // step)
        tap = next((t for t in range(min(in_w, taps)) if (first * stride + t * tap_step - low) % dilation == 0), None)
        if tap is None:
            found.append(Places(first, step, count, 0, 1, 0, 0, 0, 0))
            continue
        begin = (first * stride + tap * tap_step - low) // dilation
        steps = step * stride // dilation, in_w * tap_step // dilation
        found.append(Places(first, step, count, tap, in_w, -(-(taps - tap) // in_w), *steps, -begin))
    return found


class _Side(NamedTuple):
    """An operand and the roles of its axes."""

    layout: Layout
    batch: Ints
    windows: Ints
    contract: Ints
    free: Ints

    def sizes(self, axes: Ints) -> Ints:
        return tuple(self.layout.shape[d] for d in axes)

    def strides(self, axes: Ints) -> Ints:
        return tuple(self.layout.strides[d] for d in axes)

    def along(self, windows_first: bool) -> Ints:
        """The axes that are summed over, in order."""
        return (*self.windows, *self.contract) if windows_first else (*self.contract, *self.windows)

    def copied(self, order: Ints, itemsize: int) -> _Side:
        """The operand stored with its axes in this order."""
        place = {d: n for n, d in enumerate(order)}
        roles = (tuple(place[d] for d in axes) for axes in self[1:])
        return _Side(contiguous(self.sizes(order), itemsize), *roles)


class ConvLayout:
    """A `conv` with these parameters of operands that lie as given, whose result is to lie like `c`.

    Operands in `unread` are not in memory. `copied` holds the operands that have to be copied as a whole, in the order `orders`
    of their axes (of w only parts are copied, see `Phase`); None when the result cannot be written like that at all.
    """

    def __init__(
        self, params: dict[str, Any], dtype: np.dtype, operands: Sequence[Layout], c: Layout, unread: Sequence[int] = ()
    ):
        self.params, self.dtype, self.size, self.c = params, dtype, dtype.itemsize, c
        self.first = params["windows_first"]
        self.strong = 0 if params["strong"] is None else params["strong"] + 1
        sides = []
        for i, layout in enumerate(operands):
            batch, windows, contract = (params[name][i] for name in ("batch", "windows", "contract"))
            sides.append(_Side(layout, batch, windows, contract, free_axes(len(layout.shape), batch, windows, contract)))
        x, self.w = sides
        middle = (x.free, x.windows, x.contract) if self.first else (x.contract, x.windows, x.free)
        y = self.w
        self.orders = (
            (*x.batch, *(d for axes in middle for d in axes)),
            (*y.batch, *y.along(self.first), *y.free),
        )
        self.copied: list[int] | None = None
        self.phases: list[Phase] = []
        for copied in (False, True):
            if copied or 0 not in unread:
                self.x = x.copied(self.orders[0], self.size) if copied else x
                phases = self._phases(1 in unread)
                if phases is not None:
                    self.copied, self.phases = [0] * copied, phases
                    return

    def _phases(self, w_unread: bool) -> list[Phase] | None:
        p, found = self.params, []
        each = zip(
            p["out"], self.w.sizes(self.w.windows), p["stride"], p["w_dilation"], p["low"], p["x_dilation"], strict=True
        )  # fmt: skip
        for chosen in itertools.product(*(classes(*d) for d in each)):
            phase = self._phase(chosen, w_unread)
            if phase is None:
                return None
            found.append(phase)
        return found

    def _phase(self, chosen: Sequence[Places], w_unread: bool) -> Phase | None:
        nb, nx = len(self.w.batch), len(self.x.free)
        c = _every(self.c, dict(enumerate([(k.first, k.step, k.number) for k in chosen], nb + nx)))
        if not all(k.taps for k in chosen):
            return Phase(None, self.w.layout, False, c)
        taps = [(k.tap_first, k.tap_step_in_w, k.taps) for k in chosen]
        part = _every(self.w.layout, dict(zip(self.w.windows, taps, strict=True)))
        w = self.w._replace(layout=part)
        for copied in (False, True):
            if copied or not w_unread:
                product = self._product(chosen, w.copied(self.orders[1], self.size) if copied else w, c)
                if product is not None:
                    return Phase(product, part, copied, c, taps)
        return None

    def _product(self, chosen: Sequence[Places], w: _Side, c: Layout) -> WindowProduct | None:
        """The product of this phase; None if an operand or the result cannot be walked like that."""
        x, first, nb, nx, nw = self.x, self.first, len(w.batch), len(self.x.free), len(chosen)
        c_of = {"batch": c.strides[:nb], "free": c.strides[nb : nb + nx], "columns": c.strides[nb + nx + nw :]}
        batch = _joined(x.sizes(x.batch), x.strides(x.batch), w.strides(w.batch), c_of["batch"])
        free = _joined(x.sizes(x.free), x.strides(x.free), (0,) * nx, c_of["free"])
        columns = _joined(w.sizes(w.free), (0,) * len(w.free), w.strides(w.free), c_of["columns"])
        contract = _joined(x.sizes(x.contract), x.strides(x.contract))
        along = _joined(w.sizes(w.along(first)), w.strides(w.along(first)))
        lone = not (contract if first else free) and not columns  # one element in each group: groups may be lanes
        by_channel = lone and bool(batch) and batch[-1][1] == (self.size,) * 3
        if by_channel:
            columns = [batch.pop()]
        rows, column = free[-1:] or [(1, (0, 0, 0))], columns[-1:] or [(1, (0, self.size, self.size))]
        batches = [*batch, *free[:-1], *columns[:-1]]
        if len(batches) > _MOST_BATCHES or len(contract) > 1 or len(along) > 1:
            return None
        summed = (contract[0][0], contract[0][1][0]) if contract else (1, 0)
        row = (rows[0][0], rows[0][1][0])
        plain, channels = (row, summed) if first else (summed, row)
        if (channels[0] > 1 and channels[1] != self.size) or (column[0][0] > 1 and column[0][1][2] != self.size):
            return None
        (outer, far), (inner, near) = [(1, (0, 0, 0))] * (_MOST_BATCHES - len(batches)) + batches
        strides = zip(x.strides(x.windows), x.sizes(x.windows), c.strides[nb + nx : nb + nx + nw], strict=True)
        dims = tuple(_dim(k, first, *s) for k, s in zip(chosen, strides, strict=True))
        k_step = along[0][1][0] if along else self.size
        n_step = column[0][1][1] if column[0][0] > 1 else self.size
        a = Matrix(x.layout.offset, far[0], near[0], 0, 0)
        b = Matrix(w.layout.offset, far[1], near[1], k_step, n_step)
        z = Matrix(c.offset, far[2], near[2], 0, self.size)
        return WindowProduct(
            self.dtype, outer, inner, first, *plain, dims, channels[0], column[0][0], a, b, z, rows[0][1][2],
            self.strong, by_channel,
        )  # fmt: skip


def _dim(k: Places, first: bool, move: int, size: int, c_step: int) -> Dim:
    if first:
        return Dim(k.number, k.line_step, k.low, k.taps, k.tap_step, size, move, c_step)
    return Dim(k.taps, k.tap_step, k.low, k.number, k.line_step, size, move, c_step)


def _every(x: Layout, steps: dict[int, tuple[int, int, int]]) -> Layout:
    """Of some axes the places first, first + step, ..., `count` of them."""
    shape, strides, offset = list(x.shape), list(x.strides), x.offset
    for d, (first, step, count) in steps.items():
        offset += first * strides[d]
        shape[d], strides[d] = count, strides[d] * step
    return Layout(tuple(shape), tuple(strides), offset)


def _joined(sizes: Ints, *strides: Ints) -> list[_Level]:
    lengths, moves = collapse(sizes, strides)
    return [(n, tuple(s[i] for s in moves)) for i, n in enumerate(lengths)]
