"""What an operation costs that runs as a library call: estimated floating-point operations."""

from __future__ import annotations

import math

from fxgrad.compile.kernelize import _flops
from fxgrad.ir.program import Eqn

__all__ = ["library_flops"]

_PER_ELEMENT = {"cumsum": 1, "cumprod": 1, "linear_recurrence": 2}
# Of a matrix of m rows and n columns, in units of m * n * min(m, n): Golub, Van Loan (2013).
_PER_MATRIX = {
    "cholesky": 1 / 3, "lu": 2 / 3, "solve": 2 / 3, "det": 2 / 3, "slogdet": 2 / 3, "inv": 2, "qr": 8 / 3, "eigh": 9,
    "eigvalsh": 4 / 3, "svd": 20, "svdvals": 8 / 3, "pinv": 22, "lstsq": 20, "eig": 25, "minors": 26,
    "expm": 16, "expm_along": 40,
}  # fmt: skip
_PER_RIGHT_SIDE = {"solve": 2, "triangular_solve": 1, "lstsq": 4}  # in units of m * n for each column


def library_flops(eqn: Eqn) -> int:
    """Operations of a host equation; what only moves or compares elements counts nothing.

    A product counts a multiplication and an addition for each term.
    """
    name, kind, out = eqn.prim.name, eqn.prim.kind, eqn.outputs[0].aval
    if name == "dot":
        x = eqn.inputs[0].aval
        return 2 * out.size * math.prod(x.shape[i] for i in eqn.params["contract"][0])
    if name == "conv":
        w, roles = eqn.inputs[1].aval, eqn.params
        return 2 * out.size * math.prod(w.shape[i] for i in (*roles["contract"][1], *roles["windows"][1]))
    if name in _PER_MATRIX or name in _PER_RIGHT_SIDE:
        return _of_matrices(name, eqn)
    if kind in ("map", "reduce"):
        return _flops([eqn], max(x.aval.size for x in (*eqn.inputs, *eqn.outputs)))
    return _PER_ELEMENT.get(name, 0) * out.size


def _of_matrices(name: str, eqn: Eqn) -> int:
    a = eqn.inputs[0].aval
    *lead, m, n = a.shape
    each = _PER_MATRIX.get(name, 0) * m * n * min(m, n)
    if name in _PER_RIGHT_SIDE:
        each += _PER_RIGHT_SIDE[name] * m * n * eqn.inputs[1].aval.shape[-1]
    return round((4 if a.dtype.kind == "c" else 1) * math.prod(lead) * each)
