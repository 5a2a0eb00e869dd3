"""Reductions: one fixed tree, two loop orders.

The tree depends on the number n of reduced elements alone. With L lanes (32 for dtypes up to four bytes, else 16) and blocks of
256*L elements: lane l of a block takes elements l, l+L, l+2L, ... in order, starting from the identity; lanes are combined by
halves (l with l+L/2, then l+L/4, ...); blocks from left to right. `row` kernels (row.py) run vectors along the reduced axis and
keep the lanes in registers; `cols` kernels (cols.py) run vectors along a kept axis and keep the L partial results of each column
in a scratch. Both compute the same tree, so which of them runs changes no bit; combining with the identity, or leaving it out,
changes none either.
"""

from __future__ import annotations

from llvmlite import ir

from fxgrad.kernels import language
from fxgrad.kernels.loops import I32, Lanes, splat_constant
from fxgrad.kernels.spec import Fold
from fxgrad.kernels.vector import Vec, constant

__all__ = ["Combiner", "minimum"]


class Combiner:
    """The combining operation of a reduction, and its identity; nothing is launched for empty arrays."""

    def __init__(self, b: ir.IRBuilder, reduce: Fold):
        self.b, self.reduce, self.dtype = b, reduce, reduce.dtype
        identity = reduce.prim.identity
        assert identity is not None
        self.start = identity(reduce.dtype)

    def __call__(self, x: Vec, y: Vec) -> Vec:
        body = self.reduce.prim.body
        assert body is not None
        return body(language, x, y)

    def identity(self, lanes: Lanes) -> Vec:
        return constant(lanes.like, self.start, self.dtype)

    def halves(self, x: Vec) -> Vec:
        """Lane i with lane i + half, down to one lane."""
        while x.lanes > 1:
            half = x.lanes // 2
            undefined = ir.Constant(x.v.type, ir.Undefined)
            low, high = (
                self.b.shuffle_vector(x.v, undefined, splat_constant(I32, half, range(s, s + half))) for s in (0, half)
            )  # fmt: skip
            x = self(Vec(self.b, low, self.dtype), Vec(self.b, high, self.dtype))
        return x


def minimum(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, y), x, y)
