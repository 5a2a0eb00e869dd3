"""The text form of programs, a language: `parse(str(program)) == program`.

    program loss(const a: f64[3]; b: f64[2,3]) {
      c: f64[2] = dot[batch=((),()), contract=((1,),(0,)), strong=None] b a
      d: f64[2] = mul c 2.0:f64
      return d
    }

Variables are called a, b, ..., z, aa, ... in order of definition; captured inputs stand after `const`, their values are not in
the text. Parameters are sorted by name: None, bools, numbers, strings, dtypes (f64), types (f64[3]), typed scalars (2.0:f32),
tuples, and whole programs. Spaces and line ends are free where they stand, `#` starts a comment. fxgrad/ir/parser.py reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.parser import NAME, parse
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import SHORT_NAMES, Atom, Aval, Lit, Var, short_name

__all__ = ["format_eqn", "format_program", "format_value", "name_variables", "parse"]

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_names: list[str] = list(_ALPHABET)


def variable_names(n: int) -> list[str]:
    """The first n names at least: a, b, ..., z, aa, ab, ..."""
    while len(_names) < n:  # each round appends the names of the next length
        shorter = [name for name in _names if len(name) == len(_names[-1])]
        _names.extend([name + letter for name in shorter for letter in _ALPHABET])
    return _names


def name_variables(program: Program) -> dict[Var, str]:
    """The canonical name of each variable, in order of definition."""
    variables = list(program.inputs)
    for eqn in program.eqns:
        variables.extend(eqn.outputs)
    return dict(zip(variables, variable_names(len(variables)), strict=False))


# ---- values ------------------------------------------------------------------------------------------------------------


_LARGEST = {n: float(np.finfo(f"f{n}").max) for n in (2, 4)}


def _float_text(x: Any) -> str:
    """The shortest decimal number that reads back to the same bits; inf, -inf, nan."""
    wide = float(x)
    if isinstance(x, float) or math.isnan(wide) or math.isinf(wide):
        return repr(wide)
    for digits in range(1, 17):
        short = float(f"{wide:.{digits}g}")
        if abs(short) <= _LARGEST[x.dtype.itemsize] and type(x)(short) == x:
            return repr(short)
    return repr(wide)


def scalar_text(x: np.generic) -> str:
    """A NumPy scalar: `2.0:f32`, `True:bool`, `complex(0.0,-1.0):c64`."""
    dtype = x.dtype
    if dtype.kind == "f":
        number = _float_text(x)
    elif dtype.kind == "c":
        number = f"complex({_float_text(x.real)},{_float_text(x.imag)})"
    else:
        number = str(bool(x) if dtype.kind == "b" else int(x))
    return f"{number}:{short_name(dtype)}"


def format_value(value: Any, program: Callable[[Program], str] = repr) -> str:
    """The text of a parameter value.

    Args:
        value: None, bool, int, float, complex, str, dtype, Aval, NumPy scalar, Program, or a tuple of these.
        program: how to print programs.
    Raises:
        FxTypeError: the text form has no such values.

    >>> format_value((1, (), "x", np.dtype("float32"), np.float32(0.1), None))
    "(1,(),'x',f32,0.1:f32,None)"
    """
    kind = type(value)
    if kind is int or value is None or kind is bool:
        return str(value)
    if kind is tuple:
        parts = [format_value(v, program) for v in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({','.join(parts)})"
    if isinstance(value, np.dtype) and value.name in SHORT_NAMES:
        return short_name(value)
    if kind is str:
        return ascii(value)
    if kind is Program:
        return program(value)
    if kind is float:
        return repr(value)
    if kind is complex:
        return f"complex({value.real!r},{value.imag!r})"
    if kind is Aval:
        return repr(value)
    if isinstance(value, np.generic) and value.dtype.name in SHORT_NAMES:
        return scalar_text(value)
    raise errors.FxTypeError(
        f"the text form of programs has no values of type {kind.__name__}: {value!r:.80}",
        why="Parameters are None, bools, numbers, strings, dtypes, types, programs, and tuples of these.",
    )


def _lenient_value(value: Any) -> str:
    """The text of a value for messages: programs by name, and anything at all."""
    try:
        return format_value(value, lambda p: f"<program {p.name}>")
    except errors.FxTypeError:
        return f"<{value!r:.40}>"


# ---- equations and programs --------------------------------------------------------------------------------------------


def _atom_text(atom: Atom, names: dict[Var, str]) -> str:
    if type(atom) is Var:
        return names.get(atom) or f"?:{atom.aval}"  # not defined: does not parse, but can be shown
    return scalar_text(atom.value) if type(atom) is Lit else f"<{atom!r:.40}>"


def format_eqn(eqn: Eqn, names: dict[Var, str] | None = None, value: Callable[[Any], str] = _lenient_value) -> str:
    """One equation as text, for messages.

    Args:
        eqn: the equation.
        names: what its variables are called, as from `name_variables(program)`; otherwise they are named in order of appearance.
        value: prints the parameter values.
    Returns:
        `c: f64[] = sum[axes=(0,)] b`; a variable without a name prints as `?`.
    """
    if names is None:
        seen = dict.fromkeys(a for a in [*eqn.inputs, *eqn.outputs] if type(a) is Var)
        names = dict(zip(seen, variable_names(len(seen)), strict=False))
    left = ", ".join([f"{names.get(v, '?')}: {v.aval}" for v in eqn.outputs])
    params = eqn.params
    inside = f"[{', '.join([f'{k}={value(params[k])}' for k in sorted(params)])}]" if params else ""
    return " ".join(
        [
            f"{left} = {eqn.prim.name}{inside}" if left else f"= {eqn.prim.name}{inside}",
            *[_atom_text(a, names) for a in eqn.inputs],
        ]
    )


def format_program(program: Program, names: bool = True) -> str:
    """The text of a program.

    Args:
        program: any program; values of its captured inputs are not printed.
        names: with False, every program is called `main`; the content hash is of this text.
    Returns:
        Text that `parse` reads back to an equal program. It is the same in every process.
    Raises:
        FxTypeError: a parameter has a value that the text form does not know.

    >>> print(format_program(parse("program f(x: f32[2]) { y: f32[2] = mul x 2.0:f32  return y }")))
    program f(a: f32[2]) {
      b: f32[2] = mul a 2.0:f32
      return b
    }
    """
    return "".join(_pieces(program, "", names))


def _pieces(program: Program, indent: str, names: bool) -> Iterator[str]:
    called = name_variables(program)
    if names and program.name != "main":
        title = program.name if NAME.fullmatch(program.name) else ascii(program.name)
    else:
        title = "main"
    yield f"program {title}({_inputs_text(program, called)}) {{\n"
    inner = indent + "  "

    def value(v: Any) -> str:
        return format_value(v, lambda p: "".join(_pieces(p, inner, names)))

    known: dict[Lit, str] = {}
    for eqn in program.eqns:
        if not eqn.params and len(eqn.outputs) == 1:  # the common case, at speed
            (v,) = eqn.outputs
            line = f"{inner}{called[v]}: {v.aval} = {eqn.prim.name}"
            for a in eqn.inputs:
                if isinstance(a, Lit):
                    text = known.get(a) or known.setdefault(a, scalar_text(a.value))
                else:
                    text = called.get(a) or _atom_text(a, called)
                line += " " + text
            yield line + "\n"
        else:
            yield f"{inner}{format_eqn(eqn, called, value)}\n"
    outputs = ", ".join([_atom_text(o, called) for o in program.outputs])
    yield f"{inner}return {outputs}\n{indent}}}" if outputs else f"{inner}return\n{indent}}}"


def _inputs_text(program: Program, called: dict[Var, str]) -> str:
    def declared(variables: Sequence[Var]) -> str:
        return ", ".join([f"{called[v]}: {v.aval}" for v in variables])

    n = len(program.consts)
    rest = declared(program.inputs[n:])
    return f"const {declared(program.inputs[:n])};{' ' if rest else ''}{rest}" if n else rest
