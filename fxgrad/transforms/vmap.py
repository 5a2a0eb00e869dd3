"""Vectorisation: a program of one example becomes a program of a batch. Inside, the batch axis is always axis 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.ir.program import Program
from fxgrad.ir.types import TAPE, Aval, Var
from fxgrad.trace.tracing import Walk, build, replay

__all__ = ["vmap"]


def batched_aval(aval: Aval, size: int) -> Aval:
    """With a leading axis of `size`; a tape stays a tape, whose elements have it."""
    return aval if aval.dtype == TAPE else Aval((size, *aval.shape), aval.dtype)


def vmap(program: Program, batched: Sequence[bool], size: int) -> tuple[Program, tuple[bool, ...]]:
    """The program on inputs of which those marked have a leading axis of `size`, and which of its outputs have one."""
    batched = tuple(batched)
    return program.memoize(("vmap", batched, size), lambda: _vmap(program, batched, size))


def _vmap(program: Program, batched: tuple[bool, ...], size: int) -> tuple[Program, tuple[bool, ...]]:
    out_batched: tuple[bool, ...] = ()

    def body(*values: Any) -> list[Any]:
        nonlocal out_batched
        walk = Walk(program.inputs, values)
        with_axis: set[Var] = {v for v, b in zip(program.inputs, batched, strict=True) if b}
        for eqn in program.eqns:
            args = walk.read_all(eqn.inputs)
            marks = [type(a) is Var and a in with_axis for a in eqn.inputs]
            if not any(marks):
                walk.write(eqn.outputs, replay(eqn, args))
                continue
            walk.at(eqn)
            outs, outs_batched = eqn.prim.batch(size, args, marks, **eqn.params)
            walk.write(eqn.outputs, outs)
            with_axis.update(v for v, b in zip(eqn.outputs, outs_batched, strict=True) if b)
        out_batched = tuple(type(o) is Var and o in with_axis for o in program.outputs)
        return walk.read_all(program.outputs)

    avals = [batched_aval(a, size) if b else a for a, b in zip(program.in_avals, batched, strict=True)]
    return build(avals, body, program.name), out_batched
