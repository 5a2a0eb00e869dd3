"""NumPy's dispatch: what `np.sum(x)` and `np.sin(x)` of plain NumPy do when x is traced.

Functions are found by name in `fxgrad.numpy` and its submodules. What would write a traced value into a plain array raises: the
array would not know of the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["call_function", "call_ufunc"]

# ---- ufuncs ------------------------------------------------------------------------------------------------------------


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple, kwargs: dict[str, Any]) -> Any:
    """`ufunc.method(*inputs, **kwargs)`, at least one of them traced."""
    if method == "at":
        from fxgrad.numpy.inplace import ufunc_at

        return ufunc_at(ufunc, _ufunc_function(ufunc), *inputs)
    function = _ufunc_function(ufunc)
    out = kwargs.pop("out", None)
    if out is not None:
        out = out if isinstance(out, tuple) else (out,)
        _check_out(ufunc, method, inputs, out)
    if method != "__call__":
        result = _METHODS.get(method, _unsupported_method)(ufunc, function, inputs, kwargs)
    else:
        where = kwargs.pop("where", True) if out is not None else True
        result = function(*inputs, **kwargs)
        if where is not True:
            result = _selected(where, result, out)
    if out is None:
        return result
    from fxgrad.trace.mutation import into

    return into(out, result, f"np.{ufunc.__name__}(..., out=...)", method == "__call__")


def _check_out(ufunc: np.ufunc, method: str, inputs: tuple, out: tuple) -> None:
    """Refuse to write into plain arrays, before anything is computed."""
    from fxgrad.trace.mutation import refuse_plain
    from fxgrad.trace.tracer import Tracer
    from fxgrad.trace.tracing import current_trace

    if all(o is None or type(o) is Tracer for o in out) or (current_trace() is None and Tracer not in map(type, inputs)):
        return
    name = ufunc.__name__
    if method == "__call__" and any(o is i for o in out for i in inputs):
        raise refuse_plain(
            f"an in-place operation (np.{name}(..., out=...))",
            "Write a = a + v instead of a += v; or start from fxgrad.numpy.zeros(...), np.zeros_like(x, shape=n), np.array(a) of "
            "fxgrad.numpy, which can be written.",
        )
    raise refuse_plain(f"np.{name}(..., out=...)", f"Use the value it returns: y = np.{name}(...).")


def _selected(where: Any, result: Any, out: tuple) -> Any:
    """The result where a mask holds, else what is in `out`."""
    import fxgrad.numpy as fnp

    if len(out) != 1:
        raise errors.UnsupportedError(
            "where= of a function with several results is not supported for traced values",
            why="It would have to choose for each of them.",
            fix="Call it without where= and out=, and use np.where on each result.",
        )
    return fnp.where(where, result, out[0])


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
    if name.endswith(" (vectorized)"):  # what np.frompyfunc makes
        raise _unsupported("np", "frompyfunc", vars(fnp))
    from fxgrad.scipy import special

    name = name.lstrip("_")  # scipy.special.zeta is a function around a ufunc _zeta
    found = getattr(special, name, None) if name in special.__all__ else None
    if found is None:
        raise _unsupported("scipy.special", name, dict.fromkeys(special.__all__))
    return found


def _unsupported(spelling: str, name: str, available: Any) -> errors.UnsupportedError:
    from fxgrad.numpy.missing import hint, reason

    return errors.UnsupportedError(
        f"{spelling}.{name} is not supported for traced values", why=reason(name)[0], fix=hint(name, available)
    )


_METHODS_THERE = {
    "reduce": "fxgrad reduces with add, multiply, maximum, minimum, logical_and, logical_or, fmax, fmin and logaddexp.",
    "accumulate": "fxgrad accumulates with add, multiply, maximum and minimum.",
}


def _unsupported_method(ufunc: np.ufunc, function: Any, inputs: tuple, kwargs: dict[str, Any], method: str = "reduceat") -> Any:
    raise errors.UnsupportedError(
        f"np.{ufunc.__name__}.{method} is not supported for traced values",
        why=_METHODS_THERE.get(method, f"fxgrad has no rule for {method} of a ufunc."),
        fix=f"Use fx.lax.associative_scan(np.{ufunc.__name__}, x, axis=0)."
        if method == "accumulate" and ufunc.nin == 2
        else "Use np.add.reduce, np.cumsum or a segment sum: np.zeros(n).at[i].add(x).",
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

        fnp.core.refuse_complex("np.logaddexp.reduce: the array", fnp.asarray(x))
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
    if ufunc.__name__ in ("maximum", "minimum"):  # exact in any order
        from fxgrad.control import associative_scan

        x = fnp.asarray(given["array"])
        x = x if given.get("dtype") is None else fnp.astype(x, given["dtype"])
        return associative_scan(function, x, axis=given.get("axis", 0))
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
        kwargs = {k: v for k, v in kwargs.items() if k != "like"}
    return _function(func)(*args, **kwargs)


@cache
def _function(func: Any) -> Callable[..., Any]:
    """What stands for a function of NumPy."""
    import fxgrad.numpy as fnp

    name, module = func.__name__, func.__module__ or "numpy"
    where = (
        fnp.linalg
        if module.startswith("numpy.linalg")
        else fnp.fft
        if module.startswith("numpy.fft")
        else fnp
        if module in ("numpy", "numpy.lib", "numpy._core.multiarray")
        else None
    )
    found = None if where is None else vars(where).get(name)
    if found is None:
        spelling = module if module.startswith("numpy.") else "np"
        raise _unsupported(spelling.replace("numpy.", "np."), name, vars(where or fnp))
    return found
