"""The plan of a product with a window. No code is generated here."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fxgrad.kernels.conv import DIMS, WINDOW_PLAN, ChannelsKernel, WindowKernel
from fxgrad.kernels.matmul import APART, PackKernel
from fxgrad.kernels.matmul_plan import Matrix, Product, Run, packing_apart, product_fields, units_of_work, ways_of_packing

__all__ = ["Dim", "WindowProduct", "plan_windows"]


class Dim(NamedTuple):
    """A spatial dimension: see `fxgrad.kernels.conv`; `move` are the bytes in x from one position to the next."""

    lines: int = 1
    line_step: int = 0
    low: int = 0
    taps: int = 1
    tap_step: int = 0
    size: int = 1
    move: int = 0
    c_step: int = 0


class WindowProduct(NamedTuple):
    """c[g] = window(x)[g] @ b[g] for outer * inner batches; the columns of b's and of c's rows, n each, lie without gaps.

    x, b, c: where they begin, and the bytes from one batch to the next (of b also the other strides). `plain` and `channels` are
    the sizes of the first part of a line's index and the last part of an element's; the channels lie side by side.
    """

    dtype: np.dtype
    outer: int
    inner: int
    by_lines: bool
    plain: int
    plain_move: int
    dims: tuple[Dim, ...]
    channels: int
    n: int
    x: Matrix
    b: Matrix
    c: Matrix
    c_plain: int
    strong: int = 0
    by_channel: bool = False  # the n columns are batches: see ChannelsKernel

    @property
    def lines(self) -> int:
        return self.plain * math.prod(d.lines for d in self.dims)

    @property
    def elements(self) -> int:
        return self.channels * math.prod(d.taps for d in self.dims)

    @property
    def product(self) -> Product:
        """The matrix product that it is; a is not in memory."""
        m, k = (self.lines, self.elements) if self.by_lines else (self.elements, self.lines)
        row = self._row()
        c = self.c._replace(row=row, column=self.dtype.itemsize)
        return Product(self.dtype, self.outer, self.inner, m, self.n, k, self.x, self.b, c, self.strong)

    def _row(self) -> int:
        """The bytes in c from one row to the next, if it is always the same; else 0."""
        steps = [(d.lines if self.by_lines else d.taps, d.c_step) for d in self.dims]
        plain = (self.plain if self.by_lines else self.channels, self.c_plain)
        steps = [s for s in ([plain, *steps] if self.by_lines else [*steps, plain]) if s[0] > 1]
        if not steps:
            return self.n * self.dtype.itemsize
        row, expected = steps[-1][1], steps[-1][1]
        for n, step in reversed(steps):
            if step != expected:
                return 0
            expected = n * step
        return row


def plan_windows(w: WindowProduct) -> list[Run]:
    """The kernels that compute it, in order, with the pointers a (for x), b, c and p; no size is zero."""
    p = w.product
    units = units_of_work(p, gathered=True)
    values = units | _window_fields(w) | ({} if w.by_channel else ways_of_packing(p, gathered=True))
    aligned = p.c.row > 0 and not units["by_columns"]
    rows = (units["units"], units["unit"], p.m) if aligned else None
    kernel = ChannelsKernel(w.dtype) if w.by_channel else WindowKernel(w.dtype)
    if values.get("pack_b") != APART:
        return [Run(kernel, product_fields(p, values, WINDOW_PLAN), "abc", rows=rows)]
    packing, strides = packing_apart(p)
    assert isinstance(packing.kernel, PackKernel)
    return [packing, Run(kernel, product_fields(p, values | strides, WINDOW_PLAN), "abpc", rows=rows)]


def _window_fields(w: WindowProduct) -> dict[str, int]:
    last, size = w.dims[-1], w.dtype.itemsize
    merged = last.taps == 1 or (last.tap_step == 1 and last.move == w.channels * size)
    found = {
        "by_lines": int(w.by_lines), "plain_move": w.plain_move, "c_plain": w.c_plain, "channels": w.channels,
        "run": w.channels * (last.taps if merged else 1), "runs": 1 if merged else last.taps,
    }  # fmt: skip
    dims = [Dim()] * (DIMS - len(w.dims)) + list(w.dims)
    for i, d in enumerate(dims):
        found |= {f"{name}{i}": value for name, value in d._asdict().items()}
    return found
