"""The loops of a matrix product around its register blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I1, I64, PTR, Loop, i64
from fxgrad.kernels.matmul import ALONG, APART, IN_PLACE
from fxgrad.kernels.matmul_frame import Frame
from fxgrad.kernels.matmul_tile import (
    LINE,
    Block,
    Tile,
    at,
    helper_function,
    masks_are_free,
    pack_function,
    prefetch,
    register_block,
    smaller,
)

__all__ = ["MatmulEmitter", "aligned", "emit_matmul", "emit_pack_kernel", "emit_panel"]

_PANELS = 8  # panels of rows that are packed at a time
_GROUP = 3  # rows that share a pointer: x86 addresses reach p, p + row and p + 2*row


def emit_panel(
    module: ir.Module, name: str, dtype: np.dtype, block: Block, rows: int, scattered: bool = False
) -> ir.Function:  # fmt: skip
    """At most `rows` rows of a times the panels of b, one block of k; meanwhile the next rows are asked for.

    panel(a, a_row, a_k, b, b_k, b_panel, c, c_row, count, length, columns, first, ahead, ahead_line, ahead_step): there are
    `count` rows, and all of them in a panel of full height; for each panel of b, lines `ahead_line` apart are asked for from
    `ahead` on, which moves by `ahead_step`. Where the rows of c are `scattered`, `c_row` points to their offsets.
    """
    arguments = [PTR, I64, I64, PTR, I64, I64, PTR, PTR if scattered else I64, I64, I64, I64, I1, PTR, I64, I64]
    fn, b = helper_function(module, name, arguments)
    a, a_row, a_k, y, b_k, b_panel, c, c_row, count, length, columns, first, ahead, ahead_line, ahead_step = fn.args
    full = rows == block.rows
    index = [i64(i) if full else smaller(b, i64(i), b.sub(count, i64(1))) for i in range(rows)]
    starts = [at(b, a, b.mul(a_row, i)) for i in index[:: _GROUP if full and rows % _GROUP == 0 else 1]]
    if scattered:
        steps = [b.load(b.gep(c_row, [i], source_etype=I64), typ=I64) for i in index]
    else:
        steps = [b.mul(c_row, i) for i in index]

    def multiply(masked: bool) -> None:
        tile = Tile(b, dtype, rows, block.vectors, block.lanes)
        if masked:
            tile.mask(b.sub(columns, loop.i))
        tile.write(tile.sum(starts, a_row, a_k, y, b_k, length), [at(b, c, s) for s in steps], first)

    loop = Loop(b, i64(0), columns, block.columns, [y, c, ahead])
    y, c, ahead = loop.carried
    for i in range(rows):
        prefetch(b, at(b, ahead, b.mul(ahead_line, i64(i))))
    if masks_are_free():
        multiply(masked=True)
    else:
        with b.if_else(b.icmp_signed("<=", b.add(loop.i, i64(block.columns)), columns)) as (whole, part):
            with whole:
                multiply(masked=False)
            with part:
                multiply(masked=True)
    loop.end([at(b, y, b_panel), at(b, c, block.columns * dtype.itemsize), at(b, ahead, ahead_step)])
    b.ret_void()
    return fn


class MatmulEmitter(Frame):
    """Emits the loops over batches, columns, blocks of k, and rows."""

    scattered = False  # whether the rows of c lie where a table says

    def __init__(self, module: ir.Module, name: str, dtype: np.dtype, k_block: int):
        super().__init__(module, name, dtype, k_block, "ab")
        self.block = block = register_block(dtype)
        self.tiles = [emit_panel(module, f"{name}_{r}", dtype, block, r, self.scattered) for r in (block.rows, block.few)]
        self.pack = pack_function(module, dtype)
        self.rows_packed = _PANELS * block.rows
        b, way = self.b, self.p["pack_b"]
        self.along, self.apart = (b.icmp_signed("==", way, i64(n)) for n in (ALONG, APART))
        self.packs_a = b.icmp_signed("!=", self.p["pack_a"], i64(0))
        self.panels = aligned(b, self.pointer(i64(2)))
        c = self.pointer(b.select(self.apart, i64(3), i64(2)))
        self.arrays["c"] = at(b, c, self.p["c_offset"])

    def emit(self) -> ir.Function:
        """The whole product, within memory for panels where any are packed along the way."""
        b = self.b
        bytes_a, bytes_b = self._bytes()
        total, before = b.add(bytes_a, bytes_b), b.block
        packs = b.icmp_signed("!=", total, i64(0))
        with b.if_then(packs):
            fresh = b.call(self._library("malloc", PTR, I64), [b.add(total, i64(2 * LINE))])
            inside = b.block
        memory = b.phi(PTR)
        memory.add_incoming(ir.Constant(PTR, None), before)
        memory.add_incoming(fresh, inside)
        self.panels_b = aligned(b, memory)
        self.panels_a = aligned(b, at(b, self.panels_b, bytes_b))
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
        pairs = ((self.packs_a, i64(self.rows_packed)), (self.along, width))
        a, c = (b.select(packs, b.mul(lines, length), i64(0)) for packs, lines in pairs)
        return a, c

    def _library(self, name: str, result: ir.Type, argument: ir.Type) -> ir.Function:
        found = self.fn.module.globals.get(name)
        return found or ir.Function(self.fn.module, ir.FunctionType(result, [argument]), name)

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
        with b.if_then(self.along):
            b.call(self.pack, [source, column, k, self.width, self.length, self.panels_b, i64(n)])
        place = b.select(self.apart, panel_place(self, self.panels), self.panels_b)
        pitch, packed = i64(n * self.size), b.icmp_signed("!=", self.p["pack_b"], i64(IN_PLACE))
        pairs = ((place, source), (pitch, k), (b.mul(self.length, pitch), pitch))
        return [b.select(packed, x, y) for x, y in pairs]

    def _rows(self, start: ir.Value, stop: ir.Value) -> None:
        """Panels of rows; where they are packed, several at a time, so that what lies side by side is read together."""
        b, size, (first_row, row, column) = self.b, i64(self.size), self.x
        several = Loop(b, start, stop, self.rows_packed)
        stop = smaller(b, stop, b.add(several.i, i64(self.rows_packed)))
        source = at(b, at(b, first_row, b.mul(several.i, row)), b.mul(self.k, column))
        with b.if_then(self.packs_a):
            lines = b.sub(stop, several.i)
            b.call(self.pack, [source, row, column, lines, self.length, self.panels_a, i64(self.block.rows)])
        pairs = ((self.panels_a, source), (size, row), (i64(self.block.rows * self.size), column))
        place, a_row, a_k = (b.select(self.packs_a, x, y) for x, y in pairs)
        target = at(b, at(b, self.z.start, b.mul(several.i, self.z.row)), b.mul(self.j, size))
        self._panels((several.i, stop), place, a_row, a_k, target)
        with b.if_then(self.last):
            self.repair((several.i, stop), (self.j, b.add(self.j, self.width)))
        several.end()

    def _panels(self, rows: tuple[ir.Value, ir.Value], place: ir.Value, a_row: ir.Value, a_k: ir.Value, target: ir.Value) -> None:
        """Panels of full height, then low ones; packed, the low ones share one of full height."""
        b, full = self.b, self.block.rows
        lying = b.icmp_signed("==", a_k, i64(self.size))  # rows run along lines; else a panel is one run, or strides over it
        line, line_step = b.select(lying, a_row, i64(LINE)), b.select(lying, i64(LINE), i64(full * LINE))
        first = b.icmp_signed("==", self.k, i64(0))
        panel = b.select(self.packs_a, b.mul(self.length, a_k), b.mul(i64(full), a_row))
        loop = Loop(b, *rows, None, [place, target])
        place, target = loop.carried
        count = b.sub(rows[1], loop.i)
        high = b.icmp_signed(">=", count, i64(full))
        height = b.select(high, i64(full), i64(self.block.few))
        following = at(b, place, b.select(high, panel, b.mul(height, a_row)))
        left, sizes = [place, a_row, a_k], [count, self.length, self.width, first, following, line, line_step]
        with b.if_else(high) as ways:
            for n, way in enumerate(ways):
                with way:
                    self._multiply(n, left, target, loop.i, sizes)
        loop.end([following, self._after(target, height)], b.add(loop.i, height))

    def _multiply(self, height: int, left: list[ir.Value], target: ir.Value, row: ir.Value, sizes: list[ir.Value]) -> None:
        """Call the code for a panel of this height, full (0) or low (1)."""
        self.b.call(self.tiles[height], [*left, *self.right, target, self.z.row, *sizes])

    def _after(self, target: ir.Value, rows: ir.Value) -> ir.Value:
        """Where the result goes so many rows further down."""
        return at(self.b, target, self.b.mul(rows, self.z.row))


def aligned(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """The first line of the cache from the pointer on."""
    return b.inttoptr(b.and_(b.add(b.ptrtoint(pointer, I64), i64(LINE - 1)), i64(-LINE)), PTR)


def panel_place(f: Any, panels: ir.Value) -> ir.Value:
    """Where the panels of b of this batch, from column j on and of the block of k at hand, lie among those packed apart."""
    b = f.b
    block = at(b, f.batch(panels, "panels"), b.mul(b.sdiv(f.k, i64(f.k_block)), f.p["panels_block"]))
    return at(b, block, b.mul(b.mul(f.j, f.length), i64(f.size)))


def emit_pack_kernel(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel that packs b to an LLVM module as an internal function."""
    f: Any = Frame(module, name, dtype, k_block, "b")
    b, p = f.b, f.p
    panels = aligned(b, f.pointer(i64(1)))
    loop, low, high = f.open_batches()
    f.j = b.mul(low, p["unit"])
    width = b.sub(smaller(b, b.mul(high, p["unit"]), p["n"]), f.j)
    blocks = Loop(b, i64(0), p["k"], k_block)
    f.k, f.length = blocks.i, smaller(b, i64(k_block), b.sub(p["k"], blocks.i))
    source = at(b, at(b, f.y.start, b.mul(f.j, f.y.column)), b.mul(f.k, f.y.row))
    columns = i64(register_block(dtype).columns)
    b.call(pack_function(module, dtype), [source, f.y.column, f.y.row, width, f.length, panel_place(f, panels), columns])
    blocks.end()
    loop.end()
    b.ret_void()
    return f.fn


def emit_matmul(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return MatmulEmitter(module, name, dtype, k_block).emit()
