"""Questions about arrays and dtypes, conversions that change nothing, printing: what needs no rule of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import operand, tensor
from fxgrad.numpy.creation import array, asarray
from fxgrad.trace.mutation import memory_of
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace

__all__ = [
    "array2string",
    "array_repr",
    "array_str",
    "asanyarray",
    "asarray_chkfinite",
    "asfortranarray",
    "can_cast",
    "common_type",
    "einsum_path",
    "isfortran",
    "iterable",
    "may_share_memory",
    "min_scalar_type",
    "require",
    "shares_memory",
]

# ---- conversions -----------------------------------------------------------------------------------------------------------


def asanyarray(
    a: Any, dtype: Any = None, order: str | None = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Any:
    """`a` as an array, as numpy.asanyarray; subclasses of ndarray become ndarray."""
    return asarray(a, dtype, order, copy=copy)


def asarray_chkfinite(a: Any, dtype: Any = None, order: str | None = None) -> Any:
    """`a` as an array, or a ValueError if it holds NaN or infinities, as numpy.asarray_chkfinite; values must be known."""
    x = asarray(a, dtype, order)
    values = x
    if type(x) is Tracer:
        values = x._known(
            "an array to be checked for NaN and infinities",
            "Use np.asarray here, and fx.config.debug_nans = True to find what is not finite; or check before the call.",
        )
    if x.dtype.kind in "fc" and not np.isfinite(values).all():
        raise ValueError("array must not contain infs or NaNs")
    return x


def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """`a` as an array of rank 1 or more; memory order is no property of traced values."""
    if type(a) is Tracer or current_trace() is not None:
        return array(a, dtype, copy=None, ndmin=1)
    return np.asfortranarray(a, dtype)


def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """`a` with flags such as "C" or "WRITEABLE", as numpy.require; of a traced value only the dtype can be required."""
    if type(a) is Tracer or current_trace() is not None:
        return asarray(a, dtype)
    return np.require(a, dtype, requirements)


# ---- dtypes ----------------------------------------------------------------------------------------------------------------


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether a dtype, or the dtype of an array, may be converted to another by a rule, as numpy.can_cast."""
    return np.can_cast(from_.dtype if type(from_) is Tracer else from_, to, casting)


def common_type(*arrays: Any) -> type:
    """The inexact scalar type that holds all of the arrays, as numpy.common_type."""
    return np.common_type(*[np.empty(0, tensor(a).dtype) for a in arrays])


def min_scalar_type(a: Any) -> np.dtype:
    """The smallest dtype that holds a plain number, or the dtype of an array, as numpy.min_scalar_type."""
    x = operand(a)
    return x.dtype if type(x) is Tracer else np.min_scalar_type(x)


# ---- memory ----------------------------------------------------------------------------------------------------------------


def _plain(x: Any) -> bool:
    return type(x) is not Tracer


def _same_memory(a: Any, b: Any) -> bool:
    """Whether one traced value is the other, or they are views of one array."""
    return a is b or (memory_of(a) is not None and memory_of(a) is memory_of(b))


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays might share memory, as numpy.may_share_memory; of traced values, whether one is a view of the other."""
    return np.may_share_memory(a, b, max_work) if _plain(a) and _plain(b) else _same_memory(a, b)


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays share memory, as numpy.shares_memory; of traced values, whether one is a view of the other."""
    return np.shares_memory(a, b, max_work) if _plain(a) and _plain(b) else _same_memory(a, b)


def isfortran(a: Any) -> bool:
    """Whether a plain array is stored in Fortran order only, as numpy.isfortran; traced values have no memory order."""
    return _plain(a) and np.isfortran(a)


def iterable(y: Any) -> bool:
    """Whether `y` can be iterated over, as numpy.iterable."""
    return bool(y.ndim) if type(y) is Tracer else isinstance(y, Iterable) and np.iterable(y)


# ---- text ------------------------------------------------------------------------------------------------------------------


def array2string(a: Any, *args: Any, **kwargs: Any) -> str:
    """`a` as text, as numpy.array2string; a traced value of which only shape and dtype are known says these."""
    return str(a) if type(a) is Tracer else np.array2string(np.asarray(a), *args, **kwargs)


def array_repr(arr: Any, *args: Any, **kwargs: Any) -> str:
    """The representation of an array, as numpy.array_repr."""
    return repr(arr) if type(arr) is Tracer else np.array_repr(np.asarray(arr), *args, **kwargs)


def array_str(a: Any, *args: Any, **kwargs: Any) -> str:
    """`a` as text without its type, as numpy.array_str."""
    return str(a) if type(a) is Tracer else np.array_str(np.asarray(a), *args, **kwargs)


# ---- einsum ----------------------------------------------------------------------------------------------------------------


def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> tuple[list, str]:
    """The order of contractions NumPy finds best and a report on it, as numpy.einsum_path; it needs shapes only."""
    if einsum_call:
        raise errors.UnsupportedError(
            "np.einsum_path(..., einsum_call=True) is not supported",
            why="It is private to NumPy's own einsum.",
            fix="Leave it out, and pass the path to np.einsum(..., optimize=path).",
        )
    is_text = isinstance(operands[0], str)
    n = len(operands)
    for x in operands[1::2] if not is_text else ():
        if not isinstance(x, (list, tuple)) and x is not operands[-1]:
            raise TypeError("subscripts in the form einsum_path(x, [0, 1], y, [1, 2]) are lists of integers")
    named = lambda k: k == 0 if is_text else k % 2 == 1 or (k == n - 1 and n % 2 == 1)  # noqa: E731
    dummies = [x if named(k) else _like(x) for k, x in enumerate(operands)]
    plain: Any = np.einsum_path
    return plain(*dummies, optimize=optimize)


def _like(x: Any) -> np.ndarray:
    """An array of that shape that takes no memory."""
    return np.broadcast_to(np.float64(0), tensor(x).shape)
