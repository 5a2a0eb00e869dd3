"""Eager evaluation of loops and branches: op by op while that is quick, compiled once one has taken long.

The bits are equal, so nobody can tell which it was; compiling what is soon done would cost more than it saves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad.config import jit_disabled
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import TAPE, Aval, Var

if TYPE_CHECKING:
    from fxgrad.primitives.base import Primitive

__all__ = ["PATIENCE", "control_call"]

PATIENCE = 0.25  # seconds op by op, about what compiling a small loop takes


class _TooLong(Exception):
    """A loop is given up, to be started again compiled: it has no effects."""


class _Patient:
    """Runs bodies op by op until the time is up."""

    def __init__(self) -> None:
        self.end = time.perf_counter() + PATIENCE

    def __call__(self, program: Program, args: Sequence[Any]) -> list[Any]:
        from fxgrad.primitives.bodies import op_by_op

        if time.perf_counter() > self.end:
            raise _TooLong
        return op_by_op(program, args)


def control_call(prim: Primitive, avals: Sequence[Aval], params: dict[str, Any], outs: Sequence[Aval]) -> Callable[..., list]:
    """Evaluation of one control equation: a function of arrays that returns the list of its results."""
    assert prim.numpy is not None
    plain = partial(prim.numpy, **params)
    inputs = [Var(a) for a in avals]
    results = [Var(a) for a in outs]
    eqn = Eqn(prim, inputs, params, results)
    program = Program(inputs, [eqn], results, (), prim.name)
    tapes = any([a.dtype == TAPE for a in (*avals, *outs)])
    known_long = False

    def compiled(arrays: Sequence[Any]) -> list[Any]:
        from fxgrad.compile.control import in_python
        from fxgrad.compile.lower import compile_program

        if tapes:  # Python objects, which stay outside compiled code
            return in_python(eqn)(*arrays)
        return compile_program(program)(*[x if type(x) is np.ndarray else np.asarray(x) for x in arrays])

    def call(*arrays: Any) -> list[Any]:
        nonlocal known_long
        if jit_disabled():
            return plain(*arrays)
        if not known_long:
            try:
                return plain(*arrays, run=_Patient())
            except _TooLong:
                known_long = True
        return compiled(arrays)

    return call
