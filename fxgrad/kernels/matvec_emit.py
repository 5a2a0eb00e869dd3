"""Products with a vector: the chains of different results, or of different blocks of k, run side by side in the lanes.

A matrix whose rows are contiguous along k is read in small squares that are transposed on the way into the registers; one whose
rows are contiguous along the results is streamed row by row over sums that stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I1, I8, I32, PTR, Lanes, Loop, i64, memory_type
from fxgrad.kernels.matmul import MATVEC_ROWS
from fxgrad.kernels.matmul_frame import Frame
from fxgrad.kernels.matmul_tile import (
    LINE,
    Tile,
    at,
    concatenate,
    prefetch,
    register_block,
    smaller,
    transpose_quads,
)
from fxgrad.kernels.vector import _target_features

__all__ = ["emit_dot", "emit_matvec"]

_QUAD = 16  # bytes
_ROWS_AT_ONCE = 8  # rows streamed together over the sums
_SPAN = 8192  # bytes of the sums streamed over


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
        wide = any(f in _target_features().split(",") for f in ("+avx2", "+avx512f"))
        self.b, self.dtype = b, dtype
        self.quad = _QUAD // dtype.itemsize
        self.width = (32 if wide else 16) // dtype.itemsize  # shuffles of 32 bytes have two ports, of 64 only one
        self.groups = chains // self.width
        self.tile = Tile(b, dtype, 1, 1, self.width)
        self.zeros = [ir.Constant(self.tile.lanes.vector_type(dtype), None)] * self.groups

    def load(self, place: Callable[[int], ir.Value]) -> list[list[ir.Value]]:
        """For each of the next `quad` k, the vectors of all groups; `place(i)` is where chain i stands."""
        part, columns = Lanes(self.b, self.quad), []
        for g in range(self.groups):
            first = g * self.width
            rows = [
                concatenate(self.b, [part.load(place(first + p + i), self.dtype) for p in range(0, self.width, self.quad)])
                for i in range(self.quad)
            ]
            columns.append(transpose_quads(self.b, rows, self.quad))
        return [list(c) for c in zip(*columns, strict=True)]

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
        """MATVEC_ROWS results at a time; where fewer are left, the last ones again."""
        b, p = self.b, self.p
        rows = Loop(b, low, high, MATVEC_ROWS)
        row = smaller(b, rows.i, b.sub(p["m"], i64(MATVEC_ROWS)))
        chains = _Turned(b, self.dtype, MATVEC_ROWS)
        start = at(b, a, b.mul(row, p["a_row"]))
        blocks = Loop(b, i64(0), p["k"], self.k_block, chains.zeros)
        length, first = smaller(b, i64(self.k_block), b.sub(p["k"], blocks.i)), b.icmp_signed("==", blocks.i, i64(0))
        places = at(b, start, b.mul(blocks.i, i64(self.size))), at(b, x, b.mul(blocks.i, p["b_row"]))
        sums = self._turned_block(chains, *places, length)
        blocks.end([b.select(first, s, chains.tile.add(t, s)) for t, s in zip(blocks.carried, sums, strict=True)])
        target = at(b, c, b.mul(row, i64(self.size)))
        for g, total in enumerate(blocks.carried):
            b.store(total, at(b, target, g * chains.width * self.size), align=self.size)
        rows.end()

    def _turned_block(self, chains: _Turned, place: ir.Value, vector: ir.Value, length: ir.Value) -> list[ir.Value]:
        """One block of k for all chains."""
        b, p = self.b, self.p

        def splat(pointer: ir.Value) -> list[ir.Value]:
            return [chains.tile.lanes.load_splat(pointer, self.dtype).v] * chains.groups

        whole = b.and_(length, i64(-chains.quad))
        loop = Loop(b, i64(0), whole, chains.quad, [place, vector, *chains.zeros])
        q, v, sums = loop.carried[0], loop.carried[1], loop.carried[2:]
        for column in chains.load(lambda i: at(b, q, b.mul(p["a_row"], i64(i)))):
            sums = chains.chain(column, splat(v), sums)
            v = at(b, v, p["b_row"])
        loop.end([at(b, q, _QUAD), v, *sums])
        rest = Loop(b, whole, length, 1, loop.carried)
        r, v, sums = rest.carried[0], rest.carried[1], rest.carried[2:]
        column = chains.load_one(lambda i: at(b, r, b.mul(p["a_row"], i64(i))))
        rest.end([at(b, r, self.size), at(b, v, p["b_row"]), *chains.chain(column, splat(v), sums)])
        return rest.carried[2:]

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


def emit_matvec(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Matvec(module, name, dtype, k_block).emit()


# ---- two vectors ---------------------------------------------------------------------------------------------------------


class _Dot(_Frame):
    """Emits dot products: a group of blocks of k at a time, each block in its lane.

    Blocks that do not fill a group are copied and padded to a group with -0.0 and 0.0, whose product, -0.0, changes no sum.
    """

    def emit(self) -> ir.Function:
        b, size, t = self.b, i64(self.size), memory_type(self.dtype)
        self.chains = _Turned(b, self.dtype, 16 if self.size == 4 else 8)
        self.blocks = self.chains.groups * self.chains.width
        self.span = self.blocks * self.k_block  # elements of a group
        batches, _, _ = self.open_batches()
        x, y, c = self.x.start, self.y.start, self.z.start
        groups = Loop(b, i64(0), self.p["k"], self.span, [ir.Constant(t, 0)])
        self.remaining = b.sub(self.p["k"], groups.i)
        x, y = (at(b, q, b.mul(groups.i, size)) for q in (x, y))
        self.total, self.first = groups.carried[0], b.icmp_signed("==", groups.i, i64(0))
        groups.end([self._by_length(x, y)])
        b.store(groups.carried[0], c, align=self.size)
        self.repair((i64(0), i64(1)), (i64(0), i64(1)))
        batches.end()
        b.ret_void()
        return self.fn

    def _by_length(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The total after what begins at x and y: a whole group, one block, or some."""
        b = self.b
        full, part, one, some, after = (b.append_basic_block(n) for n in ("full", "part", "one", "some", "added"))
        b.cbranch(b.icmp_signed(">=", self.remaining, i64(self.span)), full, part)
        b.position_at_end(part)
        b.cbranch(b.icmp_signed("<=", self.remaining, i64(self.k_block)), one, some)
        ways = []
        for block, emit in ((full, self._full), (one, self._one), (some, self._some)):
            b.position_at_end(block)
            ways.append((emit(x, y), b.block))
            b.branch(after)
        b.position_at_end(after)
        result = b.phi(memory_type(self.dtype))
        for value, block in ways:
            result.add_incoming(value, block)
        return result

    def _full(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self._in_order(self._sums(x, y, ahead=True), i64(self.blocks))

    def _one(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """One block, one chain."""
        b, t = self.b, memory_type(self.dtype)
        loop = Loop(b, i64(0), self.remaining, 1, [ir.Constant(t, 0)])
        p, q = (b.load(b.gep(v, [loop.i], source_etype=t), typ=t, align=self.size) for v in (x, y))
        vectors = [b.bitcast(v, ir.VectorType(t, 1)) for v in (p, q, loop.carried[0])]
        loop.end([b.bitcast(Tile(b, self.dtype, 1, 1, 1).multiply_add(*vectors), t)])
        return self._add(self.total, self.first, loop.carried[0])

    def _some(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Fewer blocks than lanes, the last one perhaps cut off."""
        b, t = self.b, memory_type(self.dtype)
        wide = Lanes(b, register_block(self.dtype).lanes)
        copies = []
        for source, value in ((x, -0.0), (y, 0.0)):
            copies.append(self.stack(self.span * self.size))
            loop = Loop(b, i64(0), i64(self.span), wide.lanes)
            mask = wide.mask(b.sub(self.remaining, loop.i))
            there, here = (b.gep(v, [loop.i], source_etype=t) for v in (source, copies[-1]))
            pad = ir.Constant(ir.VectorType(t, wide.lanes), [value if self.dtype.kind == "f" else 0] * wide.lanes)
            b.store(b.select(mask, wide.load_masked(there, self.dtype, mask), pad), here, align=self.size)
            loop.end()
        count = b.sdiv(b.add(self.remaining, i64(self.k_block - 1)), i64(self.k_block))
        return self._in_order(self._sums(copies[0], copies[1], ahead=False), count)

    def _sums(self, x: ir.Value, y: ir.Value, ahead: bool) -> list[ir.Value]:
        """The sums of a group's blocks; `ahead` asks for the memory of the next group, in its order."""
        b, chains = self.b, self.chains
        pitch = self.k_block * self.size
        loop = Loop(b, i64(0), i64(self.k_block), chains.quad, [x, y, *chains.zeros])
        p, q, sums = loop.carried[0], loop.carried[1], loop.carried[2:]
        done = b.mul(loop.i, i64(self.blocks * self.size))
        for line in range(0, self.blocks * _QUAD if ahead else 0, LINE):
            for source in (x, y):
                prefetch(b, at(b, at(b, source, done), self.span * self.size + line))
        left, right = chains.load(lambda i: at(b, p, i * pitch)), chains.load(lambda i: at(b, q, i * pitch))
        for r, s in zip(left, right, strict=True):
            sums = chains.chain(r, s, sums)
        loop.end([at(b, p, _QUAD), at(b, q, _QUAD), *sums])
        return loop.carried[2:]

    def _in_order(self, sums: Sequence[ir.Value], count: ir.Value) -> ir.Value:
        """The blocks' sums added to the total, one after the other."""
        b, total = self.b, self.total
        for i in range(self.blocks):
            g, lane = divmod(i, self.chains.width)
            s = b.extract_element(sums[g], ir.Constant(I32, lane))
            added = self._add(total, self.first if i == 0 else I1(0), s)
            total = b.select(b.icmp_signed(">", count, i64(i)), added, total)
        return total

    def _add(self, total: ir.Value, first: ir.Value, s: ir.Value) -> ir.Value:
        b = self.b
        return b.select(first, s, b.fadd(total, s) if self.dtype.kind == "f" else b.add(total, s))


def emit_dot(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Dot(module, name, dtype, k_block).emit()
