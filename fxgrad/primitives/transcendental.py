"""Exponentials, logarithms, powers, circular and hyperbolic functions, error functions: our own kernels, one statement each."""

from __future__ import annotations

from typing import Any

from fxgrad.primitives.base import Doc, elementwise
from fxgrad.primitives.elementwise import (
    DLMF,
    abs_,
    add,
    and_,
    div,
    eq,
    ge,
    maximum,
    mul,
    neg,
    ones_like,
    reciprocal,
    select,
    sqrt,
    sub,
)


def _pow_by_x(z: Any, x: Any, y: Any) -> Any:
    """y * x**(y-1), and 0 where y = 0, so that x**0 has slope 0 also at x = 0."""
    zero, one = eq(y, y.dtype.type(0)), z.dtype.type(1)
    return select(zero, z.dtype.type(0), mul(y, pow(x, select(zero, one, sub(y, one)))))


def _pow_by_y(z: Any, x: Any, y: Any) -> Any:
    """z * log(x), and 0 where x = 0 and y >= 0 (the function is constant there)."""
    none, one = z.dtype.type(0), z.dtype.type(1)
    flat = eq(x, none) if x.dtype.kind == "c" else and_(eq(x, none), ge(y, none))
    return select(flat, none, mul(z, log(select(flat, one, x))))


pow = elementwise(
    "pow",
    lambda k, x, y: k.pow(x, y),
    Doc("x ** y", "g*y*x**(y-1) (0 if y = 0), g*z*log(x) (0 if x = 0 <= y)", DLMF.format("4.7.ii")),
    partials=(_pow_by_x, _pow_by_y),
    operands="fc",
    cheap=False,
)


# ---- exponentials and logarithms -------------------------------------------------------------------------------------

exp = elementwise(
    "exp",
    lambda k, x: k.exp(x),
    Doc("e**x", "g*y", DLMF.format("4.7.ii")),
    partials=(lambda y, x: y,),
    operands="fc",
    cheap=False,
)
expm1 = elementwise(
    "expm1",
    lambda k, x: k.expm1(x),
    Doc("e**x - 1", "g*exp(x)", DLMF.format("4.7.ii")),
    partials=(lambda y, x: exp(x),),
    operands="fc",
    cheap=False,
)
log = elementwise(
    "log",
    lambda k, x: k.log(x),
    Doc("natural logarithm", "g/x", DLMF.format("4.7.i")),
    partials=(lambda y, x: reciprocal(x),),
    operands="fc",
    cheap=False,
)
log1p = elementwise(
    "log1p",
    lambda k, x: k.log1p(x),
    Doc("log(1 + x)", "g/(1 + x)", DLMF.format("4.7.i")),
    partials=(lambda y, x: reciprocal(add(x, ones_like(x))),),
    operands="fc",
    cheap=False,
)
rsqrt = elementwise(
    "rsqrt",
    lambda k, x: k.rsqrt(x),
    Doc("1/sqrt(x)", "-g*y/(2*x)", DLMF.format("4.7.ii")),
    partials=(lambda y, x: div(mul(y.dtype.type(-0.5), y), x),),
    cheap=False,
)
cbrt = elementwise(
    "cbrt",
    lambda k, x: k.cbrt(x),
    Doc("cube root", "g/(3*y*y); inf at 0", DLMF.format("4.7.ii")),
    partials=(lambda y, x: reciprocal(mul(y.dtype.type(3), mul(y, y))),),
    cheap=False,
)
logistic = elementwise(
    "logistic",
    lambda k, x: k.logistic(x),
    Doc("1/(1 + exp(-x))", "g*y*logistic(-x)", "y' = y*(1 - y), 1 - y = logistic(-x)"),
    partials=(lambda y, x: mul(y, logistic(neg(x))),),
    cheap=False,
)


# ---- trigonometric and hyperbolic ------------------------------------------------------------------------------------

