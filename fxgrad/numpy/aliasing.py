"""Which results share memory with an operand, and `out=`: what the functions of `fxgrad.numpy` need to be written to as NumPy's.

In a trace a view must be noted as one, so that what is written to it shows in its base, and a copy must be a handle of its own.
The functions themselves compute values; they are wrapped here, once, where they enter the namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from fxgrad.numpy.core import add_methods
from fxgrad.trace.mutation import check_out, copied, into, is_fortran_handle, note_ravel, note_reshape, note_view
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace

__all__ = ["with_numpy_memory"]

Function = Callable[..., Any]

_VIEWS = (
    "array_split", "broadcast_to", "diagonal", "dsplit", "expand_dims", "flip", "fliplr", "flipud", "hsplit", "matrix_transpose",
    "moveaxis", "permute_dims", "rollaxis", "rot90", "split", "squeeze", "swapaxes", "transpose", "trim_zeros", "unstack",
    "vsplit",
)  # fmt: skip
_VIEWS_OF_EACH = ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays")
_COPIES = (
    "around", "block", "ceil", "clip", "conj", "conjugate", "fix", "floor", "meshgrid", "pad", "positive", "repeat", "resize",
    "roll", "round", "tile", "trapezoid", "trunc",
)  # fmt: skip
_OUT = (
    "around", "choose", "clip", "compress", "concat", "concatenate", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "divmod", "einsum", "frexp", "median", "modf", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "outer", "percentile",
    "quantile", "round", "stack", "take", "trace",
)  # fmt: skip


def with_numpy_memory(namespace: dict[str, Any]) -> None:
    """Wrap the functions of a namespace whose results share memory, may be an operand itself, or go into out=."""
    for name, f in namespace.items():
        if isinstance(getattr(np, name, None), np.ufunc) and not hasattr(f, "at"):
            add_methods(getattr(np, name), f)
    for name in ("diagonal", "diag", "ravel"):
        _replace(namespace, name, _plainly)
    _replace(namespace, "diag", lambda f: _viewing(f, _note_diagonal))
    for name in ("real", "imag"):
        _replace(namespace, name, lambda f: _viewing(f, _note_part))
    _replace(namespace, "einsum", lambda f: _viewing_if(f, _is_rearrangement))
    _replace(namespace, "nan_to_num", _replacing)
    _replace(namespace, "asfortranarray", _in_fortran_order)
    for name in _VIEWS:
        _replace(namespace, name, lambda f: _viewing(f, note_view))
    _replace(namespace, "reshape", _reshaping)
    _replace(namespace, "ravel", lambda f: _viewing(f, note_ravel))
    for name in _VIEWS_OF_EACH:
        _replace(namespace, name, _viewing_each)
    for name in _COPIES:
        _replace(namespace, name, _copying)
    for name in _OUT:
        _replace(namespace, name, _with_out)


def _replace(namespace: dict[str, Any], name: str, wrap: Callable[[Function], Function]) -> None:
    if name in namespace:
        namespace[name] = wrap(namespace[name])


def _viewing(f: Function, note: Callable[[Any, Any], Any]) -> Function:
    """f, whose result is a view, or a list of views, of its first argument."""

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        kind = type(out)
        if kind is Tracer:
            return note(out, args[0] if args else _first(kwargs))
        if kind is list or kind is tuple:
            base = args[0] if args else _first(kwargs)
            for y in out:
                note(y, base)
        return out

    return function


def _plainly(f: Function) -> Function:
    """f, which leaves plain arrays outside traces to NumPy's own function: that knows whether the result is a view."""
    plain = getattr(np, f.__name__)

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        outside = (
            args and not kwargs and type(args[0]) is np.ndarray and current_trace() is None and Tracer not in map(type, args)
        )
        return (plain if outside else f)(*args, **kwargs)

    return function


def _note_diagonal(out: Any, base: Any) -> Any:
    """np.diag takes a view of a matrix and makes a new matrix of a vector."""
    return note_view(out, base) if out.ndim == 1 else out


def _note_part(out: Any, base: Any) -> Any:
    """Of real numbers np.real takes the array itself, and np.imag makes zeros."""
    return note_view(out, base) if out is base or getattr(base, "dtype", out.dtype) != out.dtype else out


def _is_rearrangement(subscripts: Any, *operands: Any) -> bool:
    """Whether an einsum only takes diagonals and moves axes: NumPy answers with a view."""
    if len(operands) != 1 or not isinstance(subscripts, str):
        return False
    before, arrow, after = subscripts.replace(" ", "").replace("...", "").partition("->")
    return set(before) == set(after) if arrow else len(set(before)) == len(before)


def _viewing_if(f: Function, is_view: Callable[..., bool]) -> Function:
    """f, whose result is a view of its last argument where `is_view` of the arguments holds."""

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None or not is_view(*args):
            return f(*args, **kwargs)
        if type(args[-1]) is np.ndarray and current_trace() is None:
            return np.einsum(*args, **kwargs)
        return note_view(f(*args, **kwargs), args[-1])

    return function


def _replacing(f: Function) -> Function:
    """np.nan_to_num, which with copy=False changes its argument."""

    @wraps(f)
    def function(x: Any, copy: Any = True, *args: Any, **kwargs: Any) -> Any:
        out = f(x, copy, *args, **kwargs)
        if not copy and isinstance(x, (Tracer, np.ndarray)) and x.ndim:
            return into(x, out, "np.nan_to_num(x, copy=False)")
        return copied(out) if type(out) is Tracer else np.array(out) if out is x else out

    return function


def _in_fortran_order(f: Function) -> Function:
    """np.asfortranarray, which copies what lies in another order."""

    @wraps(f)
    def function(a: Any, *args: Any, **kwargs: Any) -> Any:
        out = f(a, *args, **kwargs)
        return copied(out) if type(a) is Tracer and not is_fortran_handle(a) else out

    return function


def _first(kwargs: dict[str, Any]) -> Any:
    """The array among arguments by keyword."""
    return next((x for x in kwargs.values() if isinstance(x, (Tracer, np.ndarray))), None)


def _reshaping(f: Function) -> Function:
    """np.reshape, whose result is a view if it can be, and with copy=True never."""
    view = _viewing(f, note_reshape)

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        return copied(f(*args, **kwargs)) if kwargs.get("copy") else view(*args, **kwargs)

    return function


def _viewing_each(f: Function) -> Function:
    """f, which gives a view of each argument."""

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        if type(out) is Tracer:
            return note_view(out, args[0])
        if isinstance(out, tuple):
            for y, base in zip(out, args, strict=True):
                note_view(y, base)
        return out

    return function


def _copying(f: Function) -> Function:
    """f, whose result is never the operand itself."""

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        return _own(f(*args, **kwargs), args)

    return function


def _own(out: Any, args: tuple[Any, ...]) -> Any:
    """A result that shares no memory with an argument, and can be written."""
    if type(out) is Tracer:
        return copied(out)
    if isinstance(out, np.ndarray):
        shared = not out.flags.writeable or any(isinstance(x, np.ndarray) and np.may_share_memory(out, x) for x in args)
        return np.array(out) if shared else out
    return tuple([_own(y, args) for y in out]) if type(out) is tuple else out


def _with_out(f: Function) -> Function:
    """f, whose result goes into the array out= if there is one."""

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            out = kwargs.pop("out", None)
            if out is not None:
                what = f"np.{f.__name__}(..., out=...)"
                check_out(out, what)
                return into(out, f(*args, **kwargs), what)
        return f(*args, **kwargs)

    return function
