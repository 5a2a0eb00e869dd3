"""Functions of complex numbers: absolute value, logarithms, exponential, circular, hyperbolic and inverse functions, powers.

Each is written on the two parts (see complex.py); special values are those of C99, annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.primitives import elementwise as e
from fxgrad.primitives import transcendental as tr
from fxgrad.primitives.base import (
    Doc,
    Primitive,
    batch_elementwise,
    elementwise,
    register,
)
from fxgrad.primitives.complex import JAX_CONVENTION, by_parts, complex_, copysign, imag, part_typ, parts_of, real
from fxgrad.primitives.special import hypot

__all__ = ["acosh", "asinh", "atanh", "complex_abs", "log_hypot"]

# ---- absolute value, logarithms --------------------------------------------------------------------------------------

complex_abs = register(
    Primitive(
        "complex_abs",
        "map",
        part_typ("complex_abs"),
        Doc("|z|", "g * conj(z)/|z|; 0 at 0", JAX_CONVENTION),
        jvp=lambda primals, tangents: _abs_jvp(primals[0], tangents[0]),
        batch=batch_elementwise(lambda: complex_abs),
    )
)


@by_parts(complex_abs)
def _abs(z: Any) -> Any:
    return hypot(*parts_of(z))


def _abs_jvp(z: Any, t: Any) -> tuple[list, list]:
    """The real part of t * conj(z)/|z|."""
    r, (a, b) = complex_abs(z), parts_of(t)
    x, y = parts_of(z)
    safe = e.select(e.eq(r, r.dtype.type(0)), r.dtype.type(1), r)
    return [r], [e.add(e.lin_mul(a, e.div(x, safe)), e.lin_mul(b, e.div(y, safe)))]


# Beyond these sizes squares are brought near 1 by the powers of two beside them: (large, down, small, up)
_SCALES = {4: (2.0**60, 2.0**-70, 2.0**-40, 2.0**100), 8: (2.0**500, 2.0**-600, 2.0**-400, 2.0**700)}


def _log_size(k: Any, x: Any, y: Any) -> Any:
    """Half the logarithm of x*x + y*y; near 1 that of the square less 1, which is summed to twice the precision."""
    a, b = k.absolute(x), k.absolute(y)
    large, small = k.maximum(a, b), k.minimum(a, b)
    high, down, low, up = _SCALES[x.dtype.itemsize]
    one = k.constant(x, 1)

    def choose(of_high: float, of_low: float, rest: Any) -> Any:
        return k.select(large > high, k.constant(x, of_high), k.select(large < low, k.constant(x, of_low), rest))

    factor = choose(down, up, one)
    u, v = large * factor, small * factor
    square = k.fma(u, u, v * v)
    far = 0.5 * k.log(square) + choose(-math.log(down), -math.log(up), k.constant(x, 0))
    near = 0.5 * k.log1p(_square_sum(k, k.constant(x, -1), large, small))
    result = k.select((square > 0.5) & (square < 2.0) & (factor == one), near, far)
    inf = k.constant(x, math.inf)
    return k.select((a == inf) | (b == inf), inf, result)


def _square_sum(k: Any, c: Any, x: Any, y: Any) -> Any:
    """c + x*x + y*y, the terms rounded once."""
    from fxgrad.kernels.doubleword import two_prod, two_sum

    (p, p_low), (q, q_low) = two_prod(x, x), two_prod(y, y)
    s, s_low = two_sum(c, p)
    s, rest = two_sum(s, q)
    return s + ((s_low + rest) + (p_low + q_low))


def _log1p_size(k: Any, x: Any, y: Any) -> Any:
    """log|1 + x + iy|: half of log1p(2x + x*x + y*y) where that is moderate."""
    excess = _square_sum(k, x + x, x, y)
    moderate = (excess > -0.5) & (excess < 4.0)
    return k.select(moderate, 0.5 * k.log1p(k.select(moderate, excess, k.constant(x, 0))), _log_size(k, x + 1.0, y))


log_hypot = elementwise(
    "log_hypot",
    _log_size,
    Doc("log(sqrt(x*x + y*y)), also near 1", "g*x/(x*x + y*y), g*y/(x*x + y*y)", "chain rule"),
    partials=(lambda r, x, y: tr._over_square(x, x, y), lambda r, x, y: tr._over_square(y, x, y)),
    cheap=False,
)
log1p_hypot = elementwise(
    "log1p_hypot",
    _log1p_size,
    Doc("log(sqrt((1+x)*(1+x) + y*y)), also near 0", "as log_hypot at 1 + x", "chain rule"),
    partials=(
        lambda r, x, y: tr._over_square(e.add(x, e.ones_like(x)), e.add(x, e.ones_like(x)), y),
        lambda r, x, y: tr._over_square(y, e.add(x, e.ones_like(x)), y),
    ),
    cheap=False,
)


@by_parts(tr.log)
def _log(z: Any) -> Any:
    x, y = parts_of(z)
    return complex_(log_hypot(x, y), tr.atan2(y, x))


@by_parts(tr.log1p)
def _log1p(z: Any) -> Any:
    x, y = parts_of(z)
    return complex_(log1p_hypot(x, y), tr.atan2(y, e.add(x, e.ones_like(x))))


# ---- exponential and hyperbolic functions ----------------------------------------------------------------------------

# where e**x is computed as e**(x - c) * e**c, so that a small factor beside it can keep the product finite: (from, c)
_LARGE = {4: (85.0, 40.0), 8: (700.0, 400.0)}


def _is(x: Any, c: float) -> Any:
    return x.dtype.type(c)


def _finite(x: Any) -> Any:
    return e.isfinite(x)


def _in_range(x: Any) -> tuple[Any, Any]:
    """(x nearer to 0 where |x| is large, the factor that is missing then)."""
    limit, c = _LARGE[x.dtype.itemsize]
    large = e.gt(e.abs_(x), _is(x, limit))
    return e.select(large, e.sub(x, copysign(_is(x, c), x)), x), e.select(large, _is(x, math.exp(c)), _is(x, 1))


@by_parts(tr.exp)
def _exp(z: Any) -> Any:
    x, y = parts_of(z)
    near, factor = _in_range(x)
    size = tr.exp(near)
    factor = e.select(e.lt(x, _is(x, 0)), _is(x, 1), factor)
    size = e.select(e.lt(x, _is(x, 0)), tr.exp(x), size)
    gone = e.and_(e.eq(x, _is(x, -math.inf)), e.not_(_finite(y)))  # 0 * what is not known
    real_y, on_axis = e.eq(y, _is(y, 0)), e.and_(e.eq(x, _is(x, math.inf)), e.not_(_finite(y)))
    u = e.mul(e.mul(size, tr.cos(y)), factor)
    v = e.mul(e.mul(size, tr.sin(y)), factor)
    u = e.select(gone, _is(x, 0), e.select(on_axis, x, e.select(real_y, e.mul(size, factor), u)))
    return complex_(u, e.select(gone, _is(x, 0), e.select(real_y, y, v)))


@by_parts(tr.expm1)
def _expm1(z: Any) -> Any:
    """expm1(x) cos(y) - 2 sin(y/2)**2 and e**x sin(y)."""
    x, y = parts_of(z)
    half = tr.sin(e.mul(y, _is(y, 0.5)))
    u = e.sub(e.mul(tr.expm1(x), tr.cos(y)), e.mul(_is(x, 2), e.mul(half, half)))
    w = tr.exp(z)
    plain = e.and_(_finite(y), e.lt(x, _is(x, 1)))
    one = _is(x, 1)
    return complex_(e.select(e.and_(plain, _finite(x)), u, e.sub(real(w), one)), imag(w))


def _sinh_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """sinh(x) cos(y), cosh(x) sin(y)."""
    near, factor = _in_range(x)
    zero, odd = _is(x, 0), e.not_(_finite(y))
    kept = e.and_(odd, e.or_(e.eq(x, zero), e.eq(e.abs_(x), _is(x, math.inf))))
    u = e.mul(e.mul(tr.sinh(near), tr.cos(y)), factor)
    v = e.mul(e.mul(tr.cosh(near), tr.sin(y)), factor)
    return e.select(kept, x, e.select(e.eq(y, zero), e.mul(tr.sinh(near), factor), u)), e.select(e.eq(y, zero), y, v)


def _cosh_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """cosh(x) cos(y), sinh(x) sin(y)."""
    near, factor = _in_range(x)
    zero, odd, size = _is(x, 0), e.not_(_finite(y)), e.abs_(x)
    u = e.mul(e.mul(tr.cosh(near), tr.cos(y)), factor)
    u = e.select(e.and_(odd, e.eq(size, _is(x, math.inf))), size, e.select(e.eq(y, zero), e.mul(tr.cosh(near), factor), u))
    v = e.mul(e.mul(tr.sinh(near), tr.sin(y)), factor)
    on_axis = e.mul(copysign(_is(x, 1), x), y)
    return u, e.select(e.eq(y, zero), on_axis, e.select(e.and_(odd, e.eq(x, zero)), zero, v))


def _tanh_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """Kahan (1987): with t = tan y, s = sinh x: (1+t*t) cosh x s + i t, over 1 + (1+t*t) s*s; far out 1 and a small part."""
    far_from = 11.0 if x.dtype.itemsize == 4 else 22.0
    size, zero, one = e.abs_(x), _is(x, 0), _is(x, 1)
    far = e.gt(size, _is(x, far_from))
    near = e.select(far, zero, x)
    t, s, c = tr.tan(y), tr.sinh(near), tr.cosh(near)
    beta = e.add(one, e.mul(t, t))
    under = e.add(one, e.mul(beta, e.mul(s, s)))
    u, v = e.div(e.mul(beta, e.mul(c, s)), under), e.div(t, under)
    odd = e.not_(_finite(y))
    small = e.mul(e.mul(_is(x, 4), e.mul(tr.sin(y), tr.cos(y))), tr.exp(e.mul(_is(x, -2), size)))
    infinite = e.eq(size, _is(x, math.inf))
    small = e.select(infinite, e.select(odd, zero, copysign(zero, small)), small)
    u = e.select(e.and_(far, e.or_(infinite, e.not_(odd))), copysign(one, x), e.select(e.eq(x, zero), x, u))
    u = e.select(e.and_(far, e.and_(odd, e.not_(infinite))), _is(x, math.nan), u)
    return u, e.select(far, small, e.select(e.eq(y, zero), y, v))


def _of_parts(parts: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any], Any]:
    return lambda z: complex_(*parts(*parts_of(z)))


by_parts(tr.sinh)(_of_parts(_sinh_parts))
by_parts(tr.cosh)(_of_parts(_cosh_parts))
by_parts(tr.tanh)(_of_parts(_tanh_parts))


def _swapped(parts: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[Any], Any]:
    """f(x + iy) = i g(y + ix)* for the circular function of a hyperbolic one that is odd: its parts come the other way round."""

    def rule(z: Any) -> Any:
        x, y = parts_of(z)
        u, v = parts(y, x)
        return complex_(v, u)

    return rule


by_parts(tr.sin)(_swapped(_sinh_parts))
by_parts(tr.tan)(_swapped(_tanh_parts))


@by_parts(tr.cos)
def _cos(z: Any) -> Any:
    x, y = parts_of(z)
    u, v = _cosh_parts(y, x)
    return complex_(u, e.neg(v))


# ---- roots and powers ------------------------------------------------------------------------------------------------


def _sqrt_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """t = sqrt((|x| + |z|)/2) is one part, |y|/(2t) the other (Kahan, 1987), of z scaled by a power of 4 at the ends."""
    tiny, huge = (2.0**-100, 2.0**120) if x.dtype.itemsize == 4 else (2.0**-960, 2.0**1015)
    up, down = (2.0**60, 2.0**-30) if x.dtype.itemsize == 4 else (2.0**120, 2.0**-60)
    largest = e.maximum(e.abs_(x), e.abs_(y))
    small, large = e.lt(largest, _is(x, tiny)), e.gt(largest, _is(x, huge))

    def choose(of_small: float, of_large: float) -> Any:
        return e.select(small, _is(x, of_small), e.select(large, _is(x, of_large), _is(x, 1)))

    factor, back = choose(up, 2.0**-4), choose(down, 4.0)
    a, b = e.mul(e.abs_(x), factor), e.mul(e.abs_(y), factor)
    t = e.sqrt(e.mul(e.add(a, hypot(a, b)), _is(x, 0.5)))
    zero = _is(x, 0)
    other = e.mul(e.div(b, e.select(e.eq(t, zero), _is(x, 1), e.add(t, t))), back)
    t = e.mul(t, back)
    inf = _is(x, math.inf)
    right, far = e.ge(x, zero), e.eq(e.abs_(y), inf)
    right = e.or_(right, e.ne(x, x))
    u, v = e.select(right, t, other), e.select(right, other, t)
    return e.select(far, inf, u), copysign(e.select(far, inf, v), y)


by_parts(e.sqrt)(_of_parts(_sqrt_parts))


@by_parts(tr.pow)
def _pow(z: Any, w: Any) -> Any:
    """exp(w log z); 1 where w = 0, and where z = 0: 0 for an exponent of positive real part, else not a number."""
    none, one = z.dtype.type(0), z.dtype.type(1)
    nowhere = e.eq(z, none)
    general = tr.exp(e.mul(w, tr.log(e.select(nowhere, one, z))))
    nan = z.dtype.type(complex(math.nan, math.nan))
    x = real(w)
    at_zero = e.select(e.gt(x, _is(x, 0)), none, nan)
    return e.select(e.eq(w, none), one, e.select(nowhere, at_zero, general))


# ---- inverse hyperbolic and circular functions -----------------------------------------------------------------------


def _real_asinh(x: Any) -> Any:
    """log1p(|x| + x*x/(1 + sqrt(1 + x*x))) with the sign of x; log|2x| where the square is all that counts."""
    a, one = e.abs_(x), _is(x, 1)
    far = e.gt(a, _is(x, 1e8))
    near = e.select(far, one, a)
    square = e.mul(near, near)
    value = tr.log1p(e.add(near, e.div(square, e.add(one, e.sqrt(e.add(one, square))))))
    value = e.select(far, e.add(tr.log(e.select(far, a, one)), _is(x, math.log(2))), value)
    return copysign(value, x)


def _far(x: Any, y: Any) -> Any:
    limit = np.finfo(x.dtype).max / 8
    return e.or_(e.gt(e.abs_(x), _is(x, limit)), e.gt(e.abs_(y), _is(x, limit)))


def _log_twice(x: Any, y: Any) -> Any:
    """log|2z| without overflow."""
    return e.add(log_hypot(x, y), _is(x, math.log(2)))


def _asinh_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """Kahan (1987), in the first quadrant: with r = sqrt(1 - iz), s = sqrt(1 + iz)."""
    a, b, one = e.abs_(x), e.abs_(y), _is(x, 1)
    far = _far(x, y)
    near_a, near_b = e.select(far, one, a), e.select(far, one, b)
    r, ri = _sqrt_parts(e.add(one, near_b), e.neg(near_a))
    s, si = _sqrt_parts(e.sub(one, near_b), near_a)
    u = _real_asinh(e.sub(e.mul(r, si), e.mul(s, ri)))
    v = tr.atan2(near_b, e.sub(e.mul(r, s), e.mul(ri, si)))
    u, v = e.select(far, _log_twice(a, b), u), e.select(far, tr.atan2(b, a), v)
    return copysign(u, x), e.select(e.eq(y, _is(y, 0)), y, copysign(v, y))


def _acosh_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """Kahan (1987): with r = sqrt(z - 1), s = sqrt(z + 1)."""
    one, far = _is(x, 1), _far(x, y)
    near_x, near_y = e.select(far, one, x), e.select(far, one, y)
    r, ri = _sqrt_parts(e.sub(near_x, one), near_y)
    s, si = _sqrt_parts(e.add(near_x, one), near_y)
    u = _real_asinh(e.add(e.mul(r, s), e.mul(ri, si)))
    v = e.mul(_is(x, 2), tr.atan2(ri, s))
    v = e.select(e.and_(e.eq(x, _is(x, 0)), e.ne(y, y)), _is(x, math.pi / 2), e.select(far, tr.atan2(y, x), v))
    return e.select(far, _log_twice(x, y), u), v


def _acos_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """Kahan (1987): with r = sqrt(1 - z), s = sqrt(1 + z)."""
    one, far = _is(x, 1), _far(x, y)
    near_x, near_y = e.select(far, one, x), e.select(far, one, y)
    r, ri = _sqrt_parts(e.sub(one, near_x), e.neg(near_y))
    s, si = _sqrt_parts(e.add(one, near_x), near_y)
    u = e.mul(_is(x, 2), tr.atan2(r, s))
    v = _real_asinh(e.sub(e.mul(s, ri), e.mul(si, r)))
    u, v = e.select(far, tr.atan2(e.abs_(y), x), u), e.select(far, _log_twice(x, y), v)
    straight = e.and_(e.eq(x, _is(x, 0)), e.ne(y, y))
    return e.select(straight, _is(x, math.pi / 2), u), copysign(v, e.neg(y))


def _atanh_parts(x: Any, y: Any) -> tuple[Any, Any]:
    """Kahan (1987), in the first quadrant: log1p(4x / ((1-x)**2 + y*y))/4 and the half of an angle."""
    a, b, one, zero = e.abs_(x), e.abs_(y), _is(x, 1), _is(x, 0)
    size = np.finfo(x.dtype)
    limit, least = math.sqrt(size.max) / 4, math.sqrt(size.tiny)
    far = e.or_(e.gt(a, _is(x, limit)), e.gt(b, _is(x, limit)))
    pole = e.and_(e.eq(a, one), e.lt(b, _is(x, least)))
    near_a, near_b = e.select(e.or_(far, pole), zero, a), e.select(e.or_(far, pole), zero, b)
    rest = e.sub(one, near_a)
    under = e.add(e.mul(rest, rest), e.mul(near_b, near_b))
    u = e.mul(tr.log1p(e.div(e.mul(_is(x, 4), near_a), under)), _is(x, 0.25))
    angle = tr.atan2(e.mul(_is(x, 2), near_b), e.sub(e.mul(rest, e.add(one, near_a)), e.mul(near_b, near_b)))
    v = e.mul(angle, _is(x, 0.5))
    half_h = hypot(e.mul(a, _is(x, 0.5)), e.mul(b, _is(x, 0.5)))
    u_far = e.div(e.div(e.mul(a, _is(x, 0.25)), half_h), half_h)
    u_far = e.select(e.eq(half_h, _is(x, math.inf)), zero, u_far)
    right = e.and_(e.ne(a, a), e.eq(b, _is(x, math.inf)))
    u_pole = e.sub(_is(x, math.log(2) / 2), e.mul(_is(x, 0.5), tr.log(b)))
    v_pole = e.mul(_is(x, 0.5), e.sub(_is(x, math.pi), tr.atan2(_is(x, 2), b)))
    v_pole = e.select(e.eq(b, zero), zero, v_pole)
    v_far = e.select(e.or_(e.eq(b, b), right), _is(x, math.pi / 2), b)
    u = e.select(far, u_far, e.select(pole, u_pole, u))
    v = e.select(far, v_far, e.select(pole, v_pole, v))
    u = e.select(e.eq(x, zero), x, copysign(u, x))
    return u, e.select(e.and_(e.eq(y, zero), e.le(a, one)), y, copysign(v, y))


def _inverse(name: str, forward: str, slope: Callable[[Any, Any], Any], backward: str) -> Primitive:
    return elementwise(
        name, None, Doc(forward, backward, e.DLMF.format("4.37")), partials=(slope,), operands="c",
        cheap=False,
    )  # fmt: skip


def _root_of(a: Any, b: Any) -> Any:
    """sqrt(a) sqrt(b), on the branch that their product's root may miss."""
    return e.mul(e.sqrt(a), e.sqrt(b))


asinh = _inverse(
    "asinh",
    "inverse hyperbolic sine (complex)",
    lambda w, z: e.reciprocal(e.sqrt(e.add(e.ones_like(z), e.mul(z, z)))),
    "g/sqrt(1 + z*z)",
)
acosh = _inverse(
    "acosh",
    "inverse hyperbolic cosine (complex)",
    lambda w, z: e.reciprocal(_root_of(e.sub(z, e.ones_like(z)), e.add(z, e.ones_like(z)))),
    "g/(sqrt(z-1) sqrt(z+1))",
)
atanh = _inverse(
    "atanh",
    "inverse hyperbolic tangent (complex)",
    lambda w, z: e.reciprocal(e.mul(e.sub(e.ones_like(z), z), e.add(e.ones_like(z), z))),
    "g/((1-z)(1+z))",
)


by_parts(asinh)(_of_parts(_asinh_parts))
by_parts(acosh)(_of_parts(_acosh_parts))
by_parts(atanh)(_of_parts(_atanh_parts))
by_parts(tr.acos)(_of_parts(_acos_parts))
by_parts(tr.asin)(_swapped(_asinh_parts))
by_parts(tr.atan)(_swapped(_atanh_parts))
