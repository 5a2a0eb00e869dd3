"""Python functions applied all over an array: along an axis, to every element, to the indices of a grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, broadcast_to_shape, canonical_axis, is_traced, static_shape, tensor
from fxgrad.numpy.creation import array, asarray, astype
from fxgrad.numpy.manipulation import expand_dims, moveaxis, reshape, stack
from fxgrad.numpy.positions import indices
from fxgrad.trace.tracing import current_trace

__all__ = ["apply_along_axis", "apply_over_axes", "frombuffer", "fromfunction", "fromiter", "vectorize"]


def _over_rows(f: Callable[..., Any], rows: Sequence[Any], n: int) -> Any:
    """f(x[i], y[i], ...) for i < n, results joined: batched, or, where f asks for values that are known, one after the other."""
    from fxgrad.api.batching import vmap

    try:
        return vmap(f)(*rows)
    except errors.ConcretizationError:
        trace = current_trace()
        if trace is not None and trace.values is None:
            raise
    results = [f(*[x[i] for x in rows]) for i in range(n)]
    if isinstance(results[0], tuple):
        return tuple(stack([tensor(y) for y in column]) for column in zip(*results, strict=True))
    return stack([tensor(y) for y in results])


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """func1d(vector, *args, **kwargs) of every vector along an axis, as numpy.apply_along_axis; its result may have any rank.

    Inside transforms the function is batched (`vmap`); if it branches on values, it runs once for each vector, which needs
    values that are known (not under jit).
    """
    x = tensor(arr)
    axis = canonical_axis(axis, x.ndim)
    lead = x.shape[:axis] + x.shape[axis + 1 :]
    n = int(np.prod(lead))
    if not n:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    if current_trace() is None:
        return np.apply_along_axis(func1d, axis, x, *args, **kwargs)
    rows = reshape(moveaxis(x, axis, -1), (n, x.shape[axis]))
    y = _over_rows(lambda v: tensor(func1d(v, *args, **kwargs)), [rows], n)
    y = reshape(y, (*lead, *y.shape[1:]))
    new = range(len(lead), y.ndim)
    return moveaxis(y, tuple(new), tuple(axis + i for i in range(len(new))))


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> Any:
    """func(a, axis) for each axis in turn, reduced axes kept with length 1, as numpy.apply_over_axes."""
    y = tensor(a)
    n = y.ndim
    for axis in axes if isinstance(axes, (tuple, list, np.ndarray)) and np.ndim(axes) else (axes,):
        axis = n + int(axis) if axis < 0 else int(axis)
        out = tensor(func(y, axis))
        out = out if out.ndim == y.ndim else expand_dims(out, axis)
        if out.ndim != y.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        y = out
    return y


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, like: Any = None, **kwargs: Any) -> Any:
    """function(i, j, ...) of the index arrays of a grid, as numpy.fromfunction."""
    grid = indices(static_shape(shape), dtype=dtype)
    return function(*[grid[k] for k in range(grid.shape[0])], **kwargs)


def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, *, like: Any = None) -> Any:
    """A vector of the elements (which may be traced) of an iterable, as numpy.fromiter."""
    if count < 0:
        items = list(iter)
    else:
        items = [x for _, x in zip(range(count), iter, strict=False)]
        if len(items) < count:
            raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(items)} items.")
    if not is_traced(items):
        return asarray(np.fromiter(items, dtype))
    return astype(array(items), np.dtype(dtype))


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0, *, like: Any = None) -> Any:
    """A vector that reads the memory of a buffer, as numpy.frombuffer."""
    return asarray(np.frombuffer(buffer, dtype, count, offset))


# ---- vectorize -------------------------------------------------------------------------------------------------------------

_CORE = r"\((?:\w+(?:,\w+)*,?)?\)"
_SIGNATURE = re.compile(rf"^{_CORE}(?:,{_CORE})*->{_CORE}(?:,{_CORE})*$")


def _core_dimensions(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The names of the core dimensions of each operand and result: "(m,n),(n)->(m)"."""
    text = re.sub(r"\s+", "", signature)
    if not _SIGNATURE.match(text):
        raise ValueError(f"not a valid gufunc signature: {text}")
    left, right = text.split("->")
    one, two = ([tuple(re.findall(r"\w+", part)) for part in re.findall(_CORE, side)] for side in (left, right))
    return one, two


