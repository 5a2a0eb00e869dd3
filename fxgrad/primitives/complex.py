"""Complex numbers: two real numbers side by side.

`real` and `imag` are views of the memory, `complex` joins two arrays. Every operation on complex operands is defined through the
real primitives on their parts (the field `parts`), so it fuses, and has the same bits in every mode. Its rules of
differentiation stay those of the complex operation: a holomorphic function has one derivative, and transposes do not
conjugate, so the gradient of a real function of z = x + iy is df/dx - i df/dy (JAX's convention).

Multiplication and division are NumPy's, special values those of C99, annex G, except where NumPy leaves it: a product is not
repaired after it has become NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives import conv as convs
from fxgrad.primitives import dot as dots
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce, shape
from fxgrad.primitives.base import (
    Doc,
    Linear,
    Primitive,
    batch_elementwise,
    elementwise,
    elementwise_shape,
    instantiate,
    linear_map,
    register,
    type_error,
    zeros,
)
from fxgrad.primitives.special import hypot

__all__ = [
    "JAX_CONVENTION", "by_parts", "complex_", "complex_dtype", "conj", "copysign", "imag", "part_typ", "parts_of", "real",
    "real_dtype", "sign",
]  # fmt: skip

_COMPLEX: dict[np.dtype, np.dtype] = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}
_REAL: dict[np.dtype, np.dtype] = {c: f for f, c in _COMPLEX.items()}
JAX_CONVENTION = "JAX's convention, docs/design.md"
_ANNEX_G = "C99, annex G"


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of a complex one; any other is its own."""
    return _REAL.get(dtype, dtype)


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype with parts of this real one."""
    return _COMPLEX[dtype]


# ---- taking apart and joining ----------------------------------------------------------------------------------------


def part_typ(name: str) -> Callable[..., list[Aval]]:
    def typ(z: Aval) -> list[Aval]:
        if z.dtype.kind != "c":
            raise type_error(name, (z,), "Complex numbers have parts.")
        return [z.with_dtype(_REAL[z.dtype])]

    return typ


def _part(name: str, numpy: Callable, doc: Doc, transpose: Callable[[Any], Any]) -> Primitive:
    prim = linear_map(
        name,
        "view",
        part_typ(name),
        doc,
        transpose=lambda cts, inputs: [transpose(cts[0])],
        batch=lambda size, args, batched: ([prim(args[0])], [True]),
        numpy=numpy,
    )
    return prim


real = _part("real", np.real, Doc("Re z", "g + 0i", JAX_CONVENTION), lambda g: complex_(g, zeros(aval_of(g))))
imag = _part("imag", np.imag, Doc("Im z", "0 - ig", JAX_CONVENTION), lambda g: complex_(zeros(aval_of(g)), e.neg(g)))


def _complex_typ(x: Aval, y: Aval) -> list[Aval]:
    if x.dtype != y.dtype or x.dtype not in _COMPLEX:
        raise type_error("complex", (x, y), "It joins two arrays of float32 or of float64.")
    return [Aval(elementwise_shape("complex", (x, y)), _COMPLEX[x.dtype])]


def _complex_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    z = complex_(*primals)
    avals = [aval_of(p) for p in primals]
    full = [instantiate(t, a) for t, a in zip(tangents, avals, strict=True)]
    return [z], [None if tangents[0] is tangents[1] is None else complex_(*full)]


def _complex_transpose(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
    g = cts[0]
    found = [real(g), e.neg(imag(g))]
    return [t if isinstance(x, Linear) else None for t, x in zip(found, inputs, strict=True)]


def _complex_numpy(x: Any, y: Any) -> Any:
    x, y = np.asarray(x), np.asarray(y)
    z: Any = np.empty(np.broadcast_shapes(x.shape, y.shape), _COMPLEX[x.dtype])
    z.real, z.imag = x, y
    return z


complex_ = register(
    Primitive(
        "complex",
        "map",
        _complex_typ,
        Doc("x + iy", "Re g, -Im g", JAX_CONVENTION),
        jvp=_complex_jvp,
        transpose=_complex_transpose,
        batch=batch_elementwise(lambda: complex_),
        numpy=_complex_numpy,
    )
)


def parts_of(z: Any) -> tuple[Any, Any]:
    return real(z), imag(z)


def by_parts(prim: Primitive) -> Callable[[Callable], Callable]:
    """Declare `prim` on complex operands by a function of the operands that returns the result."""

    def declare(rule: Callable) -> Callable:
        prim.parts = lambda *xs, **params: [rule(*xs, **params)]
        return rule

    return declare


def _each_part(*prims: Primitive, exact: bool = True) -> None:
    """These do to either part what they do to real operands; `exact` if NumPy's loop on complex arrays has the same bits."""

    def declare(prim: Primitive) -> None:
        def rule(*xs: Any, **params: Any) -> Any:
            return complex_(*[prim(*[part(x) if x.dtype.kind == "c" else x for x in xs], **params) for part in (real, imag)])

        by_parts(prim)(rule)
        prim.exact_parts = exact

    for prim in prims:
        declare(prim)


