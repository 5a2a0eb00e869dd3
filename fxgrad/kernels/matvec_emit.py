"""Products with a vector: the chains of different results, or of different blocks of k, run side by side in the lanes.

A matrix whose rows are contiguous along k is read in small squares that are transposed on the way into the registers; one whose
rows are contiguous along the results is streamed row by row over sums that stay in the first-level cache. What comes from memory
is read in several places at once, and asked for ahead in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I1, I8, I32, I64, PTR, Lanes, Loop, i64, memory_type
from fxgrad.kernels.matmul import DOT_BLOCKS, MATVEC_ROWS
from fxgrad.kernels.matmul_frame import Frame, repair_function
from fxgrad.kernels.matmul_tile import (
    LINE,
    Tile,
    at,
    concatenate,
    helper_function,
    prefetch,
    register_block,
    smaller,
    store_masked,
    transpose_quads,
)
from fxgrad.kernels.vector import _target_features

__all__ = ["emit_dot", "emit_matvec", "emit_sum"]

_QUAD = 16  # bytes
_ROWS_AT_ONCE = 8  # rows streamed together over the sums
_SPAN = 16384  # bytes of the sums streamed over
_FAR = 1 << 20  # bytes of a vector that is read from beyond the second-level cache
_TOGETHER = 8  # blocks of a dot product whose lines are read together
_ROW_AHEAD, _BLOCK_AHEAD = 1024, 2048  # bytes by which rows of a matrix and of blocks are asked for before they are read
_APART = (
    1 << 14
)  # bytes of the blocks whose chains run side by side: with more, lines on one set of the cache drive each other out


class _Frame(Frame):
    """With memory on the stack."""

    def stack(self, size: int) -> ir.Value:
        with self.b.goto_entry_block():
            memory = self.b.alloca(I8, size=i64(size))
        memory.align, memory.type = LINE, PTR
        return memory


class _Turned:
    """Chains whose k run along memory: `groups` vectors of them, read as quads of 16 bytes."""

    def __init__(self, b: ir.IRBuilder, dtype: np.dtype, chains: int):
        self.b, self.dtype = b, dtype
        self.quad, self.width = _QUAD // dtype.itemsize, self.width_of(dtype)
        self.count, self.groups = chains, chains // self.width
        self.tile = Tile(b, dtype, 1, 1, self.width)
        self.zeros = [ir.Constant(self.tile.lanes.vector_type(dtype), None)] * self.groups

    @staticmethod
    def width_of(dtype: np.dtype) -> int:
        """Chains in a vector: shuffles of 32 bytes have two ports, of 64 only one."""
        wide = any(f in _target_features().split(",") for f in ("+avx2", "+avx512f"))
        return (32 if wide else 16) // dtype.itemsize

    def columns(self, group: int, place: Callable[[int], ir.Value]) -> list[ir.Value]:
        """The vectors of one group, for each of the next `quad` k."""
        part, first = Lanes(self.b, self.quad), group * self.width
        rows = [
            concatenate(self.b, [part.load(place(first + p + i), self.dtype) for p in range(0, self.width, self.quad)])
            for i in range(self.quad)
        ]
        return transpose_quads(self.b, rows, self.quad)

    def load_one(self, place: Callable[[int], ir.Value]) -> list[ir.Value]:
        """The vectors of all groups for one k."""
        b, vectors = self.b, []
        for g in range(self.groups):
            v: ir.Value = ir.Constant(self.tile.lanes.vector_type(self.dtype), ir.Undefined)
            for i in range(self.width):
                x = b.load(place(g * self.width + i), typ=memory_type(self.dtype), align=self.dtype.itemsize)
                v = b.insert_element(v, x, ir.Constant(I32, i))
            vectors.append(v)
        return vectors

    def chain(self, x: Sequence[ir.Value], y: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
        return [self.tile.multiply_add(p, q, s) for p, q, s in zip(x, y, sums, strict=True)]


# ---- matrix and vector ---------------------------------------------------------------------------------------------------


class _Matvec(_Frame):
    """Emits c = a x."""

    def emit(self) -> ir.Function:
        b, p = self.b, self.p
        loop, low, high = self.open_batches()
        low, high = b.mul(low, i64(MATVEC_ROWS)), smaller(b, b.mul(high, i64(MATVEC_ROWS)), p["m"])
        a, x, c = self.x.start, self.y.start, self.z.start
        with b.if_else(b.icmp_signed("==", p["a_row"], i64(self.size))) as (along, across):
            with along:
                self._stream_rows(a, x, c, low, high)
            with across:
                self._turn_rows(a, x, c, low, high)
        self.repair((low, high), (i64(0), i64(1)))
        loop.end()
        b.ret_void()
        return self.fn

    def _turn_rows(self, a: ir.Value, x: ir.Value, c: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """The results of a few vectors at a time; where fewer are left, the last ones again."""
        b, p, chains = self.b, self.p, _Turned(self.b, self.dtype, rows_together(self.dtype))
        far = b.icmp_signed(">", b.mul(p["m"], p["a_row"]), i64(_FAR))
        sums = self.stack(chains.count * self.size)
        lines = row_lines_function(self.fn.module, self.dtype)
        rows = Loop(b, low, high, chains.count)
        row = smaller(b, rows.i, b.sub(p["m"], i64(chains.count)))
        start = at(b, a, b.mul(row, p["a_row"]))
        blocks = Loop(b, i64(0), p["k"], self.k_block, chains.zeros)
        length, first = smaller(b, i64(self.k_block), b.sub(p["k"], blocks.i)), b.icmp_signed("==", blocks.i, i64(0))
        whole = b.and_(length, i64(-(LINE // self.size)))
        here, there = at(b, start, b.mul(blocks.i, i64(self.size))), at(b, x, b.mul(blocks.i, p["b_row"]))
        b.call(lines, [here, p["a_row"], there, p["b_row"], sums, whole, far])
        lanes, pitch = chains.tile.lanes, chains.width * self.size
        held = [lanes.load(at(b, sums, g * pitch), self.dtype) for g in range(chains.groups)]
        rest = Loop(b, whole, length, 1, held)
        q, v = at(b, here, b.mul(rest.i, i64(self.size))), at(b, there, b.mul(rest.i, p["b_row"]))
        column = chains.load_one(lambda i: at(b, q, b.mul(p["a_row"], i64(i))))
        rest.end(chains.chain(column, [lanes.load_splat(v, self.dtype).v] * chains.groups, rest.carried))
        totals = zip(blocks.carried, rest.carried, strict=True)
        blocks.end([b.select(first, s, chains.tile.add(t, s)) for t, s in totals])
        target = at(b, c, b.mul(row, i64(self.size)))
        for g, total in enumerate(blocks.carried):
            b.store(total, at(b, target, g * pitch), align=self.size)
        rows.end()

    def _stream_rows(self, a: ir.Value, x: ir.Value, c: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """Spans of results; for each block of k, rows of the matrix are multiplied into sums that lie on the stack."""
        b, p, size = self.b, self.p, i64(self.size)
        sums = self.stack(_SPAN)
        spans = Loop(b, low, high, _SPAN // self.size)
        width = smaller(b, i64(_SPAN // self.size), b.sub(high, spans.i))
        blocks = Loop(b, i64(0), p["k"], self.k_block)
        length = smaller(b, i64(self.k_block), b.sub(p["k"], blocks.i))
        source = at(b, at(b, a, b.mul(spans.i, size)), b.mul(blocks.i, p["a_column"]))
        vector = at(b, x, b.mul(blocks.i, p["b_row"]))
        whole = b.and_(length, i64(-_ROWS_AT_ONCE))
        self._rows_into(sums, width, source, vector, (i64(0), whole), _ROWS_AT_ONCE)
        self._rows_into(sums, width, source, vector, (whole, length), 1)
        columns, tile = self._columns(width)
        offset = b.mul(columns.i, size)
        target = at(b, at(b, c, b.mul(spans.i, size)), offset)
        s = tile.lanes.load(at(b, sums, offset), self.dtype)
        first = b.icmp_signed("==", blocks.i, i64(0))
        tile.store(b.select(first, s, tile.add(tile.load(target, 0), s)), target, 0)
        columns.end()
        blocks.end()
        spans.end()

    def _columns(self, width: ir.Value) -> tuple[Loop, Tile]:
        """Open a loop over vectors of results."""
        lanes = register_block(self.dtype).lanes
        columns, tile = Loop(self.b, i64(0), width, lanes), Tile(self.b, self.dtype, 1, 1, lanes)
        tile.mask(self.b.sub(width, columns.i))
        return columns, tile

    def _rows_into(
        self, sums: ir.Value, width: ir.Value, source: ir.Value, vector: ir.Value, k: tuple[ir.Value, ir.Value], count: int
    ) -> None:
        """`count` rows at a time times their elements of the vector."""
        b, p = self.b, self.p
        rows = Loop(b, *k, count)
        first = b.icmp_signed("==", rows.i, i64(0))
        here, there = at(b, source, b.mul(rows.i, p["a_column"])), at(b, vector, b.mul(rows.i, p["b_row"]))
        lanes = Lanes(b, register_block(self.dtype).lanes)
        factors = [lanes.load_splat(at(b, there, b.mul(i64(u), p["b_row"])), self.dtype).v for u in range(count)]
        columns, tile = self._columns(width)
        offset = b.mul(columns.i, i64(self.size))
        place, zero = at(b, sums, offset), ir.Constant(lanes.vector_type(self.dtype), None)
        total = b.select(first, zero, lanes.load(place, self.dtype))
        for u, factor in enumerate(factors):
            total = tile.multiply_add(factor, tile.load(at(b, at(b, here, b.mul(p["a_column"], i64(u))), offset), 0), total)
        b.store(total, place, align=self.size)
        columns.end()
        rows.end()


def rows_together(dtype: np.dtype) -> int:
    """Rows whose chains run side by side: two vectors of them, since one would wait for its sums."""
    return 2 * _Turned.width_of(dtype)


def row_lines_function(module: ir.Module, dtype: np.dtype) -> ir.Function:
    """lines(a, row, x, step, sums, length, far): the chains of `rows_together` rows over `length` k, whole lines.

    A line of each row of a vector is used up before the next is touched: where rows lie a power of two apart, all their lines
    fall on few sets of the first-level cache. Hardware that reads ahead stops at the end of a page, so every row's own next
    lines are asked for.
    """
    fn, b = helper_function(module, f"fx_product_row_lines_{dtype.name}", [PTR, I64, PTR, I64, PTR, I64, I1])
    a, row, x, step, sums, length, far = fn.args
    chains, size = _Turned(b, dtype, rows_together(dtype)), dtype.itemsize
    lines = Loop(b, i64(0), length, LINE // size, [a, x, *chains.zeros])
    here, vector, totals = lines.carried[0], lines.carried[1], lines.carried[2:]
    rows = [at(b, here, b.mul(row, i64(i))) for i in range(chains.count)]
    with b.if_then(far):
        for place in rows:
            prefetch(b, at(b, place, _ROW_AHEAD))
    factors = [at(b, vector, b.mul(step, i64(i))) for i in range(LINE // size)]
    splats = [chains.tile.lanes.load_splat(factor, dtype).v for factor in factors]
    for g in range(chains.groups):
        for part in range(0, LINE, _QUAD):
            for i, column in enumerate(chains.columns(g, [at(b, r, part) for r in rows].__getitem__)):
                totals[g] = chains.tile.multiply_add(column, splats[part // size + i], totals[g])
    lines.end([at(b, here, LINE), at(b, vector, b.mul(step, i64(LINE // size))), *totals])
    for g, total in enumerate(lines.carried[2:]):
        b.store(total, at(b, sums, g * chains.width * size), align=size)
    b.ret_void()
    return fn


def emit_matvec(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Matvec(module, name, dtype, k_block).emit()


# ---- two vectors ---------------------------------------------------------------------------------------------------------


class _Dot(_Frame):
    """Emits dot products: chains of many blocks of k at a time, each in its lane.

    With `parts` in the plan the blocks' sums are the result, and blocks the units of work. Else they wait on the stack, which is
    why there are at most `DOT_BLOCKS`, and are added in order.
    """

    def emit(self) -> ir.Function:
        b, size, k = self.b, i64(self.size), self.p["k"]
        self.most = _APART // (self.k_block * self.size)
        self.full = b.sdiv(k, i64(self.k_block))
        self.rest = b.sub(k, b.mul(self.full, i64(self.k_block)))
        count = b.add(self.full, b.zext(b.icmp_signed(">", self.rest, i64(0)), I64))
        apart = b.icmp_signed("!=", self.p["parts"], i64(0))
        waiting = self.stack(DOT_BLOCKS * self.size)
        self.running, self.offsets = self.stack(self.most * self.size), self.stack(self.most * 8)
        self.lines = lines_function(self.fn.module, self.dtype)
        batches, low, high = self.open_batches()
        first, stop = b.select(apart, low, i64(0)), b.select(apart, high, count)
        self.sums = b.select(apart, self.z.start, waiting)
        self._passes(self._spread(first, stop), stop)
        self._repair(first, stop)
        with b.if_then(b.not_(apart)):
            t = memory_type(self.dtype)
            adding = Loop(b, i64(1), count, 1, [b.load(waiting, typ=t)])
            more = b.load(at(b, waiting, b.mul(adding.i, size)), typ=t)
            total = adding.carried[0]
            adding.end([b.fadd(total, more) if self.dtype.kind == "f" else b.add(total, more)])
            b.store(adding.carried[0], self.z.start, align=self.size)
        batches.end()
        b.ret_void()
        return self.fn

    def _spread(self, first: ir.Value, stop: ir.Value) -> ir.Value:
        """Most blocks of a vector that is read from afar; where the others begin.

        Each lane has a row of blocks of its own, so that memory is read in many places at once, each in its order: hardware
        reads ahead in every page that it sees being walked. The rows' lengths are odd, so that not all are on the same sets of
        the cache.
        """
        b = self.b
        far = b.icmp_signed(">", self.p["k"], i64(_FAR // self.size))
        each = b.sdiv(b.sub(smaller(b, stop, self.full), first), i64(_TOGETHER))
        odd = b.sub(each, b.and_(b.add(each, i64(1)), i64(1)))
        each = b.select(b.and_(far, b.icmp_signed(">", each, i64(0))), odd, i64(0))
        pitch = b.mul(each, i64(self.k_block * self.size))
        for lane in range(_TOGETHER):
            b.store(b.mul(pitch, i64(lane)), at(b, self.offsets, lane * 8), align=8)
        zeros = ir.Constant(ir.VectorType(memory_type(self.dtype), _TOGETHER), None)
        passes = Loop(b, i64(0), each, 1)
        start = b.add(first, passes.i)
        b.store(zeros, self.running, align=self.size)
        self._lines(start, i64(1), (i64(0), i64(self.k_block)), far)
        for lane in range(_TOGETHER):
            total = b.load(at(b, self.running, lane * self.size), typ=memory_type(self.dtype), align=self.size)
            b.store(total, self._sum(b.add(start, b.mul(each, i64(lane)))), align=self.size)
        passes.end()
        return b.add(first, b.mul(each, i64(_TOGETHER)))

    def _passes(self, first: ir.Value, stop: ir.Value) -> None:
        """The blocks, in passes of about equally many; the last block may be shorter than the others.

        A short block's sum is stored when its whole lines have ended, and the k after them are added by themselves; from there on
        its lane follows the block before.
        """
        b, most = self.b, i64(self.most)
        left = b.sub(stop, first)
        left = b.select(b.icmp_signed("<", left, i64(1)), i64(1), left)  # an empty range has no passes either way
        several = b.sdiv(b.add(left, i64(self.most - 1)), most)
        share = b.sdiv(b.add(left, b.sub(several, i64(1))), several)
        share = b.and_(b.add(share, i64(_TOGETHER - 1)), i64(-_TOGETHER))
        loop = Loop(b, first, stop, None)
        start = loop.i
        end, whole = smaller(b, stop, b.add(start, share)), smaller(b, stop, self.full)
        count = b.sub(end, start)
        short = b.icmp_signed(">", end, whole)
        middle = b.select(short, b.and_(self.rest, i64(-(LINE // self.size))), i64(self.k_block))
        lanes = Lanes(b, self.most)
        b.store(ir.Constant(lanes.vector_type(self.dtype), None), self.running, align=self.size)
        self._run(start, count, (i64(0), middle))
        with b.if_then(short):
            self._last(b.sub(self.full, start), middle)
            before = b.sub(self.full, start)
            with b.if_then(b.icmp_signed(">", before, i64(0))):
                self._run(start, before, (middle, i64(self.k_block)))
        self._store(start, smaller(b, end, whole))
        loop.end([], b.add(start, share))

    def _run(self, start: ir.Value, count: ir.Value, k: tuple[ir.Value, ir.Value]) -> None:
        """Chains of `count` blocks, over part of their k; lanes beyond follow the last."""
        b, last = self.b, self.b.sub(count, i64(1))
        t = ir.VectorType(I64, self.most)
        lane, splat = ir.Constant(t, list(range(self.most))), ir.Constant(ir.VectorType(I32, self.most), None)
        most = b.shuffle_vector(b.insert_element(ir.Constant(t, ir.Undefined), last, ir.Constant(I32, 0)), lane, splat)
        block = b.select(b.icmp_signed("<", lane, most), lane, most)
        b.store(b.mul(block, ir.Constant(t, [self.k_block * self.size] * self.most)), self.offsets, align=LINE)
        self._lines(start, b.sdiv(b.add(count, i64(_TOGETHER - 1)), i64(_TOGETHER)), k, ir.Constant(I1, 0))

    def _lines(self, start: ir.Value, groups: ir.Value, k: tuple[ir.Value, ir.Value], far: ir.Value) -> None:
        """Chains of the blocks that `offsets` leads to from `start`, over part of their k."""
        b = self.b
        here = b.add(b.mul(start, i64(self.k_block * self.size)), b.mul(k[0], i64(self.size)))
        x, y = (at(b, v.start, here) for v in (self.x, self.y))
        b.call(self.lines, [x, y, self.offsets, self.running, groups, b.sub(k[1], k[0]), far])

    def _sum(self, block: ir.Value) -> ir.Value:
        return at(self.b, self.sums, self.b.mul(block, i64(self.size)))

    def _store(self, start: ir.Value, stop: ir.Value) -> None:
        """The running sums are those of the blocks from `start` to `stop`."""
        lanes = Lanes(self.b, self.most)
        sums = lanes.load(self.running, self.dtype)
        store_masked(lanes, sums, self._sum(start), self.dtype, lanes.mask(self.b.sub(stop, start)))

    def _last(self, lane: ir.Value, k: ir.Value) -> None:
        """The short block's chain from k on, which stands in a lane."""
        b, t, place = self.b, memory_type(self.dtype), self._sum(self.full)
        one, start = Tile(b, self.dtype, 1, 1, 1), b.mul(self.full, i64(self.k_block))
        so_far = b.load(at(b, self.running, b.mul(lane, i64(self.size))), typ=t, align=self.size)
        loop = Loop(b, k, self.rest, 1, [so_far])
        offset = b.mul(b.add(start, loop.i), i64(self.size))
        p, q = (b.load(at(b, v.start, offset), typ=t, align=self.size) for v in (self.x, self.y))
        vectors = [b.bitcast(v, ir.VectorType(t, 1)) for v in (p, q, loop.carried[0])]
        loop.end([b.bitcast(one.multiply_add(*vectors), t)])
        b.store(loop.carried[0], place, align=self.size)

    def _repair(self, first: ir.Value, stop: ir.Value) -> None:
        """The second look at the blocks' sums in a strong product."""
        if self.dtype.kind != "f":
            return
        b, k = self.b, self.p["k"]
        with b.if_then(b.icmp_signed("!=", self.p["strong"], i64(0))):
            blocks = Loop(b, first, stop, 1)
            start = b.mul(blocks.i, i64(self.k_block))
            offset = b.mul(start, i64(self.size))
            x, y = (at(b, v.start, offset) for v in (self.x, self.y))
            sizes = [i64(1), i64(1), smaller(b, i64(self.k_block), b.sub(k, start)), self.p["strong"]]
            size = i64(self.size)
            arguments = [x, size, size, y, size, size, self._sum(blocks.i), size, *sizes]
            b.call(repair_function(self.fn.module, self.dtype, self.k_block), arguments)
            blocks.end()


