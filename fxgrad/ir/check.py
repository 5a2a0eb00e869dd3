"""Verifies programs: every transform's result must pass. What it finds is a bug in a rule, so the message shows the equation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.parser import type_of
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.text import format_eqn, format_value, name_variables
from fxgrad.ir.types import SHORT_NAMES, Aval, Lit, Var

__all__ = ["check"]

_NEIGHBOURS = 5


def check(program: Program) -> None:
    """Verify that a program is well formed.

    Variables are defined once and before they are used; literals are scalars; each equation's outputs have the types that its
    primitive's rule gives; programs inside equations are closed, have no captured inputs, and are well formed themselves.

    Args:
        program: the program; it is not run, and captured values are only asked for their shape and dtype.
    Raises:
        FxTypeError: it is not; the message shows the equation between its neighbours, and the user's line it came from.

    >>> from fxgrad.ir.text import parse
    >>> check(parse("program f(x: f64[3]) { y: f64[3] = tanh x  return y }"))
    """
    _check(program, set())


def _check(program: Program, seen: set[int]) -> None:
    """`seen` has the ids of nested programs checked already: one may stand in many equations."""
    seen.add(id(program))
    defined: set[Var] = set()
    for v in program.inputs:
        if type(v) is not Var or type(v.aval) is not Aval:
            raise _error(program, None, f"an input is a {type(v).__name__}, not a Var with an Aval")
        if v in defined:
            raise _error(program, None, f"the input of type {v.aval} stands twice among the inputs")
        defined.add(v)
    _check_consts(program)
    for position, eqn in enumerate(program.eqns):
        problem = _eqn_problem(eqn, defined)
        if problem is None:
            defined.update(eqn.outputs)
            for inner in _inner_programs(eqn.params.values()):
                if inner.consts:
                    problem = f"its program '{inner.name}' has {len(inner.consts)} captured inputs; they must be operands"
                elif id(inner) not in seen:
                    _check_inner(inner, seen, program, position)
        if problem is not None:
            raise _error(program, position, problem)
    for i, o in enumerate(program.outputs):
        problem = _atom_problem(o, defined)
        if problem is not None:
            raise _error(program, None, f"output {i} {problem}")


def _check_inner(inner: Program, seen: set[int], program: Program, position: int) -> None:
    try:
        _check(inner, seen)
    except errors.FxTypeError as error:
        eqn = program.eqns[position]
        raise errors.FxTypeError(
            f"{error}", why=f"That program is in equation {position} of '{program.name}': {format_eqn(eqn)}"
        ) from None


def _check_consts(program: Program) -> None:
    if len(program.consts) > len(program.inputs):
        raise _error(program, None, f"it has {len(program.consts)} captured values for {len(program.inputs)} inputs")
    for i, (v, c) in enumerate(zip(program.inputs, program.consts, strict=False)):
        if c is not None and (tuple(c.shape), np.dtype(c.dtype)) != (
            v.aval.shape,
            v.aval.dtype,
        ):  # None: a program read from text
            raise _error(program, None, f"captured value {i} is a {Aval(c.shape, c.dtype)}, its variable a {v.aval}")


def _atom_problem(atom: Any, defined: set[Var]) -> str | None:
    if type(atom) is Var:
        return None if atom in defined else f"is a variable of type {atom.aval} that is not defined before"
    if type(atom) is not Lit:
        return f"is a {type(atom).__name__}, not a Var or Lit"
    if not isinstance(atom.value, np.generic) or atom.value.dtype.name not in SHORT_NAMES:
        return f"is a literal of {type(atom.value).__name__}; literals are NumPy scalars of the supported dtypes"
    return None if atom.aval is Aval((), atom.value.dtype) else f"is a literal {atom.value!r} whose aval is {atom.aval}"


def _eqn_problem(eqn: Eqn, defined: set[Var]) -> str | None:
    """What is wrong with an equation, where `defined` has the variables before it."""
    for i, a in enumerate(eqn.inputs):
        problem = _atom_problem(a, defined)
        if problem is not None:
            return f"operand {i} {problem}"
    for key, value in eqn.params.items():
        try:
            format_value(value, lambda p: "")
            hash(value) if not isinstance(value, Program) else None
        except TypeError as error:
            return f"parameter '{key}': {str(error).splitlines()[0]}"
    for i, v in enumerate(eqn.outputs):
        if type(v) is not Var:
            return f"output {i} is a {type(v).__name__}, not a Var"
        if v in defined or v in eqn.outputs[:i]:
            return f"output {i} (a {v.aval}) is defined already"
    try:
        expected = type_of(eqn.prim, [a.aval for a in eqn.inputs], eqn.params)
    except ValueError as error:
        return f"its type rule refuses it: {error}"
    if [v.aval for v in eqn.outputs] != expected:
        said, gives = (", ".join(map(str, avals)) or "nothing" for avals in ([v.aval for v in eqn.outputs], expected))
        return f"its outputs are {said}, its type rule gives {gives}"
    return None


def _inner_programs(values: Any) -> Iterator[Program]:
    """The programs among parameter values, also in tuples."""
    for value in values:
        if type(value) is Program:
            yield value
        elif type(value) is tuple:
            yield from _inner_programs(value)


def _error(program: Program, position: int | None, problem: str) -> errors.FxTypeError:
    """The error with the equation at `position` between its neighbours."""
    head = f"program '{program.name}' is not well formed: "
    if position is None:
        return errors.FxTypeError(head + problem)
    eqn = program.eqns[position]
    names = name_variables(program)
    first, last = max(0, position - _NEIGHBOURS), min(len(program.eqns), position + _NEIGHBOURS + 1)
    lines = [f"{'-->' if i == position else '   '} {format_eqn(program.eqns[i], names)}" for i in range(first, last)]
    if first > 0:
        lines.insert(0, f"    ... {first} equations")
    if last < len(program.eqns):
        lines.append(f"    ... {len(program.eqns) - last} equations")
    return errors.FxTypeError(
        f"{head}in equation {position} ({eqn.prim.name}), {problem}", where=eqn.source, why="\n  ".join(lines)
    )
