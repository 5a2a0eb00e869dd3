"""The primitives under the names of `jax.lax`: no promotion, no broadcasting but of scalars."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad import lax_linalg as linalg  # noqa: F401
from fxgrad.control import associative_scan as associative_scan
from fxgrad.control import cond as cond
from fxgrad.control import fori_loop as fori_loop
from fxgrad.control import map as map
from fxgrad.control import scan as scan
from fxgrad.control import switch as switch
from fxgrad.control import while_loop as while_loop
from fxgrad.lax_conv import ConvDimensionNumbers as ConvDimensionNumbers
from fxgrad.lax_conv import conv as conv
from fxgrad.lax_conv import conv_dimension_numbers as conv_dimension_numbers
from fxgrad.lax_conv import conv_general_dilated as conv_general_dilated
from fxgrad.lax_conv import conv_transpose as conv_transpose
from fxgrad.lax_conv import conv_with_general_padding as conv_with_general_padding
from fxgrad.lax_windows import reduce_window as reduce_window
from fxgrad.numpy import elementwise as _ew
from fxgrad.numpy.core import as_dtype, canonical_axis, key_of, operand, result_type, static_shape, tensor
from fxgrad.primitives import complex as _cx
from fxgrad.primitives import dot as _d
from fxgrad.primitives import elementwise as _e
from fxgrad.primitives import reduce as _r
from fxgrad.primitives import shape as _s
from fxgrad.primitives import transcendental as _tr
from fxgrad.primitives.call import stop_gradient as _stop_gradient

# ---- elementwise -------------------------------------------------------------------------------------------------------


def _typed(name: str, args: tuple) -> list[Any]:
    """Operands of one dtype and shape; Python numbers take the dtype of the others."""
    xs = [operand(x) for x in args]
    strong = [x for x in xs if hasattr(x, "dtype") and not getattr(x, "weak", False)]
    dtype = strong[0].dtype if strong else result_type(*xs)
    if any(x.dtype != dtype for x in strong):
        raise errors.FxTypeError(
            f"lax.{name} got dtypes {', '.join(str(np.dtype(key_of(x))) for x in xs)}",
            why="fx.lax does not promote.",
            fix="Use fxgrad.numpy, or x.astype(...).",
        )
    shapes = {x.shape for x in strong if x.shape}
    if len(shapes) > 1:
        raise errors.FxTypeError(
            f"lax.{name} got shapes {', '.join(builtins.map(str, shapes))}",
            why="fx.lax does not broadcast.",
            fix="Use fxgrad.numpy.",
        )
    shape = next(iter(shapes), ())
    typed = [as_dtype(x, dtype) for x in xs]
    return [t if isinstance(t, np.generic) or t.shape == shape else _s.broadcast(t, shape=shape, dims=()) for t in typed]


def _elementwise(name: str, prim: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        return prim(*_typed(name, args))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As jax.lax.{name}: elementwise, operands of one dtype and shape."
    return function


_NAMES = {
    "abs": _e.abs_,
    "acos": _tr.acos,
    "add": _e.add,
    "asin": _tr.asin,
    "atan": _tr.atan,
    "atan2": _tr.atan2,
    "complex": _cx.complex_,
    "conj": _cx.conj,
    "imag": _cx.imag,
    "real": _cx.real,
    "bitwise_and": _e.and_,
    "bitwise_not": _e.not_,
    "bitwise_or": _e.or_,
    "bitwise_xor": _e.xor,
    "cbrt": _tr.cbrt,
    "ceil": _e.ceil,
    "cos": _tr.cos,
    "cosh": _tr.cosh,
    "eq": _e.eq,
    "erf": _tr.erf,
    "erfc": _tr.erfc,
    "exp": _tr.exp,
    "expm1": _tr.expm1,
    "floor": _e.floor,
    "ge": _e.ge,
    "gt": _e.gt,
    "is_finite": _e.isfinite,
    "le": _e.le,
    "log": _tr.log,
    "log1p": _tr.log1p,
    "logistic": _tr.logistic,
    "lt": _e.lt,
    "max": _e.maximum,
    "min": _e.minimum,
    "mul": _e.mul,
    "ne": _e.ne,
    "neg": _e.neg,
    "rsqrt": _tr.rsqrt,
    "shift_left": _e.shift_left,
    "sign": _e.sign,
    "sin": _tr.sin,
    "sinh": _tr.sinh,
    "sqrt": _e.sqrt,
    "sub": _e.sub,
    "tan": _tr.tan,
    "tanh": _tr.tanh,
    "shift_right_arithmetic": _e.shift_right,
}
for _name, _prim in _NAMES.items():
    globals()[_name] = _elementwise(_name, _prim)
acosh, asinh, atanh, exp2 = _ew.arccosh, _ew.arcsinh, _ew.arctanh, _ew.exp2


def div(x: Any, y: Any) -> Any:
    """x / y, as jax.lax.div: integers are divided towards zero."""
    a, b = _typed("div", (x, y))
    if a.dtype.kind not in "iu":
        return _e.div(a, b)
    whole = _e.floordiv(a, b)
    short = _e.and_(_e.lt(whole, a.dtype.type(0)), _e.ne(_e.mul(whole, b), a))
    return _e.add(whole, _e.convert(short, dtype=a.dtype))


def rem(x: Any, y: Any) -> Any:
    """The remainder with the sign of x, as jax.lax.rem."""
    a, b = _typed("rem", (x, y))
    if a.dtype.kind == "f":
        return _ew.fmod(a, b)
    r = _e.rem(_e.abs_(a), _e.abs_(b)) if a.dtype.kind == "i" else _e.rem(a, b)
    return _e.select(_e.lt(a, a.dtype.type(0)), _e.neg(r), r) if a.dtype.kind == "i" else r


def pow(x: Any, y: Any) -> Any:
    """x ** y, as jax.lax.pow."""
    return _ew.power(x, y)


def integer_pow(x: Any, y: int) -> Any:
    """x ** y for a Python integer y, by repeated multiplication, as jax.lax.integer_pow."""
    return _e.integer_pow(tensor(x), n=int(y))


def square(x: Any) -> Any:
    """x * x, as jax.lax.square."""
    return _e.integer_pow(tensor(x), n=2)


def reciprocal(x: Any) -> Any:
    """1 / x, as jax.lax.reciprocal."""
    return _ew.reciprocal(x)


def round(x: Any) -> Any:
    """The nearest integer, ties to even (JAX's default is away from zero)."""
    return _ew.rint(x)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """x limited to [min, max], as jax.lax.clamp."""
    return _e.clip(*_typed("clamp", (x, min, max)))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """on_true where pred holds, else on_false, as jax.lax.select."""
    a, b = _typed("select", (on_true, on_false))
    return _e.select(tensor(pred), a, b)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The operand in another dtype, as jax.lax.convert_element_type."""
    from fxgrad.numpy.creation import astype

    return astype(operand, new_dtype)


def stop_gradient(x: Any) -> Any:
    """x, through which no derivative passes (also of every float array in a tree), as jax.lax.stop_gradient."""
    from fxgrad import tree

    def one(leaf: Any) -> Any:
        v = operand(leaf)
        if getattr(v, "dtype", np.dtype(float)).kind not in "fc" or not hasattr(v, "dtype"):
            return leaf
        return _stop_gradient(v)

    return tree.map(one, x)


# ---- shapes ------------------------------------------------------------------------------------------------------------


def broadcast_in_dim(operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """The operand repeated to `shape`, its axes at `broadcast_dimensions`, as jax.lax.broadcast_in_dim."""
    return _s.broadcast(tensor(operand), shape=static_shape(tuple(shape)), dims=tuple(int(d) for d in broadcast_dimensions))


def broadcast(operand: Any, sizes: Sequence[int]) -> Any:
    """The operand repeated along new leading axes, as jax.lax.broadcast."""
    x = tensor(operand)
    return _s.broadcast(x, shape=(*static_shape(tuple(sizes)), *x.shape), dims=tuple(range(len(sizes), len(sizes) + x.ndim)))


def reshape(operand: Any, new_sizes: Sequence[int]) -> Any:
    """The elements in another shape, as jax.lax.reshape."""
    return _s.reshape(tensor(operand), shape=static_shape(tuple(new_sizes)))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """The axes in another order, as jax.lax.transpose."""
    return _s.transpose(tensor(operand), perm=tuple(int(p) for p in permutation))


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """The elements backwards along axes, as jax.lax.rev."""
    return _s.reverse(tensor(operand), axes=tuple(sorted(dimensions)))


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Axes of length 1 removed, as jax.lax.squeeze."""
    from fxgrad.numpy.manipulation import squeeze as squeeze_

    return squeeze_(array, tuple(dimensions))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """New axes of length 1, as jax.lax.expand_dims."""
    from fxgrad.numpy.manipulation import expand_dims as expand

    return expand(array, tuple(dimensions))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Arrays joined along an axis, as jax.lax.concatenate."""
    return _s.concatenate(*[tensor(x) for x in operands], axis=int(dimension))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Padding (low, high, interior) for each axis, as jax.lax.pad; negative low and high cut."""
    x = tensor(operand)
    low, high, interior = zip(*padding_config, strict=True) if padding_config else ((), (), ())
    v = tensor(padding_value)
    if v.dtype != x.dtype:
        v = as_dtype(v, x.dtype)
    up = lambda widths: tuple(builtins.max(0, w) for w in widths)  # noqa: E731
    y = _s.pad(x, v, low=up(low), high=up(high), interior=tuple(interior))
    start = tuple(-w if w < 0 else 0 for w in low)
    stop = tuple(n + (min(0, w)) for n, w in zip(y.shape, high, strict=True))
    return y if not any(start) and stop == y.shape else _s.slice_(y, start=start, stop=stop, step=(1,) * y.ndim)


def iota(dtype: Any, size: int) -> Any:
    """0, 1, ..., size - 1, as jax.lax.iota."""
    return _s.iota(shape=(int(size),), dtype=np.dtype(dtype), axis=0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Any:
    """0, 1, 2, ... along one axis, as jax.lax.broadcasted_iota."""
    return _s.iota(shape=static_shape(tuple(shape)), dtype=np.dtype(dtype), axis=int(dimension))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array filled with one value, as jax.lax.full."""
    from fxgrad.numpy.creation import full as full_

    return full_(shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """An array like x filled with one value, as jax.lax.full_like."""
    from fxgrad.numpy.creation import full_like as full_

    return full_(x, fill_value, dtype, shape=shape)


# ---- slices ------------------------------------------------------------------------------------------------------------


def slice(operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None) -> Any:
    """operand[start:limit:stride] in every axis, as jax.lax.slice."""
    x = tensor(operand)
    step = (1,) * x.ndim if strides is None else tuple(int(k) for k in strides)
    return _s.slice_(x, start=tuple(int(i) for i in start_indices), stop=tuple(int(i) for i in limit_indices), step=step)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    """A slice along one axis, as jax.lax.slice_in_dim."""
    x = tensor(operand)
    index = [builtins.slice(None)] * x.ndim
    index[canonical_axis(axis, x.ndim)] = builtins.slice(start_index, limit_index, stride)
    from fxgrad.numpy.indexing import getitem

    return getitem(x, tuple(index))


def _start(i: Any, n: int) -> Any:
    """A start index as an integer scalar, a negative one counted from the end."""
    i = tensor(i) if hasattr(operand(i), "dtype") else np.int64(i)
    if isinstance(i, (np.generic, np.ndarray)):
        return np.int64(int(i) + n if int(i) < 0 else int(i))
    return _e.select(_e.lt(i, i.dtype.type(0)), _e.add(i, i.dtype.type(n)), i) if i.dtype.kind == "i" else i


def _starts(x: Any, start_indices: Sequence[Any], what: str) -> list[Any]:
    if len(start_indices) != x.ndim:
        raise errors.FxValueError(
            f"{what} got {len(start_indices)} start indices for an array of shape {x.shape}",
            why="A window has one start along each axis.",
            fix=f"Pass {x.ndim} of them, 0 for an axis that is taken whole.",
        )
    return [_start(i, n) for i, n in zip(start_indices, x.shape, strict=True)]


def dynamic_slice(operand: Any, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> Any:
    """A window of fixed sizes at starts given as values, clamped to lie inside, as jax.lax.dynamic_slice."""
    x, sizes = tensor(operand), static_shape(tuple(slice_sizes))
    starts = _starts(x, start_indices, "dynamic_slice")
    if len(sizes) != x.ndim or any(size > n for size, n in zip(sizes, x.shape, strict=True)):
        raise errors.FxValueError(
            f"dynamic_slice got slice_sizes={sizes} for an array of shape {x.shape}",
            why="The window has one size along each axis, at most that of the array.",
            fix="Give x.shape[i] for an axis that is taken whole, or np.pad(x, ...) first.",
        )
    return _s.dynamic_slice(x, *starts, sizes=sizes)


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    """A window along one axis, as jax.lax.dynamic_slice_in_dim."""
    x = tensor(operand)
    axis = canonical_axis(axis, x.ndim)
    starts = [start_index if i == axis else 0 for i in range(x.ndim)]
    return dynamic_slice(x, starts, [slice_size if i == axis else n for i, n in enumerate(x.shape)])


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    """One entry along an axis, as jax.lax.dynamic_index_in_dim."""
    y = dynamic_slice_in_dim(operand, index, 1, axis)
    return y if keepdims else squeeze(y, (axis,))


def dynamic_update_slice(operand: Any, update: Any, start_indices: Sequence[Any]) -> Any:
    """The operand with a window replaced, as jax.lax.dynamic_update_slice."""
    x, u = tensor(operand), tensor(update)
    starts = _starts(x, start_indices, "dynamic_update_slice")
    return _s.dynamic_update_slice(x, as_dtype(u, x.dtype), *starts)


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Any:
    """The operand with a window along one axis replaced, as jax.lax.dynamic_update_slice_in_dim."""
    x = tensor(operand)
    axis = canonical_axis(axis, x.ndim)
    return dynamic_update_slice(x, update, [start_index if i == axis else 0 for i in range(x.ndim)])


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Any:
    """The operand with one entry along an axis replaced, as jax.lax.dynamic_update_index_in_dim."""
    x, u = tensor(operand), tensor(update)
    return dynamic_update_slice_in_dim(x, u if u.ndim == x.ndim else expand_dims(u, (canonical_axis(axis, x.ndim),)), index, axis)


# ---- reductions, products, order -----------------------------------------------------------------------------------------


def _reduction(name: str, function: str) -> Callable[..., Any]:
    def reduce(operand: Any, axes: Sequence[int]) -> Any:
        from fxgrad.numpy import reductions

        x = tensor(operand)
        kwargs = {"dtype": x.dtype} if function in ("sum", "prod") else {}
        return getattr(reductions, function)(x, tuple(axes), **kwargs)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"As jax.lax.{name}: over the given axes, in the operand's dtype."
    return reduce


reduce_sum, reduce_prod = _reduction("reduce_sum", "sum"), _reduction("reduce_prod", "prod")
reduce_max, reduce_min = _reduction("reduce_max", "max"), _reduction("reduce_min", "min")
reduce_and, reduce_or = _reduction("reduce_and", "all"), _reduction("reduce_or", "any")


def argmax(operand: Any, axis: int, index_dtype: Any = np.int64) -> Any:
    """The index of the first largest element along an axis, as jax.lax.argmax."""
    return as_dtype(_r.argmax(tensor(operand), axes=(int(axis),)), np.dtype(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any = np.int64) -> Any:
    """The index of the first smallest element along an axis, as jax.lax.argmin."""
    return as_dtype(_r.argmin(tensor(operand), axes=(int(axis),)), np.dtype(index_dtype))


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running sum along an axis, as jax.lax.cumsum."""
    return _r.cumsum(tensor(operand), axis=int(axis), reverse=bool(reverse))


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running product along an axis, as jax.lax.cumprod."""
    return _r.cumprod(tensor(operand), axis=int(axis), reverse=bool(reverse))


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sums of products, as jax.lax.dot_general; dimension_numbers = ((contracting axes), (batch axes)), each a pair."""
    (left, right), (left_batch, right_batch) = dimension_numbers
    x, y = tensor(lhs), tensor(rhs)
    if preferred_element_type is not None:
        x, y = as_dtype(x, np.dtype(preferred_element_type)), as_dtype(y, np.dtype(preferred_element_type))
    return _d.dot(x, y, contract=(tuple(left), tuple(right)), batch=(tuple(left_batch), tuple(right_batch)), strong=None)


def dot(lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The product of vectors or matrices, as jax.lax.dot."""
    x, y = tensor(lhs), tensor(rhs)
    return dot_general(x, y, (((x.ndim - 1,), (0,)), ((), ())), preferred_element_type=preferred_element_type)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """An array sorted along an axis, as jax.lax.sort (one operand)."""
    from fxgrad.numpy.sorting import sort as sort_

    return sort_(operand, dimension)


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The k largest elements along an axis and their indices, the first of equals first, as jax.lax.top_k."""
    from fxgrad.numpy.selection import take_along_axis
    from fxgrad.numpy.sorting import argsort

    x = tensor(operand)
    axis = canonical_axis(axis, x.ndim)
    if not 0 <= int(k) <= x.shape[axis]:
        raise errors.FxValueError(
            f"top_k got k={k} for an axis of length {x.shape[axis]}",
            why="It gives k elements, whatever they are.",
            fix="Pass min(k, x.shape[axis]).",
        )
    order = slice_in_dim(argsort(x, axis, descending=True), 0, int(k), axis=axis)
    return take_along_axis(x, order, axis), order
