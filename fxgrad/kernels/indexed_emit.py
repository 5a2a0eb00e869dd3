"""Code of kernels that read or write at positions known when they run (see indexed.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from fxgrad.kernels.indexed import DIMS, INDEX, PLAN, IndexKernel
from fxgrad.kernels.loops import I1, I8, I64, PTR, Lanes, Loop, advance, i64, kernel_function, memory_type

__all__ = ["emit_indexed"]

_LONG = 64  # bytes of a run that are worth a call of memcpy


def emit_indexed(kernel: IndexKernel, module: ir.Module, name: str) -> ir.Function:
    """The kernel as an internal function of a module."""
    fn = kernel_function(module, name)
    _Emitter(kernel, fn).emit()
    return fn


class _Emitter:
    def __init__(self, kernel: IndexKernel, fn: ir.Function):
        self.kernel, self.fn = kernel, fn
        self.pointers, self.plan, self.lo, self.hi = fn.args
        self.b = ir.IRBuilder(fn.append_basic_block("entry"))
        self.p = {field: self._word(i) for i, field in enumerate(PLAN)}
        count = len(kernel.indices)
        first = 1 if kernel.what == "take" else 2
        self.x = advance(self.b, self._pointer(0), self.p["x_offset"])
        self.u = advance(self.b, self._pointer(1 + count if kernel.what == "take" else 1), self.p["u_offset"])
        self.index = [self._pointer(first + k) for k in range(count)]
        self.fields = [{field: self._word(len(PLAN) + len(INDEX) * k + i) for i, field in enumerate(INDEX)} for k in range(count)]

    def _word(self, i: int) -> ir.Value:
        return self.b.load(self.b.gep(self.plan, [i64(i)], source_etype=I64), typ=I64)

    def _pointer(self, i: int) -> ir.Value:
        return self.b.load(self.b.gep(self.pointers, [i64(i)], source_etype=PTR), typ=PTR)

    def emit(self) -> None:
        """Units of one element, the common case, have a loop without the loops over a box."""
        b = self.b
        single = b.icmp_signed("==", self.p["size_0"], i64(1))
        for d in range(1, DIMS):
            single = b.and_(single, b.icmp_signed("==", self.p[f"size_{d}"], i64(1)))
        with b.if_else(single) as (one, many):
            with one:
                self._units(self._element)
            with many:
                self._units(lambda x, u: self._box(x, u, 0))
        b.ret_void()

    def _units(self, body: Callable[[ir.Value, ir.Value], None]) -> None:
        b = self.b
        units = Loop(b, self.lo, self.hi, 1)
        x = self.x
        for k in range(len(self.kernel.indices)):
            x = advance(b, x, b.mul(self._position(k, units.i), self.fields[k]["stride"]))
        body(x, advance(b, self.u, b.mul(units.i, self.p["u_unit"])))
        units.end()

    def _position(self, k: int, unit: ir.Value) -> ir.Value:
        """Where the k-th index of a unit leads along its axis."""
        b, dtype, field = self.b, self.kernel.indices[k], self.fields[k]
        place = advance(b, self.index[k], b.add(field["offset"], b.mul(unit, field["step"])))
        loaded = b.load(place, typ=memory_type(dtype), align=dtype.itemsize)
        index = loaded if dtype.itemsize == 8 else (b.sext if dtype.kind == "i" else b.zext)(loaded, I64)
        length = field["length"]
        if self.kernel.clamps:
            last = b.sub(length, i64(1))
            index = b.select(b.icmp_signed(">", index, last), last, index)
            return b.select(b.icmp_signed("<", index, i64(0)), i64(0), index)
        position = b.select(b.icmp_signed("<", index, i64(0)), b.add(index, length), index)
        with b.if_then(b.icmp_unsigned(">=", position, length), likely=False):
            words = self._pointer(len(self.kernel.indices) + 2)
            b.store(index, b.gep(words, [i64(1)], source_etype=I64))
            b.store(b.add(self.p["code"], i64(k)), words)
            b.ret_void()
            b.position_at_end(b.append_basic_block("unreachable"))
        return position

    def _box(self, x: ir.Value, u: ir.Value, d: int) -> None:
        if d == DIMS - 1:
            self._run(x, u)
            return
        loop = Loop(self.b, i64(0), self.p[f"size_{d}"], 1)
        at_x, at_u = (advance(self.b, p, self.b.mul(loop.i, self.p[f"{n}_{d}"])) for n, p in (("x", x), ("u", u)))
        self._box(at_x, at_u, d + 1)
        loop.end()

    def _run(self, x: ir.Value, u: ir.Value) -> None:
        """The last dimension of a box."""
        b, last, size = self.b, DIMS - 1, self.kernel.dtype.itemsize
        n, step_x, step_u = (self.p[f"{name}_{last}"] for name in ("size", "x", "u"))
        if self.kernel.what == "add":
            self._elements(x, u, n, step_x, step_u)
            return
        nbytes = b.mul(n, i64(size))
        together = b.and_(b.icmp_signed("==", step_x, i64(size)), b.icmp_signed("==", step_u, i64(size)))
        with b.if_else(b.and_(together, b.icmp_signed(">=", nbytes, i64(_LONG)))) as (whole, single):
            with whole:
                source, target = (x, u) if self.kernel.what == "take" else (u, x)
                copy = b.module.declare_intrinsic(
                    "llvm.memcpy.p0.p0.i64", (), ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I1])
                )
                b.call(copy, [target, source, nbytes, ir.Constant(I1, 0)])
            with single:
                self._elements(x, u, n, step_x, step_u)

    def _elements(self, x: ir.Value, u: ir.Value, n: ir.Value, step_x: ir.Value, step_u: ir.Value) -> None:
        b = self.b
        loop = Loop(b, i64(0), n, 1, [x, u])
        at_x, at_u = loop.carried
        self._element(at_x, at_u)
        loop.end([advance(b, at_x, step_x), advance(b, at_u, step_u)])

    def _element(self, x: ir.Value, u: ir.Value) -> None:
        b, dtype = self.b, self.kernel.dtype
        t = I8 if dtype.kind == "b" else memory_type(dtype)
        if self.kernel.what == "take":
            b.store(b.load(x, typ=t, align=dtype.itemsize), u, align=dtype.itemsize)
        elif self.kernel.what == "put":
            b.store(b.load(u, typ=t, align=dtype.itemsize), x, align=dtype.itemsize)
        else:
            b.store(self._sum(x, u, dtype), x, align=dtype.itemsize)

    def _sum(self, x: ir.Value, u: ir.Value, dtype: np.dtype) -> ir.Value:
        lanes = Lanes(self.b, 1)
        one, other = (lanes.register(lanes.load(p, dtype), dtype) for p in (x, u))
        return lanes.memory(one | other if dtype.kind == "b" else one + other)
