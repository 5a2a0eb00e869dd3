"""The values that go in and out of control flow: trees flattened, Python numbers given the dtype that a body settles on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any
from weakref import WeakSet

import numpy as np

from fxgrad import errors, tree
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval
from fxgrad.primitives.elementwise import convert
from fxgrad.trace.draws import watching_draws
from fxgrad.trace.function import Traced, as_leaf, aval_of_leaf, name_of, trace_function
from fxgrad.trace.guards import generators_of
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import build, inline

F = Callable[..., Any]
INT64 = np.dtype(np.int64)


_draws_nothing: WeakSet[CodeType] = WeakSet()  # as their first trace showed; looking takes as long as tracing a short body


@dataclass
class Leaves:
    """A tree of operands, flattened; `paths` and `what` name a leaf in messages."""

    values: list[Any]
    weak: list[bool]
    structure: Any
    paths: list[str]
    what: str

    @property
    def avals(self) -> list[Aval]:
        return [aval_of_leaf(x) for x in self.values]

    def label(self, i: int) -> str:
        return f"{self.what}{self.paths[i]}"


def flatten(value: Any, what: str) -> Leaves:
    paths, structure = tree.flatten_with_path(value)
    names = [tree.path_string(path) for path, _ in paths]
    pairs = [as_leaf(x, partial("{}{}".format, what, name)) for (_, x), name in zip(paths, names, strict=True)]
    return Leaves([x for x, _ in pairs], [w for _, w in pairs], structure, names, what)


def text(aval: Aval) -> str:
    return f"{aval.dtype} of shape {aval.shape}"


def as_type(x: Any, aval: Aval) -> Any:
    """A Python number's value in the dtype that a loop or a branch settled on."""
    return x if x.dtype == aval.dtype else convert(x, dtype=aval.dtype)


def converted(program: Program, avals: Sequence[Aval]) -> Program:
    """The program with its first results in these dtypes."""
    if program.out_avals[: len(avals)] == list(avals):
        return program

    def body(*values: Any) -> list[Any]:
        outs = inline(program, values)
        return [as_type(o, a) for o, a in zip(outs, avals, strict=False)] + outs[len(avals) :]

    return build(program.in_avals, body, program.name)


def finish(structure: Any, outs: Sequence[Any], weak: Sequence[bool]) -> Any:
    """The results in their tree; what stayed a Python number stays weak."""
    for x, w in zip(outs, weak, strict=True):
        if w and type(x) is Tracer:
            x.weak = True
    return tree.unflatten(structure, outs)


def trace_turn(f: F, body: F, leaves: Sequence[Any], weak: Sequence[bool], what: str, check: Callable[[Any], None]) -> Traced:
    """`body`, which calls `f` for one turn of the loop `what`, traced."""
    drawing = inspect.unwrap(f)
    code = getattr(getattr(drawing, "__func__", drawing), "__code__", None)

    def trace() -> Traced:
        return trace_function(body, leaves, weak, what, known=False, name=name_of(f), check=check)

    if code in _draws_nothing:
        return trace()
    traced, drew = watching_draws(trace, generators_of(drawing))
    if not drew:
        if code is not None:
            _draws_nothing.add(code)
    else:
        raise errors.UnsupportedError(
            f"'{name_of(f)}' draws random numbers (numpy.random or random) in a turn of {what}",
            where=(code, 0) if code is not None else None,
            why="It runs once for all turns, so that all of them would get the same random numbers.",
            fix="Draw outside and scan over the numbers, or use fx.random with a key that is carried or scanned over.",
        )
    return traced


def require_callable(f: Any, what: str, position: str) -> None:
    if not callable(f):
        raise errors.FxTypeError(
            f"{what} got a {type(f).__name__} as {position}",
            why="It traces that argument, so it must be a function.",
            fix="Pass a function; wrap a constant as lambda *args: constant.",
        )


def kind(x: Any) -> str:
    return f"a tuple of {len(x)}" if isinstance(x, tuple) else f"a {type(x).__name__}"


def carry_types(
    init: Leaves, trace: Callable[[list[Aval], list[bool]], tuple[Traced, int]], what: str
) -> tuple[list[Aval], list[bool], Traced]:
    """The types with which a body returns its carry as it takes it; Python numbers among the carry take what the body gives."""
    avals, weak = init.avals, list(init.weak)
    while True:  # every round makes a number of the carry strong, or an int a float
        traced, n = trace(avals, weak)
        changed = False
        for i, (o, w) in enumerate(zip(traced.program.outputs[:n], traced.out_weak, strict=False)):
            have, given = avals[i], o.aval
            if given.shape == have.shape and (given.dtype == have.dtype or (w and _holds(have, given))):
                if weak[i] and not w and given.dtype == have.dtype:
                    weak[i], changed = False, True
                continue
            if not weak[i] or given.shape != have.shape:
                raise _carry_error(init, i, have, given, what)
            avals[i], weak[i], changed = given, w, True
        if not changed:
            return avals, weak, traced


def _holds(have: Aval, number: Aval) -> bool:
    """Whether a Python number of the body's can be stored in a carry without losing its kind."""
    return np.can_cast(number.dtype, have.dtype, "same_kind")


def _carry_error(init: Leaves, i: int, have: Aval, given: Aval, what: str) -> errors.FxTypeError:
    cast = f".astype(np.{have.dtype})"
    fix = (
        f"Return carry{init.paths[i]}{cast}, or start with np.{given.dtype}(...) or .astype(np.{given.dtype})."
        if have.shape == given.shape
        else f"Start with np.broadcast_to(..., {given.shape}), or reduce what the body returns to shape {have.shape}."
    )
    return errors.FxTypeError(
        f"the carry{init.paths[i]} of {what} starts as {text(have)} and the body returns {text(given)}",
        why="Every turn takes what the turn before returned, so both have one shape and dtype.",
        fix=fix,
    )
