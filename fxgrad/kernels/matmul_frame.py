"""What all product kernels share: reading the plan, walking the batches, and the second look at NaN of strong products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I32, I64, KERNEL_TYPE, PTR, Loop, i64, memory_type
from fxgrad.kernels.matmul import PLAN
from fxgrad.kernels.matmul_tile import Tile, at, helper_function, internal_function, parts_of_batches, register_block, smaller

__all__ = ["Frame", "Place", "for_each_nan", "repair_function", "strong_sum"]


class Place(NamedTuple):
    """A matrix of the batch at hand: its start, and the bytes from one row and column to the next."""

    start: ir.Value
    row: ir.Value
    column: ir.Value


class Frame:
    """A product kernel being emitted: its function, the fields of its plan, the matrices of a batch (x, y, z for a, b, c)."""

    x: Place
    y: Place
    z: Place
    fields: Sequence[str] = PLAN

    def __init__(self, module: ir.Module, name: str, dtype: np.dtype, k_block: int, operands: str = "abc"):
        self.fn, self.b = internal_function(module, name, KERNEL_TYPE)
        b, (_, plan, self.lo, self.hi) = self.b, self.fn.args
        self.dtype, self.k_block, self.size = dtype, k_block, dtype.itemsize
        self.p = {f: b.load(b.gep(plan, [i64(i)], source_etype=I64), typ=I64) for i, f in enumerate(self.fields)}
        self.whole_k = self.p["k"]
        self.arrays = {n: at(b, self.pointer(i64(i)), self.p[f"{n}_offset"]) for i, n in enumerate(operands)}

    def pointer(self, i: ir.Value) -> ir.Value:
        """The i-th pointer given to the kernel."""
        return self.b.load(self.b.gep(self.fn.args[0], [i], source_etype=PTR), typ=PTR)

    def open_batches(self) -> tuple[Loop, ir.Value, ir.Value]:
        """Open the loop over the batches in the range of work: the loop, and the first and last unit but one of the batch.

        From here on the plan's k is that of the batch.
        """
        b, p = self.b, self.p
        loop, low, high = parts_of_batches(b, self.lo, self.hi, p["units"])
        self.outer = b.sdiv(loop.i, p["inner"])
        self.inner = b.sub(loop.i, b.mul(self.outer, p["inner"]))
        block = smaller(b, b.sub(self.whole_k, b.mul(self.inner, i64(self.k_block))), i64(self.k_block))
        p["k"] = b.select(b.icmp_signed("!=", p["cut"], i64(0)), block, self.whole_k)
        for name, x in self.arrays.items():
            place = Place(self.batch(x, name), p[f"{name}_row"], p[f"{name}_column"])
            setattr(self, {"a": "x", "b": "y", "c": "z"}[name], place)
        return loop, low, high

    def batch(self, array: ir.Value, name: str) -> ir.Value:
        """Where the batch at hand begins."""
        b, p = self.b, self.p
        return at(b, at(b, array, b.mul(self.outer, p[f"{name}_outer"])), b.mul(self.inner, p[f"{name}_inner"]))

    def repair(self, rows: tuple[ir.Value, ir.Value], columns: tuple[ir.Value, ir.Value]) -> None:
        """The second look at finished rows and columns of this batch's result."""
        if self.dtype.kind != "f":
            return
        b, p = self.b, self.p
        (low, high), (left, right) = rows, columns
        with b.if_then(b.icmp_signed("!=", p["strong"], i64(0))):
            a = at(b, self.x.start, b.mul(low, self.x.row))
            y = at(b, self.y.start, b.mul(left, self.y.column))
            c = at(b, at(b, self.z.start, b.mul(low, self.z.row)), b.mul(left, i64(self.size)))
            sizes = [b.sub(high, low), b.sub(right, left), p["k"], p["strong"]]
            helper = repair_function(self.fn.module, self.dtype, self.k_block)
            b.call(helper, [a, self.x.row, self.x.column, y, self.y.row, self.y.column, c, self.z.row, *sizes])


