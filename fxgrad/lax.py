"""The primitives under the names of `jax.lax`: no promotion, no broadcasting but of scalars."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad import lax_linalg as linalg
from fxgrad.control import associative_scan as associative_scan
from fxgrad.control import cond as cond
from fxgrad.control import fori_loop as fori_loop
from fxgrad.control import map as map
from fxgrad.control import scan as scan
from fxgrad.control import switch as switch
from fxgrad.control import while_loop as while_loop
from fxgrad.doctext import documented as _documented
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


def _elementwise(name: str, prim: Callable[..., Any], example: str, gives: str) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        return prim(*_typed(name, args))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documented(
        f"As jax.lax.{name}: elementwise, operands of one dtype and shape.", f"fx.lax.{example}", gives
    )
    return function


_NAMES = {  # the operation; an example and what it gives
    "abs": (_e.abs_, "abs(-1.5)", "np.float64(1.5)"),
    "acos": (_tr.acos, "acos(1.0)", "np.float64(0.0)"),
    "add": (_e.add, "add(1.0, 2.0)", "np.float64(3.0)"),
    "asin": (_tr.asin, "asin(1.0)", "np.float64(1.5707963267948966)"),
    "atan": (_tr.atan, "atan(1.0)", "np.float64(0.7853981633974483)"),
    "atan2": (_tr.atan2, "atan2(1.0, -1.0)", "np.float64(2.356194490192345)"),
    "complex": (_cx.complex_, "complex(1.0, 2.0)", "np.complex128(1+2j)"),
    "conj": (_cx.conj, "conj(1 + 2j)", "np.complex128(1-2j)"),
    "imag": (_cx.imag, "imag(1 + 2j)", "np.float64(2.0)"),
    "real": (_cx.real, "real(1 + 2j)", "np.float64(1.0)"),
    "bitwise_and": (_e.and_, "bitwise_and(12, 10)", "np.int64(8)"),
    "bitwise_not": (_e.not_, "bitwise_not(5)", "np.int64(-6)"),
    "bitwise_or": (_e.or_, "bitwise_or(12, 10)", "np.int64(14)"),
    "bitwise_xor": (_e.xor, "bitwise_xor(12, 10)", "np.int64(6)"),
    "cbrt": (_tr.cbrt, "cbrt(-27.0)", "np.float64(-3.0)"),
    "ceil": (_e.ceil, "ceil(1.2)", "np.float64(2.0)"),
    "cos": (_tr.cos, "cos(0.0)", "np.float64(1.0)"),
    "cosh": (_tr.cosh, "cosh(0.0)", "np.float64(1.0)"),
    "eq": (_e.eq, "eq(1.0, 1.0)", "np.True_"),
    "erf": (_tr.erf, "erf(0.5)", "np.float64(0.5204998778130465)"),
    "erfc": (_tr.erfc, "erfc(0.5)", "np.float64(0.4795001221869535)"),
    "exp": (_tr.exp, "exp(1.0)", "np.float64(2.718281828459045)"),
    "expm1": (_tr.expm1, "expm1(1.0)", "np.float64(1.7182818284590453)"),
    "floor": (_e.floor, "floor(-1.2)", "np.float64(-2.0)"),
    "ge": (_e.ge, "ge(1.0, 2.0)", "np.False_"),
    "gt": (_e.gt, "gt(1.0, 2.0)", "np.False_"),
    "is_finite": (_e.isfinite, "is_finite(1.0)", "np.True_"),
    "le": (_e.le, "le(1.0, 2.0)", "np.True_"),
    "log": (_tr.log, "log(10.0)", "np.float64(2.302585092994046)"),
    "log1p": (_tr.log1p, "log1p(1.0)", "np.float64(0.6931471805599453)"),
    "logistic": (_tr.logistic, "logistic(0.0)", "np.float64(0.5)"),
    "lt": (_e.lt, "lt(1.0, 2.0)", "np.True_"),
    "max": (_e.maximum, "max(1.0, 2.0)", "np.float64(2.0)"),
    "min": (_e.minimum, "min(1.0, 2.0)", "np.float64(1.0)"),
    "mul": (_e.mul, "mul(2.0, 3.0)", "np.float64(6.0)"),
    "ne": (_e.ne, "ne(1.0, 2.0)", "np.True_"),
    "neg": (_e.neg, "neg(1.5)", "np.float64(-1.5)"),
    "rsqrt": (_tr.rsqrt, "rsqrt(4.0)", "np.float64(0.5)"),
    "shift_left": (_e.shift_left, "shift_left(3, 2)", "np.int64(12)"),
    "sign": (_e.sign, "sign(-1.5)", "np.float64(-1.0)"),
    "sin": (_tr.sin, "sin(1.0)", "np.float64(0.8414709848078965)"),
    "sinh": (_tr.sinh, "sinh(1.0)", "np.float64(1.1752011936438014)"),
    "sqrt": (_e.sqrt, "sqrt(2.0)", "np.float64(1.4142135623730951)"),
    "sub": (_e.sub, "sub(1.0, 2.0)", "np.float64(-1.0)"),
    "tan": (_tr.tan, "tan(1.0)", "np.float64(1.5574077246549023)"),
    "tanh": (_tr.tanh, "tanh(1.0)", "np.float64(0.7615941559557649)"),
    "shift_right_arithmetic": (_e.shift_right, "shift_right_arithmetic(-8, 1)", "np.int64(-4)"),
}
for _name, _entry in _NAMES.items():
    globals()[_name] = _elementwise(_name, *_entry)
__all__ = [  # noqa: PLE0604
    *_NAMES,
    "ConvDimensionNumbers", "acosh", "argmax", "argmin", "asinh", "associative_scan", "atanh", "broadcast",
    "broadcast_in_dim", "broadcasted_iota", "clamp", "concatenate", "cond", "conv", "conv_dimension_numbers",
    "conv_general_dilated", "conv_transpose", "conv_with_general_padding", "convert_element_type", "cumprod", "cumsum",
    "div", "dot", "dot_general", "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim", "exp2", "expand_dims",
    "fori_loop", "full", "full_like", "integer_pow", "iota", "linalg", "map", "pad", "pow", "reciprocal", "reduce_and",
    "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reduce_window", "rem", "reshape", "rev", "round",
    "scan", "select", "slice", "slice_in_dim", "sort", "square", "squeeze", "stop_gradient", "switch", "top_k", "transpose",
    "while_loop",
]  # fmt: skip

acosh, asinh, atanh, exp2 = _ew.arccosh, _ew.arcsinh, _ew.arctanh, _ew.exp2


def div(x: Any, y: Any) -> Any:
    """x / y, as jax.lax.div: integers are divided towards zero.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.div(-7, 2)
        np.int64(-3)
        >>> fx.lax.div(-7.0, 2.0)
        np.float64(-3.5)
    """
    a, b = _typed("div", (x, y))
    if a.dtype.kind not in "iu":
        return _e.div(a, b)
    whole = _e.floordiv(a, b)
    short = _e.and_(_e.lt(whole, a.dtype.type(0)), _e.ne(_e.mul(whole, b), a))
    return _e.add(whole, _e.convert(short, dtype=a.dtype))


def rem(x: Any, y: Any) -> Any:
    """The remainder with the sign of x, as jax.lax.rem.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.rem(-7.0, 2.0)
        np.float64(-1.0)
    """
    a, b = _typed("rem", (x, y))
    if a.dtype.kind == "f":
        return _ew.fmod(a, b)
    r = _e.rem(_e.abs_(a), _e.abs_(b)) if a.dtype.kind == "i" else _e.rem(a, b)
    return _e.select(_e.lt(a, a.dtype.type(0)), _e.neg(r), r) if a.dtype.kind == "i" else r


def pow(x: Any, y: Any) -> Any:
    """x ** y, as jax.lax.pow.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.pow(2.0, 0.5)
        np.float64(1.4142135623730951)
    """
    return _ew.power(x, y)


def integer_pow(x: Any, y: int) -> Any:
    """x ** y for a Python integer y, by repeated multiplication, as jax.lax.integer_pow.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.integer_pow(2.0, -3)
        np.float64(0.125)
    """
    return _e.integer_pow(tensor(x), n=int(y))


def square(x: Any) -> Any:
    """x * x, as jax.lax.square.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.square(3.0)
        np.float64(9.0)
    """
    return _e.integer_pow(tensor(x), n=2)


def reciprocal(x: Any) -> Any:
    """1 / x, as jax.lax.reciprocal.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.reciprocal(4.0)
        np.float64(0.25)
    """
    return _ew.reciprocal(x)


def round(x: Any) -> Any:
    """The nearest integer, ties to even (JAX's default is away from zero).

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.round([0.5, 1.5, 1.7])
        array([0., 2., 2.])
    """
    return _ew.rint(x)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """x limited to [min, max], as jax.lax.clamp.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.clamp(0.0, np.array([-1.0, 0.5, 2.0]), 1.0)
        array([0. , 0.5, 1. ])
    """
    return _e.clip(*_typed("clamp", (x, min, max)))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """on_true where pred holds, else on_false, as jax.lax.select.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.select(np.array([True, False]), np.zeros(2), np.ones(2))
        array([0., 1.])
    """
    a, b = _typed("select", (on_true, on_false))
    return _e.select(tensor(pred), a, b)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The operand in another dtype, as jax.lax.convert_element_type.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.convert_element_type(np.array([1.7, -1.7]), np.int32)
        array([ 1, -1], dtype=int32)
    """
    from fxgrad.numpy.creation import astype

    return astype(operand, new_dtype)


def stop_gradient(x: Any) -> Any:
    """x, through which no derivative passes (also of every float array in a tree), as jax.lax.stop_gradient.

    Example:
        >>> import fxgrad as fx
        >>> fx.grad(lambda x: x * fx.lax.stop_gradient(x))(3.0)
        np.float64(3.0)
    """
    from fxgrad import tree

    def one(leaf: Any) -> Any:
        v = operand(leaf)
        if getattr(v, "dtype", np.dtype(float)).kind not in "fc" or not hasattr(v, "dtype"):
            return leaf
        return _stop_gradient(v)

    return tree.map(one, x)


# ---- shapes ------------------------------------------------------------------------------------------------------------


def broadcast_in_dim(operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    """The operand repeated to `shape`, its axes at `broadcast_dimensions`, as jax.lax.broadcast_in_dim.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.broadcast_in_dim(np.array([1.0, 2.0]), (2, 3), (0,))
        array([[1., 1., 1.],
               [2., 2., 2.]])
    """
    return _s.broadcast(tensor(operand), shape=static_shape(tuple(shape)), dims=tuple(int(d) for d in broadcast_dimensions))


def broadcast(operand: Any, sizes: Sequence[int]) -> Any:
    """The operand repeated along new leading axes, as jax.lax.broadcast.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.broadcast(np.array([1.0, 2.0]), (2,))
        array([[1., 2.],
               [1., 2.]])
    """
    x = tensor(operand)
    return _s.broadcast(x, shape=(*static_shape(tuple(sizes)), *x.shape), dims=tuple(range(len(sizes), len(sizes) + x.ndim)))


def reshape(operand: Any, new_sizes: Sequence[int]) -> Any:
    """The elements in another shape, as jax.lax.reshape.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.reshape(np.arange(4.0), (2, 2))
        array([[0., 1.],
               [2., 3.]])
    """
    return _s.reshape(tensor(operand), shape=static_shape(tuple(new_sizes)))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """The axes in another order, as jax.lax.transpose.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.transpose(np.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    return _s.transpose(tensor(operand), perm=tuple(int(p) for p in permutation))


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """The elements backwards along axes, as jax.lax.rev.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.rev(np.array([1.0, 2.0, 3.0]), (0,))
        array([3., 2., 1.])
    """
    return _s.reverse(tensor(operand), axes=tuple(sorted(dimensions)))


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Axes of length 1 removed, as jax.lax.squeeze.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.squeeze(np.ones((1, 3, 1)), (0,)).shape
        (3, 1)
    """
    from fxgrad.numpy.manipulation import squeeze as squeeze_

    return squeeze_(array, tuple(dimensions))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """New axes of length 1, as jax.lax.expand_dims.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.expand_dims(np.ones(3), (0, 2)).shape
        (1, 3, 1)
    """
    from fxgrad.numpy.manipulation import expand_dims as expand

    return expand(array, tuple(dimensions))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Arrays joined along an axis, as jax.lax.concatenate.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.concatenate([np.zeros(1), np.ones(2)], 0)
        array([0., 1., 1.])
    """
    return _s.concatenate(*[tensor(x) for x in operands], axis=int(dimension))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Padding (low, high, interior) for each axis, as jax.lax.pad; negative low and high cut.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.pad(np.array([1.0, 2.0]), 0.0, [(1, 2, 1)])
        array([0., 1., 0., 2., 0., 0.])
    """
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
    """0, 1, ..., size - 1, as jax.lax.iota.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.iota(np.float32, 3)
        array([0., 1., 2.], dtype=float32)
    """
    return _s.iota(shape=(int(size),), dtype=np.dtype(dtype), axis=0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Any:
    """0, 1, 2, ... along one axis, as jax.lax.broadcasted_iota.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.broadcasted_iota(np.int64, (2, 3), 1)
        array([[0, 1, 2],
               [0, 1, 2]])
    """
    return _s.iota(shape=static_shape(tuple(shape)), dtype=np.dtype(dtype), axis=int(dimension))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array filled with one value, as jax.lax.full.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.full((2,), 7.0)
        array([7., 7.])
    """
    from fxgrad.numpy.creation import full as full_

    return full_(shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """An array like x filled with one value, as jax.lax.full_like.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.full_like(np.ones(2, np.float32), 7.0)
        array([7., 7.], dtype=float32)
    """
    from fxgrad.numpy.creation import full_like as full_

    return full_(x, fill_value, dtype, shape=shape)


# ---- slices ------------------------------------------------------------------------------------------------------------


def slice(operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None) -> Any:
    """operand[start:limit:stride] in every axis, as jax.lax.slice.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.slice(np.arange(6.0), (1,), (6,), (2,))
        array([1., 3., 5.])
    """
    x = tensor(operand)
    step = (1,) * x.ndim if strides is None else tuple(int(k) for k in strides)
    return _s.slice_(x, start=tuple(int(i) for i in start_indices), stop=tuple(int(i) for i in limit_indices), step=step)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0) -> Any:
    """A slice along one axis, as jax.lax.slice_in_dim.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.slice_in_dim(np.arange(6.0), 1, 4)
        array([1., 2., 3.])
    """
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
    """A window of fixed sizes at starts given as values, clamped to lie inside, as jax.lax.dynamic_slice.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.dynamic_slice(np.arange(6.0), (2,), (3,))
        array([2., 3., 4.])
        >>> fx.lax.dynamic_slice(np.arange(6.0), (5,), (3,))
        array([3., 4., 5.])
    """
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
    """A window along one axis, as jax.lax.dynamic_slice_in_dim.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.dynamic_slice_in_dim(np.arange(6.0), 2, 3)
        array([2., 3., 4.])
    """
    x = tensor(operand)
    axis = canonical_axis(axis, x.ndim)
    starts = [start_index if i == axis else 0 for i in range(x.ndim)]
    return dynamic_slice(x, starts, [slice_size if i == axis else n for i, n in enumerate(x.shape)])


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    """One entry along an axis, as jax.lax.dynamic_index_in_dim.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.dynamic_index_in_dim(np.arange(6.0), 2, keepdims=False)
        np.float64(2.0)
    """
    y = dynamic_slice_in_dim(operand, index, 1, axis)
    return y if keepdims else squeeze(y, (axis,))


def dynamic_update_slice(operand: Any, update: Any, start_indices: Sequence[Any]) -> Any:
    """The operand with a window replaced, as jax.lax.dynamic_update_slice.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.dynamic_update_slice(np.zeros(4), np.ones(2), (1,))
        array([0., 1., 1., 0.])
    """
    x, u = tensor(operand), tensor(update)
    starts = _starts(x, start_indices, "dynamic_update_slice")
    return _s.dynamic_update_slice(x, as_dtype(u, x.dtype), *starts)


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Any:
    """The operand with a window along one axis replaced, as jax.lax.dynamic_update_slice_in_dim.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.dynamic_update_slice_in_dim(np.zeros(4), np.ones(2), 1, 0)
        array([0., 1., 1., 0.])
    """
    x = tensor(operand)
    axis = canonical_axis(axis, x.ndim)
    return dynamic_update_slice(x, update, [start_index if i == axis else 0 for i in range(x.ndim)])


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Any:
    """The operand with one entry along an axis replaced, as jax.lax.dynamic_update_index_in_dim.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.dynamic_update_index_in_dim(np.zeros(3), np.float64(5.0), 1, 0)
        array([0., 5., 0.])
    """
    x, u = tensor(operand), tensor(update)
    return dynamic_update_slice_in_dim(x, u if u.ndim == x.ndim else expand_dims(u, (canonical_axis(axis, x.ndim),)), index, axis)


# ---- reductions, products, order -----------------------------------------------------------------------------------------


def _reduction(name: str, function: str, x: str, gives: str) -> Callable[..., Any]:
    def reduce(operand: Any, axes: Sequence[int]) -> Any:
        from fxgrad.numpy import reductions

        x = tensor(operand)
        kwargs = {"dtype": x.dtype} if function in ("sum", "prod") else {}
        return getattr(reductions, function)(x, tuple(axes), **kwargs)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = _documented(
        f"As jax.lax.{name}: over the given axes, in the operand's dtype.", f"fx.lax.{name}({x}, axes=[0])", gives
    )
    return reduce


reduce_sum = _reduction("reduce_sum", "sum", "[[1.0, 5.0], [3.0, 2.0]]", "array([4., 7.])")
reduce_prod = _reduction("reduce_prod", "prod", "[[1.0, 5.0], [3.0, 2.0]]", "array([ 3., 10.])")
reduce_max = _reduction("reduce_max", "max", "[[1.0, 5.0], [3.0, 2.0]]", "array([3., 5.])")
reduce_min = _reduction("reduce_min", "min", "[[1.0, 5.0], [3.0, 2.0]]", "array([1., 2.])")
reduce_and = _reduction("reduce_and", "all", "[[True, False], [True, True]]", "array([ True, False])")
reduce_or = _reduction("reduce_or", "any", "[[True, False], [True, True]]", "array([ True, True])")


def argmax(operand: Any, axis: int, index_dtype: Any = np.int64) -> Any:
    """The index of the first largest element along an axis, as jax.lax.argmax.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.argmax([1.0, 5.0, 3.0], 0)
        np.int64(1)
    """
    return as_dtype(_r.argmax(tensor(operand), axes=(int(axis),)), np.dtype(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any = np.int64) -> Any:
    """The index of the first smallest element along an axis, as jax.lax.argmin.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.argmin([1.0, 5.0, 3.0], 0)
        np.int64(0)
    """
    return as_dtype(_r.argmin(tensor(operand), axes=(int(axis),)), np.dtype(index_dtype))


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running sum along an axis, as jax.lax.cumsum.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.cumsum([1.0, 2.0, 3.0])
        array([1., 3., 6.])
        >>> fx.lax.cumsum([1.0, 2.0, 3.0], reverse=True)
        array([6., 5., 3.])
    """
    return _r.cumsum(tensor(operand), axis=int(axis), reverse=bool(reverse))


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Running product along an axis, as jax.lax.cumprod.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.cumprod([1.0, 2.0, 3.0])
        array([1., 2., 6.])
    """
    return _r.cumprod(tensor(operand), axis=int(axis), reverse=bool(reverse))


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sums of products, as jax.lax.dot_general; dimension_numbers = ((contracting axes), (batch axes)), each a pair.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> x, y = np.ones((5, 2, 3)), np.ones((5, 3, 4))
        >>> fx.lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))).shape
        (5, 2, 4)
    """
    (left, right), (left_batch, right_batch) = dimension_numbers
    x, y = tensor(lhs), tensor(rhs)
    if preferred_element_type is not None:
        x, y = as_dtype(x, np.dtype(preferred_element_type)), as_dtype(y, np.dtype(preferred_element_type))
    return _d.dot(x, y, contract=(tuple(left), tuple(right)), batch=(tuple(left_batch), tuple(right_batch)), strong=None)


def dot(lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The product of vectors or matrices, as jax.lax.dot.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.dot([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0])
        array([3., 7.])
    """
    x, y = tensor(lhs), tensor(rhs)
    return dot_general(x, y, (((x.ndim - 1,), (0,)), ((), ())), preferred_element_type=preferred_element_type)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """An array sorted along an axis, as jax.lax.sort (one operand).

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.sort([3.0, 1.0, 2.0])
        array([1., 2., 3.])
    """
    from fxgrad.numpy.sorting import sort as sort_

    return sort_(operand, dimension)


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The k largest elements along an axis and their indices, the first of equals first, as jax.lax.top_k.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.top_k([1.0, 5.0, 3.0], 2)
        (array([5., 3.]), array([1, 2]))
    """
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
