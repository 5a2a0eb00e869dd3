"""Tapes: scalar operations in a long line, run one by one from a list.

A program that computes many single numbers, one from the other (Python loops over the elements of an array), has no loops for
vectors. As straight machine code it would take as long to compile as it is long; so its operations are data. The kernel knows
each kind of operation once, and what it works on is in memory: arrays at fixed offsets, and a slot for each number.

The plan: `[1, 0, count, instructions..., constants...]`. An instruction is `[case, target, offset, source, offset, ...]`, as wide
as the longest needs; targets and sources are numbers of operands, offsets are in bytes; source -1 is the plan itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from fxgrad.ir.types import short_name
from fxgrad.kernels import language
from fxgrad.kernels.loops import I64, PTR, Lanes, Loop, advance, i64, kernel_function, memory_type
from fxgrad.kernels.spec import Params, format_params
from fxgrad.primitives.base import Primitive

__all__ = ["HEADER", "Case", "TapeKernel"]

HEADER = 3


class Case(NamedTuple):
    """A kind of instruction: `prim.body` of values of the dtypes `args`, giving `dtype`; without a primitive, a copy."""

    prim: Primitive | None
    params: Params
    args: tuple[np.dtype, ...]
    dtype: np.dtype

    @property
    def text(self) -> str:
        name = "copy" if self.prim is None else self.prim.name + format_params(self.params)
        return f"{short_name(self.dtype)} = {name} {' '.join(map(short_name, self.args))}"


class TapeKernel:
    """A kernel that runs lists of instructions of these kinds."""

    form = "tape"

    def __init__(self, cases: Sequence[Case]):
        self.cases = tuple(sorted(dict.fromkeys(cases), key=lambda c: c.text))
        self.number = {c: i for i, c in enumerate(self.cases)}
        lines = "\n".join(f"  {i}: {c.text}" for i, c in enumerate(self.cases))
        self.text = f"kernel tape {{\n{lines}\n}}"
        self.digest = hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def width(self) -> int:
        """Words of an instruction."""
        return 3 + 2 * max(len(c.args) for c in self.cases)

    @property
    def title(self) -> str:
        """What the kernel does."""
        names = dict.fromkeys("copy" if c.prim is None else c.prim.name for c in self.cases)
        return f"tape of {' '.join(names)}"

    def bind(self, plan: np.ndarray) -> np.ndarray:
        """The plan; it has all constants already."""
        return plan

    def emit(self, module: ir.Module, name: str) -> ir.Function:
        """The kernel as an internal function of an LLVM module."""
        fn = kernel_function(module, name)
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        pointers, plan, *_ = fn.args
        loop = Loop(b, i64(0), _word(b, plan, i64(2)), 1)
        at = b.gep(plan, [b.add(i64(HEADER), b.mul(loop.i, i64(self.width)))], source_etype=I64)
        after = b.append_basic_block("after")
        chosen = b.switch(_word(b, at, i64(0)), after)
        for i, case in enumerate(self.cases):
            block = b.append_basic_block(f"case{i}")
            chosen.add_case(i64(i), block)
            b.position_at_end(block)
            _emit_case(b, case, pointers, plan, at)
            b.branch(after)
        b.position_at_end(after)
        loop.end()
        b.ret_void()
        return fn


def _word(b: ir.IRBuilder, start: ir.Value, index: ir.Value) -> ir.Value:
    return b.load(b.gep(start, [index], source_etype=I64), typ=I64)


def _address(b: ir.IRBuilder, pointers: ir.Value, plan: ir.Value, at: ir.Value, field: int) -> ir.Value:
    number, offset = _word(b, at, i64(field)), _word(b, at, i64(field + 1))
    inside = b.icmp_signed("<", number, i64(0))
    place = b.gep(pointers, [b.select(inside, i64(0), number)], source_etype=PTR)
    return advance(b, b.select(inside, plan, b.load(place, typ=PTR)), offset)


def _emit_case(b: ir.IRBuilder, case: Case, pointers: ir.Value, plan: ir.Value, at: ir.Value) -> None:
    """One number computed: as a vector of which every lane is it, so that bodies find the vectors they are written for."""
    target = _address(b, pointers, plan, at, 1)
    sources = [_address(b, pointers, plan, at, 3 + 2 * k) for k in range(len(case.args))]
    if case.prim is None:
        t = memory_type(case.dtype)
        b.store(b.load(sources[0], typ=t, align=case.dtype.itemsize), target, align=case.dtype.itemsize)
        return
    lanes = Lanes(b, 16 if all(d.itemsize <= 4 for d in (*case.args, case.dtype)) else 8)
    values = [lanes.load_splat(p, d) for p, d in zip(sources, case.args, strict=True)]
    assert case.prim.body is not None
    result: Any = case.prim.body(language, *values, **dict(case.params))
    if result.dtype != case.dtype:
        raise TypeError(f"the body of '{case.prim.name}' gives {result.dtype}, its type rule says {case.dtype}")
    first = b.extract_element(lanes.memory(result), ir.Constant(ir.IntType(32), 0))
    b.store(first, target, align=case.dtype.itemsize)
