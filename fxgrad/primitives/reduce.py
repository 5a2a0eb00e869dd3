"""Reductions and cumulative operations.

A floating-point reduction is a fixed tree that depends only on the number of reduced elements, never on layout, axes, batching
or fusion; docs/numerics.md states it and kernels/loops.py emits it. Cumulative operations run in sequence along their axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval
from fxgrad.primitives.base import Doc, Primitive, add_tangents, kernel_dtypes, register, type_error
from fxgrad.primitives.elementwise import (
    CONVENTION,
    _indicator,
    add,
    and_,
    div,
    eq,
    isfinite,
    lin_mul,
    mul,
    ne,
    or_,
    reciprocal,
    select,
    sub,
)
from fxgrad.primitives.shape import broadcast, pad, slice_
from fxgrad.primitives.transcendental import exp, log

Axes = tuple[int, ...]


def _kept(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def spread(x: Any, shape: tuple[int, ...], axes: Axes) -> Any:
    """Broadcast a reduced value back over the axes that were reduced."""
    return broadcast(x, shape=shape, dims=tuple(i for i in range(len(shape)) if i not in axes))


def _reduce_typ(name: str, result: str, operands: str) -> Callable[..., list[Aval]]:
    def typ(x: Aval, *, axes: Axes) -> list[Aval]:
        if x.dtype.kind not in operands:
            raise type_error(name, (x,), f"It reduces dtypes of kind {' '.join(operands)}; convert first.")
        if tuple(sorted(set(axes))) != axes or any(not 0 <= i < x.ndim for i in axes):
            raise type_error(name, (x,), f"axes={axes} must be sorted, distinct and within rank {x.ndim}.")
        if name in ("max", "min", "argmax", "argmin") and any(x.shape[i] == 0 for i in axes):
            raise type_error(name, (x,), "A reduction without identity needs at least one element.")
        return [Aval(_kept(x.shape, axes), np.dtype(result) if result != "same" else x.dtype)]

    return typ


def _reduce_batch(prim: Callable[[], Primitive]) -> Callable:
    def rule(size: int, args: Sequence[Any], batched: Sequence[bool], *, axes: Axes) -> tuple[list, list[bool]]:
        return [prim()(args[0], axes=tuple(i + 1 for i in axes))], [True]

    return rule


def reducer(
    name: str,
    combine: Callable,
    identity: Callable,
    doc: Doc,
    *,
    jvp: Callable,
    transpose: Callable | None = None,
    operands: str = "fciu",
    result: str = "same",
    numpy: Callable | None = None,
) -> Primitive:
    """Declare a reduction over `axes` by its combining body and identity."""
    prim = Primitive(
        name,
        "reduce",
        _reduce_typ(name, result, operands),
        doc,
        jvp=jvp,
        transpose=transpose,
        batch=_reduce_batch(lambda: prim),
        body=combine,
        identity=identity,
        numpy=numpy,
        supports=kernel_dtypes,
    )
    return register(prim)


def _sum_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[list, list]:
    return [sum_(primals[0], axes=axes)], [sum_(tangents[0], axes=axes)]


def _sum_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axes: Axes) -> list:
    return [spread(cts[0], inputs[0].aval.shape, axes)]


sum_ = reducer(
    "sum",
    lambda k, a, b: a + b,
    lambda dtype: dtype.type(0),
    Doc("sum over axes", "g spread over the axes"),
    jvp=_sum_jvp,
    transpose=_sum_transpose,
)


def _prod_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[list, list]:
    """Each factor's slope is the product of all the others: an exclusive product from the left times one from the right."""
    from fxgrad.primitives.shape import merge_axes_last, split_axis_last

    x, t = primals[0], tangents[0]
    flat = merge_axes_last(x, axes)
    others = mul(_exclusive_cumprod(flat, False), _exclusive_cumprod(flat, True))
    return [prod(x, axes=axes)], [sum_(lin_mul(t, split_axis_last(others, x.shape, axes)), axes=axes)]


