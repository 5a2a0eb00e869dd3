"""The code of convolutions channel by channel: vectors run along the channels, each lane a sum of its own."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from fxgrad.kernels.conv import WINDOW_PLAN
from fxgrad.kernels.conv_emit import Fields, apart, following, within
from fxgrad.kernels.loops import I1, I64, PTR, Lanes, Loop, i64
from fxgrad.kernels.matmul_frame import Frame
from fxgrad.kernels.matmul_tile import at, helper_function, register_block, smaller, store_masked

__all__ = ["emit_channels"]

_VECTORS = 4  # sums at a time: enough to hide the latency of an fma


class _Chain:
    """The chains over one block of k for some vectors of channels."""

    def __init__(self, b: ir.IRBuilder, plan: ir.Value, dtype: np.dtype):
        self.b, self.dtype, p = b, dtype, Fields(b, plan)
        self.lanes = Lanes(b, register_block(dtype).lanes)
        self.by_lines = b.icmp_signed("!=", p["by_lines"], i64(0))
        self.line_sizes, taps = p.each("lines"), p.each("taps")
        self.element_sizes = [*taps[1:], p["channels"]]
        self.sizes, self.moves, self.plain_move = p.each("size"), p.each("move"), p["plain_move"]
        pairs = zip(p.each("line_step"), p.each("tap_step"), strict=True)
        self.k_steps = [b.select(self.by_lines, tap, line) for line, tap in pairs]
        pairs = zip(p.each("line_step"), p.each("tap_step"), strict=True)
        self.row_steps = [b.select(self.by_lines, line, tap) for line, tap in pairs]
        self.lows, self.b_row, self.strong = p.each("low"), p["b_row"], p["strong"]

    def _index(self, i: ir.Value, line: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
        """The plain part (0 in elements, whose channels are these lanes) and the spatial parts of a line or an element."""
        b = self.b
        plain, *places = apart(b, i, self.line_sizes)
        first, second, third, _ = apart(b, i, self.element_sizes)
        spatial = [b.select(line, x, y) for x, y in zip(places, (first, second, third), strict=True)]
        return b.select(line, plain, i64(0)), spatial

    def start(self, x: ir.Value, row: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
        """Where a row's part of the address leads, and its share of the positions."""
        b = self.b
        plain, places = self._index(row, self.by_lines)
        shares = [b.sub(b.mul(i, s), low) for i, s, low in zip(places, self.row_steps, self.lows, strict=True)]
        return at(b, x, b.mul(plain, self.plain_move)), shares

    def sums(self, x: ir.Value, shares: list, y: ir.Value, k: tuple, masks: list, strict: bool) -> list[ir.Value]:
        """The chains from k[0] to k[1]; `strict` ones pass over zeros of the strong operand."""
        b, size = self.b, self.dtype.itemsize
        t = self.lanes.vector_type(self.dtype)
        zero = ir.Constant(t, None)
        by_k = b.not_(self.by_lines)
        plain, places = self._index(k[0], by_k)
        sizes = [b.select(by_k, n, m) for n, m in zip(self.line_sizes, (*self.element_sizes[:2], i64(1)), strict=True)]
        # of an element the index is (first, second, third), one part fewer than a line's
        begin = [b.select(by_k, v, w) for v, w in zip((plain, *places), (*places, i64(0)), strict=True)]
        loop = Loop(b, k[0], k[1], 1, [*begin, at(b, y, b.mul(k[0], self.b_row)), *[zero] * len(masks)])
        index, right, totals = loop.carried[:4], loop.carried[4], loop.carried[5:]
        spatial = [b.select(by_k, v, w) for v, w in zip(index[1:], index[:3], strict=True)]
        source = at(b, x, b.mul(b.select(by_k, index[0], i64(0)), self.plain_move))
        inside = ir.Constant(I1, 1)
        for i, step, share, n, move in zip(spatial, self.k_steps, shares, self.sizes, self.moves, strict=True):
            q = b.add(b.mul(i, step), share)
            inside = b.and_(inside, within(b, q, n))
            source = at(b, source, b.mul(q, move))
        everywhere = self.lanes.splat(inside)
        done = []
        for n, (mask, total) in enumerate(zip(masks, totals, strict=True)):
            offset = n * self.lanes.lanes * size
            left = self.lanes.load_masked(at(b, source, offset), self.dtype, b.and_(mask, everywhere))
            factor = self.lanes.load_masked(at(b, right, offset), self.dtype, mask)
            more = self._multiply_add(left, factor, total)
            if strict:
                of_x = self.lanes.splat(b.icmp_signed("==", self.strong, i64(1)))
                passed = b.fcmp_ordered("==", b.select(of_x, left, factor), zero)
                more = b.select(passed, total, more)
            done.append(more)
        loop.end([*following(b, index, sizes), at(b, right, self.b_row), *done])
        return loop.carried[5:]

    def _multiply_add(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        if self.dtype.kind != "f":
            return self.b.add(self.b.mul(x, y), z)
        return self.lanes._call(f"llvm.fma.{self.lanes._suffix(self.dtype)}", z.type, x, y, z)


def _tile_function(module: ir.Module, dtype: np.dtype) -> ir.Function:
    """tile(plan, x, row, b, c, start, stop, channels): the sums of one block of k for one row and a few vectors of channels.

    They are stored if the block is the first, else added to what is there.
    """
    name = f"fx_channels_tile_{dtype.name}"
    if name in module.globals:
        return module.globals[name]
    fn, b = helper_function(module, name, [PTR, PTR, I64, PTR, PTR, I64, I64, I64])
    plan, x, row, y, c, start, stop, channels = fn.args
    chain = _Chain(b, plan, dtype)
    lanes, size = chain.lanes, dtype.itemsize
    masks = [lanes.mask(b.sub(channels, i64(n * lanes.lanes))) for n in range(_VECTORS)]
    base, shares = chain.start(x, row)
    sums = chain.sums(base, shares, y, (start, stop), masks, False)
    if dtype.kind == "f":
        bad = [b.fcmp_unordered("uno", s, s) for s in sums]
        found = bad[0]
        for more in bad[1:]:
            found = b.or_(found, more)
        bits = b.bitcast(found, ir.IntType(lanes.lanes))
        again = b.and_(b.icmp_signed("!=", chain.strong, i64(0)), b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))
        before = b.block
        with b.if_then(again, likely=False):
            strict = chain.sums(base, shares, y, (start, stop), masks, True)
            fixed = [b.select(nan, v, w) for nan, v, w in zip(bad, strict, sums, strict=True)]
            after = b.block
        merged = []
        for plain, other in zip(sums, fixed, strict=True):
            merged.append(b.phi(plain.type))
            merged[-1].add_incoming(plain, before)
            merged[-1].add_incoming(other, after)
        sums = merged
    first = b.icmp_signed("==", start, i64(0))
    for n, (total, mask) in enumerate(zip(sums, masks, strict=True)):
        place = at(b, c, n * lanes.lanes * size)
        old = lanes.load_masked(place, dtype, b.and_(mask, lanes.splat(b.not_(first))))
        added = b.fadd(old, total) if dtype.kind == "f" else b.add(old, total)
        store_masked(lanes, b.select(first, total, added), place, dtype, mask)
    b.ret_void()
    return fn


