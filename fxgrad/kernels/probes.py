"""Kernels that measure the machine: streams over memory, and chains of fused multiply-adds in registers.

They have the calling convention of all kernels, `kernel(pointers, plan, lo, hi)`, so that threads share them as they share
others. The plan is `[extent, grain, passes]`: how often the range is walked in one call, since a pass over a cache takes less
time than calling. A unit of a stream is `STREAM_UNIT` bytes of each array; a unit of the peak is `PeakKernel.flops` operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import short_name

__all__ = ["STREAM_UNIT", "PeakKernel", "StreamKernel"]

STREAM_UNIT = 4096
_VECTOR = 64  # bytes handled at a time; LLVM cuts them for narrower CPUs
_TOGETHER = 8  # vectors in one turn of a stream's loop: as many sums as the latency of an addition asks for
_TURNS = 8  # multiply-adds of each chain in one turn of the peak's loop


def _sum(b: Any, values: Sequence[Any]) -> Any:
    total = values[0]
    for v in values[1:]:
        total = b.fadd(total, v)
    return total


class _Probe:
    """What `compile.cache` wants of a kernel: its text, a hash of it, and its code."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def emit(self, module: Any, name: str) -> Any:
        raise NotImplementedError


class StreamKernel(_Probe):
    """Reads or writes float64 arrays from end to end.

    Forms: `read` sums a (pointers a, sums: one place for each unit); `copy` is c = a (a, c); `triad` c = a + 3 b (a, b, c).
    """

    def __init__(self, form: str):
        self.form = form
        what = {"read": "sums[lo] = sum of a", "copy": "c[i] = a[i]", "triad": "c[i] = a[i] + 3 * b[i]"}[form]
        self.text = f"kernel stream_{form}(f64) {{\n  {what}\n}}"

    @property
    def arrays(self) -> int:
        """How many arrays it streams over."""
        return {"read": 1, "copy": 2, "triad": 3}[self.form]

    def emit(self, module: Any, name: str) -> Any:
        from llvmlite import ir

        from fxgrad.kernels.loops import I64, KERNEL_TYPE, PTR, Loop, advance, i64, splat_constant
        from fxgrad.kernels.matmul_tile import internal_function

        fn, b = internal_function(module, name, KERNEL_TYPE)
        pointers, plan, lo, hi = fn.args
        arrays = [b.load(b.gep(pointers, [i64(k)], source_etype=PTR), typ=PTR) for k in range(max(self.arrays, 2))]
        passes = b.load(b.gep(plan, [i64(2)], source_etype=I64), typ=I64)
        double, lanes = ir.DoubleType(), _VECTOR // 8
        vector, three = ir.VectorType(double, lanes), splat_constant(double, lanes, 3.0)

        def load(k: int, at: Any) -> Any:
            return b.load(advance(b, arrays[k], at), typ=vector, align=8)

        zeros = [ir.Constant(vector, None)] * (_TOGETHER if self.form == "read" else 0)
        outer = Loop(b, i64(0), passes, 1, zeros)
        loop = Loop(b, b.mul(lo, i64(STREAM_UNIT)), b.mul(hi, i64(STREAM_UNIT)), _TOGETHER * _VECTOR, outer.carried)
        places = [b.add(loop.i, i64(j * _VECTOR)) for j in range(_TOGETHER)]
        carried = [b.fadd(s, load(0, at)) for s, at in zip(loop.carried, places, strict=False)]
        for at in [] if self.form == "read" else places:
            value = load(0, at)
            if self.form == "triad":
                value = b.fadd(value, b.fmul(three, load(1, at)))
            b.store(value, advance(b, arrays[-1], at), align=8)
        loop.end(carried)
        outer.end(loop.carried)
        if self.form == "read":
            total = _sum(b, outer.carried)
            one = b.extract_element(total, ir.Constant(ir.IntType(32), 0))
            for lane in range(1, lanes):
                one = b.fadd(one, b.extract_element(total, ir.Constant(ir.IntType(32), lane)))
            b.store(one, b.gep(arrays[1], [lo], source_etype=double), align=8)
        b.ret_void()
        return fn


class PeakKernel(_Probe):
    """Independent chains s = fma(s, x, y) in registers; x and y are the two elements at its first pointer.

    The sum of the chains, a vector, goes to the second pointer at 64 bytes times `lo`, so that no work can be left out.
    """

    def __init__(self, dtype: np.dtype):
        from fxgrad.kernels.matmul_tile import register_block
        from fxgrad.kernels.vector import _target_features

        self.dtype, self.lanes = dtype, register_block(dtype).lanes
        many = {"+avx512f", "+neon"} & set(_target_features().split(","))  # 32 vector registers, not 16
        self.chains = 16 if many else 12
        shape = f"{self.chains} chains of {self.lanes} lanes"
        self.text = f"kernel peak({short_name(dtype)}) {{\n  {shape}, {_TURNS} in a turn: s = fma(s, x, y)\n}}"

    @property
    def flops(self) -> int:
        """Operations in one unit: a multiply-add counts as two."""
        return 2 * self.lanes * self.chains * _TURNS

    def emit(self, module: Any, name: str) -> Any:
        from llvmlite import ir

        from fxgrad.kernels.loops import KERNEL_TYPE, PTR, Lanes, Loop, advance, i64, memory_type
        from fxgrad.kernels.matmul_tile import internal_function

        fn, b = internal_function(module, name, KERNEL_TYPE)
        pointers, _, lo, hi = fn.args  # one pass: more units are as good
        inputs, out = (b.load(b.gep(pointers, [i64(k)], source_etype=PTR), typ=PTR) for k in range(2))
        element = memory_type(self.dtype)
        lanes = Lanes(b, self.lanes)
        x, y = (lanes.splat(b.load(b.gep(inputs, [i64(k)], source_etype=element), typ=element)) for k in range(2))
        vector = ir.VectorType(element, self.lanes)
        suffix = f"v{self.lanes}f{8 * self.dtype.itemsize}"
        fma = module.declare_intrinsic(f"llvm.fma.{suffix}", (), ir.FunctionType(vector, [vector] * 3))
        first = [lanes.splat(ir.Constant(element, float(k))) for k in range(self.chains)]
        loop = Loop(b, lo, hi, 1, first)
        sums = list(loop.carried)
        for _ in range(_TURNS):
            sums = [b.call(fma, [s, x, y]) for s in sums]
        loop.end(sums)
        b.store(_sum(b, loop.carried), advance(b, out, b.mul(lo, i64(_VECTOR))), align=self.dtype.itemsize)
        b.ret_void()
        return fn
