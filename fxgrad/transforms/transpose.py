"""Transpose: a program linear in some inputs, run backwards from output cotangents to input cotangents.

First the equations that depend on no linear input are recorded as they stand; then the linear ones are walked in reverse, each
through its primitive's transpose rule. Cotangents of a value used k times are added k - 1 times, in the order they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Aval, Var
from fxgrad.primitives.base import Linear, plus
from fxgrad.trace.tracing import Walk, build, replay

__all__ = ["backward_pass", "transpose"]


def transpose(
    program: Program, linear: Sequence[bool], nonzero: Sequence[bool], begun: Sequence[bool] = ()
) -> tuple[Program, tuple[bool, ...]]:
    """The program (*nonlinear inputs, *cotangents of outputs marked nonzero) -> (*nonzero cotangents of the linear inputs).

    The linear inputs marked `begun` have received something before, which stands between the two groups of inputs.
    """
    linear, nonzero, begun = tuple(linear), tuple(nonzero), tuple(begun)
    return program.memoize(("transpose", linear, nonzero, begun), lambda: _transpose(program, linear, nonzero, begun))


def _transpose(
    program: Program, linear: tuple[bool, ...], nonzero: tuple[bool, ...], begun: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    in_nonzero: tuple[bool, ...] = ()
    fixed = [v for v, is_linear in zip(program.inputs, linear, strict=True) if not is_linear]
    targets = [v for v, is_linear in zip(program.inputs, linear, strict=True) if is_linear]
    begun = begun or (False,) * len(targets)

    def body(*values: Any) -> list[Any]:
        nonlocal in_nonzero
        given = iter(values[len(fixed) :])
        before = [next(given) if b else None for b in begun]
        cts = [next(given) if nz else None for nz in nonzero]
        found = backward_pass(program, linear, values[: len(fixed)], cts, before)
        in_nonzero = tuple(g is not None for g in found)
        return [g for g in found if g is not None]

    avals: list[Aval] = [v.aval for v in fixed] + [v.aval for v, b in zip(targets, begun, strict=True) if b]
    avals += [a for a, nz in zip(program.out_avals, nonzero, strict=True) if nz]
    return build(avals, body, program.name), in_nonzero


def backward_pass(
    program: Program, linear: Sequence[bool], fixed: Sequence[Any], cts: Sequence[Any], start: Sequence[Any] | None = None
) -> list[Any]:
    """The cotangents of the linear inputs (None where zero), recorded in the active trace.

    `start` has what the linear inputs have received before; contributions are added to it one by one.
    """
    linear_vars: set[Var] = {v for v, is_linear in zip(program.inputs, linear, strict=True) if is_linear}
    walk = Walk([v for v in program.inputs if v not in linear_vars], fixed)
    backwards: list[Eqn] = []
    for eqn in program.eqns:
        if any([type(a) is Var and a in linear_vars for a in eqn.inputs]):
            backwards.append(eqn)
            linear_vars.update(eqn.outputs)
        else:
            walk.write(eqn.outputs, replay(eqn, walk.read_all(eqn.inputs)))

    cotangents: dict[Var, Any] = {}
    if start is not None:
        inputs = [v for v in program.inputs if v in linear_vars]
        cotangents.update((v, g) for v, g in zip(inputs, start, strict=True) if g is not None)

    def accumulate(atom: Any, g: Any) -> None:
        if g is not None and type(atom) is Var and atom in linear_vars:
            total = cotangents.get(atom)
            cotangents[atom] = g if total is None else plus(total, g)

    for o, g in zip(program.outputs, cts, strict=True):
        accumulate(o, g)
    for eqn in reversed(backwards):
        arrived = [cotangents.pop(v, None) for v in eqn.outputs]
        if all([g is None for g in arrived]):
            continue
        walk.at(eqn)
        eqn = _without_twins(eqn, linear_vars)
        args = [Linear(a.aval) if type(a) is Var and a in linear_vars else walk.read(a) for a in eqn.inputs]
        if eqn.prim.transpose_onto is None:
            found = eqn.prim.transpose(arrived, args, **eqn.params)
        else:
            before = [cotangents.pop(a, None) if type(a) is Var else None for a in eqn.inputs]
            found = eqn.prim.transpose_onto(arrived, args, before, **eqn.params)
        for a, g in zip(eqn.inputs, found, strict=True):
            accumulate(a, g)
    return [cotangents.get(v) for v, is_linear in zip(program.inputs, linear, strict=True) if is_linear]


def _without_twins(eqn: Eqn, linear_vars: set[Var]) -> Eqn:
    """A call that takes no linear value twice: its cotangent is one sum, not one for each place."""
    program = eqn.params.get("program")
    if eqn.prim.kind != "call" or program is None or eqn.prim.transpose_onto is None:
        return eqn
    first: dict[Var, int] = {}
    twins = {}
    for i, a in enumerate(eqn.inputs):
        if type(a) is Var and a in linear_vars and first.setdefault(a, i) != i:
            twins[i] = first[a]
    if not twins:
        return eqn

    def make() -> Program:
        one = {program.inputs[i]: program.inputs[j] for i, j in twins.items()}
        eqns = [Eqn(e.prim, [one.get(a, a) for a in e.inputs], e.params, e.outputs, e.source) for e in program.eqns]
        inputs = [v for i, v in enumerate(program.inputs) if i not in twins]
        return Program(inputs, eqns, [one.get(o, o) for o in program.outputs], (), program.name)

    params = {**eqn.params, "program": program.memoize(("without_twins", tuple(twins.items())), make)}
    return Eqn(eqn.prim, [a for i, a in enumerate(eqn.inputs) if i not in twins], params, eqn.outputs, eqn.source)
