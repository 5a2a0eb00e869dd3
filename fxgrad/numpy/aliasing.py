"""Which results share memory with an operand, and `out=`: what the functions of `fxgrad.numpy` need to be written to as NumPy's.

In a trace a view must be noted as one, so that what is written to it shows in its base, and a copy must be a handle of its own.
The functions themselves compute values; they are wrapped here, once, where they enter the namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from fxgrad.numpy.core import is_traced
from fxgrad.trace.mutation import copied, into, note_ravel, note_reshape, note_view
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace

__all__ = ["with_numpy_memory"]

Function = Callable[..., Any]

_VIEWS = (
    "array_split", "broadcast_to", "diagonal", "dsplit", "expand_dims", "flip", "fliplr", "flipud", "hsplit", "matrix_transpose",
    "moveaxis", "permute_dims", "real", "rollaxis", "rot90", "split", "squeeze", "swapaxes", "transpose", "trim_zeros", "unstack",
    "vsplit",
)  # fmt: skip
_VIEWS_OF_EACH = ("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays")
_COPIES = (
    "around", "clip", "conj", "conjugate", "nan_to_num", "pad", "positive", "repeat", "roll", "round", "tile",
)  # fmt: skip
_OUT = (
    "around", "choose", "clip", "compress", "concat", "concatenate", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "divmod", "einsum", "frexp", "median", "modf", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "outer", "percentile",
    "quantile", "round", "stack", "take", "trace",
)  # fmt: skip


def with_numpy_memory(namespace: dict[str, Any]) -> None:
    """Wrap the functions of a namespace whose results share memory, may be an operand itself, or go into out=."""
    _replace(namespace, "diagonal", _plainly)
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
    """f, for which NumPy's own function, which gives a view, does outside traces."""
    plain = getattr(np, f.__name__)

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (plain if current_trace() is None and not is_traced(args[:1]) else f)(*args, **kwargs)

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
        out = f(*args, **kwargs)
        if type(out) is Tracer:
            return copied(out)
        if isinstance(out, np.ndarray) and any(isinstance(x, np.ndarray) and np.may_share_memory(out, x) for x in args):
            return np.array(out)
        return out

    return function


def _with_out(f: Function) -> Function:
    """f, whose result goes into the array out= if there is one."""

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            out = kwargs.pop("out", None)
            if out is not None:
                return into(out, f(*args, **kwargs), f"np.{f.__name__}(..., out=...)")
        return f(*args, **kwargs)

    return function
