"""From a user's Python function to a Program: arguments in, results out, and the names to blame in errors."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval
from fxgrad.runtime.caches import on_clear
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import Trace, present

__all__ = [
    "Traced",
    "argument_names",
    "as_leaf",
    "as_leaves",
    "aval_of_leaf",
    "canonical",
    "is_plain_array",
    "name_of",
    "trace_function",
]

_DTYPE_CODES = "?bBhHiIlLqQefdFD"  # booleans, integers, floats and complex numbers up to 64 bits a part
_PYTHON_NUMBERS = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}


def name_of(f: Any) -> str:
    """What messages and programs call a function."""
    return getattr(f, "__name__", None) or type(f).__name__


def argument_names(f: Any, args: Sequence[Any]) -> list[str]:
    """The parameter name of each positional argument, as far as the signature tells."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = []
    for i in range(len(args)):
        p = parameters[min(i, len(parameters) - 1)] if parameters else None
        variadic = p is not None and p.kind is p.VAR_POSITIONAL
        names.append(
            f"{p.name}[{i - len(parameters) + 1}]" if p and variadic else p.name if p and i < len(parameters) else str(i)
        )
    return names


def is_plain_array(x: Any) -> bool:
    """Whether x is an ndarray, and no subclass, of a dtype that programs have."""
    return type(x) is np.ndarray and x.dtype.char in _DTYPE_CODES and x.dtype.isnative


def as_leaf(x: Any, what: Callable[[], str]) -> tuple[Any, bool]:
    """(the argument as tracer, array or NumPy scalar; whether it is weak, that is, came as a Python number)."""
    kind = type(x)
    if kind is Tracer:
        x = x if x._trace.active else present(x)
        return Tracer(x._trace, x._var, x.weak), x.weak  # the handle may move on to another value
    if is_plain_array(x):
        return x, False
    if kind in _PYTHON_NUMBERS:
        return _number(x, what), kind is not bool
    if isinstance(x, np.generic) and x.dtype.char in _DTYPE_CODES:
        return x, False
    if isinstance(x, np.ma.MaskedArray):
        raise errors.FxTypeError(
            f"{what()} is a masked array",
            why="fxgrad would ignore its mask.",
            fix="Pass x.data and the mask separately and use np.where(mask, ...).",
        )
    if isinstance(x, np.matrix):
        raise errors.FxTypeError(
            f"{what()} is a np.matrix",
            why="Its * is a matrix product, which fxgrad would ignore.",
            fix="Pass np.asarray(x) and use @.",
        )
    if isinstance(x, np.ndarray) and x.dtype.char in _DTYPE_CODES:
        return np.asarray(x, x.dtype.newbyteorder("=")), False
    if isinstance(x, Aval):
        return x, False
    if hasattr(x, "__array__") and not isinstance(x, (str, bytes)):
        array = np.asarray(x)
        if array.dtype.char in _DTYPE_CODES:
            return array, False
    if isinstance(x, (np.ndarray, np.generic)):
        raise _no_dtype_of_programs(what(), x)
    named = what()
    static = "mark it static (jit(f, static_argnums=...)), " if "jit" in named else ""
    raise errors.FxTypeError(
        f"{named} is a {kind.__name__}, which is not an array or a number",
        why="Transformed functions take arrays, numbers, and (nested) lists, tuples and dicts of them.",
        fix="Return it by other means: append it to a list outside, or give its number in a list."
        if named.startswith("the result of")
        else f"Close over it, {static}or register its class with fx.tree.register_node.",
    )


