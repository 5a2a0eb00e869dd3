"""Rows that no single stride leads through, brought in order: a block of elements at a time, into a scratch and back.

The plan has `PACK` words for each operand of mode `packed`, after the records: sizes of the walk from the outermost dimension to
the innermost, then its strides in bytes. Elements count in that order.
"""

from __future__ import annotations

from llvmlite import ir

from fxgrad.kernels.loops import I1, I8, I64, PTR, Loop, Plan, advance, i64
from fxgrad.kernels.spec import PACK_DIMS

__all__ = ["emit_pack", "walked_to", "words"]

_LONG = 16  # elements of a run that are worth a call of memcpy


def emit_pack(b: ir.IRBuilder, itemsize: int, back: bool, *args: ir.Value) -> None:
    """Copy elements: `args` are the scratch, the row, the place of the words of the walk, the first element, how many."""
    name = f"{'unpack' if back else 'pack'}_{8 * itemsize}"
    module = b.module
    fn = module.globals.get(name)
    if fn is None:
        fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64]), name)
        fn.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            fn.attributes.add(attribute)
        _Copier(ir.IRBuilder(fn.append_basic_block("entry")), fn, itemsize, back).emit()
    b.call(fn, list(args))


class _Copier:
    def __init__(self, b: ir.IRBuilder, fn: ir.Function, itemsize: int, back: bool):
        self.b, self.size, self.back = b, itemsize, back
        self.scratch, self.row, words, self.start, self.count = fn.args
        plan = [b.load(b.gep(words, [i64(k)], source_etype=I64), typ=I64) for k in range(2 * PACK_DIMS)]
        self.sizes, self.strides = plan[:PACK_DIMS], plan[PACK_DIMS:]

    def emit(self) -> None:
        """Runs along the innermost dimension, the first and the last of which may be parts of one."""
        b, last = self.b, PACK_DIMS - 1
        rest, at = self.start, []
        for n in reversed(self.sizes):
            quotient = b.sdiv(rest, n)
            at.append(b.sub(rest, b.mul(quotient, n)))
            rest = quotient
        at.reverse()
        runs = Loop(b, i64(0), self.count, None, at)
        index = list(runs.carried)
        place = self.row
        for i, stride in zip(index, self.strides, strict=True):
            place = advance(b, place, b.mul(i, stride))
        here = b.sub(self.sizes[last], index[last])
        left = b.sub(self.count, runs.i)
        length = b.select(b.icmp_signed("<", here, left), here, left)
        self._run(b.gep(self.scratch, [b.mul(runs.i, i64(self.size))], source_etype=I8), place, length)
        following: list[ir.Value] = [i64(0)]
        carry: ir.Value = ir.Constant(I1, 1)
        for d in range(last - 1, -1, -1):
            more = b.add(index[d], b.zext(carry, I64))
            carry = b.icmp_signed(">=", more, self.sizes[d])
            following.append(b.select(carry, i64(0), more))
        runs.end(list(reversed(following)), b.add(runs.i, length))
        b.ret_void()

    def _run(self, scratch: ir.Value, place: ir.Value, length: ir.Value) -> None:
        b, stride = self.b, self.strides[-1]
        together = b.icmp_signed("==", stride, i64(self.size))
        with b.if_else(b.and_(together, b.icmp_signed(">=", length, i64(_LONG)))) as (whole, single):
            with whole:
                copy = b.module.declare_intrinsic(
                    "llvm.memcpy.p0.p0.i64", (), ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I1])
                )
                ends = [place, scratch] if self.back else [scratch, place]
                b.call(copy, [*ends, b.mul(length, i64(self.size)), ir.Constant(I1, 0)])
            with single:
                self._elements(scratch, place, length)

    def _elements(self, scratch: ir.Value, place: ir.Value, length: ir.Value) -> None:
        b, t = self.b, ir.IntType(8 * self.size)
        loop = Loop(b, i64(0), length, 1, [place])
        (at,) = loop.carried
        inside = b.gep(scratch, [loop.i], source_etype=t)
        source, target = (inside, at) if self.back else (at, inside)
        b.store(b.load(source, typ=t, align=self.size), target, align=self.size)
        loop.end([advance(b, at, self.strides[-1])])


def words(b: ir.IRBuilder, plan: Plan, number: int) -> ir.Value:
    """Where the words of a packed operand begin, the `number`-th of them."""
    return b.gep(plan.address, [b.add(plan.tail, i64(2 * PACK_DIMS * number))], source_etype=I64)


def walked_to(b: ir.IRBuilder, plan: Plan, number: int, dims: int, element: ir.Value) -> ir.Value:
    """The byte offset of an element in a walk of so many dimensions, the `number`-th of the plan."""
    place, total = words(b, plan, number), i64(0)

    def word(k: int) -> ir.Value:
        return b.load(b.gep(place, [i64(k)], source_etype=I64), typ=I64)

    for d in range(PACK_DIMS - 1, PACK_DIMS - dims, -1):
        quotient = b.udiv(element, word(d))
        total = b.add(total, b.mul(b.sub(element, b.mul(quotient, word(d))), word(PACK_DIMS + d)))
        element = quotient
    return b.add(total, b.mul(element, word(2 * PACK_DIMS - dims)))
