"""Operands, promotion and broadcasting: how `fxgrad.numpy` functions come down to primitives.

Promotion is NumPy 2's own: every function asks the NumPy ufunc of the same name which loop it would take, with Python numbers
(and tracers of Python numbers) as the weak operands of NEP 50, and remembers the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.prepared import prepared_ufunc
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace

__all__ = [
    "as_dtype",
    "broadcast_operands",
    "broadcast_shapes",
    "canonical_axes",
    "canonical_axis",
    "is_traced",
    "operand",
    "promote",
    "refuse_complex",
    "refuse_out",
    "result_type",
    "shape_of",
    "static_int",
    "static_shape",
    "tensor",
    "ufunc",
]

_PYTHON = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_SCALARS = (bool, int, float, complex)
_BOOL = np.dtype(np.bool_)
_WHICH_PART = "Write np.real(z), np.imag(z) or np.abs(z), whichever is meant."


def operand(x: Any) -> Any:
    """x as a tracer, an ndarray, a NumPy scalar or a Python number; lists that hold traced values are stacked."""
    kind = type(x)
    if kind is Tracer or kind is np.ndarray or kind in _SCALARS or isinstance(x, np.generic):
        return x
    if isinstance(x, (list, tuple)) and is_traced(x):
        from fxgrad.numpy.creation import array

        return array(x)
    if isinstance(x, _SCALARS):
        return kind.__mro__[-2](x)
    if x is None or isinstance(x, (str, bytes, dict, set)) or callable(x):
        raise errors.FxTypeError(
            f"expected an array or a number, got {kind.__name__}",
            why="fxgrad computes with numbers only.",
            fix="Pass a NumPy array, a number, or a (nested) list of them.",
        )
    out = np.asarray(x)
    if out.dtype == object:
        raise errors.FxTypeError(
            f"expected an array or a number, got {kind.__name__}",
            why="NumPy can hold it only as dtype object.",
            fix="Convert it to a numeric array.",
        )
    return out


def tensor(x: Any) -> Any:
    """x as a tracer or ndarray (or, outside every trace, a NumPy scalar): something that rearranging primitives take.

    As `numpy.asarray`, it gives a Python number the dtype that NumPy has for it: it is no longer weak.
    """
    x = operand(x)
    if type(x) is Tracer:
        return Tracer(x._trace, x._var) if x.weak else x
    if type(x) is np.ndarray:
        return x
    if not isinstance(x, np.generic):
        array = np.asarray(x)
        if array.dtype == object:
            raise errors.too_large("expected an array or a number, got an int", x)
        x = array[()]
    return x if current_trace() is None else s.broadcast(x, shape=(), dims=())


def iota(shape: tuple[int, ...], axis: int = 0, dtype: Any = np.int64) -> Any:
    """0, 1, 2, ... along an axis, recorded as such in a trace."""
    return s.iota(shape=tuple(shape), dtype=np.dtype(dtype), axis=axis)


def static_int(x: Any) -> int:
    """x as a Python int (a traced one if its value is known), or NumPy's TypeError."""
    if isinstance(x, (float, np.floating)):
        raise TypeError(f"'{type(x).__name__}' object cannot be interpreted as an integer")
    return int(x.__index__()) if hasattr(x, "__index__") else int(x)


def static_shape(shape: Any) -> tuple[int, ...]:
    """A shape from an int or a sequence of ints."""
    if isinstance(shape, (tuple, list)) or (isinstance(shape, np.ndarray) and shape.ndim):
        out = tuple(static_int(n) for n in shape)
    else:
        out = (static_int(shape),)
    if any(n < 0 for n in out):
        raise ValueError("negative dimensions are not allowed")
    return out


def refuse_out(name: str, out: Any) -> None:
    """The error for an out= that came by position, unless it is None: by keyword the function's wrapper has taken it."""
    if out is not None and any(o is not None for o in (out if isinstance(out, tuple) else (out,))):
        raise errors.MutationError(
            f"np.{name}(..., out) got out by position",
            why="Of fxgrad's functions out is a keyword.",
            fix=f"Write np.{name}(..., out=y), or use the value it returns: y = np.{name}(...).",
        )


def refuse_complex(what: str, *xs: Any) -> None:
    """NumPy's TypeError where complex numbers have no meaning; `what` names the function, or the operand of it."""
    for x in xs:
        if getattr(x, "dtype", np.dtype(type(x))).kind == "c":
            raise errors.FxTypeError(
                f"{what} cannot be complex, got {x.dtype if hasattr(x, 'dtype') else 'complex'}",
                why="Real numbers are wanted here, and to leave out imaginary parts silently would be wrong.",
                fix=_WHICH_PART,
            )