sin = elementwise(
    "sin",
    lambda k, x: k.sin(x),
    Doc("sine", "g*cos(x)", DLMF.format("4.20.E1")),
    partials=(lambda y, x: cos(x),),
    operands="fc",
    cheap=False,
)
cos = elementwise(
    "cos",
    lambda k, x: k.cos(x),
    Doc("cosine", "-g*sin(x)", DLMF.format("4.20.E2")),
    partials=(lambda y, x: neg(sin(x)),),
    operands="fc",
    cheap=False,
)
tan = elementwise(
    "tan",
    lambda k, x: k.tan(x),
    Doc("tangent", "g*(1 + y*y)", DLMF.format("4.20.E3")),
    partials=(lambda y, x: add(ones_like(y), mul(y, y)),),
    operands="fc",
    cheap=False,
)
asin = elementwise(
    "asin",
    lambda k, x: k.asin(x),
    Doc("arc sine", "g/sqrt((1-x)(1+x))", DLMF.format("4.24.E7")),
    partials=(lambda y, x: reciprocal(_circle(x)),),
    operands="fc",
    cheap=False,
)
acos = elementwise(
    "acos",
    lambda k, x: k.acos(x),
    Doc("arc cosine", "-g/sqrt((1-x)(1+x))", DLMF.format("4.24.E8")),
    partials=(lambda y, x: neg(reciprocal(_circle(x))),),
    operands="fc",
    cheap=False,
)


def _circle(x: Any) -> Any:
    one = ones_like(x)
    return sqrt(mul(sub(one, x), add(one, x)))


atan = elementwise(
    "atan",
    lambda k, x: k.atan(x),
    Doc("arc tangent", "g/(1 + x*x)", DLMF.format("4.24.E9")),
    partials=(lambda y, x: reciprocal(add(ones_like(x), mul(x, x))),),
    operands="fc",
    cheap=False,
)
atan2 = elementwise(
    "atan2",
    lambda k, y, x: k.atan2(y, x),
    Doc("angle of the point (x, y)", "g*x/(x*x + y*y), -g*y/(x*x + y*y); 0 at the origin and infinity", DLMF.format("4.24.E9")),
    partials=(lambda z, y, x: _over_square(x, x, y), lambda z, y, x: neg(_over_square(y, x, y))),
    cheap=False,
)


def _over_square(a: Any, x: Any, y: Any) -> Any:
    """a / (x*x + y*y), scaled so that squares cannot overflow; 0 at the origin and at infinity."""
    scale = maximum(abs_(x), abs_(y))
    zero, one = scale.dtype.type(0), scale.dtype.type(1)
    far = eq(scale, scale.dtype.type(float("inf")))
    safe = select(scale == 0, one, scale)
    u, v = div(x, safe), div(y, safe)
    square = select(scale == 0, one, add(mul(u, u), mul(v, v)))
    return select(far, zero, div(div(div(a, safe), square), safe))


sinh = elementwise(
    "sinh",
    lambda k, x: k.sinh(x),
    Doc("hyperbolic sine", "g*cosh(x)", DLMF.format("4.34.E1")),
    partials=(lambda y, x: cosh(x),),
    operands="fc",
    cheap=False,
)
cosh = elementwise(
    "cosh",
    lambda k, x: k.cosh(x),
    Doc("hyperbolic cosine", "g*sinh(x)", DLMF.format("4.34.E2")),
    partials=(lambda y, x: sinh(x),),
    operands="fc",
    cheap=False,
)
tanh = elementwise(
    "tanh",
    lambda k, x: k.tanh(x),
    Doc("hyperbolic tangent", "g*(1-y)*(1+y)", DLMF.format("4.34.E3")),
    partials=(lambda y, x: mul(sub(ones_like(y), y), add(ones_like(y), y)),),
    operands="fc",
    cheap=False,
)

TWO_OVER_SQRT_PI = 1.1283791670955126
erf = elementwise(
    "erf",
    lambda k, x: k.erf(x),
    Doc("error function", "g*(2/sqrt(pi))*exp(-x*x)", DLMF.format("7.2.E1")),
    partials=(lambda y, x: _bell(x, 1),),
    cheap=False,
)
erfc = elementwise(
    "erfc",
    lambda k, x: k.erfc(x),
    Doc("1 - erf(x)", "-g*(2/sqrt(pi))*exp(-x*x)", DLMF.format("7.2.E2")),
    partials=(lambda y, x: _bell(x, -1),),
    cheap=False,
)


def _bell(x: Any, factor: int) -> Any:
    return mul(x.dtype.type(factor * TWO_OVER_SQRT_PI), exp(neg(mul(x, x))))