def repair_function(module: ir.Module, dtype: np.dtype, k_block: int) -> ir.Function:
    """repair(a, a_row, a_k, b, b_k, b_column, c, c_row, m, n, k, strong): elements of c that are NaN, summed again."""
    name = f"fx_product_repair_{dtype.name}"
    if name in module.globals:
        return module.globals[name]
    element = _strong_element(module, f"{name}_element", dtype, k_block)
    fn, b = helper_function(module, name, [PTR, I64, I64, PTR, I64, I64, PTR, I64, I64, I64, I64, I64])
    a, a_row, a_k, y, b_k, b_column, c, c_row, m, n, k, strong = fn.args
    rows = Loop(b, i64(0), m, 1, [a, c])
    left, target = rows.carried

    def again(column: ir.Value, spot: ir.Value) -> None:
        b.call(element, [left, a_k, at(b, y, b.mul(column, b_column)), b_k, spot, k, strong])

    for_each_nan(b, dtype, target, n, again)
    rows.end([at(b, left, a_row), at(b, target, c_row)])
    b.ret_void()
    return fn


def for_each_nan(
    b: ir.IRBuilder, dtype: np.dtype, row: ir.Value, n: ir.Value, emit: Callable[[ir.Value, ir.Value], None]
) -> None:  # fmt: skip
    """Emit `emit(column, place)` for every NaN among n elements side by side."""
    size, lanes = i64(dtype.itemsize), register_block(dtype).lanes
    columns, tile = Loop(b, i64(0), n, lanes), Tile(b, dtype, 1, 1, lanes)
    tile.mask(b.sub(n, columns.i))
    place = at(b, row, b.mul(columns.i, size))
    found = tile.load(place, 0)
    bits = b.bitcast(b.fcmp_unordered("uno", found, found), ir.IntType(lanes))
    with b.if_then(b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), likely=False):
        last = smaller(b, b.add(columns.i, i64(lanes)), n)
        each = Loop(b, columns.i, last, 1)
        spot = at(b, row, b.mul(each.i, size))
        value = b.load(spot, typ=memory_type(dtype), align=dtype.itemsize)
        with b.if_then(b.fcmp_unordered("uno", value, value)):
            emit(each.i, spot)
        each.end()
    columns.end()


def _strong_element(module: ir.Module, name: str, dtype: np.dtype, k_block: int) -> ir.Function:
    """element(a, a_k, b, b_k, c, k, strong): one fixed sum, whose blocks that are NaN pass over zeros of the strong operand."""
    fn, b = helper_function(module, name, [PTR, I64, PTR, I64, PTR, I64, I64])
    a, a_k, y, b_k, c, k, strong = fn.args

    def factors(i: ir.Value) -> list[ir.Value]:
        places = (at(b, v, b.mul(i, step)) for v, step in ((a, a_k), (y, b_k)))
        return [b.load(place, typ=memory_type(dtype), align=dtype.itemsize) for place in places]

    b.store(strong_sum(b, dtype, k_block, k, strong, factors), c, align=dtype.itemsize)
    b.ret_void()
    return fn


def strong_sum(
    b: ir.IRBuilder, dtype: np.dtype, k_block: int, k: ir.Value, strong: ir.Value, factors: Callable[[ir.Value], Sequence]
) -> ir.Value:
    """The fixed sum of the products of `factors(i)`, i < k, whose blocks that are NaN pass over zeros of the strong factor."""
    t, one = memory_type(dtype), Tile(b, dtype, 1, 1, 1)
    zero = ir.Constant(t, 0)
    of_a = b.icmp_signed("==", strong, i64(1))
    blocks = Loop(b, i64(0), k, k_block, [zero])
    stop = smaller(b, k, b.add(blocks.i, i64(k_block)))
    chain = Loop(b, blocks.i, stop, 1, [zero, zero])
    totals = chain.carried
    p, q = factors(chain.i)

    def add_to(total: ir.Value) -> ir.Value:
        vectors = [b.bitcast(v, ir.VectorType(t, 1)) for v in (p, q, total)]
        return b.extract_element(one.multiply_add(*vectors), ir.Constant(I32, 0))

    passed = b.fcmp_ordered("==", b.select(of_a, p, q), zero)
    plain, strict = add_to(totals[0]), b.select(passed, totals[1], add_to(totals[1]))
    chain.end([plain, strict])
    plain, strict = chain.carried
    total = b.select(b.fcmp_unordered("uno", plain, plain), strict, plain)
    first = b.icmp_signed("==", blocks.i, i64(0))
    blocks.end([b.select(first, total, b.fadd(blocks.carried[0], total))])
    return blocks.carried[0]