def is_traced(x: Any) -> bool:
    """Whether x is a tracer or a (nested) list or tuple holding one."""
    return type(x) is Tracer or (isinstance(x, (list, tuple)) and any(is_traced(item) for item in x))


def shape_of(x: Any) -> tuple[int, ...]:
    return x.shape if hasattr(x, "shape") else ()


def key_of(x: Any) -> Any:
    """What promotion needs to know of an operand: its dtype, or the Python type of a weak one."""
    kind = type(x)
    if kind is Tracer:
        dtype = x._var.aval.dtype
        return _PYTHON[dtype.kind] if x.weak and dtype.kind != "b" else dtype
    if kind is bool:
        return _BOOL
    return kind if kind in _SCALARS else x.dtype


_resolved: dict[tuple, tuple] = {}


def resolve(fn: np.ufunc, keys: tuple) -> tuple:
    """(dtypes of the operands, dtype of the result) of the loop NumPy takes."""
    found = _resolved.get((fn, keys))
    if found is None:
        alone = all(isinstance(k, type) for k in keys)  # Python numbers: their default dtypes
        try:
            dtypes = fn.resolve_dtypes((*(map(np.dtype, keys) if alone else keys), *[None] * fn.nout))
        except TypeError as error:
            if any(np.dtype(k).kind == "c" for k in keys):
                raise _no_loop(fn, keys, error) from None
            raise
        found = _resolved[(fn, keys)] = (tuple(dtypes[: fn.nin]), dtypes[fn.nin])
    return found


def _no_loop(fn: np.ufunc, keys: tuple, error: TypeError) -> errors.FxTypeError:
    names = ", ".join(k.__name__ if isinstance(k, type) else str(k) for k in keys)
    return errors.FxTypeError(
        f"np.{fn.__name__} does not take operands of dtype {names}",
        why=f"NumPy: {error}.".replace("..", "."),
        fix="Write np.real(z), np.imag(z) or np.abs(z), whichever is meant.",
    )


def as_dtype(x: Any, dtype: np.dtype) -> Any:
    """x converted; Python numbers and NumPy scalars become typed literals."""
    kind = type(x)
    if kind is Tracer or kind is np.ndarray:
        if x.dtype == dtype:
            if kind is Tracer and x.weak:
                return Tracer(x._trace, x._var)
            return x
        if x.dtype.kind == "c" and dtype.kind not in "cb":
            refuse_complex(f"an operand that becomes {dtype}", x)
        return e.convert(x, dtype=dtype)
    if isinstance(x, np.generic):
        if x.dtype.kind == "c" and dtype.kind not in "cb":
            refuse_complex(f"an operand that becomes {dtype}", x)
        return (
            x
            if x.dtype == dtype
            else e.convert(x, dtype=dtype)
            if dtype.kind in "iu" and x.dtype.kind == "f"
            else x.astype(dtype)
        )
    return dtype.type(x)


_common_shape = lru_cache(maxsize=4096)(np.broadcast_shapes)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's common shape, or a ValueError that names the shapes."""
    try:
        return _common_shape(*shapes)
    except ValueError:
        raise errors.FxValueError(
            f"operands of shapes {' and '.join(map(str, shapes))} cannot be broadcast together",
            why="Aligned from the right, each pair of lengths must be equal or one of them 1.",
            fix="Reshape one operand, for example x[:, None] to line its axis up with rows.",
        ) from None


def broadcast_to_shape(x: Any, shape: tuple[int, ...]) -> Any:
    have = x.shape
    if have == shape:
        return x
    return s.broadcast(x, shape=shape, dims=tuple(range(len(shape) - len(have), len(shape))))


def broadcast_operands(xs: Sequence[Any]) -> list[Any]:
    """Typed operands in their common shape; NumPy scalars stay, they meet any shape."""
    first = xs[0].shape
    if all([x.shape == first for x in xs]):
        return list(xs)
    shape = broadcast_shapes(*[x.shape for x in xs])
    return [x if isinstance(x, np.generic) else broadcast_to_shape(x, shape) for x in xs]


def promote(*args: Any, dtype: Any = None) -> list[Any]:
    """Operands in one dtype (NumPy's result type, or `dtype`) and one shape."""
    xs = [operand(x) for x in args]
    target = np.dtype(dtype) if dtype is not None else result_type(*xs)
    return broadcast_operands([as_dtype(x, target) for x in xs])


