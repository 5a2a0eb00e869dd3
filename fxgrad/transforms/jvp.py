"""Forward mode: a program of values becomes a program of values and tangents.

Each equation is replaced by its primitive's jvp rule. A tangent that is zero by structure is None and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval, Var
from fxgrad.trace.tracing import Walk, build, replay

__all__ = ["jvp"]


def jvp(program: Program, nonzero: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
    """The program (*inputs, *tangents of those marked nonzero) -> (*outputs, *their nonzero tangents), and which those are."""
    nonzero = tuple(nonzero)
    return program.memoize(("jvp", nonzero), lambda: _jvp(program, nonzero))


def _jvp(program: Program, nonzero: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    out_nonzero: tuple[bool, ...] = ()

    def body(*values: Any) -> list[Any]:
        nonlocal out_nonzero
        primals, given = values[: len(nonzero)], iter(values[len(nonzero) :])
        walk = Walk(program.inputs, primals)
        tangents: dict[Var, Any] = {v: next(given) for v, nz in zip(program.inputs, nonzero, strict=True) if nz}
        for eqn in program.eqns:
            args = walk.read_all(eqn.inputs)
            moving = [tangents.get(a) if type(a) is Var else None for a in eqn.inputs]
            if all([t is None for t in moving]):
                walk.write(eqn.outputs, replay(eqn, args))
                continue
            walk.at(eqn)
            outs, touts = eqn.prim.jvp(args, moving, **eqn.params)
            walk.write(eqn.outputs, outs)
            tangents.update((v, t) for v, t in zip(eqn.outputs, touts, strict=True) if t is not None)
        moved = [tangents.get(o) if type(o) is Var else None for o in program.outputs]
        out_nonzero = tuple(t is not None for t in moved)
        return walk.read_all(program.outputs) + [t for t in moved if t is not None]

    avals: list[Aval] = program.in_avals + [a for a, nz in zip(program.in_avals, nonzero, strict=True) if nz]
    return build(avals, body, program.name), out_nonzero
