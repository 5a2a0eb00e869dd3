"""What an operation costs that runs as a library call: estimated floating-point operations."""

from __future__ import annotations

import math

from fxgrad.compile.kernelize import _flops
from fxgrad.ir.program import Eqn

__all__ = ["library_flops"]

_PER_ELEMENT = {"cumsum": 1, "cumprod": 1, "linear_recurrence": 2}


def library_flops(eqn: Eqn) -> int:
    """Operations of a host equation; what only moves or compares elements counts nothing.

    A product counts a multiplication and an addition for each term.
    """
    name, kind, out = eqn.prim.name, eqn.prim.kind, eqn.outputs[0].aval
    if name == "dot":
        x = eqn.inputs[0].aval
        return 2 * out.size * math.prod(x.shape[i] for i in eqn.params["contract"][0])
    if kind in ("map", "reduce"):
        return _flops([eqn], max(x.aval.size for x in (*eqn.inputs, *eqn.outputs)))
    return _PER_ELEMENT.get(name, 0) * out.size
