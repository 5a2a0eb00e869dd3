"""NumPy's dispatch: what `np.sum(x)` and `np.sin(x)` of plain NumPy do when x is traced.

Functions are found by name in `fxgrad.numpy` and its submodules. What would write into a plain array raises: the array would not
know of the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["call_function", "call_ufunc"]

_WRITERS = {  # function -> how to write it instead
    "copyto": "a = np.broadcast_to(v, a.shape) or np.where(mask, v, a)",
    "put": "a = fx.asarray(a).at[i].set(v)",
    "place": "a = np.where(mask, v, a)",
    "putmask": "a = np.where(mask, v, a)",
    "put_along_axis": "a = fx.asarray(a).at[...].set(v)",
    "fill_diagonal": "a = np.where(np.eye(n, dtype=bool), v, a)",
}


def _refuse_write(what: str, fix: str) -> errors.MutationError:
    return errors.MutationError(
        f"{what} would write a traced value into a plain NumPy array",
        why="The array would lose the connection to what is being differentiated or compiled.",
        fix=fix,
    )


# ---- ufuncs ------------------------------------------------------------------------------------------------------------


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple, kwargs: dict[str, Any]) -> Any:
    """`ufunc.method(*inputs, **kwargs)`, at least one of them traced."""
    name = ufunc.__name__
    out = kwargs.get("out")
    if out is not None and any(o is not None for o in (out if isinstance(out, tuple) else (out,))):
        in_place = method == "__call__" and any(o is i for o in out for i in inputs)
        raise _refuse_write(
            f"{'an in-place operation (np.' if in_place else 'np.'}{name}(..., out=...){')' if in_place else ''}",
            "Write a = a + v instead of a += v; or start from fxgrad.numpy.zeros(...), np.zeros_like(x, shape=n), fx.asarray(a)."
            if in_place
            else f"Use the value it returns: y = np.{name}(...).",
        )
    if kwargs:
        kwargs = {k: v for k, v in kwargs.items() if k != "out"}
    if method == "at":
        raise _refuse_write(f"np.{name}.at(a, i, v)", "Write a = fx.asarray(a).at[i].add(v) (or .multiply, .min, .max).")
    function = _ufunc_function(ufunc)
    if method == "__call__":
        return function(*inputs, **kwargs)
    return _METHODS.get(method, _unsupported_method)(ufunc, function, inputs, kwargs)


@cache
def _ufunc_function(ufunc: np.ufunc) -> Callable[..., Any]:
    import fxgrad.numpy as fnp
    from fxgrad.numpy import elementwise

    name = ufunc.__name__
    if getattr(np, name, None) is ufunc:
        found = elementwise.UFUNCS.get(name) or vars(fnp).get(name)
        if found is None:
            raise _unsupported("np", name, vars(fnp))
        return found
    from fxgrad.scipy import special

    name = name.lstrip("_")  # scipy.special.zeta is a function around a ufunc _zeta
    found = getattr(special, name, None) if name in special.__all__ else None
    if found is None:
        raise _unsupported("scipy.special", name, dict.fromkeys(special.__all__))
    return found


def _unsupported(spelling: str, name: str, available: Any) -> errors.UnsupportedError:
    from fxgrad.numpy.missing import hint

    return errors.UnsupportedError(
        f"{spelling}.{name} is not supported for traced values", why="fxgrad has no rule for it (yet).", fix=hint(name, available)
    )


def _unsupported_method(ufunc: np.ufunc, function: Any, inputs: tuple, kwargs: dict[str, Any], method: str = "reduceat") -> Any:
    raise errors.UnsupportedError(
        f"np.{ufunc.__name__}.{method} is not supported for traced values",
        why="Of the ufunc methods fxgrad has reduce, accumulate and outer.",
        fix="Use np.add.reduce, np.cumsum or a segment sum: np.zeros(n).at[i].add(x).",
    )


_REDUCE = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
    "fmax": "nanmax",
    "fmin": "nanmin",
}


def _reduce(ufunc: np.ufunc, function: Any, inputs: tuple, kwargs: dict[str, Any]) -> Any:
    """ufunc.reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial, where)."""
    import fxgrad.numpy as fnp

    names = ("array", "axis", "dtype", "out", "keepdims", "initial", "where")
    given = {**dict(zip(names, inputs, strict=False)), **kwargs}
    x, axis = given.pop("array"), given.pop("axis", 0)
    given.pop("out", None)
    dtype = given.pop("dtype", None)
    if ufunc.__name__ == "logaddexp":
        from fxgrad.scipy.special import logsumexp

        return logsumexp(x, axis=axis, **given)
    target = _REDUCE.get(ufunc.__name__)
    if target is None:
        return _unsupported_method(ufunc, function, inputs, kwargs, "reduce")
    if target in ("sum", "prod"):
        return getattr(fnp, target)(x, axis, dtype, **given)
    if target in ("any", "all"):
        given.pop("initial", None)
    y = getattr(fnp, target)(x, axis, **given)
    return y if dtype is None else fnp.astype(y, dtype)


def _accumulate(ufunc: np.ufunc, function: Any, inputs: tuple, kwargs: dict[str, Any]) -> Any:
    import fxgrad.numpy as fnp

    given = {**dict(zip(("array", "axis", "dtype", "out"), inputs, strict=False)), **kwargs}
    target = {"add": "cumsum", "multiply": "cumprod"}.get(ufunc.__name__)
    if target is None:
        return _unsupported_method(ufunc, function, inputs, kwargs, "accumulate")
    return getattr(fnp, target)(given["array"], given.get("axis", 0), given.get("dtype"))


def _outer(ufunc: np.ufunc, function: Any, inputs: tuple, kwargs: dict[str, Any]) -> Any:
    import fxgrad.numpy as fnp

    x, y = (fnp.asarray(v) for v in inputs)
    return function(fnp.reshape(x, (*x.shape, *[1] * y.ndim)), y, **kwargs)


_METHODS: dict[str, Callable[..., Any]] = {"reduce": _reduce, "accumulate": _accumulate, "outer": _outer}

# ---- functions -----------------------------------------------------------------------------------------------------------


def call_function(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """`func(*args, **kwargs)`, one of whose relevant arguments is traced."""
    if kwargs:
        from fxgrad.numpy.core import refuse_out

        if func.__name__ not in _WRITERS:
            refuse_out(func.__name__, kwargs.get("out"))
        kwargs = {k: v for k, v in kwargs.items() if k not in ("like", "out")}
    if func.__name__ in _WRITERS:
        raise _write_error(func.__name__, args)
    return _function(func)(*args, **kwargs)


@cache
def _function(func: Any) -> Callable[..., Any]:
    """What stands for a function of NumPy."""
    import fxgrad.numpy as fnp

    name, module = func.__name__, func.__module__ or "numpy"
    where = (
        fnp.linalg
        if module.startswith("numpy.linalg")
        else fnp
        if module in ("numpy", "numpy.lib", "numpy._core.multiarray")
        else None
    )
    found = None if where is None else vars(where).get(name)
    if found is None:
        spelling = module if module.startswith("numpy.") else "np"
        if name in _PLAIN:
            return _PLAIN[name]
        raise _unsupported(spelling.replace("numpy.", "np."), name, vars(where or fnp))
    return found


def _write_error(name: str, args: tuple) -> errors.MutationError:
    if name == "copyto":
        return _refuse_write(
            "np.copyto (called by np.full, np.full_like and np.nan_to_num too)",
            "Write np.full_like(x, v) or np.full(shape, v) of fxgrad.numpy, np.broadcast_to(v, shape), or np.where(mask, v, a).",
        )
    return _refuse_write(f"np.{name}", f"Write {_WRITERS[name]}.")


_can_cast: Any = np.can_cast
_PLAIN: dict[str, Callable[..., Any]] = {
    "may_share_memory": lambda a, b, *rest: a is b,
    "shares_memory": lambda a, b, *rest: a is b,
    "array_repr": lambda a, *rest, **kw: repr(a),
    "array_str": lambda a, *rest, **kw: str(a),
    "array2string": lambda a, *rest, **kw: str(a),
    "common_type": lambda *args: np.common_type(*[np.empty(0, a.dtype) for a in args]),
    "min_scalar_type": lambda a: a.dtype,
    "can_cast": lambda a, to, casting="safe": _can_cast(getattr(a, "dtype", a), to, casting),
}
