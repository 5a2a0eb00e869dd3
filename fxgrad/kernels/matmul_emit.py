"""The loops of a matrix product around its register blocks."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I1, I64, PTR, Loop, i64
from fxgrad.kernels.matmul_frame import Frame
from fxgrad.kernels.matmul_tile import (
    LINE,
    Block,
    at,
    emit_pack_all,
    emit_tile,
    helper_function,
    masks_are_free,
    prefetch,
    register_block,
    smaller,
)

__all__ = ["emit_matmul"]

_PANELS = 8  # panels of rows that are packed at a time


def emit_panel(module: ir.Module, name: str, dtype: np.dtype, block: Block, rows: int) -> ir.Function:
    """`rows` rows of a times the panels of b, one block of k; meanwhile the next rows are asked for.

    panel(a, a_row, a_k, b, b_k, b_panel, c, c_row, length, columns, first, ahead, ahead_line, ahead_step): for each panel of b,
    lines `ahead_line` apart are asked for from `ahead` on, which moves by `ahead_step`.
    """
    arguments = [PTR, I64, I64, PTR, I64, I64, PTR, I64, I64, I64, I1, PTR, I64, I64]
    fn, b = helper_function(module, name, arguments)
    a, a_row, a_k, y, b_k, b_panel, c, c_row, length, columns, first, ahead, ahead_line, ahead_step = fn.args
    counts = range(1, block.vectors + 1)
    tiles = {v: emit_tile(module, f"{name}_{v}", dtype, rows, v, block.lanes, masked=True) for v in counts}
    full = tiles[block.vectors]
    if not masks_are_free():
        full = emit_tile(module, f"{name}_full", dtype, rows, block.vectors, block.lanes, masked=False)
    whole = b.and_(columns, i64(-block.columns))
    loop = Loop(b, i64(0), whole, block.columns, [y, c, ahead])
    y, c, ahead = loop.carried
    for i in range(block.rows[0]):
        prefetch(b, at(b, ahead, b.mul(ahead_line, i64(i))))
    b.call(full, [a, a_row, a_k, y, b_k, c, c_row, length, i64(block.columns), first])
    loop.end([at(b, y, b_panel), at(b, c, block.columns * dtype.itemsize), at(b, ahead, ahead_step)])
    y, c, _ = loop.carried
    rest = b.sub(columns, whole)
    for v in counts:
        more, fits = b.icmp_signed(">", rest, i64((v - 1) * block.lanes)), b.icmp_signed("<=", rest, i64(v * block.lanes))
        with b.if_then(b.and_(more, fits)):
            b.call(tiles[v], [a, a_row, a_k, y, b_k, c, c_row, length, rest, first])
    b.ret_void()
    return fn


class _Product(Frame):
    """Emits the loops over batches, columns, blocks of k, and rows."""

    def __init__(self, module: ir.Module, name: str, dtype: np.dtype, k_block: int):
        super().__init__(module, name, dtype, k_block)
        self.block = block = register_block(dtype)
        self.panels = {r: emit_panel(module, f"{name}_{r}", dtype, block, r) for r in block.rows}
        self.pack = emit_pack_all(module, f"{name}_pack", dtype, block.lanes)
        self.rows_packed = _PANELS * block.rows[0]
        self.slack = block.columns * block.lanes * dtype.itemsize + LINE  # packing writes whole squares of vectors
        self.packs_a, self.packs_b = (self.b.icmp_signed("!=", self.p[f], i64(0)) for f in ("pack_a", "pack_b"))

    def emit(self) -> ir.Function:
        """The whole product, within memory for panels where any are packed."""
        b = self.b
        bytes_a, bytes_b = self._bytes()
        total, before = b.add(bytes_a, bytes_b), b.block
        packs = b.icmp_signed("!=", total, i64(0))
        with b.if_then(packs):
            fresh = b.call(self._library("malloc", PTR, I64), [b.add(total, i64(LINE))])
            inside = b.block
        memory = b.phi(PTR)
        memory.add_incoming(ir.Constant(PTR, None), before)
        memory.add_incoming(fresh, inside)
        self.panels_b = self._aligned(memory)
        self.panels_a = self._aligned(at(b, self.panels_b, bytes_b))
        self._batches()
        with b.if_then(packs):
            b.call(self._library("free", ir.VoidType(), PTR), [memory])
        b.ret_void()
        return self.fn

    def _bytes(self) -> tuple[ir.Value, ir.Value]:
        """Sizes of the memory for packed panels of a and of b."""
        b, n = self.b, self.block.columns
        length = b.mul(smaller(b, i64(self.k_block), self.p["k"]), i64(self.size))
        width = b.and_(b.add(self.p["stretch"], i64(n - 1)), i64(-n))
        pairs = ((self.packs_a, i64(self.rows_packed)), (self.packs_b, width))
        a, c = (b.select(packs, b.add(b.mul(lines, length), i64(self.slack)), i64(0)) for packs, lines in pairs)
        return a, c

    def _library(self, name: str, result: ir.Type, argument: ir.Type) -> ir.Function:
        found = self.fn.module.globals.get(name)
        return found or ir.Function(self.fn.module, ir.FunctionType(result, [argument]), name)

    def _aligned(self, pointer: ir.Value) -> ir.Value:
        b = self.b
        return b.inttoptr(b.and_(b.add(b.ptrtoint(pointer, I64), i64(LINE - 1)), i64(-LINE)), PTR)

    def _batches(self) -> None:
        b, p = self.b, self.p
        loop, low, high = self.open_batches()
        low, high = b.mul(low, p["unit"]), b.mul(high, p["unit"])
        by_columns = b.icmp_signed("!=", p["by_columns"], i64(0))
        rows = [b.select(by_columns, x, y) for x, y in ((i64(0), low), (p["m"], smaller(b, high, p["m"])))]
        columns = [b.select(by_columns, y, x) for x, y in ((i64(0), low), (p["n"], smaller(b, high, p["n"])))]
        self._columns(rows, columns)
        loop.end()

    def _columns(self, rows: list[ir.Value], columns: list[ir.Value]) -> None:
        """Stretches of columns, and for each the blocks of k: what is packed of b at a time."""
        b, p = self.b, self.p
        start, stop = columns
        outer = Loop(b, i64(0), b.sdiv(b.add(b.sub(stop, start), b.sub(p["stretch"], i64(1))), p["stretch"]), 1)
        self.j = b.add(start, b.mul(outer.i, p["stretch"]))
        self.width = smaller(b, p["stretch"], b.sub(stop, self.j))
        blocks = Loop(b, i64(0), p["k"], self.k_block)
        self.k = blocks.i
        self.length = smaller(b, i64(self.k_block), b.sub(p["k"], self.k))
        self.last = b.icmp_signed(">=", b.add(self.k, self.length), p["k"])
        self.right = self._right()
        self._rows(*rows)
        blocks.end()
        outer.end()

    def _right(self) -> list[ir.Value]:
        """Where the panels of b begin, the bytes from one k to the next and from one panel to the next."""
        b, n, (start, k, column) = self.b, self.block.columns, self.y
        source = at(b, at(b, start, b.mul(self.j, column)), b.mul(self.k, k))
        with b.if_then(self.packs_b):
            b.call(self.pack, [source, column, k, self.width, self.length, self.panels_b, i64(n)])
        pitch = i64(n * self.size)
        pairs = ((self.panels_b, source), (pitch, k), (b.mul(self.length, pitch), pitch))
        return [b.select(self.packs_b, x, y) for x, y in pairs]

    def _rows(self, start: ir.Value, stop: ir.Value) -> None:
        """Panels of rows, as high as fits; packed several at a time, so that what lies side by side is read together."""
        b = self.b
        several = Loop(b, start, stop, self.rows_packed)
        stop = smaller(b, stop, b.add(several.i, i64(self.rows_packed)))
        start, packed = several.i, self.panels_a
        for height in self.block.rows:
            whole = b.add(start, b.mul(b.sdiv(b.sub(stop, start), i64(height)), i64(height)))
            start, packed = self._panels(height, start, whole, packed)
        with b.if_then(self.last):
            self.repair((several.i, stop), (self.j, b.add(self.j, self.width)))
        several.end()

    def _panels(self, height: int, start: ir.Value, stop: ir.Value, packed: ir.Value) -> tuple[ir.Value, ir.Value]:
        """All panels of one height, packed from `packed` on; the row and the packed place after them."""
        b, size, (first_row, row, column) = self.b, i64(self.size), self.x
        source = at(b, at(b, first_row, b.mul(start, row)), b.mul(self.k, column))
        with b.if_then(b.and_(self.packs_a, b.icmp_signed("<", start, stop))):
            b.call(self.pack, [source, row, column, b.sub(stop, start), self.length, packed, i64(height)])
        pitch = b.mul(i64(height), size)
        panel = b.mul(self.length, pitch)
        pairs = ((packed, source), (size, row), (pitch, column))
        place, a_row, a_k = (b.select(self.packs_a, x, y) for x, y in pairs)
        step = b.select(self.packs_a, panel, b.mul(i64(height), a_row))
        target = at(b, at(b, self.z.start, b.mul(start, self.z.row)), b.mul(self.j, size))
        lying = b.icmp_signed("==", a_k, size)  # rows run along lines; else the panel is one run of memory, or strides over it
        line, line_step = b.select(lying, a_row, i64(LINE)), b.select(lying, i64(LINE), i64(self.block.rows[0] * LINE))
        loop = Loop(b, start, stop, height, [place, packed, target])
        place, after, target = loop.carried
        following = at(b, place, step)
        first = b.icmp_signed("==", self.k, i64(0))
        sizes = [self.z.row, self.length, self.width, first]
        b.call(self.panels[height], [place, a_row, a_k, *self.right, target, *sizes, following, line, line_step])
        loop.end([following, at(b, after, panel), at(b, target, b.mul(i64(height), self.z.row))])
        return loop.i, loop.carried[1]


def emit_matmul(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Product(module, name, dtype, k_block).emit()
