"""What operations cost, estimated: library calls in floating-point operations, any equation in bytes moved in the same time."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fxgrad.compile.kernelize import flops_of
from fxgrad.ir.program import Eqn, Program, subprograms
from fxgrad.ir.types import TAPE, Atom, Var
from fxgrad.kernels.spec import cost

__all__ = ["equation_cost", "library_flops", "work"]

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
        return flops_of([eqn], max(x.aval.size for x in (*eqn.inputs, *eqn.outputs)))
    return _PER_ELEMENT.get(name, 0) * out.size


def _of_matrices(name: str, eqn: Eqn) -> int:
    a = eqn.inputs[0].aval
    *lead, m, n = a.shape
    each = _PER_MATRIX.get(name, 0) * m * n * min(m, n)
    if name in _PER_RIGHT_SIDE:
        each += _PER_RIGHT_SIDE[name] * m * n * eqn.inputs[1].aval.shape[-1]
    return round((4 if a.dtype.kind == "c" else 1) * math.prod(lead) * each)


# A constant machine, so that what is chosen by cost is the same everywhere: a byte of memory takes as long as so many ...
_PRODUCT_FLOPS = 6  # operations of a product kernel
_LIBRARY_FLOPS = 2  # operations of a library
_VECTOR_OPS = 5  # elements of a cheap operation in a kernel


def equation_cost(eqn: Eqn, stored: Iterable[Atom] | None = None) -> int | None:
    """The `work` of an equation; None if it has a tape, which compiled programs do not make again."""
    taped = any(type(a) is Var and a.aval.dtype == TAPE for a in (*eqn.inputs, *eqn.outputs))
    return None if taped else work(eqn, stored)


def work(eqn: Eqn, stored: Iterable[Atom] | None = None) -> int:
    """The work of an equation, in bytes of memory traffic that take as long; of a loop of unknown length that of one turn.

    Operations that kernels fuse count half of what they read and write: of their operands and results that are `stored`, or all.
    """
    atoms = [a for a in (*eqn.inputs, *eqn.outputs) if type(a) is Var]
    name, kind = eqn.prim.name, eqn.prim.kind
    if kind == "control":
        return max(1, eqn.params.get("length", 1)) * sum(map(program_cost, subprograms(eqn)))
    inner = next(iter(subprograms(eqn)), None)
    if inner is not None:
        return program_cost(inner)
    moved = sum(a.aval.nbytes for a in atoms)
    if name in ("dot", "conv"):
        return moved + library_flops(eqn) // _PRODUCT_FLOPS
    if kind in ("map", "reduce"):
        elements = (eqn.inputs[0] if kind == "reduce" else eqn.outputs[0]).aval.size
        through_memory = moved if stored is None else sum(a.aval.nbytes for a in stored)
        return through_memory // 2 + cost(eqn.prim) * elements // _VECTOR_OPS
    if kind == "view":
        return 0
    return 2 * moved + library_flops(eqn) // _LIBRARY_FLOPS


def program_cost(program: Program) -> int:
    """The work of all its equations."""
    return sum(equation_cost(e) or 0 for e in program.eqns)