class _Channels(Frame):
    """The loops: blocks of k, within them rows, within them vectors of channels."""

    fields = WINDOW_PLAN

    def emit(self) -> ir.Function:
        """The whole kernel."""
        b, p, plan = self.b, self.p, self.fn.args[1]
        tile, fields = _tile_function(self.fn.module, self.dtype), Fields(self.b, plan)
        width = _VECTORS * register_block(self.dtype).lanes
        by_lines = b.icmp_signed("!=", fields["by_lines"], i64(0))
        lines, taps, steps, plain = fields.each("lines"), fields.each("taps"), fields.each("c_step"), fields["c_plain"]
        sizes = [b.select(by_lines, x, y) for x, y in zip(lines, (*taps[1:], fields["channels"]), strict=True)]
        steps = [b.select(by_lines, x, y) for x, y in zip((plain, *steps), (*steps, plain), strict=True)]
        loop, low, high = self.open_batches()
        low, high = b.mul(low, p["unit"]), b.mul(high, p["unit"])
        by_columns = b.icmp_signed("!=", p["by_columns"], i64(0))
        top, bottom = (b.select(by_columns, x, y) for x, y in ((i64(0), low), (p["m"], smaller(b, high, p["m"]))))
        left, right = (b.select(by_columns, y, x) for x, y in ((i64(0), low), (p["n"], smaller(b, high, p["n"]))))
        blocks = Loop(b, i64(0), p["k"], self.k_block)
        stop = smaller(b, p["k"], b.add(blocks.i, i64(self.k_block)))
        rows = Loop(b, top, bottom, 1, apart(b, top, sizes))
        target = self.z.start
        for i, s in zip(rows.carried, steps, strict=True):
            target = at(b, target, b.mul(i, s))
        columns = Loop(b, left, right, width)
        offset = b.mul(columns.i, i64(self.size))
        places = [at(b, v, offset) for v in (self.x.start, self.y.start, target)]
        b.call(tile, [plan, places[0], rows.i, *places[1:], blocks.i, stop, b.sub(right, columns.i)])
        columns.end()
        rows.end(following(b, rows.carried, sizes))
        blocks.end()
        loop.end()
        b.ret_void()
        return self.fn


def emit_channels(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Channels(module, name, dtype, k_block).emit()
