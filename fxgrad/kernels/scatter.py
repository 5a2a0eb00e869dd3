"""Kernels that write what they compute where indices lead: `put` and `add`.

Units are index tuples, each of them a row or several, whose result is written to, or added to, the row of the array at which the
moved output then begins. Rows run in order; those of a `put` at one clamped place have no order to keep.
"""

from __future__ import annotations

from llvmlite import ir

from fxgrad.kernels.gather import emit_move, status_of
from fxgrad.kernels.loops import Lanes, Loop, Nest, Row, emit_ops, i64, pick
from fxgrad.kernels.spec import Kernel
from fxgrad.kernels.vector import Vec

__all__ = ["emit_scatter"]


def emit_scatter(kernel: Kernel, fn: ir.Function, b: ir.IRBuilder) -> None:
    """Row by row: where it goes, then vectors of the operands, the operations, vectors written."""
    operands, n_in = kernel.operands, len(kernel.inputs)
    (moved,) = kernel.moved
    nest = Nest(b, fn, len(operands), kernel.scalars)
    lanes = Lanes(b, kernel.lanes, nest.plan.literals, kernel.scalars)
    status = status_of(b, fn.args[0], i64(len(operands))) if kernel.checks else None
    lo, hi = nest.split_columns()
    pointers = nest.begin()
    places, strides = dict(enumerate(pointers)), nest.plan.vector_strides
    place = emit_move(b, kernel, nest.plan, moved, pointers[n_in], places, status)
    read = [k for k in range(n_in) if kernel.inputs[k].mode != "index"]
    reads = Row(lanes, [operands[k] for k in read], [pointers[k] for k in read], [strides[k] for k in read])
    writes = Row(lanes, kernel.outputs, [place], [strides[n_in]])
    loop = Loop(b, lo, hi, lanes.lanes)
    loaded, full, mask = reads.load(loop.i, hi)
    values: list = [None] * n_in
    for k, x in zip(read, loaded, strict=True):
        values[k] = x
    emit_ops(lanes, kernel.ops, values, None if status is None else (mask, status))
    (new,) = pick(lanes, values, kernel.results)
    if kernel.form == "add":
        (before,), _, _ = writes.load(loop.i, hi)
        new = _sum(before, new)
    writes.store([new], loop.i, full, mask)
    loop.end()
    nest.end()
    b.ret_void()


def _sum(x: Vec, y: Vec) -> Vec:
    return x | y if x.dtype.kind == "b" else x + y
