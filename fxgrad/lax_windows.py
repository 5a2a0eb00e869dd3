"""Reductions over sliding windows: `jax.lax.reduce_window`, and what pooling layers share with it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.lax_conv import whole_numbers, window_padding
from fxgrad.numpy.core import as_dtype, tensor
from fxgrad.primitives import elementwise as _e
from fxgrad.primitives.reduce import sum_
from fxgrad.primitives.shape import reshape, slice_
from fxgrad.primitives.windows import Windows, extreme, window_extreme, window_sum

__all__ = ["pooled", "reduce_window"]

_FEW = 16  # positions that are combined one by one; windows of more are reduced along one axis after the other


def _kinds() -> dict[Any, str]:
    """What is known of functions of two arrays."""
    import fxgrad.numpy as fnp
    from fxgrad import lax

    named = {
        "max": (lax.max, fnp.maximum, np.maximum),  # type: ignore[attr-defined]
        "min": (lax.min, fnp.minimum, np.minimum),  # type: ignore[attr-defined]
        "add": (lax.add, fnp.add, np.add, operator.add),  # type: ignore[attr-defined]
    }
    return {f: name for name, functions in named.items() for f in functions}


def pooled(x: Any, kind: str, w: Windows) -> Any:
    """The "max", "min" or sum ("add") of each window; padding is neutral."""
    wide = [d for d, k in enumerate(w.window) if k > 1]
    if kind == "add" and w.positions > _FEW and _tiles(w):
        return _tile_sums(x, w)
    if len(wide) > 1 and w.positions > _FEW:  # the last axis first: the first of equals in row-major order stays the first
        for d in reversed(wide):
            x = pooled(x, kind, _alone(w, d))
        return pooled(x, kind, _without(w, wide)) if any(s > 1 for d, s in enumerate(w.stride) if d not in wide) else x
    if kind == "add":
        return window_sum(x, **w._asdict())
    return window_extreme(x, largest=kind == "max", **w._asdict())


def _alone(w: Windows, d: int) -> Windows:
    """The windows along one axis only."""
    return Windows(*(tuple(v if i == d else n for i, v in enumerate(values)) for values, n in zip(w, _NOTHING, strict=True)))


def _without(w: Windows, axes: Sequence[int]) -> Windows:
    """The windows along the other axes."""
    return Windows(*(tuple(n if i in axes else v for i, v in enumerate(values)) for values, n in zip(w, _NOTHING, strict=True)))


_NOTHING = (1, 1, 1, 0, 0)


def _tiles(w: Windows) -> bool:
    """Whether every element is in at most one window, and windows have no gaps inside."""
    plain = all(d == 1 or k == 1 for d, k in zip(w.dilation, w.window, strict=True))
    return w.stride == w.window and plain and not any((*w.low, *w.high))


def _tile_sums(x: Any, w: Windows) -> Any:
    """Sums of tiles, each by the tree of a reduction."""
    out = w.out(x.shape)
    stop = tuple(n * k for n, k in zip(out, w.window, strict=True))
    if stop != x.shape:
        x = slice_(x, start=(0,) * x.ndim, stop=stop, step=(1,) * x.ndim)
    x = reshape(x, shape=tuple(v for pair in zip(out, w.window, strict=True) for v in pair))
    return sum_(x, axes=tuple(2 * d + 1 for d in range(len(out))))


def reduce_window(
    operand: Any, init_value: Any, computation: Callable[[Any, Any], Any], window_dimensions: Sequence[int],
    window_strides: Sequence[int], padding: Any, base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """What `computation` makes of each window and `init_value`, as jax.lax.reduce_window: sums, maxima, and others.

    operand: an array. init_value: a scalar, neutral for the computation; padding has it too. computation: an associative
    function of two arrays, such as lax.max, lax.min, lax.add, np.maximum; it combines the elements of a window in row-major
    order (of more than 16, along one axis after the other). window_dimensions, window_strides, base_dilation, window_dilation:
    one number for each axis. padding: "SAME", "SAME_LOWER", "VALID", or a pair for each axis. Returns an array of the operand's
    dtype.

    The derivative of lax.max and lax.min goes to the first of equal elements, as in PyTorch and JAX.

    >>> import numpy as np
    >>> from fxgrad import lax
    >>> lax.reduce_window(np.arange(6.0), -np.inf, lax.max, (2,), (2,), "VALID")
    array([1., 3., 5.])
    """
    from fxgrad import lax

    x = tensor(operand)
    init = as_dtype(tensor(init_value), x.dtype)
    if init.shape != ():
        raise errors.FxValueError(
            f"reduce_window got an init_value of shape {init.shape}",
            why="Every window begins with the same number.",
            fix="Pass a scalar: 0.0 for sums, -np.inf for maxima.",
        )
    window = whole_numbers("window_dimensions", window_dimensions, x.ndim)
    strides = whole_numbers("window_strides", window_strides, x.ndim)
    base = whole_numbers("base_dilation", 1 if base_dilation is None else base_dilation, x.ndim)
    inside = whole_numbers("window_dilation", 1 if window_dilation is None else window_dilation, x.ndim)
    sizes = tuple((n - 1) * b + 1 if n else 0 for n, b in zip(x.shape, base, strict=True))
    pairs = window_padding(padding, sizes, tuple((k - 1) * d + 1 for k, d in zip(window, inside, strict=True)), strides)
    kind = _kinds().get(computation) if isinstance(computation, Callable) else None  # type: ignore[arg-type]
    neutral = kind is not None and isinstance(init, np.generic) and init == _neutral(kind, x.dtype)
    if any(b > 1 for b in base) or any(v < 0 for p in pairs for v in p) or not neutral:
        x = lax.pad(x, init, [(lo, hi, b - 1) for (lo, hi), b in zip(pairs, base, strict=True)])
        pairs = ((0, 0),) * x.ndim
    w = Windows(window, strides, inside, tuple(lo for lo, _ in pairs), tuple(hi for _, hi in pairs))
    if neutral and kind is not None and not (kind == "add" and x.dtype.kind == "b"):
        return pooled(x, kind, w)
    if kind in ("max", "min"):
        return (_e.maximum if kind == "max" else _e.minimum)(*_together(pooled(x, kind, w), init))
    return _folded(x, init, computation, w)


def _neutral(kind: str, dtype: np.dtype) -> Any:
    return dtype.type(0) if kind == "add" else extreme(dtype, kind == "max")


def _together(y: Any, init: Any) -> tuple[Any, Any]:
    from fxgrad.primitives.shape import broadcast

    return y, broadcast(init, shape=y.shape, dims=())


def _folded(x: Any, init: Any, computation: Callable[[Any, Any], Any], w: Windows) -> Any:
    """Any computation: the elements of each window, one after the other."""
    total = None
    for part in w.slices(x, init):
        total = computation(_together(part, init)[1] if total is None else total, part)
    if getattr(total, "shape", None) != w.out(x.shape):
        raise errors.FxValueError(
            f"the computation of reduce_window answered shape {getattr(total, 'shape', None)} for arrays of {w.out(x.shape)}",
            why="It combines two arrays element by element.",
            fix="Pass lax.max, lax.min, lax.add or np.multiply, for example.",
        )
    return total