def _no_dtype_of_programs(named: str, x: Any) -> errors.FxTypeError:
    """The error for arrays of longdouble, objects, dates, text, records."""
    kind = x.dtype.kind
    wide = np.complex128 if kind == "c" else np.float64
    fix = {
        "M": "Pass the time since a moment as floats: (x - x.min()).astype(np.float64).",
        "S": "Close over it, or pass numbers that stand for it: np.unique(x, return_inverse=True)[1].",
        "V": "Pass one array for each field, in a dict: {name: x[name] for name in x.dtype.names}.",
    }
    return errors.FxTypeError(
        f"{named} is an array of dtype {x.dtype}, which fxgrad does not compute in",
        why="Kernels compute in bool, integers, floats and complex numbers of up to 64 bits a part.",
        fix=fix.get("S" if kind == "U" else kind, f"Pass x.astype(np.{wide.__name__}), if its elements are numbers."),
    )


def _number(x: Any, what: Callable[[], str]) -> Any:
    """A Python number as a NumPy scalar."""
    try:
        return _PYTHON_NUMBERS[type(x)](x)
    except OverflowError:
        raise errors.too_large(f"{what()} is too large an int", x) from None


def as_leaves(flat: Sequence[Any], what: Callable[[int], str]) -> tuple[list[Any], list[bool]]:
    """`as_leaf` of each; `what(i)` names one in messages."""
    leaves, weak = [], []
    for i, x in enumerate(flat):
        if is_plain_array(x):
            leaves.append(x)
            weak.append(False)
        else:
            leaf, is_weak = as_leaf(x, partial(what, i))
            leaves.append(leaf)
            weak.append(is_weak)
    return leaves, weak


def aval_of_leaf(x: Any) -> Aval:
    kind = type(x)
    return (
        Aval(x.shape, x.dtype)
        if kind is np.ndarray
        else x
        if kind is Aval
        else x.aval
        if kind is Tracer
        else Aval(x.shape, x.dtype)
    )


@dataclass(slots=True)
class Traced:
    """A traced call: the program (captures lead its inputs), what was captured, and the shape of the result tree."""

    program: Program
    captures: list[Any]
    out_tree: Any
    out_weak: tuple[bool, ...]
    aux: Any = None


def trace_function(
    f: Callable[..., Any],
    leaves: Sequence[Any],
    weak: Sequence[bool],
    transform: str,
    *,
    known: bool,
    differentiated: Sequence[bool] | None = None,
    name: str = "main",
    check: Callable[[Any], None] | None = None,
) -> Traced:
    """Trace `f(*tracers)`, one tracer a leaf. `check` looks at the result tree before it is flattened."""
    with Trace(transform, known, name) as trace:
        tracers = [trace.input(aval_of_leaf(x), None if type(x) is Aval else x, w) for x, w in zip(leaves, weak, strict=True)]
        if differentiated is not None:
            trace.differentiated.update([t._var for t, d in zip(tracers, differentiated, strict=True) if d])
        try:
            out = f(*tracers)
        except (TypeError, ValueError) as problem:
            if isinstance(problem.__cause__, errors.FxError):  # NumPy hides it behind "setting an array element with a sequence"
                raise problem.__cause__ from None
            raise
        if check is not None:
            check(out)
        flat, out_tree = tree.flatten(out)
        results, out_weak = as_leaves(flat, lambda i: f"the result of '{name}'")
        program, captures = trace.program(results)
    return Traced(program, captures, out_tree, tuple(out_weak))


_programs: OrderedDict[tuple, Program] = OrderedDict()
_programs_lock = Lock()
PROGRAMS_KEPT = 2048


def canonical(program: Program) -> Program:
    """The first program seen with this structure, so that what was derived from it is found again.

    Programs that values can make fail are told apart by their lines as well, which the errors name.
    """
    places = program.places
    key = (program.key, places) if places else program.key
    found = _programs.get(key)
    if found is not None:
        return found
    with _programs_lock:
        found = _programs.setdefault(key, program)
        if len(_programs) > PROGRAMS_KEPT:
            _programs.popitem(last=False)
    return found


@on_clear
def forget_programs() -> None:
    """Drop all remembered structures (fx.clear_caches)."""
    with _programs_lock:
        _programs.clear()
