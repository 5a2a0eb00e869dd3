"""Map kernels: every element of a space by itself."""

from __future__ import annotations

import functools

from llvmlite import ir

from fxgrad.kernels import gather
from fxgrad.kernels.loops import I64, Lanes, Loop, Nest, Row, emit_ops, i64, pick
from fxgrad.kernels.spec import Kernel

__all__ = ["emit_map"]

_SHORT = 8  # operations of a body that has a loop for whole vectors


def _streams(b: ir.IRBuilder, pointer: ir.Value, wanted: ir.Value) -> ir.Value:
    """Whether a row of an output goes past the caches: the plan wants it, and it is aligned for it."""
    return b.and_(wanted, b.icmp_unsigned("==", b.and_(b.ptrtoint(pointer, I64), i64(15)), i64(0)))


def _is_short(kernel: Kernel) -> bool:
    """Whether a body takes less time than asking, for each vector, if it is whole: a second loop is worth its code."""
    plain = all(o.mode in ("unit", "splat", "index") for o in kernel.inputs) and all(o.mode == "unit" for o in kernel.outputs)
    return plain and len(kernel.ops) <= _SHORT and all(op.prim.cheap for op in kernel.ops)


def emit_map(kernel: Kernel, fn: ir.Function, b: ir.IRBuilder) -> None:
    """Row by row: vectors of the operands, the operations, vectors of the results.

    Short bodies have a loop of their own for the whole vectors of a row that stay in the caches.
    """
    operands, n_in = kernel.operands, len(kernel.inputs)
    nest = Nest(b, fn, len(operands), kernel.scalars)
    lanes = Lanes(b, kernel.lanes, nest.plan.literals, kernel.scalars)
    status = gather.status_of(b, fn.args[0], i64(len(operands))) if kernel.checks else None
    lo, hi = nest.split_columns()
    past = [b.icmp_signed("!=", s, i64(0)) for s in nest.plan.loop_strides[n_in:]]
    streaming = functools.reduce(b.or_, past)
    rest = lo
    if _is_short(kernel):
        rest = b.select(streaming, lo, b.add(lo, b.and_(b.sub(hi, lo), i64(-lanes.lanes))))
    pointers = list(nest.begin())
    places = dict(enumerate(pointers))
    for m in kernel.moved:
        pointers[m.operand] = gather.emit_move(b, kernel, nest.plan, m, pointers[m.operand], places, status)
    strides = nest.plan.vector_strides
    reads = Row(lanes, kernel.inputs, pointers[:n_in], strides[:n_in])
    writes = Row(lanes, kernel.outputs, pointers[n_in:], strides[n_in:])
    divisors = lanes.divisors(kernel.ops, reads.splats)
    if _is_short(kernel):
        loop = Loop(b, lo, rest, lanes.lanes)
        values = reads.load_whole(loop.i)
        emit_ops(lanes, kernel.ops, values, None, divisors)
        writes.store_whole(pick(lanes, values, kernel.results), loop.i)
        loop.end()
    with b.if_then(b.icmp_signed("<", rest, hi)):
        streams = [_streams(b, p, wanted) for p, wanted in zip(pointers[n_in:], past, strict=True)]
        loop = Loop(b, rest, hi, lanes.lanes)
        values, full, mask = reads.load(loop.i, hi)
        emit_ops(lanes, kernel.ops, values, None if status is None else (mask, status), divisors)
        writes.store(pick(lanes, values, kernel.results), loop.i, full, mask, streams)
        loop.end()
    nest.end()
    with b.if_then(streaming):
        b.fence("seq_cst")  # what went past the caches is there before anybody is told of it
    b.ret_void()
