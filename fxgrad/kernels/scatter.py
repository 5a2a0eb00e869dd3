"""Kernels that write what they compute where indices lead: `put` and `add`.

A row's result is written to, or added to, the row of the array at which the moved output then begins. What meets at one place
meets in the order of the rows, so units of work are parts of the places that the first index has: each part looks at all rows,
and computes those that lead into it. Rows at a clamped place, of a window, never meet: their units are rows, as those of a map.
"""

from __future__ import annotations

from contextlib import ExitStack

from llvmlite import ir

from fxgrad.kernels.gather import emit_move, emit_position, status_of
from fxgrad.kernels.loops import Lanes, Loop, Nest, Row, emit_ops, i64, pick
from fxgrad.kernels.spec import Kernel, Scalar
from fxgrad.kernels.vector import Vec

__all__ = ["emit_scatter"]


def emit_scatter(kernel: Kernel, fn: ir.Function, b: ir.IRBuilder) -> None:
    """Row by row: where it goes, then vectors of the operands, the operations, vectors written."""
    n_in = len(kernel.inputs)
    *others, moved = kernel.moved
    nest = Nest(b, fn, len(kernel.operands), kernel.scalars)
    lanes = Lanes(b, kernel.lanes, nest.plan.literals, kernel.scalars)
    status = status_of(b, fn.args[0], i64(len(kernel.operands))) if kernel.checks else None
    begin, end = (i64(0), nest.plan.n) if not moved.clamps else nest.split_columns()
    part = None if moved.clamps else _part(b, nest, kernel)
    pointers = list(nest.begin())
    places = dict(enumerate(pointers))
    with ExitStack() as inside:
        known: list[ir.Value] = []
        if part is not None:
            known.append(emit_position(b, kernel, nest.plan, moved, 0, places, status))
            low, high = part
            mine = b.and_(b.icmp_signed(">=", known[0], low), b.icmp_signed("<", known[0], high))
            inside.enter_context(b.if_then(mine))
        for m in others:
            pointers[m.operand] = emit_move(b, kernel, nest.plan, m, pointers[m.operand], places, status)
        place = emit_move(b, kernel, nest.plan, moved, pointers[n_in], places, status, known)
        _Body(kernel, nest, lanes, status).emit(pointers, place, begin, end)
    nest.end()
    b.ret_void()


def _part(b: ir.IRBuilder, nest: Nest, kernel: Kernel) -> tuple[ir.Value, ir.Value]:
    """The places that belong to units lo to hi; the rows are all."""
    length = kernel.moved[-1].indices[0][1]
    assert isinstance(length, Scalar)
    places = nest.plan.literals[length.number]
    low, high = (b.udiv(b.mul(places, unit), nest.plan.extent) for unit in (nest.lo, nest.hi))
    nest.lo, nest.hi = i64(0), nest.plan.rows
    return low, high


class _Body:
    """One row."""

    def __init__(self, kernel: Kernel, nest: Nest, lanes: Lanes, status: ir.Value | None):
        self.kernel, self.nest, self.lanes, self.status = kernel, nest, lanes, status

    def emit(self, pointers: list[ir.Value], place: ir.Value, begin: ir.Value, end: ir.Value) -> None:
        kernel, lanes, strides = self.kernel, self.lanes, self.nest.plan.vector_strides
        reads = Row(lanes, kernel.inputs, pointers[: len(kernel.inputs)], strides[: len(kernel.inputs)])
        writes = Row(lanes, kernel.outputs, [place], [strides[len(kernel.inputs)]])
        loop = Loop(lanes.b, begin, end, lanes.lanes)
        values, full, mask = reads.load(loop.i, end)
        emit_ops(lanes, kernel.ops, values, None if self.status is None else (mask, self.status))
        (new,) = pick(lanes, values, kernel.results)
        if kernel.form == "add":
            (before,), _, _ = writes.load(loop.i, end)
            new = _sum(before, new)
        writes.store([new], loop.i, full, mask)
        loop.end()


def _sum(x: Vec, y: Vec) -> Vec:
    return x | y if x.dtype.kind == "b" else x + y
