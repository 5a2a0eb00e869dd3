"""Control flow: equations that run one program of several (cond), or one until a test fails (while_loop) or so many times (scan).

Their programs are closed and have no consts: what a body captures is an operand, `consts`. Layouts:

    cond          (index, *operands)                          branches: (*operands) -> (*outs)
    while_loop    (*cond_consts, *body_consts, *carry)        cond: (*cond_consts, *carry) -> bool[]
                                                              body: (*body_consts, *carry) -> (*carry)
    scan          (*consts, *init, *xs) -> (*carry, *ys)      body: (*consts, *carry, *x slices) -> (*carry, *y slices)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval
from fxgrad.primitives.base import Doc, Primitive, register, type_error

REFERENCE = "Griewank, Walther (2008), ch. 3, 4"

# ---- type rules ----------------------------------------------------------------------------------------------------------


def _names(avals: Sequence[Aval]) -> str:
    return ", ".join(map(str, avals)) or "nothing"


def _cond_typ(*avals: Aval, branches: tuple[Program, ...]) -> list[Aval]:
    if not branches:
        raise type_error("cond", avals, "It has no branches.")
    index, operands = avals[0], list(avals[1:])
    if index.shape or index.dtype not in (np.int32, np.int64, np.bool_) or (index.dtype == np.bool_ and len(branches) != 2):
        raise type_error("cond", avals, "Its index is an int32 or int64 scalar, or a bool that chooses between two branches.")
    for p in branches:
        if p.in_avals != operands or p.out_avals != branches[0].out_avals:
            raise type_error("cond", avals, f"A branch takes {_names(p.in_avals)} and returns {_names(p.out_avals)}.")
    return branches[0].out_avals


def _while_typ(*avals: Aval, cond: Program, body: Program, cond_consts: int, body_consts: int) -> list[Aval]:
    first = cond_consts + body_consts
    carry = list(avals[first:])
    if cond.in_avals != [*avals[:cond_consts], *carry] or cond.out_avals != [Aval((), np.dtype(np.bool_))]:
        raise type_error("while_loop", avals, f"Its test takes {_names(cond.in_avals)} and returns {_names(cond.out_avals)}.")
    if body.in_avals != [*avals[cond_consts:first], *carry] or body.out_avals != carry:
        raise type_error("while_loop", avals, f"Its body takes {_names(body.in_avals)} and returns {_names(body.out_avals)}.")
    return carry


def _scan_typ(*avals: Aval, body: Program, consts: int, carry: int, length: int, reverse: bool) -> list[Aval]:
    first = consts + carry
    xs = avals[first:]
    slices = [x.with_shape(x.shape[1:]) for x in xs if x.shape[:1] == (length,)]
    if len(slices) != len(xs) or length < 0:
        raise type_error("scan", avals, f"Its arrays xs have a leading axis of its length, {length}.")
    if body.in_avals != [*avals[:first], *slices] or body.out_avals[:carry] != list(avals[consts:first]):
        raise type_error("scan", avals, f"Its body takes {_names(body.in_avals)} and returns {_names(body.out_avals)}.")
    return body.out_avals[:carry] + [y.with_shape((length, *y.shape)) for y in body.out_avals[carry:]]


# ---- evaluation in Python, body by body ------------------------------------------------------------------------------------


Run = Callable[[Program, Sequence[Any]], list[Any]]


def _run(program: Program, args: Sequence[Any]) -> list[Any]:
    """Op by op; the compiler hands in another, where a body calls a library."""
    from fxgrad.runtime.eager import EagerPlan

    return EagerPlan.of(program).run(args)


def _cond_numpy(index: Any, *operands: Any, branches: tuple[Program, ...], run: Run = _run) -> list[Any]:
    return run(branches[min(max(int(index), 0), len(branches) - 1)], operands)


def _while_numpy(
    *args: Any, cond: Program, body: Program, cond_consts: int, body_consts: int, run: Run = _run
) -> list[Any]:  # fmt: skip
    first = cond_consts + body_consts
    tested, fixed, carry = args[:cond_consts], args[cond_consts:first], list(args[first:])
    while run(cond, [*tested, *carry])[0]:
        carry = run(body, [*fixed, *carry])
    return carry


def _scan_numpy(
    *args: Any, body: Program, consts: int, carry: int, length: int, reverse: bool, run: Run = _run
) -> list[Any]:  # fmt: skip
    first = consts + carry
    fixed, state, xs = args[:consts], list(args[consts:first]), args[first:]
    stacked = [np.empty((length, *y.shape), y.dtype) for y in body.out_avals[carry:]]
    for i in reversed(range(length)) if reverse else range(length):
        outs = run(body, [*fixed, *state, *[x[i] for x in xs]])
        state = outs[:carry]
        for all_ys, y in zip(stacked, outs[carry:], strict=True):
            all_ys[i] = y
    return [*state, *stacked]


# ---- declarations ----------------------------------------------------------------------------------------------------------

cond = register(
    Primitive(
        "cond",
        "control",
        _cond_typ,
        Doc("the branch that the index chooses, clamped; only that one runs", "the transpose of the chosen branch", REFERENCE),
        numpy=_cond_numpy,
    )
)

while_loop = register(
    Primitive(
        "while_loop",
        "control",
        _while_typ,
        Doc(
            "the body applied to the carry while the test holds",
            "the body's transpose, turn by turn backwards, from a tape",
            REFERENCE,
        ),
        numpy=_while_numpy,
    )
)

scan = register(
    Primitive(
        "scan",
        "control",
        _scan_typ,
        Doc(
            "the body applied along the leading axis of xs, a carry handed on",
            "a scan of the body's transpose, the other way",
            REFERENCE,
        ),
        numpy=_scan_numpy,
    )
)