_each_part(e.neg, e.add, e.sub, e.select)
_each_part(shape.broadcast, shape.reshape, shape.transpose, shape.reverse, shape.slice_, shape.pad, shape.concatenate)
_each_part(reduce.sum_, exact=False)


@by_parts(e.convert)
def _convert(z: Any, *, dtype: Any) -> Any:
    if dtype.kind != "c":
        return e.ne(z, z.dtype.type(0)) if dtype.kind == "b" else _converted(real(z), dtype)
    part = _REAL[dtype]
    if z.dtype.kind == "c":
        return complex_(_converted(real(z), part), _converted(imag(z), part))
    return complex_(_converted(z, part), part.type(0))


e.convert.exact_parts = True


def _converted(x: Any, dtype: np.dtype) -> Any:
    return x if x.dtype == dtype else e.convert(x, dtype=dtype)


conj = register(
    Primitive(
        "conj",
        "map",
        lambda z: [z],
        Doc("x - iy", "the conjugate of g", JAX_CONVENTION),
        jvp=lambda primals, tangents: ([conj(primals[0])], [conj(tangents[0])]),
        transpose=lambda cts, inputs: [conj(cts[0])],
        batch=batch_elementwise(lambda: conj),
        numpy=np.conjugate,
    )
)


@by_parts(conj)
def _conj(z: Any) -> Any:
    x, y = parts_of(z)
    return complex_(x, e.neg(y))


conj.exact_parts = True

# ---- arithmetic and comparison ---------------------------------------------------------------------------------------


@by_parts(e.mul)
def _mul(z: Any, w: Any) -> Any:
    (a, b), (c, d) = parts_of(z), parts_of(w)
    return complex_(e.sub(e.mul(a, c), e.mul(b, d)), e.add(e.mul(a, d), e.mul(b, c)))


@by_parts(e.lin_mul)
def _lin_mul(t: Any, r: Any) -> Any:
    (a, b), (c, d) = parts_of(t), parts_of(r)
    return complex_(e.sub(e.lin_mul(a, c), e.lin_mul(b, d)), e.add(e.lin_mul(a, d), e.lin_mul(b, c)))


@by_parts(e.div)
def _div(z: Any, w: Any) -> Any:
    """Smith's algorithm as NumPy has it (Smith, 1962): the smaller part of the divisor is divided by the larger."""
    (a, b), (c, d) = parts_of(z), parts_of(w)
    size_c, size_d = e.abs_(c), e.abs_(d)
    one, zero = c.dtype.type(1), c.dtype.type(0)
    wide = e.ge(size_c, size_d)
    large, small = e.select(wide, c, d), e.select(wide, d, c)
    ratio = e.div(small, large)
    scale = e.div(one, e.add(large, e.mul(small, ratio)))
    s, t = e.select(wide, a, b), e.select(wide, b, a)
    x = e.mul(e.add(s, e.mul(t, ratio)), scale)
    right = e.mul(s, ratio)
    y = e.mul(e.select(wide, e.sub(t, right), e.sub(right, t)), scale)
    nothing = e.and_(e.eq(c, zero), e.eq(d, zero))
    return complex_(e.select(nothing, e.div(a, size_c), x), e.select(nothing, e.div(b, size_c), y))


@by_parts(e.lin_div)
def _lin_div(t: Any, r: Any) -> Any:
    none = t.dtype.type(0)
    return e.select(e.eq(t, none), none, e.div(t, r))


@by_parts(e.integer_pow)
def _integer_pow(z: Any, *, n: int) -> Any:
    one = z.dtype.type(1)
    if n == 0:
        return shape.broadcast(one, shape=z.shape, dims=())
    base, result, m = z, None, abs(n)
    while m:
        if m & 1:
            result = base if result is None else e.mul(result, base)
        m >>= 1
        if m:
            base = e.mul(base, base)
    return result if n > 0 else e.div(one, result)