def _exclusive_cumprod(x: Any, backward: bool) -> Any:
    """Products of the elements strictly before (or after) each along the last axis."""
    axis, n = len(x.shape) - 1, x.shape[-1]
    if n == 0:
        return x
    rest = cumprod(cut(x, axis, 1, n) if backward else cut(x, axis, 0, n - 1), axis=axis, reverse=backward)
    one = x.dtype.type(1)
    return pad_axis(rest, one, axis, 0 if backward else 1, 1 if backward else 0)


def cut(x: Any, axis: int, start: int, stop: int) -> Any:
    """x[..., start:stop, ...] along one axis."""
    ndim = len(x.shape)
    starts, stops = [0] * ndim, list(x.shape)
    starts[axis], stops[axis] = start, stop
    return slice_(x, start=tuple(starts), stop=tuple(stops), step=(1,) * ndim)


def pad_axis(x: Any, value: Any, axis: int, low: int, high: int) -> Any:
    lows, highs = [0] * len(x.shape), [0] * len(x.shape)
    lows[axis], highs[axis] = low, high
    return pad(x, value, low=tuple(lows), high=tuple(highs), interior=(0,) * len(x.shape))


prod = reducer(
    "prod",
    lambda k, a, b: a * b,
    lambda dtype: dtype.type(1),
    Doc("product over axes", "g * product of the other elements, without division", "product rule"),
    jvp=_prod_jvp,
)


