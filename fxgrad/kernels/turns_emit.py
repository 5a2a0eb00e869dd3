"""Code of kernels that are whole loops (see turns.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I8, I64, PTR, Lanes, advance, emit_ops, i64, kernel_function, memory_type
from fxgrad.kernels.spec import Ref, Scalar
from fxgrad.kernels.turns import TurnsKernel
from fxgrad.kernels.vector import Vec

__all__ = ["emit_turns"]


def emit_turns(kernel: TurnsKernel, module: ir.Module, name: str) -> ir.Function:
    """The kernel as an internal function of a module."""
    fn = kernel_function(module, name)
    _Emitter(kernel, fn).emit()
    return fn


class _Emitter:
    def __init__(self, kernel: TurnsKernel, fn: ir.Function):
        self.kernel = kernel
        self.pointers, self.plan, self.lo, self.hi = fn.args
        self.b = b = ir.IRBuilder(fn.append_basic_block("entry"))
        self.bases = [b.load(b.gep(self.pointers, [i64(k)], source_etype=PTR), typ=PTR) for k in range(len(kernel.groups))]
        moved = [k for k, g in enumerate(kernel.groups) if g.role in "xy"]
        self.moves = {k: (self._word(2 + 2 * i), self._word(3 + 2 * i)) for i, k in enumerate(moved)}
        first = 2 + 2 * len(moved)
        literals = [self._literal(first + i, d) for i, d in enumerate(kernel.scalars)]
        self.lanes = Lanes(b, 1, literals, kernel.scalars)

    def _word(self, i: int) -> ir.Value:
        return self.b.load(self.b.gep(self.plan, [i64(i)], source_etype=I64), typ=I64)

    def _literal(self, i: int, dtype: np.dtype) -> ir.Value:
        return self.b.load(self.b.gep(self.plan, [i64(i)], source_etype=I64), typ=memory_type(dtype), align=8)

    def _load(self, k: int, pointer: ir.Value) -> list[Vec]:
        g = self.kernel.groups[k]
        places = [advance(self.b, pointer, i64(i * g.dtype.itemsize)) for i in g.places]
        return [self.lanes.register(self.lanes.load(p, g.dtype), g.dtype) for p in places]

    def _store(self, k: int, pointer: ir.Value, values: Sequence[Vec]) -> None:
        g = self.kernel.groups[k]
        for i, x in enumerate(values):
            place = advance(self.b, pointer, i64(i * g.dtype.itemsize))
            self.b.store(self.lanes.memory(x), place, align=g.dtype.itemsize)

    def _slice(self, k: int, turn: ir.Value) -> ir.Value:
        start, stride = self.moves[k]
        return advance(self.b, self.bases[k], self.b.add(start, self.b.mul(turn, stride)))

    def _role(self, role: str) -> list[int]:
        return [k for k, g in enumerate(self.kernel.groups) if g.role == role]

    def emit(self) -> None:
        b, kernel = self.b, self.kernel
        fixed = [x for k in self._role("const") for x in self._load(k, self.bases[k])]
        first = [x for k in self._role("carry") for x in self._load(k, self.bases[k])]
        entry = b.block
        head, body, done = (b.append_basic_block(n) for n in ("head", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        turn = b.phi(I64)
        turn.add_incoming(self.lo, entry)
        phis = [b.phi(x.v.type) for x in first]
        for phi, x in zip(phis, first, strict=True):
            phi.add_incoming(x.v, entry)
        carried = [Vec(b, phi, x.dtype) for phi, x in zip(phis, first, strict=True)]
        values = [*fixed, *carried]
        left = b.icmp_signed("<", turn, self.hi)
        holds = None
        if kernel.tested >= 0:  # such a loop has no x
            emit_ops(self.lanes, kernel.ops[: kernel.tested], values)
            holds = b.extract_element(self._value(kernel.results[-1], values).v, ir.Constant(ir.IntType(32), 0))
        b.cbranch(left if holds is None else b.and_(left, holds), body, done)
        b.position_at_end(body)
        values += [x for k in self._role("x") for x in self._load(k, self._slice(k, turn))]
        emit_ops(self.lanes, kernel.ops[max(kernel.tested, 0) :], values)
        results = [self._value(r, values) for r in kernel.results]
        following, rest = results[: len(carried)], results[len(carried) :]
        for k in self._role("y"):
            count = kernel.groups[k].size
            self._store(k, self._slice(k, turn), rest[:count])
            rest = rest[count:]
        turn.add_incoming(b.add(turn, i64(1)), b.block)
        for phi, x in zip(phis, following, strict=True):
            phi.add_incoming(x.v, b.block)
        b.branch(head)
        b.position_at_end(done)
        for k in self._role("carry"):
            count = kernel.groups[k].size
            self._store(k, self.bases[k], carried[:count])
            carried = carried[count:]
        if holds is not None:
            flag = b.load(b.gep(self.pointers, [i64(len(kernel.groups))], source_etype=PTR), typ=PTR)
            b.store(b.zext(holds, I8), flag)
            b.store(turn, b.gep(flag, [i64(1)], source_etype=I64))
        b.ret_void()

    def _value(self, ref: Ref, values: Sequence[Vec]) -> Vec:
        return self.lanes.literals[ref.number] if isinstance(ref, Scalar) else self.lanes.value(ref, values)
