"""Reads at computed positions inside map, row and column kernels.

An operand that is gathered has the mode `indirect`. It is not loaded with the others: the operation
`gather x code (index length stride)*` adds to its place, for each index array, the index times the stride, in bytes. An index
from the end is counted from there. One out of bounds writes two words where the last pointer leads, the code plus the number of
the index array, and the index; the executor then stops the program.

Where a whole row is read at one place the operand is *moved* instead (`Moved` in spec.py): its start is computed once a row, and
it is then read like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I32, I64, PTR, Lanes, Plan, advance, i64, memory_type
from fxgrad.kernels.spec import Kernel, Moved, Op, Ref, Scalar
from fxgrad.kernels.vector import Vec

__all__ = ["Address", "emit_gather", "emit_move", "emit_position", "is_gather", "status_of"]


class Address(NamedTuple):
    """Where an operand that is gathered lies for the first lane, and the lanes' offsets."""

    pointer: ir.Value
    offsets: ir.Value
    dtype: np.dtype


def emit_gather(lanes: Lanes, op: Op, values: Sequence[Any], mask: ir.Value, status: ir.Value) -> Vec:
    """The vector of elements that an operation reads; `mask` are the lanes that count."""
    b = lanes.b
    x: Address = values[op.args[0]]  # type: ignore[index]
    code, *rest = op.args[1:]
    total = None
    for k in range(0, len(rest), 3):
        index = lanes.value(rest[k], values)
        length, stride = lanes.value(rest[k + 1], values).v, lanes.value(rest[k + 2], values).v
        place = _checked(lanes, index, length, mask, status, b.add(_first(b, lanes.value(code, values).v), i64(k // 3)))
        place = b.mul(place, stride)
        total = place if total is None else b.add(total, place)
    assert total is not None
    return lanes.register(lanes.gather(x.pointer, b.add(x.offsets, total), x.dtype, mask), x.dtype)


def _first(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    return b.extract_element(v, ir.Constant(I32, 0))


def _checked(lanes: Lanes, index: Vec, length: ir.Value, mask: ir.Value, status: ir.Value, code: ir.Value) -> ir.Value:
    """Positions from the start, 0 for indices out of bounds, which are reported."""
    b, wide = lanes.b, ir.VectorType(I64, lanes.lanes)
    zero = ir.Constant(wide, None)
    signed = index.dtype.kind == "i"
    given = index.v if index.dtype.itemsize == 8 else (b.sext if signed else b.zext)(index.v, wide)
    place = b.select(b.icmp_signed("<", given, zero), b.add(given, length), given) if signed else given
    bad = b.and_(b.icmp_unsigned(">=", place, length), mask)
    bits = b.bitcast(bad, ir.IntType(lanes.lanes))
    wrong, fine = b.append_basic_block("beyond"), b.append_basic_block("inside")
    b.cbranch(b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), wrong, fine).set_weights([1, 1000])
    b.position_at_end(wrong)
    lane = b.cttz(bits, ir.Constant(ir.IntType(1), 0))
    lane = b.zext(lane, I32) if lanes.lanes < 32 else lane
    b.store(b.extract_element(given, lane), b.gep(status, [i64(1)], source_etype=I64), align=8)
    b.store(code, status, align=8)
    b.branch(fine)
    b.position_at_end(fine)
    return b.select(bad, zero, place)


def emit_move(
    b: ir.IRBuilder, kernel: Kernel, plan: Plan, m: Moved, start: ir.Value, indices: Mapping[int, ir.Value],
    status: ir.Value | None, known: Sequence[ir.Value] = (),
) -> ir.Value:  # fmt: skip
    """Where a moved operand begins, given where it would begin at index 0, and where its indices lie.

    `known` are the positions of the first ones.
    """
    for k, (_, _, stride) in enumerate(m.indices):
        place = known[k] if k < len(known) else emit_position(b, kernel, plan, m, k, indices, status)
        start = advance(b, start, b.mul(place, _literal(plan, stride)))
    return start


def emit_position(
    b: ir.IRBuilder, kernel: Kernel, plan: Plan, m: Moved, k: int, indices: Mapping[int, ir.Value], status: ir.Value | None
) -> ir.Value:  # fmt: skip
    """Where the k-th index of a moved operand leads along its axis; 0 if it is out of bounds, which is reported."""
    i, length, _ = m.indices[k]
    dtype, n = kernel.inputs[i].dtype, _literal(plan, length)
    loaded = b.load(indices[i], typ=memory_type(dtype), align=dtype.itemsize)
    signed = dtype.kind == "i"
    given = loaded if dtype.itemsize == 8 else (b.sext if signed else b.zext)(loaded, I64)
    if m.clamps:
        place = b.select(b.icmp_signed(">=", given, n), b.sub(n, i64(1)), given)
        return b.select(b.icmp_signed("<", place, i64(0)), i64(0), place)
    place = b.select(b.icmp_signed("<", given, i64(0)), b.add(given, n), given) if signed else given
    bad = b.icmp_unsigned(">=", place, n)
    with b.if_then(bad, likely=False):
        b.store(given, b.gep(status, [i64(1)], source_etype=I64), align=8)
        b.store(b.add(_literal(plan, m.code), i64(k)), status, align=8)
    return b.select(bad, i64(0), place)


def _literal(plan: Plan, ref: Ref) -> ir.Value:
    assert isinstance(ref, Scalar)
    return plan.literals[ref.number]


def status_of(b: ir.IRBuilder, pointers: ir.Value, count: ir.Value) -> ir.Value:
    """The place of the two words, which is the pointer after the `count` operands."""
    return b.load(b.gep(pointers, [count], source_etype=PTR), typ=PTR)


def is_gather(op: Op) -> bool:
    return op.prim.name == "gather"
