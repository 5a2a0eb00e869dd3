"""The code of convolutions channel by channel: vectors run along the channels, each lane a sum of its own.

For each block of k there is a table: for every k its share of the place in x in bytes, and of the positions in the spatial
dimensions. A row adds its own shares; where all its positions lie inside of x nothing is tested.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from fxgrad.kernels.conv import DIMS, WINDOW_PLAN
from fxgrad.kernels.conv_emit import Fields, apart, following, within
from fxgrad.kernels.loops import I1, I64, PTR, Lanes, Loop, i64
from fxgrad.kernels.matmul_frame import Frame
from fxgrad.kernels.matmul_tile import at, helper_function, register_block, smaller, store_masked

__all__ = ["emit_channels"]

_VECTORS = 4  # sums at a time: enough to hide the latency of an fma
_ENTRY = 8 * (1 + DIMS)  # bytes of the table for one k: (bytes, position, position, position)


class _Index:
    """Lines or elements of the plan as numbers: (plain, spatial positions), and what they move by."""

    def __init__(self, p: Fields, lines: ir.Value):
        b = self.b = p.b
        sizes, taps = p.each("lines"), p.each("taps")
        steps = zip(p.each("line_step"), p.each("tap_step"), strict=True)
        self.steps = [b.select(lines, x, y) for x, y in steps]
        # An element's channels are lanes; its first position takes the place of a line's plain index.
        self.sizes = [b.select(lines, x, y) for x, y in zip(sizes, (*taps[1:], i64(1)), strict=True)]
        self.lines, self.plain_move = lines, p["plain_move"]

    def start(self, i: ir.Value) -> list[ir.Value]:
        return apart(self.b, i, self.sizes)

    def after(self, index: Sequence[ir.Value]) -> list[ir.Value]:
        return following(self.b, index, self.sizes)

    def shares(self, index: Sequence[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        """The bytes of the plain part, and the positions."""
        b = self.b
        plain = b.mul(b.select(self.lines, index[0], i64(0)), self.plain_move)
        places = [b.select(self.lines, x, y) for x, y in zip(index[1:], index[:DIMS], strict=True)]
        return plain, [b.mul(i, s) for i, s in zip(places, self.steps, strict=True)]


def _table_function(module: ir.Module) -> ir.Function:
    """table(plan, start, stop, entries, reach): the entries of one block of k; `reach` gets the largest of each position."""
    name = "fx_channels_table"
    if name in module.globals:
        return module.globals[name]
    fn, b = helper_function(module, name, [PTR, I64, I64, PTR, PTR])
    plan, start, stop, entries, reach = fn.args
    p = Fields(b, plan)
    along, moves = _Index(p, b.icmp_signed("==", p["by_lines"], i64(0))), p.each("move")
    zero = [i64(0)] * DIMS
    loop = Loop(b, start, stop, 1, [*along.start(start), entries, *zero])
    index, place, most = loop.carried[: DIMS + 1], loop.carried[DIMS + 1], loop.carried[DIMS + 2 :]
    share, positions = along.shares(index)
    for q, move in zip(positions, moves, strict=True):
        share = b.add(share, b.mul(q, move))
    for i, v in enumerate([share, *positions]):
        b.store(v, at(b, place, 8 * i))
    larger = [b.select(b.icmp_signed(">", q, m), q, m) for q, m in zip(positions, most, strict=True)]
    loop.end([*along.after(index), at(b, place, _ENTRY), *larger])
    for i, v in enumerate(loop.carried[DIMS + 2 :]):
        b.store(v, at(b, reach, 8 * i))
    b.ret_void()
    return fn


class _Chain:
    """The chains of one row over one block of k, for some vectors of channels."""

    def __init__(self, b: ir.IRBuilder, p: Fields, dtype: np.dtype, masks: Sequence[ir.Value]):
        self.b, self.dtype, self.masks = b, dtype, masks
        self.lanes = Lanes(b, register_block(dtype).lanes)
        self.b_row, self.strong, self.sizes = p["b_row"], p["strong"], p.each("size")
        self.zero = ir.Constant(self.lanes.vector_type(dtype), None)

    def sums(
        self, x: ir.Value, shares: Sequence[ir.Value], y: ir.Value, table: ir.Value, count: ir.Value, checked: bool, strict: bool
    ) -> list[ir.Value]:
        """`checked`: positions may lie outside. `strict`: zeros of the strong operand are passed over."""
        b = self.b
        loop = Loop(b, i64(0), count, 1, [table, y, *[self.zero] * len(self.masks)])
        entry, right, *totals = loop.carried
        source = at(b, x, b.load(entry, typ=I64))
        masks = list(self.masks)
        if checked:
            inside = ir.Constant(I1, 1)
            for i, (share, n) in enumerate(zip(shares, self.sizes, strict=True)):
                inside = b.and_(inside, within(b, b.add(b.load(at(b, entry, 8 * (i + 1)), typ=I64), share), n))
            everywhere = self.lanes.splat(inside)
            masks = [b.and_(m, everywhere) for m in masks]
        done = []
        for n, (mask, mine, total) in enumerate(zip(self.masks, masks, totals, strict=True)):
            offset = n * self.lanes.lanes * self.dtype.itemsize
            left = self.lanes.load_masked(at(b, source, offset), self.dtype, mine)
            factor = self.lanes.load_masked(at(b, right, offset), self.dtype, mask)
            more = self._multiply_add(left, factor, total)
            if strict:
                of_x = self.lanes.splat(b.icmp_signed("==", self.strong, i64(1)))
                passed = b.fcmp_ordered("==", b.select(of_x, left, factor), self.zero)
                more = b.select(passed, total, more)
            done.append(more)
        loop.end([at(b, entry, _ENTRY), at(b, right, self.b_row), *done])
        return loop.carried[2:]

    def _multiply_add(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        if self.dtype.kind != "f":
            return self.b.add(self.b.mul(x, y), z)
        return self.lanes._call(f"llvm.fma.{self.lanes._suffix(self.dtype)}", z.type, x, y, z)


def _tile_function(module: ir.Module, dtype: np.dtype) -> ir.Function:
    """tile(plan, x, q0, q1, q2, inside, b, c, table, count, channels, first): sums of a row over one block of k.

    They are stored if the block is the first, else added to what is there. `inside`: no position needs to be tested.
    """
    name = f"fx_channels_tile_{dtype.name}"
    if name in module.globals:
        return module.globals[name]
    fn, b = helper_function(module, name, [PTR, PTR, I64, I64, I64, I1, PTR, PTR, PTR, I64, I64, I1])
    plan, x, *shares, inside, y, c, table, count, channels, first = fn.args
    lanes, size = Lanes(b, register_block(dtype).lanes), dtype.itemsize
    masks = [lanes.mask(b.sub(channels, i64(n * lanes.lanes))) for n in range(_VECTORS)]
    chain = _Chain(b, Fields(b, plan), dtype, masks)
    ways = []
    with b.if_else(inside) as branches:
        for branch, checked in zip(branches, (False, True), strict=True):
            with branch:
                ways.append((chain.sums(x, shares, y, table, count, checked, False), b.block))
    sums = _merged(b, *ways)
    if dtype.kind == "f":
        bad = [b.fcmp_unordered("uno", s, s) for s in sums]
        found = bad[0]
        for more in bad[1:]:
            found = b.or_(found, more)
        bits = b.bitcast(found, ir.IntType(lanes.lanes))
        again = b.and_(b.icmp_signed("!=", chain.strong, i64(0)), b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)))
        before = b.block
        with b.if_then(again, likely=False):
            strict = chain.sums(x, shares, y, table, count, True, True)
            fixed = [b.select(nan, v, w) for nan, v, w in zip(bad, strict, sums, strict=True)]
            after = b.block
        sums = _merged(b, (sums, before), (fixed, after))
    for n, (total, mask) in enumerate(zip(sums, masks, strict=True)):
        place = at(b, c, n * lanes.lanes * size)
        old = lanes.load_masked(place, dtype, b.and_(mask, lanes.splat(b.not_(first))))
        added = b.fadd(old, total) if dtype.kind == "f" else b.add(old, total)
        store_masked(lanes, b.select(first, total, added), place, dtype, mask)
    b.ret_void()
    return fn


def _merged(b: ir.IRBuilder, *ways: tuple[Sequence[ir.Value], ir.Block]) -> list[ir.Value]:
    """Values that come from one block or another."""
    out = []
    for values in zip(*(v for v, _ in ways), strict=True):
        phi = b.phi(values[0].type)
        for v, (_, block) in zip(values, ways, strict=True):
            phi.add_incoming(v, block)
        out.append(phi)
    return out


class _Channels(Frame):
    """The loops: blocks of k, within them rows, within them vectors of channels."""

    fields = WINDOW_PLAN

    def emit(self) -> ir.Function:
        """The whole kernel."""
        b, p = self.b, self.p
        self.table = b.alloca(I64, size=i64(self.k_block * (1 + DIMS)))
        self.reach = b.alloca(I64, size=i64(DIMS))
        self.f = Fields(b, self.fn.args[1])
        loop, low, high = self.open_batches()
        low, high = b.mul(low, p["unit"]), b.mul(high, p["unit"])
        by_columns = b.icmp_signed("!=", p["by_columns"], i64(0))
        rows = [b.select(by_columns, x, y) for x, y in ((i64(0), low), (p["m"], smaller(b, high, p["m"])))]
        columns = [b.select(by_columns, y, x) for x, y in ((i64(0), low), (p["n"], smaller(b, high, p["n"])))]
        blocks = Loop(b, i64(0), p["k"], self.k_block)
        stop = smaller(b, p["k"], b.add(blocks.i, i64(self.k_block)))
        b.call(_table_function(self.fn.module), [self.fn.args[1], blocks.i, stop, self.table, self.reach])
        self._rows(rows, columns, blocks.i, b.sub(stop, blocks.i))
        blocks.end()
        loop.end()
        b.ret_void()
        return self.fn

    def _rows(self, rows: list[ir.Value], columns: list[ir.Value], k: ir.Value, count: ir.Value) -> None:
        b, f = self.b, self.f
        by_lines = b.icmp_signed("!=", f["by_lines"], i64(0))
        across, steps, plain = _Index(f, by_lines), f.each("c_step"), f["c_plain"]
        # the last part of an element's index are its channels, of which there is one
        steps = [b.select(by_lines, x, y) for x, y in zip((plain, *steps), (*steps, i64(0)), strict=True)]
        reach = [b.load(at(b, self.reach, 8 * d), typ=I64) for d in range(DIMS)]
        right = at(b, self.y.start, b.mul(k, self.y.row))
        loop = Loop(b, rows[0], rows[1], 1, across.start(rows[0]))
        target, (share, places) = self.z.start, across.shares(loop.carried)
        for i, s in zip(loop.carried, steps, strict=True):
            target = at(b, target, b.mul(i, s))
        inside, source, shares = ir.Constant(I1, 1), at(b, self.x.start, share), []
        for place, most, low, size, move in (
            zip(places, reach, f.each("low"), f.each("size"), f.each("move"), strict=True)
        ):  # fmt: skip
            q = b.sub(place, low)
            shares.append(q)
            source = at(b, source, b.mul(q, move))
            inside = b.and_(inside, b.and_(b.icmp_signed(">=", q, i64(0)), b.icmp_signed("<", b.add(q, most), size)))
        self._vectors(columns, source, shares, inside, right, target, count, b.icmp_signed("==", k, i64(0)))
        loop.end(across.after(loop.carried))

    def _vectors(
        self, columns: list, source: ir.Value, shares: list, inside: ir.Value, right: ir.Value, target: ir.Value,
        count: ir.Value, first: ir.Value,
    ) -> None:  # fmt: skip
        b, tile = self.b, _tile_function(self.fn.module, self.dtype)
        loop = Loop(b, columns[0], columns[1], _VECTORS * register_block(self.dtype).lanes)
        offset = b.mul(loop.i, i64(self.size))
        x, y, c = (at(b, v, offset) for v in (source, right, target))
        left = b.sub(columns[1], loop.i)
        b.call(tile, [self.fn.args[1], x, *shares, inside, y, c, self.table, count, left, first])
        loop.end()


def emit_channels(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Channels(module, name, dtype, k_block).emit()
