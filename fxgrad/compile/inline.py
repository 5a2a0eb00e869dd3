"""One flat program: calls and expansions replaced by their equations, each region simplified before it is merged.

Regions are simplified apart, so that what a checkpoint computes again is never merged with what was computed before; and what it
computes again waits until it is needed (`late.py`). What an operation stands for belongs to the region in which it stands: a
logsumexp and its gradient share the exponentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fxgrad.compile.cache import Recent
from fxgrad.compile.invariant import hoisted
from fxgrad.compile.late import behind, is_late, postponed
from fxgrad.compile.outer import is_outer, outer_eqns
from fxgrad.compile.simplify import simplify
from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.primitives.base import REGISTRY

__all__ = ["appended", "flatten"]

_INLINED = ("jit_call", "checkpoint", "custom_jvp_call", "custom_vjp_call")
_PARTS = ("real", "imag")


def _simplified(program: Program) -> Program:
    return program.memoize("region", lambda: simplify(_expanded(program)))


def _expanded(program: Program) -> Program:
    """The program with the equations that its operations of kind `expand` stand for."""
    if not any(e.prim.kind == "expand" for e in program.eqns):
        return program
    eqns: list[Eqn] = []
    env: dict[Var, Atom] = {}
    for e in program.eqns:
        inputs = [env.get(x, x) if type(x) is Var else x for x in e.inputs]
        inner = _inner(e) if e.prim.kind == "expand" else None
        if inner is None:
            eqns.append(e if inputs == e.inputs else Eqn(e.prim, inputs, e.params, e.outputs, e.source))
            continue
        own: dict[Var, Atom] = dict(zip(inner.inputs, inputs, strict=True))
        for d in inner.eqns:  # traced once for all its uses: these come from the line of the one they stand for
            outs = [Var(v.aval) for v in d.outputs]
            eqns.append(Eqn(d.prim, [own[x] if type(x) is Var else x for x in d.inputs], d.params, outs, e.source))
            own.update(zip(d.outputs, outs, strict=True))
        env.update((v, own[o] if type(o) is Var else o) for v, o in zip(e.outputs, inner.outputs, strict=True))
    outputs = [env.get(o, o) if type(o) is Var else o for o in program.outputs]
    return Program(program.inputs, eqns, outputs, program.consts, program.name)


def _may_stand_for(eqn: Eqn) -> bool:
    """Whether an equation is worth asking for the program it stands for."""
    return eqn.prim.kind in ("call", "expand") or eqn.prim.parts is not None


def _inner(eqn: Eqn) -> Program | None:
    """The program an equation stands for, if it is to be merged."""
    if eqn.prim.kind == "call" and eqn.prim.name in _INLINED:
        return eqn.params["program"]
    if eqn.prim.definition(a.aval for a in (*eqn.inputs, *eqn.outputs)) is not None:
        from fxgrad.trace.tracing import trace_expansion

        key = (eqn.prim, tuple(a.aval for a in eqn.inputs), tuple(sorted(eqn.params.items())))
        found = _expansions.get(key)
        if found is None:
            found = _expansions[key] = trace_expansion(eqn.prim, [a.aval for a in eqn.inputs], eqn.params)
        return found
    return None


_expansions = Recent(4096)


def flatten(program: Program) -> Program:
    """The program without calls, expansions and aliases, with variables of its own."""
    region = _simplified(program)
    inputs = [Var(v.aval) for v in region.inputs]
    eqns: list[Eqn] = []
    outputs = _merge(region, list(inputs), eqns)
    return postponed(hoisted(dce(Program(inputs, eqns, outputs, (), program.name))))


def appended(program: Program, args: list[Atom], eqns: list[Eqn]) -> list[Atom]:
    """Append the equations of a program, computed on `args`; its results."""
    return _merge(_simplified(program), args, eqns)


def _merge(region: Program, args: list[Atom], eqns: list[Eqn]) -> list[Atom]:
    """Append the region's equations, computed on `args`; an explicit stack, since regions may nest deeply."""

    def start(r: Program, values: list[Atom], line: Any) -> tuple[Program, dict[Var, Atom], Iterator[Eqn], Any]:
        return r, dict(zip(r.inputs, values, strict=True)), iter(r.eqns), line

    parts: dict[Var, list[Atom]] = {}  # of the complex values joined here

    stack = [start(region, args, None)]
    targets: list[tuple[dict[Var, Atom], Any]] = []
    while True:
        r, env, rest, line = stack[-1]
        eqn = next(rest, None)
        if eqn is None:
            results = [env[o] if type(o) is Var else o for o in r.outputs]
            stack.pop()
            if not stack:
                return results
            outer, variables = targets.pop()
            outer.update(zip(variables, results, strict=True))
            continue
        inputs: list[Atom] = [env[a] if type(a) is Var else a for a in eqn.inputs]
        if eqn.prim.name in _PARTS and (part := _part(eqn.prim.name, inputs[0], parts)) is not None:
            if part.aval.shape != eqn.outputs[0].aval.shape:
                part = _spread(part, eqn, eqns)
            env[eqn.outputs[0]] = part
            continue
        inner = _inner(Eqn(eqn.prim, inputs, eqn.params, eqn.outputs)) if _may_stand_for(eqn) else None
        if inner is not None:
            if is_late(eqn):
                inputs = behind(inputs, eqns, eqn.source)
            targets.append((env, eqn.outputs))
            # an expansion is traced once for all its uses: its equations come from the line of the one they stand for
            stack.append(start(_simplified(inner), inputs, line or (None if eqn.prim.kind == "call" else eqn.source)))
            continue
        outs = []
        for v in eqn.outputs:
            env[v] = fresh = Var(v.aval)
            outs.append(fresh)
        if eqn.prim.name == "iota" and is_drawn_out(eqn):
            eqns += _ramp(eqn, outs[0])
            continue
        made = Eqn(eqn.prim, inputs, eqn.params, outs, line or eqn.source)
        eqns += outer_eqns(made, outs[0]) if is_outer(made) else [made]
        if eqn.prim.name == "complex":
            parts[outs[0]] = inputs


