"""Making arrays. Inside a trace these are recorded (as broadcasts and iotas), so that the result is part of the program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import (
    as_dtype,
    broadcast_to_shape,
    canonical_axis,
    iota,
    is_traced,
    operand,
    promote,
    result_type,
    static_int,
    static_shape,
    tensor,
)
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import shape as s
from fxgrad.trace.mutation import copied, in_memory, is_contiguous_handle, note_view
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace

__all__ = [
    "arange",
    "array",
    "asarray",
    "ascontiguousarray",
    "astype",
    "copy",
    "diag",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "geomspace",
    "identity",
    "linspace",
    "logspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tri",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "vander",
    "zeros",
    "zeros_like",
]


# ---- from values -----------------------------------------------------------------------------------------------------


def array(
    object: Any, dtype: Any = None, *, copy: bool | None = True, order: str | None = None, ndmin: int = 0, like: Any = None
) -> Any:
    """An array of `object`, as numpy.array; (nested) lists that hold traced values are stacked.

    Inside a trace the result is traced, so that it can be indexed with traced values; `order` is ignored.
    """
    if is_traced(object):
        x = object if type(object) is Tracer else _stack_nested(object)
        x = x if dtype is None else astype(x, dtype, copy=bool(copy))
        x = x if ndmin <= x.ndim else note_view(s.reshape(x, shape=(1,) * (ndmin - x.ndim) + x.shape), x)
        return in_memory(copied(x)) if copy else x
    x = np.array(object, dtype=dtype, copy=copy, ndmin=ndmin)
    if x.dtype.kind not in "biufc":
        operand(x.astype(np.object_))  # raises: not numbers
        raise errors.FxTypeError(
            f"an array of dtype {x.dtype} is not numeric", why="fxgrad computes with numbers only.", fix="Convert it first."
        )
    trace = current_trace()
    if trace is None:
        return x
    if isinstance(object, np.ndarray) and x.dtype == object.dtype and x.shape == object.shape:
        x = object  # captured by reference, not as a copy frozen now
    if not x.shape:
        return in_memory(s.broadcast(x[()], shape=(), dims=()))
    var: Any = trace.atom(x)
    return Tracer(trace, var) if copy else note_view(Tracer(trace, var), object)


def _stack_nested(items: Any) -> Any:
    """A nested list with traced values somewhere in it, joined along a new leading axis."""
    parts = [tensor(_stack_nested(x) if isinstance(x, (list, tuple)) and is_traced(x) else x) for x in items]
    dtype = np.result_type(*[p.dtype for p in parts])  # NumPy's lists make Python numbers float64, not weak
    typed = [as_dtype(p, dtype) for p in parts]
    if any(p.shape != typed[0].shape for p in typed):
        raise errors.FxValueError(
            f"a list of arrays of shapes {', '.join(str(p.shape) for p in typed)} is not an array",
            why="The parts of a nested list must have one shape.",
            fix="Use np.concatenate, or broadcast the parts to one shape first.",
        )
    return s.concatenate(*[s.reshape(p, shape=(1, *p.shape)) for p in typed], axis=0)


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Any:
    """`a` as an array, as numpy.asarray, copied only where needed.

    Inside a trace the result is traced: a table that is to be indexed with traced values goes through here first.

    Example:
        >>> import fxgrad as fx
        >>> fx.asarray([1.0, 2.0])
        array([1., 2.])
        >>> fx.asarray(3.0)
        array(3.)
    """
    return array(a, dtype, copy=copy)


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """`a` as an array of rank 1 or more; memory order is no property of traced values."""
    if not is_traced(a) and current_trace() is None:
        return np.ascontiguousarray(a, dtype)
    return array(a, dtype, copy=None if is_contiguous_handle(a) else True, ndmin=1)


def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """A copy of `a`: what is written to one does not show in the other."""
    return array(a)


def astype(
    x: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, *, copy: bool = True, device: Any = None
) -> Any:
    """`x` converted to `dtype`, as numpy.ndarray.astype; between float dtypes gradients pass through."""
    x, dtype = tensor(x), np.dtype(dtype)
    how: Any = casting
    if casting != "unsafe" and not np.can_cast(x.dtype, dtype, how):
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to {dtype!r} according to the rule '{casting}'")
    if x.dtype == dtype:
        if not copy:
            return as_dtype(x, dtype)
        return copied(x) if type(x) is Tracer else np.array(x)[()] if not x.shape else np.array(x)
    if dtype.kind == "b":
        return e.ne(x, x.dtype.type(0))
    if x.dtype.kind == "c" and dtype.kind != "c":
        message = "Casting complex values to real discards the imaginary part; np.real(z) says so"
        warnings.warn(message, np.exceptions.ComplexWarning, stacklevel=2)
    return e.convert(x, dtype=dtype)


# ---- constants -------------------------------------------------------------------------------------------------------


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """An array of `shape` filled with `fill_value` (which may be traced, and broadcasts), as numpy.full."""
    shape, value = static_shape(shape), operand(fill_value)
    if type(value) is not Tracer and current_trace() is None:
        return np.full(shape, value, dtype)
    value = tensor(value)
    return in_memory(copied(broadcast_full(value if dtype is None else astype(value, dtype), shape)))


def broadcast_full(value: Any, shape: tuple[int, ...]) -> Any:
    """value broadcast to shape, or NumPy's ValueError."""
    if np.broadcast_shapes(value.shape, shape) != shape:
        raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {shape}")
    return broadcast_to_shape(value, shape)