def result_type(*args: Any) -> np.dtype:
    """NumPy's result type of operands, tracers and dtypes."""
    return _result_type(*[x if isinstance(x, (np.dtype, type)) else key_of(operand(x)) for x in args])


@lru_cache(maxsize=4096)
def _result_type(*keys: Any) -> np.dtype:
    """Of dtypes, and of Python's number types as weak operands."""
    return np.result_type(*[k if isinstance(k, np.dtype) else k(0) if k in _SCALARS else np.dtype(k) for k in keys])


def ufunc(fn: np.ufunc, impl: Callable[..., Any], summary: str) -> Callable[..., Any]:
    """The fxgrad function of a NumPy ufunc: `impl` gets operands in the dtypes of NumPy's loop and in one shape."""

    def general(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) > fn.nin:
            out = args[fn.nin :] or kwargs.pop("out", None)
            if out is not None:
                return _with_out(fn, general, args[: fn.nin], out if isinstance(out, tuple) else (out,), kwargs)
            args = _ufunc_kwargs(fn, args, kwargs)
        if len(args) != fn.nin:
            raise TypeError(f"{fn.__name__}() takes {fn.nin} positional arguments but {len(args)} were given")
        xs = [x if type(x) is Tracer else operand(x) for x in args]
        dtypes, _ = resolve(fn, tuple([key_of(x) for x in xs]))
        typed = [
            x if type(x) is Tracer and not x.weak and x._var.aval.dtype == d else as_dtype(x, d)
            for x, d in zip(xs, dtypes, strict=True)
        ]
        if len(typed) > 1:
            typed = broadcast_operands(typed)
        return impl(*typed)

    function = prepared_ufunc(fn, general, lambda *args: resolve(fn, tuple([key_of(x) for x in args]))[0])
    add_methods(fn, function)
    function.__name__ = function.__qualname__ = fn.__name__
    function.__module__ = "fxgrad.numpy"  # where it is found, by readers and by pickle
    function.__doc__ = f"{summary} Elementwise, as numpy.{fn.__name__}: operands broadcast, dtypes promote by NumPy 2's rules."
    return function


def add_methods(fn: np.ufunc, function: Any) -> None:
    """Give `function` the methods of the ufunc it stands for: at, reduce, accumulate, outer."""
    for method in ("at", "reduce", "accumulate", "outer"):
        setattr(function, method, _method(fn, method))


def _method(fn: np.ufunc, method: str) -> Callable[..., Any]:
    """What np.add.at, np.add.reduce and so on are of NumPy's ufuncs."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from fxgrad.trace.numpy_protocol import call_ufunc

        return call_ufunc(fn, method, args, kwargs)

    return call


def _with_out(fn: np.ufunc, function: Callable[..., Any], args: tuple, out: tuple, kwargs: dict[str, Any]) -> Any:
    """The result written into out[0], where the mask where= holds."""
    from fxgrad.trace.mutation import check_out, into

    what = f"np.{fn.__name__}(..., out=...)"
    check_out(out, what)
    if len(out) != fn.nout:
        raise TypeError(f"{fn.__name__}() takes from {fn.nin} to {fn.nin + fn.nout} positional arguments")
    where = kwargs.pop("where", True)
    result = function(*args, **kwargs)
    if where is not True and out[0] is not None:
        from fxgrad.numpy.elementwise import where as choose

        result = choose(where, result, out[0])
    return result if out[0] is None else into(out[0], result, what, True)


def _ufunc_kwargs(fn: np.ufunc, args: tuple, kwargs: dict[str, Any]) -> tuple:
    if kwargs.pop("where", True) is not True:
        raise errors.UnsupportedError(
            f"np.{fn.__name__}(..., where=mask) without out= is not supported",
            why="It leaves the other elements uninitialised.",
            fix=f"Write np.where(mask, np.{fn.__name__}(...), other), or give out=.",
        )
    dtype = kwargs.pop("dtype", None)
    for ignored in ("casting", "order", "subok"):
        kwargs.pop(ignored, None)
    if kwargs:
        raise TypeError(f"{fn.__name__}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    return args if dtype is None else tuple(as_dtype(operand(x), np.dtype(dtype)) for x in args)


def canonical_axis(axis: int, ndim: int) -> int:
    """axis in 0..ndim-1, or numpy.exceptions.AxisError."""
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return int(axis) % ndim if ndim else 0


def canonical_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """A sorted tuple of axes from None (all), an int or a tuple of ints; rank 0 has an axis 0, as in NumPy's reductions."""
    if axis is None or (ndim == 0 and axis in (0, -1)):
        return tuple(range(ndim))
    axes = tuple(canonical_axis(a, ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(axes))
