"""Reductions: one fixed tree, two loop orders; and the kernels that reduce across the vectors.

The tree depends on the number n of reduced elements alone. With L lanes (32 for dtypes up to four bytes, else 16) and blocks of
256*L elements: lane l of a block takes elements l, l+L, l+2L, ... in order, starting from the identity; lanes are combined by
halves (l with l+L/2, then l+L/4, ...); blocks from left to right. `row` kernels (row.py) run vectors along the reduced axis and
keep the lanes in registers; `cols` runs vectors along a kept axis and keeps the L partial results of each column in a scratch.
Both compute the same tree, so which of them runs changes no bit; combining with the identity, or leaving it out, changes none
either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from fxgrad.kernels import language
from fxgrad.kernels.loops import I8, I32, PTR, Lanes, Loop, Nest, Row, emit_ops, i64, memory_type, pick, splat_constant
from fxgrad.kernels.spec import Fold, Kernel, Reduce, lanes_of_reduction, reduction_block
from fxgrad.kernels.vector import Vec, constant

_SCRATCH = 256 * 1024  # bytes of partial results of a `cols` kernel: in L2, since memory pages like long rows (measured)


class Combiner:
    """The combining operation of a reduction, and its identity; nothing is launched for empty arrays."""

    def __init__(self, b: ir.IRBuilder, reduce: Reduce | Fold):
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


def finish(kernel: Kernel, lanes: Lanes, total: Vec, after: list[Vec]) -> list[Vec]:
    """The epilogue on the reduced value; what is to be stored."""
    assert kernel.reduce is not None
    values: list[Any] = [None] * (len(kernel.inputs) + len(kernel.ops)) + [total, *after]
    emit_ops(lanes, kernel.reduce.epilogue, values)
    return pick(lanes, values, kernel.results)


# ---- across the vectors --------------------------------------------------------------------------------------------------


class Scratch:
    """Partial results: `lines` lines of at most `width` elements on the stack.

    Set `pitch`, the distance of lines, to what is used: lines a power of two apart would fall on one set of the cache.
    """

    pitch: ir.Value

    def __init__(self, lanes: Lanes, dtype: np.dtype, lines: int, width: int):
        self.lanes, self.dtype = lanes, dtype
        b = lanes.b
        with b.goto_entry_block():
            self.base = b.alloca(memory_type(dtype), size=i64(lines * (width + lanes.lanes)))
        self.base.align, self.base.type = 64, PTR

    def at(self, line: ir.Value, i: ir.Value) -> ir.Value:
        b = self.lanes.b
        return b.gep(self.base, [b.add(b.mul(line, self.pitch), i)], source_etype=memory_type(self.dtype))

    def load(self, line: ir.Value, i: ir.Value) -> Vec:
        return self.lanes.register(self.lanes.load(self.at(line, i), self.dtype), self.dtype)

    def store(self, x: Vec, line: ir.Value, i: ir.Value) -> None:
        self.lanes.b.store(self.lanes.memory(x), self.at(line, i), align=self.dtype.itemsize)


def emit_cols(kernel: Kernel, fn: ir.Function, b: ir.IRBuilder) -> None:
    """Tiles of columns; for each, the reduced axis in blocks."""
    reduce = kernel.reduce
    assert reduce is not None
    operands = kernel.operands
    nest = Nest(b, fn, len(operands), kernel.scalars)
    lanes = Lanes(b, kernel.lanes, nest.plan.literals, kernel.scalars)
    combine, L = Combiner(b, reduce), lanes_of_reduction(reduce.dtype)
    width = _SCRATCH // (L * reduce.dtype.itemsize)
    partial, total = Scratch(lanes, reduce.dtype, L, width), Scratch(lanes, reduce.dtype, 1, width)
    lo, hi = nest.split_columns()
    pointers = nest.begin()
    tile = Loop(b, lo, hi, width)
    stop = minimum(b, b.add(tile.i, i64(width)), hi)
    shifted = [advance_columns(b, p, s, tile.i) for p, s in zip(pointers, nest.plan.vector_strides, strict=True)]
    _Tile(kernel, lanes, nest, combine, partial, total, shifted, b.sub(stop, tile.i)).emit()
    tile.end()
    nest.end()
    b.ret_void()


def advance_columns(b: ir.IRBuilder, pointer: ir.Value, stride: ir.Value, i: ir.Value) -> ir.Value:
    return b.gep(pointer, [b.mul(stride, i)], source_etype=I8)


class _Tile:
    """One tile of `columns` columns."""

    def __init__(
        self, kernel: Kernel, lanes: Lanes, nest: Nest, combine: Combiner, partial: Scratch, total: Scratch,
        pointers: list[ir.Value], columns: ir.Value,
    ):  # fmt: skip
        self.kernel, self.lanes, self.nest, self.combine = kernel, lanes, nest, combine
        self.partial, self.total, self.pointers, self.columns = partial, total, pointers, columns
        self.b, self.L = lanes.b, lanes_of_reduction(combine.dtype)
        vectors = self.b.udiv(self.b.add(columns, i64(2 * lanes.lanes - 1)), i64(lanes.lanes))  # one to spare
        partial.pitch = total.pitch = self.b.mul(vectors, i64(lanes.lanes))

    def _each_vector(self) -> Loop:
        return Loop(self.b, i64(0), self.columns, self.lanes.lanes)

    def emit(self) -> None:
        b, zero = self.b, i64(0)
        loop = self._each_vector()
        self.total.store(self.combine.identity(self.lanes), zero, loop.i)
        loop.end()
        n, block = self.nest.plan.m, reduction_block(self.combine.dtype)
        blocks = Loop(b, zero, n, block)
        stop = minimum(b, b.add(blocks.i, i64(block)), n)
        self._accumulate(blocks.i, stop)
        self._combine_lanes(minimum(b, b.sub(stop, blocks.i), i64(self.L)))
        loop = self._each_vector()
        self.total.store(self.combine(self.total.load(zero, loop.i), self.partial.load(zero, loop.i)), zero, loop.i)
        loop.end()
        blocks.end()
        self._store()

    def _accumulate(self, start: ir.Value, stop: ir.Value) -> None:
        """Element r of each column into line (r - start) mod L; the first L start the lines."""
        b, kernel, n_in = self.b, self.kernel, len(self.kernel.inputs)
        assert kernel.reduce is not None
        strides = self.nest.plan
        outer = Loop(b, start, stop, 1)
        r = b.sub(outer.i, start)
        line, fresh = b.and_(r, i64(self.L - 1)), b.icmp_signed("<", r, i64(self.L))
        pointers = [
            advance_columns(b, p, s, outer.i) for p, s in zip(self.pointers[:n_in], strides.loop_strides[:n_in], strict=True)
        ]
        reads = Row(self.lanes, kernel.inputs, pointers, strides.vector_strides[:n_in])
        inner = self._each_vector()
        values, _, _ = reads.load(inner.i, self.columns)
        emit_ops(self.lanes, kernel.ops, values)
        (x,) = pick(self.lanes, values, [kernel.reduce.arg])
        before = self.partial.load(line, inner.i)
        before = Vec(b, b.select(fresh, self.combine.identity(self.lanes).v, before.v), before.dtype)
        self.partial.store(self.combine(before, x), line, inner.i)
        inner.end()
        outer.end()

    def _combine_lanes(self, used: ir.Value) -> None:
        """By halves; lines not used hold nothing and would change nothing."""
        b, half = self.b, self.L // 2
        while half:
            pairs = minimum(b, b.sub(used, i64(half)), i64(half))
            lines = Loop(b, i64(0), pairs, 1)
            inner = self._each_vector()
            x, y = self.partial.load(lines.i, inner.i), self.partial.load(b.add(lines.i, i64(half)), inner.i)
            self.partial.store(self.combine(x, y), lines.i, inner.i)
            inner.end()
            lines.end()
            used = minimum(b, used, i64(half))
            half //= 2

    def _store(self) -> None:
        """The epilogue on each vector of totals, and the results into memory."""
        kernel, n_in = self.kernel, len(self.kernel.inputs)
        assert kernel.reduce is not None
        n_after = len(kernel.reduce.after)
        strides = self.nest.plan.vector_strides
        parts = slice(n_in, n_in + n_after), slice(n_in + n_after, None)
        after, writes = (
            Row(self.lanes, operands, self.pointers[part], strides[part])
            for operands, part in zip((kernel.reduce.after, kernel.outputs), parts, strict=True)
        )
        loop = self._each_vector()
        extra, full, mask = after.load(loop.i, self.columns)
        x = self.total.load(i64(0), loop.i)
        writes.store(finish(kernel, self.lanes, x, extra), loop.i, full, mask)
        loop.end()


__all__ = ["Combiner", "emit_cols", "minimum"]