def _part(name: str, z: Atom, parts: dict[Var, list[Atom]]) -> Atom | None:
    """The real or imaginary part of a complex value, where that is known as such."""
    if type(z) is Lit:
        return Lit(getattr(z.value, name))
    return parts[z][_PARTS.index(name)] if type(z) is Var and z in parts else None


def _spread(x: Atom, eqn: Eqn, eqns: list[Eqn]) -> Var:
    """A scalar in the shape of the equation's result."""
    out = Var(eqn.outputs[0].aval)
    eqns.append(Eqn(REGISTRY["broadcast"], [x], {"shape": out.aval.shape, "dims": ()}, [out], eqn.source))
    return out


_COUNTED = ("int32", "int64", "float32", "float64")  # in which converting 0, 1, 2, ... gives what NumPy's arange does
INT64 = np.dtype(np.int64)


def is_drawn_out(iota: Eqn) -> bool:
    """Whether an iota is more than the plain ramp 0, 1, 2, ... of int64, from which it can be made."""
    aval = iota.outputs[0].aval
    return aval.size > 0 and aval.dtype.name in _COUNTED and (aval.ndim != 1 or aval.dtype != INT64)


def _ramp(iota: Eqn, out: Var) -> list[Eqn]:
    """An iota as a view of a converted plain one, for which there is a kernel."""
    from fxgrad.primitives.elementwise import convert
    from fxgrad.primitives.shape import broadcast

    shape, dtype, axis = iota.outputs[0].aval.shape, out.aval.dtype, iota.params["axis"]
    plain = Var(Aval((shape[axis],), INT64))
    eqns = [Eqn(iota.prim, [], {"shape": plain.aval.shape, "dtype": INT64, "axis": 0}, [plain], iota.source)]
    if dtype != INT64:
        counted = Var(plain.aval.with_dtype(dtype))
        eqns.append(Eqn(convert, [plain], {"dtype": dtype}, [counted], iota.source))
        plain = counted
    return [*eqns, Eqn(broadcast, [plain], {"shape": shape, "dims": (axis,)}, [out], iota.source)]
