"""Where a NaN came from (`fx.config.debug_nans`).

Nothing is watched while a program runs. When a NaN is in its results that was not in its arguments, the program runs once more
with all values kept, and the NaN is followed back from the result to the operation whose operands had none. One that `np.where`
drops is so never reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Aval, Lit, Var
from fxgrad.primitives.base import Primitive
from fxgrad.runtime.eager import evaluate

__all__ = ["check_operation", "check_program"]

_FIX = "Keep bad operands out with np.where on the argument, not on the result; debug_nans = False lets it pass."


def has_nan(x: Any) -> bool:
    return getattr(x, "dtype", np.dtype(bool)).kind in "fc" and bool(np.isnan(x).any())


def _new(arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    return any(map(has_nan, results)) and not any(map(has_nan, arguments))


def check_program(program: Program, args: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise FxFloatingPointError if a result has a NaN and no argument has."""
    if _new(args, results):
        _find(program, args)


def check_operation(prim: Primitive, args: Sequence[Any], params: dict[str, Any], results: Sequence[Any]) -> None:
    """The same for one operation, evaluated at the user's line."""
    if _new(args, results):
        inputs = [Var(Aval(x.shape, x.dtype)) for x in args]
        outputs = [Var(a) for a in prim.types([v.aval for v in inputs], params)]
        _blame(Eqn(prim, inputs, params, outputs, errors.user_location()), args, "")


def _find(program: Program, args: Sequence[Any]) -> None:
    """Run the program once more, keep all values, and follow the first NaN among its results back to where it was made."""
    values: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    makers: dict[Var, Eqn] = {}

    def value(a: Any) -> Any:
        return np.asarray(a.value) if type(a) is Lit else values[a]

    for eqn in program.eqns:
        values.update(zip(eqn.outputs, evaluate(eqn.prim, [value(a) for a in eqn.inputs], eqn.params), strict=True))
        makers.update(dict.fromkeys(eqn.outputs, eqn))
    bad = next((o for o in program.outputs if has_nan(value(o))), None)
    while type(bad) is Var and bad in makers:
        eqn = makers[bad]
        bad = next((a for a in eqn.inputs if has_nan(value(a))), None)
        if bad is None:
            _blame(eqn, [value(a) for a in eqn.inputs], program.name)


def _blame(eqn: Eqn, args: Sequence[Any], name: str) -> None:
    """Raise the error for the equation, or for the one in its body that made the NaN."""
    prim = eqn.prim
    if prim.kind == "call":
        _find(eqn.params["program"], args)
    if prim.kind == "control":
        from fxgrad.primitives.bodies import op_by_op

        def run(body: Program, given: Sequence[Any]) -> list[Any]:
            results = op_by_op(body, given)
            check_program(body, given, results)
            return results

        assert prim.numpy is not None
        prim.numpy(*args, **eqn.params, run=run)
    types = ", ".join(str(a.aval) for a in eqn.inputs)
    raise errors.FxFloatingPointError(
        f"'{prim.name}' of {types} made a NaN" + (f" in '{name}'" if name else ""),
        where=eqn.source,
        why="fx.config.debug_nans is on, and none of its operands has one.",
        fix=_FIX,
    )