def _filled(name: str, value: int) -> Callable[..., Any]:
    def function(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
        shape, dtype = static_shape(shape), np.dtype(float if dtype is None else dtype)
        if current_trace() is None:
            return np.full(shape, value, dtype)
        return in_memory(s.broadcast(dtype.type(value), shape=shape, dims=()))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"An array of {'ones' if value else 'zeros'}, as numpy.{name}; arguments: shape, dtype (float64)."
    return function


zeros = _filled("zeros", 0)
ones = _filled("ones", 1)
empty = _filled("empty", 0)


def _filled_like(name: str, value: int) -> Callable[..., Any]:
    def function(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Any:
        a = tensor(a)
        make = ones if value else zeros
        return make(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{'Ones' if value else 'Zeros'} with the shape and dtype of `a` (or those given), as numpy.{name}."
    return function


zeros_like = _filled_like("zeros_like", 0)
ones_like = _filled_like("ones_like", 1)
empty_like = _filled_like("empty_like", 0)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """`fill_value` in the shape and dtype of `a` (or those given), as numpy.full_like."""
    a = tensor(a)
    return full(a.shape if shape is None else shape, fill_value, a.dtype if dtype is None else dtype)


# ---- sequences -------------------------------------------------------------------------------------------------------


def _static_number(x: Any) -> Any:
    """A Python or NumPy number; tracers answer if their value is known."""
    if type(x) is not Tracer:
        return x
    return x.__index__() if x.dtype.kind in "iu" else float(x)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, like: Any = None) -> Any:
    """start, start + step, ... below stop, as numpy.arange. The arguments fix the length, so their values must be known."""
    args = [None if x is None else _static_number(x) for x in (start, stop, step)]
    x = np.arange(*((args[0],) if stop is None and step is None else args), dtype=dtype)
    if current_trace() is None:
        return x
    if x.size < 2 or x.dtype.kind not in "iuf":
        return asarray(x)
    first, delta, int64 = x[0], x[1] - x[0], np.dtype(np.int64)
    if x.dtype.kind == "f":
        return e.add(e.mul(iota(x.shape, 0, x.dtype), delta), first)
    count = iota(x.shape, 0, int64)
    count = count if int(delta) == 1 else e.mul(count, np.int64(int(x[1]) - int(x[0])))
    count = count if int(first) == 0 else e.add(count, np.int64(int(first)))
    return count if x.dtype == int64 else e.convert(count, dtype=x.dtype)


def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced numbers from start to stop, as numpy.linspace; start and stop may be traced arrays."""
    num = static_int(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    low, high = operand(start), operand(stop)
    if current_trace() is None and type(low) is not Tracer and type(high) is not Tracer:
        plain: Any = np.linspace
        return plain(low, high, num, endpoint=endpoint, retstep=retstep, dtype=dtype, axis=axis)
    work = result_type(low, high, 1.0)
    low, high = tensor(as_dtype(low, work)), tensor(as_dtype(high, work))
    shape = np.broadcast_shapes(low.shape, high.shape)
    low, high = broadcast_to_shape(low, shape), broadcast_to_shape(high, shape)
    parts, full_shape = (num - 1 if endpoint else num), (num, *shape)
    delta = e.sub(high, low)
    count = iota(full_shape, 0, work)
    spread = lambda x: s.broadcast(x, shape=full_shape, dims=tuple(range(1, len(full_shape))))  # noqa: E731
    step = e.div(delta, work.type(parts)) if parts > 0 else e.mul(delta, work.type(np.nan))
    y = e.add(e.mul(count, spread(step if parts > 0 else delta)), spread(low))
    if endpoint and num > 1:
        y = e.select(e.eq(iota(full_shape, 0), np.int64(num - 1)), spread(high), y)
    axis = canonical_axis(axis, y.ndim)
    if axis:
        y = s.transpose(y, perm=(*range(1, axis + 1), 0, *range(axis + 1, y.ndim)))
    if dtype is not None:
        y = astype(e.floor(y) if np.dtype(dtype).kind in "iu" else y, dtype)
    return (y, step) if retstep else y


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    """Powers of `base` with evenly spaced exponents, as numpy.logspace."""
    from fxgrad.numpy.elementwise import power

    y = power(base, linspace(start, stop, num, endpoint, axis=axis))
    return y if dtype is None else astype(y, dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """`num` numbers in geometric progression between start and stop, of one sign and not 0, as numpy.geomspace."""
    from fxgrad.numpy.elementwise import divide, exp, log, multiply
    from fxgrad.numpy.elementwise import sign as sign_of
    from fxgrad.numpy.manipulation import moveaxis

    start, stop = promote(start, stop, dtype=result_type(start, stop, np.dtype(np.float64)))
    sign = sign_of(start)
    y = multiply(sign, exp(linspace(log(divide(start, sign)), log(divide(stop, sign)), num, endpoint)))
    y = y if axis == 0 else moveaxis(y, 0, axis)
    return y if dtype is None else astype(y, dtype)


# ---- matrices --------------------------------------------------------------------------------------------------------


def _diagonal_mask(n: int, m: int, k: int, compare: Callable[..., Any]) -> Any:
    """compare(column, row + k) over an (n, m) matrix."""
    row, column = iota((n, m), 0), iota((n, m), 1)
    return compare(column, e.add(row, np.int64(k)) if k else row)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Ones on the k-th diagonal of an (N, M) matrix, as numpy.eye."""
    n, k = static_int(N), static_int(k)
    m = n if M is None else static_int(M)
    if current_trace() is None:
        return np.eye(n, m, k, dtype)
    return astype(_diagonal_mask(n, m, k, e.eq), np.dtype(float if dtype is None else dtype))


def identity(n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """The identity matrix, as numpy.identity."""
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None) -> Any:
    """Ones at and below the k-th diagonal, as numpy.tri."""
    n = static_int(N)
    return astype(_diagonal_mask(n, n if M is None else static_int(M), static_int(k), e.le), dtype)


def _triangle(m: Any, k: Any, compare: Callable[..., Any], name: str) -> Any:
    m = tensor(m)
    if m.ndim == 1:  # NumPy's own reading of a vector: the rows of a square
        m = broadcast_to_shape(m, (m.shape[0], *m.shape))
    if m.ndim < 2:
        raise ValueError(f"{name} needs an array of rank 1 or more")
    mask = broadcast_to_shape(_diagonal_mask(m.shape[-2], m.shape[-1], static_int(k), compare), m.shape)
    return e.select(mask, m, m.dtype.type(0))


def tril(m: Any, k: Any = 0) -> Any:
    """The lower triangle (of the last two axes), zeros above the k-th diagonal, as numpy.tril."""
    return _triangle(m, k, e.le, "tril")


def triu(m: Any, k: Any = 0) -> Any:
    """The upper triangle (of the last two axes), zeros below the k-th diagonal, as numpy.triu."""
    return _triangle(m, k, e.ge, "triu")


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[np.ndarray, ...]:
    """Plain index arrays of the lower triangle, as numpy.tril_indices."""
    return np.tril_indices(n, k, m)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[np.ndarray, ...]:
    """Plain index arrays of the upper triangle, as numpy.triu_indices."""
    return np.triu_indices(n, k, m)


def diag(v: Any, k: Any = 0) -> Any:
    """A matrix with `v` on its k-th diagonal, or the k-th diagonal of a matrix, as numpy.diag."""
    v, k = tensor(v), static_int(k)
    if v.ndim == 2:
        from fxgrad.numpy.selection import diagonal

        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = v.shape[0] + abs(k)
    zero = v.dtype.type(0)
    row = s.pad(v, zero, low=(max(0, k),), high=(max(0, -k),), interior=(0,))
    return e.select(_diagonal_mask(n, n, k, e.eq), s.broadcast(row, shape=(n, n), dims=(1,)), zero)


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns, as numpy.vander."""
    from fxgrad.numpy.elementwise import power
    from fxgrad.numpy.manipulation import stack

    x = tensor(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    x = as_dtype(x, np.promote_types(x.dtype, np.int64))
    n = x.shape[0] if N is None else static_int(N)
    columns = [ones_like(x) if i == 0 else power(x, i) for i in range(n)]
    return stack(columns if increasing else columns[::-1], axis=1) if n else zeros((x.shape[0], 0), x.dtype)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Coordinate matrices from coordinate vectors, as numpy.meshgrid."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    xs = [tensor(x) for x in xi]
    rank = len(xs)
    axes = list(range(rank))
    if indexing == "xy" and rank > 1:
        axes[:2] = [1, 0]
    sizes = [1] * rank
    for x, axis in zip(xs, axes, strict=True):
        sizes[axis] = x.size
    out = []
    for x, axis in zip(xs, axes, strict=True):
        flat = s.reshape(x, shape=(x.size,))
        shape = tuple(n if i == axis or not sparse else 1 for i, n in enumerate(sizes))
        out.append(s.broadcast(flat, shape=shape, dims=(axis,)))
    return tuple(out)