class vectorize:
    """A function of scalars (or, with a signature, of vectors and matrices) as one of arrays, as numpy.vectorize.

    Outside transforms it is NumPy's own loop. Inside, the function is batched (`vmap`) and therefore fast; if it branches on
    values, it runs once for each element, which needs values that are known (not under jit).

    Args:
        pyfunc: the function; without it the object is a decorator.
        otypes: dtypes of the results, by default those of what the function returns.
        excluded: positions and names of arguments that are passed on as they are.
        signature: core dimensions, such as "(n),(n)->()".

    >>> import fxgrad as fx, fxgrad.numpy as np
    >>> f = np.vectorize(lambda x, y: x if x > y else y * y)
    >>> fx.grad(lambda x: f(x, 2.0).sum())(np.array([1.0, 3.0]))
    array([0., 1.])
    """

    def __init__(
        self,
        pyfunc: Any = np._NoValue,
        otypes: Any = None,
        doc: str | None = None,
        excluded: Any = None,
        cache: bool = False,
        signature: str | None = None,
    ):
        self._options = {"otypes": otypes, "doc": doc, "excluded": excluded, "cache": cache, "signature": signature}
        self.pyfunc, self.otypes, self.excluded, self.signature, self.cache = (
            pyfunc,
            otypes,
            set(excluded or ()),
            signature,
            cache,
        )
        self._plain = np.vectorize(pyfunc, otypes, doc, excluded, cache, signature)  # which checks them
        self._types = [np.dtype(t) for t in otypes] if otypes is not None else None
        self._core = None if signature is None else _core_dimensions(signature)
        if pyfunc is not np._NoValue:
            self.__name__ = getattr(pyfunc, "__name__", "vectorized")
        self.__doc__ = getattr(pyfunc, "__doc__", None) if doc is None else doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.pyfunc is np._NoValue:
            return vectorize(args[0], **self._options)
        traced = current_trace() is not None
        if not traced:
            return self._plain(*args, **kwargs)
        places = [i for i in range(len(args)) if i not in self.excluded]
        names = [k for k in kwargs if k not in self.excluded]
        operands = [tensor(args[i]) for i in places] + [tensor(kwargs[k]) for k in names]
        if not operands:
            return self._typed(self.pyfunc(*args, **kwargs))

        def call(*values: Any) -> Any:
            given, named = list(args), dict(kwargs)
            for i, v in zip(places, values, strict=False):
                given[i] = v
            named.update(zip(names, values[len(places) :], strict=True))
            return self.pyfunc(*given, **named)

        return self._typed(self._mapped(call, operands))

    def _mapped(self, call: Callable[..., Any], operands: list[Any]) -> Any:
        """The results over the common loop dimensions of the operands."""
        core = self._core[0] if self._core else [()] * len(operands)
        if len(core) != len(operands):
            raise TypeError(f"wrong number of positional arguments: expected {len(core)}, got {len(operands)}")
        sizes: dict[str, int] = {}
        for x, dims in zip(operands, core, strict=True):
            _check_core(x, dims, sizes)
        lead = np.broadcast_shapes(*[x.shape[: x.ndim - len(dims)] for x, dims in zip(operands, core, strict=True)])
        n = int(np.prod(lead))
        if not n:
            raise ValueError("cannot call `vectorize` on size 0 inputs inside a transform: the function is never called")
        rows = [
            reshape(broadcast_to_shape(x, (*lead, *x.shape[x.ndim - len(dims) :])), (n, *x.shape[x.ndim - len(dims) :]))
            for x, dims in zip(operands, core, strict=True)
        ]

        def checked(*values: Any) -> Any:
            out = call(*values)
            parts = [tensor(y) for y in (out if isinstance(out, tuple) else (out,))]
            wanted = self._core[1] if self._core else [()] * len(parts)
            if len(wanted) != len(parts):
                raise ValueError(f"wrong number of outputs from pyfunc: expected {len(wanted)}, got {len(parts)}")
            known = dict(sizes)
            for y, dims in zip(parts, wanted, strict=True):
                _check_core(y, dims, known, exact=True)
            return tuple(parts) if isinstance(out, tuple) else parts[0]

        out = _over_rows(checked, rows, n)
        shaped = [reshape(y, (*lead, *y.shape[1:])) for y in (out if isinstance(out, tuple) else (out,))]
        return tuple(shaped) if isinstance(out, tuple) else shaped[0]

    def _typed(self, out: Any) -> Any:
        """The results in the dtypes asked for."""
        if self._types is None:
            return out
        parts = out if isinstance(out, tuple) else (out,)
        typed = tuple(as_dtype(tensor(y), t) for y, t in zip(parts, self._types, strict=True))
        return typed if isinstance(out, tuple) else typed[0]


def _check_core(x: Any, dims: tuple[str, ...], sizes: dict[str, int], exact: bool = False) -> None:
    """Compare the core dimensions of an operand (the last ones) or of a result (all) with those of the others."""
    if x.ndim < len(dims) or (exact and x.ndim != len(dims)):
        raise ValueError(
            f"{x.ndim}-dimensional argument does not have enough dimensions for all core dimensions {dims}"
            if not exact
            else f"the function answered an array of shape {x.shape}, its core dimensions are {dims}"
        )
    for name, n in zip(dims, x.shape[x.ndim - len(dims) :], strict=True):
        if sizes.setdefault(name, n) != n:
            raise ValueError(f"inconsistent size for core dimension {name!r}: {sizes[name]} vs {n}")
