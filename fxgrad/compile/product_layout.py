"""How the operands of a product lie: its loops and their strides, and which operands have to be copied first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.compile.layout import Layout, collapse, contiguous
from fxgrad.kernels.matmul_plan import Matrix, Product
from fxgrad.primitives.dot import free_axes

__all__ = ["ProductLayout"]

Ints = tuple[int, ...]
_Level = tuple[int, Ints]  # the length of a loop, and the bytes by which it moves a, b and c
_MOST_BATCHES = 2
_ONE: _Level = (1, (0, 0, 0))


class _Side(NamedTuple):
    """An operand and the roles of its axes."""

    layout: Layout
    batch: Ints
    free: Ints
    contract: Ints

    def sizes(self, axes: Ints) -> Ints:
        return tuple([self.layout.shape[d] for d in axes])

    def strides(self, axes: Ints) -> Ints:
        return tuple([self.layout.strides[d] for d in axes])

    def walks(self, axes: Ints) -> bool:
        """Whether one stride leads through these axes."""
        return len(axes) <= 1 or len(collapse(self.sizes(axes), [self.strides(axes)])[0]) <= 1


class ProductLayout:
    """A `dot` with these parameters of operands that lie as given, whose result is to lie like `c`.

    Operands in `unread` are not in memory. `copied` holds the operands, 0 or 1, that have to be copied in the order `orders` of
    their axes; None when the result cannot be written like that at all.
    """

    def __init__(
        self, params: dict[str, Any], dtype: np.dtype, operands: Sequence[Layout], c: Layout, unread: Sequence[int] = ()
    ):
        contract, batch = params["contract"], params["batch"]
        self.strong = 0 if params["strong"] is None else params["strong"] + 1
        self.dtype, self.itemsize, self.c = dtype, dtype.itemsize, c
        self.sides = []
        for i, layout in enumerate(operands):
            free = free_axes(len(layout.shape), contract[i], batch[i])
            self.sides.append(_Side(layout, batch[i], free, contract[i]))
        x, y = self.sides
        self.orders = (*x.batch, *x.free, *x.contract), (*y.batch, *y.contract, *y.free)
        self.copied = self._choose(unread)
        for i in self.copied or ():
            self.sides[i] = self._copy(i)

    def _choose(self, unread: Sequence[int]) -> list[int] | None:
        """As few and as small copies as will do."""
        bad = {i for i, s in enumerate(self.sides) if i in unread or not s.walks(s.contract)}
        by_size = sorted((0, 1), key=lambda i: math.prod(self.sides[i].layout.shape))
        for more in ([], *([i] for i in by_size), [0, 1]):
            way = sorted(bad.union(more))
            levels = self._levels([self._copy(i) if i in way else s for i, s in enumerate(self.sides)])
            batches, (rows, columns, _) = self.levels = levels
            if len(batches) <= _MOST_BATCHES and self._writes(rows, columns):
                return way
        return None

    def _writes(self, rows: _Level, columns: _Level) -> bool:
        """Whether rows or columns of the result lie without gaps; a single element always does."""
        return any(level[0] > 1 and level[1][2] == self.itemsize for level in (rows, columns)) or rows[0] == columns[0] == 1

    def _copy(self, i: int) -> _Side:
        side, order = self.sides[i], self.orders[i]
        place = {d: n for n, d in enumerate(order)}
        roles = (tuple(place[d] for d in axes) for axes in (side.batch, side.free, side.contract))
        return _Side(contiguous(side.sizes(order), self.itemsize), *roles)

    def _levels(self, sides: Sequence[_Side]) -> tuple[list[_Level], list[_Level]]:
        """The loops over batches; those over rows, columns and the contracted axes, each of which is one."""
        x, y = sides
        c, nb, nx = self.c.strides, len(x.batch), len(x.free)
        batch = _joined(x.sizes(x.batch), x.strides(x.batch), y.strides(y.batch), c[:nb])
        rows = _joined(x.sizes(x.free), x.strides(x.free), (0,) * nx, c[nb : nb + nx])
        columns = _joined(y.sizes(y.free), (0,) * len(y.free), y.strides(y.free), c[nb + nx :])
        along = _joined(x.sizes(x.contract), x.strides(x.contract), y.strides(y.contract), (0,) * len(x.contract))
        (row, rows), (column, columns) = (self._chosen(g) for g in (rows, columns))
        return [*batch, *rows, *columns], [row, column, *(along or [_ONE])]

    def _chosen(self, levels: list[_Level]) -> tuple[_Level, list[_Level]]:
        """Of the loops over free axes the one that stays so, which the result has without gaps if it can be; the others."""
        dense = [i for i, (_, moves) in enumerate(levels) if moves[2] == self.itemsize]
        i = dense[0] if dense else len(levels) - 1
        return (levels[i], levels[:i] + levels[i + 1 :]) if levels else (_ONE, [])

    def product(self) -> Product:
        """The product with the copies made."""
        x, y = self.sides
        batches, ((m, rows), (n, columns), (k, along)) = self.levels
        (outer, far), (inner, near) = [_ONE] * (_MOST_BATCHES - len(batches)) + batches
        a = Matrix(x.layout.offset, far[0], near[0], rows[0], along[0])
        b = Matrix(y.layout.offset, far[1], near[1], along[1], columns[1])
        c = Matrix(self.c.offset, far[2], near[2], rows[2], columns[2])
        return Product(self.dtype, outer, inner, m, n, k, a, b, c, self.strong)


def _joined(sizes: Ints, *strides: Ints) -> list[_Level]:
    if len(sizes) <= 1:
        return [(n, tuple([s[0] for s in strides])) for n in sizes if n != 1]
    lengths, moves = collapse(sizes, strides)
    return list(zip(lengths, zip(*moves, strict=True), strict=True))
