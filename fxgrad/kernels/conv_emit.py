"""The code of products with a window: the loops of a matrix product, and the gathering of rows from windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from fxgrad.kernels.conv import DIMS, WINDOW_PLAN
from fxgrad.kernels.loops import I1, I64, PTR, Lanes, Loop, i64, memory_type
from fxgrad.kernels.matmul_emit import MatmulEmitter, emit_panel
from fxgrad.kernels.matmul_frame import for_each_nan, strong_sum
from fxgrad.kernels.matmul_tile import LINE, at, helper_function, register_block, smaller

__all__ = ["Fields", "apart", "emit_windows", "following", "within"]

_PANELS = 4, 16  # panels of rows gathered at a time, where lines are rows: and where they run along k, so that runs are long


class Fields:
    """Fields of a window plan, each loaded where it is asked for."""

    def __init__(self, b: ir.IRBuilder, plan: ir.Value):
        self.b, self.plan = b, plan

    def __getitem__(self, name: str) -> ir.Value:
        place = self.b.gep(self.plan, [i64(WINDOW_PLAN.index(name))], source_etype=I64)
        return self.b.load(place, typ=I64)

    def each(self, name: str) -> list[ir.Value]:
        """The fields of all dimensions."""
        return [self[f"{name}{d}"] for d in range(DIMS)]


def _larger(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", x, y), x, y)


def apart(b: ir.IRBuilder, i: ir.Value, sizes: Sequence[ir.Value]) -> list[ir.Value]:
    """A number as an index whose last parts have these sizes."""
    parts = []
    for n in reversed(sizes):
        rest = b.sdiv(i, n)
        parts.append(b.sub(i, b.mul(rest, n)))
        i = rest
    return [i, *reversed(parts)]


def following(b: ir.IRBuilder, index: Sequence[ir.Value], sizes: Sequence[ir.Value]) -> list[ir.Value]:
    """The index after this one; `sizes` are those of its last parts."""
    out, carry = [], ir.Constant(I1, 1)
    for i, n in zip(reversed(index[1:]), reversed(sizes), strict=True):
        up = b.add(i, b.zext(carry, I64))
        carry = b.icmp_signed(">=", up, n)
        out.append(b.select(carry, i64(0), up))
    return [b.add(index[0], b.zext(carry, I64)), *reversed(out)]


def within(b: ir.IRBuilder, position: ir.Value, size: ir.Value) -> ir.Value:
    """Whether a position is one of `size`."""
    return b.icmp_unsigned("<", position, size)


# ---- lines of windows ------------------------------------------------------------------------------------------------------


def _gather_function(module: ir.Module, dtype: np.dtype) -> ir.Function:
    """gather(plan, x, line, lines, element, elements, target, pitch): lines of the matrix of windows, `pitch` bytes apart.

    Up to a vector beyond the end of each line may be written.
    """
    name = f"fx_window_gather_{dtype.name}"
    if name in module.globals:
        return module.globals[name]
    fn, b = helper_function(module, name, [PTR, PTR, I64, I64, I64, I64, PTR, I64])
    plan, x, line, lines, element, elements, target, pitch = fn.args
    p, size = Fields(b, plan), i64(dtype.itemsize)
    lanes = Lanes(b, register_block(dtype).lanes)
    line_sizes, steps, lows = p.each("lines"), p.each("line_step"), p.each("low")
    taps, tap_steps, sizes, moves = p.each("taps"), p.each("tap_step"), p.each("size"), p.each("move")
    run, channels, plain_move = p["run"], p["channels"], p["plain_move"]
    tap_sizes = [taps[1], p["runs"]]
    stop = b.add(element, elements)
    first = b.sdiv(element, run)
    begin = apart(b, first, tap_sizes)
    whole = Loop(b, i64(0), lines, 1, [*apart(b, line, line_sizes), target])
    *index, row = whole.carried
    base = at(b, x, b.mul(index[0], plain_move))
    corner = [b.sub(b.mul(i, s), low) for i, s, low in zip(index[1:], steps, lows, strict=True)]
    runs = Loop(b, b.mul(first, run), stop, None, begin)
    tap = runs.carried
    q = [b.add(c, b.mul(t, s)) for c, t, s in zip(corner, tap, tap_steps, strict=True)]
    inside = b.and_(within(b, q[0], sizes[0]), within(b, q[1], sizes[1]))
    source = base
    for position, move in zip(q, moves, strict=True):
        source = at(b, source, b.mul(position, move))
    left = b.mul(b.neg(q[2]), channels)
    right = b.select(inside, b.mul(b.sub(sizes[2], q[2]), channels), i64(0))
    right = smaller(b, right, run)
    low, high = _larger(b, b.sub(element, runs.i), i64(0)), smaller(b, b.sub(stop, runs.i), run)
    place = at(b, row, b.mul(b.sub(runs.i, element), size))
    with b.if_else(b.and_(b.icmp_signed("<=", left, low), b.icmp_signed(">=", right, high))) as (all_inside, partly):
        with all_inside:
            _copy_run(lanes, dtype, source, place, low, high)
        with partly:
            vectors = Loop(b, low, high, lanes.lanes)
            below = b.not_(lanes.mask(b.sub(left, vectors.i)))
            mask = b.and_(below, lanes.mask(b.sub(right, vectors.i)))
            offset = b.mul(vectors.i, size)
            b.store(lanes.load_masked(at(b, source, offset), dtype, mask), at(b, place, offset), align=dtype.itemsize)
            vectors.end()
    runs.end(following(b, tap, tap_sizes), b.add(runs.i, run))
    whole.end([*following(b, index, line_sizes), at(b, row, pitch)])
    b.ret_void()
    return fn


def _copy_run(
    lanes: Lanes, dtype: np.dtype, source: ir.Value, target: ir.Value, low: ir.Value, high: ir.Value
) -> None:  # fmt: skip
    """Elements low to high, up to a vector more being written."""
    b, size = lanes.b, i64(dtype.itemsize)
    whole = b.sub(high, i64(lanes.lanes - 1))
    vectors = Loop(b, low, whole, lanes.lanes)
    offset = b.mul(vectors.i, size)
    b.store(lanes.load(at(b, source, offset), dtype), at(b, target, offset), align=dtype.itemsize)
    vectors.end()
    with b.if_then(b.icmp_signed("<", vectors.i, high)):
        offset, mask = b.mul(vectors.i, size), lanes.mask(b.sub(high, vectors.i))
        b.store(lanes.load_masked(at(b, source, offset), dtype, mask), at(b, target, offset), align=dtype.itemsize)


def _rows_function(module: ir.Module) -> ir.Function:
    """rows(plan, row, count, table): for each row from `row` on, where it lies in c, in bytes."""
    name = "fx_window_rows"
    if name in module.globals:
        return module.globals[name]
    fn, b = helper_function(module, name, [PTR, I64, I64, PTR])
    plan, row, count, table = fn.args
    p = Fields(b, plan)
    by_lines = b.icmp_signed("!=", p["by_lines"], i64(0))
    lines, taps = p.each("lines"), p.each("taps")
    sizes = [b.select(by_lines, x, y) for x, y in zip(lines, (*taps[1:], p["channels"]), strict=True)]
    steps, plain = p.each("c_step"), p["c_plain"]
    steps = [b.select(by_lines, x, y) for x, y in zip((plain, *steps), (*steps, plain), strict=True)]
    loop = Loop(b, i64(0), count, 1, apart(b, row, sizes))
    index = loop.carried
    offset = i64(0)
    for i, s in zip(index, steps, strict=True):
        offset = b.add(offset, b.mul(i, s))
    b.store(offset, b.gep(table, [loop.i], source_etype=I64))
    loop.end(following(b, index, sizes))
    b.ret_void()
    return fn


# ---- the second look at strong products ----------------------------------------------------------------------------------


def _element_function(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """element(plan, x, row, b, c): one fixed sum, whose blocks that are NaN pass over zeros of the strong operand."""
    fn, b = helper_function(module, name, [PTR, PTR, I64, PTR, PTR])
    plan, x, row, y, c = fn.args
    p, t = Fields(b, plan), memory_type(dtype)
    by_lines = b.icmp_signed("!=", p["by_lines"], i64(0))
    line_sizes, taps = p.each("lines"), p.each("taps")
    pairs = list(zip(p.each("line_step"), p.each("tap_step"), p.each("low"), strict=True))
    sizes, moves, plain_move = p.each("size"), p.each("move"), p["plain_move"]
    element_sizes, step = [*taps[1:], p["channels"]], p["b_row"]

    def factors(k: ir.Value) -> tuple[ir.Value, ir.Value]:
        line = apart(b, b.select(by_lines, row, k), line_sizes)
        element = apart(b, b.select(by_lines, k, row), element_sizes)
        place = at(b, at(b, x, b.mul(line[0], plain_move)), b.mul(element[3], i64(dtype.itemsize)))
        inside = ir.Constant(I1, 1)
        for d, (line_step, tap_step, low) in enumerate(pairs):
            q = b.sub(b.add(b.mul(line[d + 1], line_step), b.mul(element[d], tap_step)), low)
            inside = b.and_(inside, within(b, q, sizes[d]))
            place = at(b, place, b.mul(q, moves[d]))
        safe = b.select(inside, place, y)
        value = b.select(inside, b.load(safe, typ=t, align=dtype.itemsize), ir.Constant(t, 0))
        return value, b.load(at(b, y, b.mul(k, step)), typ=t, align=dtype.itemsize)

    b.store(strong_sum(b, dtype, k_block, p["k"], p["strong"], factors), c, align=dtype.itemsize)
    b.ret_void()
    return fn


def _repair_function(module: ir.Module, dtype: np.dtype, k_block: int) -> ir.Function:
    """repair(plan, x, row, rows, b, c, columns, table): elements of some rows of c that are NaN, summed again."""
    name = f"fx_window_repair_{dtype.name}"
    if name in module.globals:
        return module.globals[name]
    element = _element_function(module, f"{name}_element", dtype, k_block)
    fn, b = helper_function(module, name, [PTR, PTR, I64, I64, PTR, PTR, I64, PTR])
    plan, x, row, rows, y, c, columns, table = fn.args
    step = Fields(b, plan)["b_column"]
    loop = Loop(b, i64(0), rows, 1)
    target = at(b, c, b.load(b.gep(table, [loop.i], source_etype=I64), typ=I64))

    def again(column: ir.Value, spot: ir.Value) -> None:
        b.call(element, [plan, x, b.add(row, loop.i), at(b, y, b.mul(column, step)), spot])

    for_each_nan(b, dtype, target, columns, again)
    loop.end()
    b.ret_void()
    return fn


# ---- loops ----------------------------------------------------------------------------------------------------------------


class _Windows(MatmulEmitter):
    """The loops of a product whose rows are gathered."""

    fields = WINDOW_PLAN
    scattered = True

    def __init__(self, module: ir.Module, name: str, dtype: np.dtype, k_block: int):
        super().__init__(module, name, dtype, k_block)
        block = self.block
        narrow = block._replace(vectors=1)
        self.narrow = [emit_panel(module, f"{name}_n{r}", dtype, narrow, r, True) for r in (block.rows, block.few)]
        self.gather = _gather_function(module, dtype)
        self.rows_of = _rows_function(module)
        few, many = (n * block.rows for n in _PANELS)
        self.table = self.b.alloca(I64, size=i64(many))
        self.by_lines = self.b.icmp_signed("!=", self.p["by_lines"], i64(0))
        self.rows_at_once = self.b.select(self.by_lines, i64(few), i64(many))
        self.is_narrow = self.b.icmp_signed("<=", self.p["n"], i64(block.lanes))

    def _bytes(self) -> tuple[ir.Value, ir.Value]:
        """Sizes of the memory for gathered lines and packed panels of b."""
        b, length = self.b, smaller(self.b, i64(self.k_block), self.p["k"])
        lines = b.select(self.by_lines, self.rows_at_once, length)
        elements = b.select(self.by_lines, length, self.rows_at_once)
        return b.mul(lines, self._pitch(elements)), super()._bytes()[1]

    def _pitch(self, elements: ir.Value) -> ir.Value:
        """Bytes from one gathered line to the next: whole lines of the cache, and one more."""
        b = self.b
        return b.add(b.and_(b.add(b.mul(elements, i64(self.size)), i64(LINE - 1)), i64(-LINE)), i64(LINE))

    def _rows(self, start: ir.Value, stop: ir.Value) -> None:
        """Some rows at a time: gathered, multiplied, and looked at again."""
        b, size = self.b, i64(self.size)
        plan = self.fn.args[1]
        several = Loop(b, start, stop, self.rows_at_once)
        count = smaller(b, b.sub(stop, several.i), self.rows_at_once)
        pairs = ((several.i, self.k), (count, self.length), (self.k, several.i), (self.length, count))
        line, lines, element, elements = (b.select(self.by_lines, v, w) for v, w in pairs)
        pitch = self._pitch(elements)
        b.call(self.gather, [plan, self.x.start, line, lines, element, elements, self.panels_a, pitch])
        b.call(self.rows_of, [plan, several.i, count, self.table])
        a_row, a_k = (b.select(self.by_lines, v, w) for v, w in ((pitch, size), (size, pitch)))
        target = at(b, self.z.start, b.mul(self.j, size))
        self._panels((i64(0), count), self.panels_a, a_row, a_k, target)
        with b.if_then(self.last):
            self._look_again(several.i, count, target)
        several.end()

    def _multiply(self, height: int, left: list[ir.Value], target: ir.Value, row: ir.Value, sizes: list[ir.Value]) -> None:
        b = self.b
        rows = b.gep(self.table, [row], source_etype=I64)
        with b.if_else(self.is_narrow) as ways:
            for way, tiles in zip(ways, (self.narrow, self.tiles), strict=True):
                with way:
                    b.call(tiles[height], [*left, *self.right, target, rows, *sizes])

    def _after(self, target: ir.Value, rows: ir.Value) -> ir.Value:
        return target  # the table has them all

    def _look_again(self, row: ir.Value, count: ir.Value, target: ir.Value) -> None:
        """The second look at rows that are finished."""
        if self.dtype.kind != "f":
            return
        b = self.b
        with b.if_then(b.icmp_signed("!=", self.p["strong"], i64(0))):
            y = at(b, self.y.start, b.mul(self.j, self.y.column))
            look = _repair_function(self.fn.module, self.dtype, self.k_block)
            b.call(look, [self.fn.args[1], self.x.start, row, count, y, target, self.width, self.table])


def emit_windows(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Windows(module, name, dtype, k_block).emit()