def _extremum_jvp(prim: Callable[[], Primitive]) -> Callable:
    """Ties share evenly: the tangents at the extreme elements are averaged."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[list, list]:
        x, t = primals[0], tangents[0]
        y = prim()(x, axes=axes)
        full = spread(y, x.shape, axes)
        hit = eq(x, full)
        if x.dtype.kind == "f":
            hit = or_(hit, and_(ne(x, x), ne(full, full)))
        count = sum_(_indicator(hit, x), axes=axes)
        share = select(hit, spread(reciprocal(count), x.shape, axes), x.dtype.type(0))
        return [y], [sum_(lin_mul(t, share), axes=axes)]

    return jvp


def _lowest(dtype: np.dtype, largest: bool) -> Any:
    if dtype.kind in "fc":
        return dtype.type(np.inf if largest else -np.inf)
    if dtype.kind == "b":
        return np.bool_(largest)
    return getattr(np.iinfo(dtype), "max" if largest else "min") * dtype.type(1)


max_ = reducer(
    "max",
    lambda k, a, b: k.maximum(a, b),
    lambda dtype: _lowest(dtype, False),
    Doc("largest element; NaN if there is one", "g shared evenly by the largest elements", CONVENTION),
    jvp=_extremum_jvp(lambda: max_),
    operands="fiub",
)
min_ = reducer(
    "min",
    lambda k, a, b: k.minimum(a, b),
    lambda dtype: _lowest(dtype, True),
    Doc("smallest element; NaN if there is one", "g shared evenly by the smallest elements", CONVENTION),
    jvp=_extremum_jvp(lambda: min_),
    operands="fiub",
)


def _no_tangent(prim: Callable[[], Primitive]) -> Callable:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
        return [prim()(*primals, **params)], [None]

    return jvp


any_ = reducer(
    "any",
    lambda k, a, b: a | b,
    lambda dtype: np.bool_(False),
    Doc("true if any is", "0"),
    jvp=_no_tangent(lambda: any_),
    operands="b",
)
all_ = reducer(
    "all",
    lambda k, a, b: a & b,
    lambda dtype: np.bool_(True),
    Doc("true if all are", "0"),
    jvp=_no_tangent(lambda: all_),
    operands="b",
)


def _arg(name: str, numpy: Callable, forward: str) -> Primitive:
    """argmax, argmin: over one axis, the first of equals; NaN counts as extreme, as in NumPy."""
    prim = Primitive(
        name,
        "host",
        _reduce_typ(name, "int64", "fciub"),
        Doc(forward, "0"),
        jvp=_no_tangent(lambda: prim),
        batch=_reduce_batch(lambda: prim),
        numpy=lambda x, *, axes: np.asarray(numpy(x, axis=axes[0])),
    )
    return register(prim)


argmax = _arg("argmax", np.argmax, "index of the first largest element along an axis")
argmin = _arg("argmin", np.argmin, "index of the first smallest element along an axis")

# ---- along an axis, in sequence --------------------------------------------------------------------------------------


def _along_typ(name: str) -> Callable[..., list[Aval]]:
    def typ(x: Aval, *more: Aval, axis: int, reverse: bool) -> list[Aval]:
        if x.dtype.kind not in "fciu" or any(a is not x for a in more) or not 0 <= axis < x.ndim:
            raise type_error(
                name, (x, *more), f"It takes numbers of equal shape and an axis within rank {x.ndim}, got axis={axis}."
            )
        return [x]

    return typ


def _along_batch(prim: Callable[[], Primitive]) -> Callable:
    def rule(size: int, args: Sequence[Any], batched: Sequence[bool], *, axis: int, reverse: bool) -> tuple[list, list[bool]]:
        from fxgrad.primitives.base import batch_together

        return [prim()(*batch_together(size, args, batched), axis=axis + 1, reverse=reverse)], [True]

    return rule


def _accumulate(ufunc: np.ufunc) -> Callable:
    def run(x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
        turned = np.flip(x, axis) if reverse else x
        if x.dtype == np.float16:  # rounded once at the end, like every float16 operation
            y = ufunc.accumulate(turned.astype(np.float32), axis=axis).astype(np.float16)
        else:
            y = ufunc.accumulate(turned, axis=axis, dtype=x.dtype)
        return np.flip(y, axis) if reverse else y

    return run


def _cumsum_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[list, list]:
    return [cumsum(primals[0], axis=axis, reverse=reverse)], [cumsum(tangents[0], axis=axis, reverse=reverse)]


cumsum = register(
    Primitive(
        "cumsum",
        "host",
        _along_typ("cumsum"),
        Doc("running sum along an axis", "running sum of g from the other end"),
        jvp=_cumsum_jvp,
        transpose=lambda cts, inputs, *, axis, reverse: [cumsum(cts[0], axis=axis, reverse=not reverse)],
        batch=_along_batch(lambda: cumsum),
        numpy=_accumulate(np.add),
    )
)


def _before(y: Any, axis: int, backward: bool, first: Any) -> Any:
    """y shifted by one along the axis: what came before each element."""
    n = y.shape[axis]
    if n == 0:
        return y
    kept = cut(y, axis, 1, n) if backward else cut(y, axis, 0, n - 1)
    return pad_axis(kept, first, axis, 0 if backward else 1, 1 if backward else 0)


def _cumprod_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[list, list]:
    """y[i] = x[i]*y[i-1] gives dy[i] = x[i]*dy[i-1] + y[i-1]*t[i]: a linear recurrence, no division."""
    x, t = primals[0], tangents[0]
    y = cumprod(x, axis=axis, reverse=reverse)
    return [y], [linear_recurrence(lin_mul(t, _before(y, axis, reverse, y.dtype.type(1))), x, axis=axis, reverse=reverse)]


def _cumprod_numpy(x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
    if x.dtype.kind == "c":
        from fxgrad.kernels.scan import running_product

        return running_product(x, axis, reverse)
    return _accumulate(np.multiply)(x, axis=axis, reverse=reverse)


cumprod = register(
    Primitive(
        "cumprod",
        "host",
        _along_typ("cumprod"),
        Doc("running product along an axis", "a linear recurrence from the other end, without division", "product rule"),
        jvp=_cumprod_jvp,
        batch=_along_batch(lambda: cumprod),
        numpy=_cumprod_numpy,
    )
)


def _recurrence_numpy(b: np.ndarray, a: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
    from fxgrad.kernels.scan import linear_recurrence as run

    return run(a, b, axis=axis, reverse=reverse)


def _recurrence_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[list, list]:
    (b, a), (tb, ta) = primals, tangents
    h = linear_recurrence(b, a, axis=axis, reverse=reverse)
    drive = add_tangents([tb, None if ta is None else lin_mul(ta, _before(h, axis, reverse, h.dtype.type(0)))])
    return [h], [linear_recurrence(drive, a, axis=axis, reverse=reverse)]


def _recurrence_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axis: int, reverse: bool) -> list:
    """The cotangent runs the other way, each step weighted by the factor that carried it forward."""
    return [
        linear_recurrence(cts[0], _before(inputs[1], axis, not reverse, cts[0].dtype.type(0)), axis=axis, reverse=not reverse),
        None,
    ]


linear_recurrence = register(
    Primitive(
        "linear_recurrence",
        "host",
        _along_typ("linear_recurrence"),
        Doc(
            "h[i] = a[i]*h[i-1] + b[i] along an axis, h[0] = b[0]",
            "the recurrence from the other end; that times h[i-1]",
            "transpose of a bidiagonal system",
        ),
        jvp=_recurrence_jvp,
        transpose=_recurrence_transpose,
        batch=_along_batch(lambda: linear_recurrence),
        numpy=_recurrence_numpy,
    )
)

# ---- logsumexp -------------------------------------------------------------------------------------------------------


def _logsumexp_expand(x: Any, *, axes: Axes) -> list:
    """max + log(sum(exp(x - max))); an infinite maximum is not subtracted, it would give inf - inf."""
    peak = max_(x, axes=axes)
    shift = select(isfinite(peak), peak, x.dtype.type(0))
    total = sum_(exp(sub(x, spread(shift, x.shape, axes))), axes=axes)
    return [add(log(total), shift)]


def _logsumexp_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[list, list]:
    """The softmax weights; where the maximum is infinite, and so the result, the elements equal to it share evenly.

    Not exp(x - y): of large logits, y has lost the digits that tell the weights apart.
    """
    from fxgrad.primitives.call import stop_gradient

    x, t = primals[0], tangents[0]
    y = logsumexp(x, axes=axes)
    peak = stop_gradient(max_(x, axes=axes))
    terms = exp(sub(x, spread(select(isfinite(peak), peak, x.dtype.type(0)), x.shape, axes)))
    full = spread(peak, x.shape, axes)
    terms = select(isfinite(full), terms, _indicator(eq(x, full), x))  # none is equal to NaN: 0/0 is NaN again
    weight = div(terms, spread(sum_(terms, axes=axes), x.shape, axes))
    return [y], [sum_(lin_mul(t, weight), axes=axes)]


logsumexp = register(
    Primitive(
        "logsumexp",
        "expand",
        _reduce_typ("max", "same", "f"),
        Doc("log of the sum of exponentials over axes", "g * softmax(x)", "Blanchard, Higham, Higham (2021)"),
        jvp=_logsumexp_jvp,
        batch=_reduce_batch(lambda: logsumexp),
        expand=_logsumexp_expand,
    )
)

# ---- softmax ---------------------------------------------------------------------------------------------------------


def _softmax_expand(x: Any, *, axes: Axes) -> list:
    """exp(x - max)/sum(exp(x - max)); entries of -inf are 0, and a row of nothing else is 0/0."""
    zero = x.dtype.type(0)
    low = eq(x, x.dtype.type(-np.inf))
    shifted = sub(select(low, zero, x), spread(max_(x, axes=axes), x.shape, axes))
    terms = select(low, zero, exp(shifted))
    return [div(terms, spread(sum_(terms, axes=axes), x.shape, axes))]


def _softmax_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[list, list]:
    """y*(t - sum(y*t)): one division an element, where the derivative of the quotient has two."""
    x, t = primals[0], tangents[0]
    y = softmax(x, axes=axes)
    along = spread(sum_(lin_mul(t, y), axes=axes), x.shape, axes)
    return [y], [lin_mul(sub(t, along), y)]


softmax = register(
    Primitive(
        "softmax",
        "expand",
        lambda x, *, axes: [x],
        Doc("exp(x)/sum(exp(x)) over axes", "y * (g - sum(y*g))", "Bridle (1990)"),
        jvp=_softmax_jvp,
        batch=lambda size, args, batched, *, axes: ([softmax(args[0], axes=tuple(a + 1 for a in axes))], [True]),
        expand=_softmax_expand,
    )
)