@by_parts(e.eq)
def _eq(z: Any, w: Any) -> Any:
    (a, b), (c, d) = parts_of(z), parts_of(w)
    return e.and_(e.eq(a, c), e.eq(b, d))


@by_parts(e.ne)
def _ne(z: Any, w: Any) -> Any:
    (a, b), (c, d) = parts_of(z), parts_of(w)
    return e.or_(e.ne(a, c), e.ne(b, d))


e.eq.exact_parts = e.ne.exact_parts = True


def _ordered(prim: Primitive, strict: Primitive) -> None:
    """NumPy's order: by the real parts, then by the imaginary ones; a NaN anywhere has no place in it."""

    @by_parts(prim)
    def rule(z: Any, w: Any) -> Any:
        (a, b), (c, d) = parts_of(z), parts_of(w)
        fine = e.and_(e.eq(b, b), e.eq(d, d))
        return e.or_(e.and_(strict(a, c), fine), e.and_(e.eq(a, c), prim(b, d)))


_ordered(e.lt, e.lt)
_ordered(e.le, e.lt)
_ordered(e.gt, e.gt)
_ordered(e.ge, e.gt)


copysign = elementwise(
    "copysign",
    lambda k, x, y: k.copysign(x, y),
    Doc("|x| with the sign of y", "g where the signs agree, else -g; 0", "piecewise x or -x"),
    partials=(lambda z, x, y: copysign(z.dtype.type(1), _times_sign(x, y)), None),
    numpy=np.copysign,
)


def _times_sign(x: Any, y: Any) -> Any:
    one = x.dtype.type(1)
    return e.mul(copysign(one, x), copysign(one, y))


def sign(z: Any) -> Any:
    """z / |z|, and 0 at 0; of an infinite part alone its sign."""
    x, y = parts_of(z)
    r, zero, inf = hypot(x, y), x.dtype.type(0), x.dtype.type(math.inf)
    far_x, far_y = e.eq(e.abs_(x), inf), e.eq(e.abs_(y), inf)
    far = e.and_(e.eq(r, r), e.or_(far_x, far_y))
    none, safe = e.eq(r, zero), e.select(e.eq(r, zero), x.dtype.type(1), r)
    both, nan = e.and_(far_x, far_y), x.dtype.type(math.nan)

    def part(v: Any, far_v: Any) -> Any:
        of_far = e.select(both, nan, e.select(far_v, e.sign(v), zero))
        return e.select(none, zero, e.select(far, of_far, e.div(v, safe)))

    return complex_(part(x, far_x), part(y, far_y))


# ---- sums of products, products of many ------------------------------------------------------------------------------


@by_parts(dots.dot)
def _dot(z: Any, w: Any, **params: Any) -> Any:
    """Four real products, each the fixed sum."""
    (a, b), (c, d) = parts_of(z), parts_of(w)
    re = e.sub(dots.dot(a, c, **params), dots.dot(b, d, **params))
    return complex_(re, e.add(dots.dot(a, d, **params), dots.dot(b, c, **params)))


@by_parts(convs.conv)
def _conv(z: Any, w: Any, **params: Any) -> Any:
    """Four real convolutions, each the fixed sum."""
    (a, b), (c, d) = parts_of(z), parts_of(w)
    re = e.sub(convs.conv(a, c, **params), convs.conv(b, d, **params))
    return complex_(re, e.add(convs.conv(a, d, **params), convs.conv(b, c, **params)))


@by_parts(reduce.prod)
def _prod(z: Any, *, axes: tuple[int, ...]) -> Any:
    """Neighbours multiplied until one is left: a tree that depends on their number alone."""
    x = shape.merge_axes_last(z, axes)
    axis = len(x.shape) - 1
    if x.shape[-1] == 0:
        return shape.broadcast(z.dtype.type(1), shape=x.shape[:-1], dims=())
    while (n := x.shape[-1]) > 1:
        half = n // 2
        y = e.mul(reduce.cut(x, axis, 0, half), reduce.cut(x, axis, half, 2 * half))
        x = shape.concatenate(y, reduce.cut(x, axis, n - 1, n), axis=axis) if n % 2 else y
    return shape.reshape(x, shape=x.shape[:-1])
