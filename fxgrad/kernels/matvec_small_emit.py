"""Code of the product of a small matrix and a vector (see matvec_small.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I64, KERNEL_TYPE, PTR, Lanes, Loop, advance, i64
from fxgrad.kernels.matmul_tile import internal_function, register_block, store_masked
from fxgrad.kernels.matvec_small import GROUPS, SMALL_PLAN
from fxgrad.kernels.vector import Vec, fma, select

__all__ = ["emit_small_matvec"]


def emit_small_matvec(module: ir.Module, name: str, dtype: np.dtype) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    return _Emitter(module, name, dtype).emit()


class _Emitter:
    def __init__(self, module: ir.Module, name: str, dtype: np.dtype):
        self.fn, self.b = internal_function(module, name, KERNEL_TYPE)
        b, (pointers, plan, *_) = self.b, self.fn.args
        self.dtype = dtype
        self.lanes = Lanes(b, register_block(dtype).lanes)
        self.p = {f: b.load(b.gep(plan, [i64(i)], source_etype=I64), typ=I64) for i, f in enumerate(SMALL_PLAN)}
        self.a, self.x, self.c = (
            advance(b, b.load(b.gep(pointers, [i64(i)], source_etype=PTR), typ=PTR), self.p[f"{n}_offset"])
            for i, n in enumerate("abc")
        )

    def emit(self) -> ir.Function:
        b, step = self.b, GROUPS * self.lanes.lanes
        loop = Loop(b, i64(0), self.p["m"], step)
        left = b.sub(self.p["m"], loop.i)
        offset = b.mul(loop.i, i64(self.dtype.itemsize))
        a, c = advance(b, self.a, offset), advance(b, self.c, offset)
        half = GROUPS // 2
        with b.if_else(b.icmp_signed(">=", left, i64(step))) as (whole, part):
            with whole:
                self._results(a, c, [None] * GROUPS)
            with part, b.if_else(b.icmp_signed(">", left, i64(half * self.lanes.lanes))) as (most, few):
                for way, groups in ((most, GROUPS), (few, half)):
                    with way:
                        self._results(a, c, [self._mask(b.sub(left, i64(g * self.lanes.lanes))) for g in range(groups)])
        loop.end()
        b.ret_void()
        return self.fn

    def _mask(self, n: ir.Value) -> ir.Value:
        """Lanes below n, which may be below 0."""
        b = self.b
        return self.lanes.mask(b.select(b.icmp_signed("<", n, i64(0)), i64(0), n))

    def _results(self, a: ir.Value, c: ir.Value, masks: Sequence[ir.Value | None]) -> None:
        """A vector of results for each mask, None where all of it is wanted."""
        b, zero = self.b, ir.Constant(self.lanes.vector_type(self.dtype), None)
        sums = self._chain(a, masks, [Vec(b, zero, self.dtype)] * len(masks), strict=False)
        before = b.block
        with b.if_then(b.icmp_signed("!=", self.p["strong"], i64(0))):
            nans = [(s != s).v for s in sums]
            some = nans[0]
            for n in nans[1:]:
                some = b.or_(some, n)
            bits = b.bitcast(some, ir.IntType(self.lanes.lanes))
            asked = b.block
            with b.if_then(b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), likely=False):
                strict = self._chain(a, masks, [Vec(b, zero, self.dtype)] * len(masks), strict=True)
                chosen = [select(Vec(b, n, np.dtype(bool)), t, s).v for n, t, s in zip(nans, strict, sums, strict=True)]
                again = b.block
            merged = self._merge([(asked, [s.v for s in sums]), (again, chosen)])
            after = b.block
        merged = self._merge([(before, [s.v for s in sums]), (after, merged)])
        for g, (v, mask) in enumerate(zip(merged, masks, strict=True)):
            place = advance(b, c, i64(g * self.lanes.lanes * self.dtype.itemsize))
            if mask is None:
                b.store(v, place, align=self.dtype.itemsize)
            else:
                store_masked(self.lanes, v, place, self.dtype, mask)

    def _merge(self, ways: Sequence[tuple[ir.Block, Sequence[ir.Value]]]) -> list[ir.Value]:
        out = []
        for g in range(len(ways[0][1])):
            phi = self.b.phi(ways[0][1][g].type)
            for block, values in ways:
                phi.add_incoming(values[g], block)
            out.append(phi)
        return out

    def _chain(self, a: ir.Value, masks: Sequence[ir.Value | None], sums: Sequence[Vec], strict: bool) -> list[Vec]:
        """The sums over k; `strict` passes over zeros of the strong operand."""
        b, size = self.b, self.dtype.itemsize
        loop = Loop(b, i64(0), self.p["k"], 1, [a, self.x, *(s.v for s in sums)])
        column, x, *held = loop.carried
        factor = self.lanes.load_splat(x, self.dtype)
        following = []
        for g, (v, mask) in enumerate(zip(held, masks, strict=True)):
            place = advance(b, column, i64(g * self.lanes.lanes * size))
            loaded = self.lanes.load(place, self.dtype) if mask is None else self.lanes.load_masked(place, self.dtype, mask)
            entry, total = Vec(b, loaded, self.dtype), Vec(b, v, self.dtype)
            new = fma(entry, factor, total)
            if strict:
                of_a = self.lanes.splat(b.icmp_signed("==", self.p["strong"], i64(1)))
                passed = b.select(of_a, (entry == 0.0).v, (factor == 0.0).v)
                new = select(Vec(b, passed, np.dtype(bool)), total, new)
            following.append(new.v)
        loop.end([advance(b, column, self.p["a_column"]), advance(b, x, self.p["b_row"]), *following])
        return [Vec(b, v, self.dtype) for v in loop.carried[2:]]