def lines_function(module: ir.Module, dtype: np.dtype) -> ir.Function:
    """lines(x, y, offsets, sums, groups, length, far): chains of `groups` times `_TOGETHER` blocks over `length` k, whole lines.

    A line of each block is used up before the next is touched: blocks lie powers of two apart, on few sets of the first-level
    cache. What is far is asked for ahead.
    """
    name = f"fx_product_lines_{dtype.name}"
    fn, b = helper_function(module, name, [PTR, PTR, PTR, PTR, I64, I64, I1])
    x, y, offsets, sums, groups, length, far = fn.args
    chains, lanes = _Turned(b, dtype, _TOGETHER), _TOGETHER * dtype.itemsize
    lines = Loop(b, i64(0), length, LINE // dtype.itemsize, [x, y])
    loop = Loop(b, i64(0), groups, 1, [offsets, sums])
    table, place = loop.carried
    moved = [b.load(at(b, table, i * 8), typ=I64, align=8) for i in range(_TOGETHER)]
    with b.if_then(far):
        for v in lines.carried:
            for m in moved:
                prefetch(b, at(b, at(b, v, m), _BLOCK_AHEAD))
    for g in range(chains.groups):
        spot = at(b, place, g * chains.width * dtype.itemsize)
        total = chains.tile.lanes.load(spot, dtype)
        for part in range(0, LINE, _QUAD):
            places = ([at(b, at(b, v, m), part) for m in moved] for v in lines.carried)
            left, right = (chains.columns(g, p.__getitem__) for p in places)
            for p, q in zip(left, right, strict=True):
                total = chains.tile.multiply_add(p, q, total)
        b.store(total, spot, align=dtype.itemsize)
    loop.end([at(b, table, _TOGETHER * 8), at(b, place, lanes)])
    lines.end([at(b, v, LINE) for v in lines.carried])
    b.ret_void()
    return fn


class _Sum(_Frame):
    """Emits the ordered sum of parts: c[j] = a[0, j] + a[1, j] + ..."""

    def emit(self) -> ir.Function:
        b, p, size = self.b, self.p, i64(self.size)
        batches, low, high = self.open_batches()
        start, stop = b.mul(low, p["unit"]), smaller(b, b.mul(high, p["unit"]), p["n"])
        lanes = register_block(self.dtype).lanes
        columns, tile = Loop(b, start, stop, lanes), Tile(b, self.dtype, 1, 1, lanes)
        tile.mask(b.sub(stop, columns.i))
        offset = b.mul(columns.i, size)
        place = at(b, self.x.start, offset)
        parts = Loop(b, i64(1), p["k"], 1, [place, tile.load(place, 0)])
        place = at(b, parts.carried[0], self.x.column)
        parts.end([place, tile.add(parts.carried[1], tile.load(place, 0))])
        tile.store(parts.carried[1], at(b, self.z.start, offset), 0)
        columns.end()
        batches.end()
        b.ret_void()
        return self.fn


def emit_sum(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Sum(module, name, dtype, k_block, "ac").emit()


def emit_dot(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Dot(module, name, dtype, k_block).emit()
