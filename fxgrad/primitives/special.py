"""Special functions whose values or slopes need a rule of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxgrad import errors
from fxgrad.primitives.base import Doc, Primitive, elementwise
from fxgrad.primitives.elementwise import DLMF, abs_, add, div, eq, mul, neg, select, sign, sub
from fxgrad.primitives.transcendental import exp, log, log1p


def _times_log(
    name: str, kernel: str, log_: Callable[[Any], Any], slope: Callable[[Any, Any], Any], forward: str, backward: str
) -> Primitive:
    """x*log(y) with the value 0 where x = 0, unless y is NaN; the slope by x is the logarithm there too."""

    def body(k: Any, x: Any, y: Any) -> Any:
        zero = k.constant(x, 0)
        return k.select((x == zero) & (y == y), zero, x * getattr(k, kernel)(y))

    return elementwise(
        name,
        body,
        Doc(forward, backward, DLMF.format("4.7.i")),
        partials=(lambda z, x, y: log_(y), lambda z, x, y: _zero_with(x, slope(x, y))),
        cheap=False,
    )


def _zero_with(x: Any, value: Any) -> Any:
    """value, and 0 where x = 0."""
    zero = x.dtype.type(0)
    return select(eq(x, zero), zero, value)


xlogy = _times_log("xlogy", "log", lambda y: log(y), lambda x, y: div(x, y), "x*log(y); 0 where x = 0", "g*log(y), g*x/y")
xlog1py = _times_log(
    "xlog1py",
    "log1p",
    lambda y: log1p(y),
    lambda x, y: div(x, add(y, y.dtype.type(1))),
    "x*log(1 + y); 0 where x = 0",
    "g*log1p(y), g*x/(1 + y)",
)


# ---- hypot ---------------------------------------------------------------------------------------------------------------

# magnitudes above the first bound and below the third are multiplied by the powers of two beside them
_SCALES = {4: (2.0**60, 2.0**-70, 2.0**-40, 2.0**100), 8: (2.0**500, 2.0**-600, 2.0**-400, 2.0**700)}


def _hypot(k: Any, x: Any, y: Any) -> Any:
    """The root of the sum of squares in a safe range, corrected by its residual (Borges, 2019, fused); inf beats NaN."""
    a, b = k.absolute(x), k.absolute(y)
    large, small = k.maximum(a, b), k.minimum(a, b)
    high, down, low, up = _SCALES[x.dtype.itemsize]

    def scale(of_high: float, of_low: float) -> Any:
        rest = k.select(large < low, k.constant(x, of_low), k.constant(x, 1))
        return k.select(large > high, k.constant(x, of_high), rest)

    factor = scale(down, up)
    u, v = large * factor, small * factor
    h = k.sqrt(k.fma(u, u, v * v))
    h_square, u_square = h * h, u * u
    residual = k.fma(-v, v, h_square - u_square) + k.fma(h, h, -h_square) - k.fma(u, u, -u_square)
    h = k.select(large == 0, large, h - residual / (h + h)) * scale(1 / down, 1 / up)
    inf = k.constant(x, float("inf"))
    return k.select((a == inf) | (b == inf), inf, h)


def _hypot_slope(h: Any, x: Any) -> Any:
    """x / h; 0 at the origin and the sign of an infinite x."""
    safe = select(eq(h, h.dtype.type(0)), h.dtype.type(1), h)
    return select(eq(abs_(x), x.dtype.type(float("inf"))), sign(x), div(x, safe))


hypot = elementwise(
    "hypot",
    _hypot,
    Doc("sqrt(x*x + y*y) without overflow; inf beats NaN", "g*x/z, g*y/z; 0 at the origin", "chain rule on sqrt"),
    partials=(lambda z, x, y: _hypot_slope(z, x), lambda z, x, y: _hypot_slope(z, y)),
    cheap=False,
)


# ---- inverses of error functions ---------------------------------------------------------------------------------------------


def _constant(x: Any, value: float) -> Any:
    return x.dtype.type(value)


def _inverse(name: str, forward: str, backward: str, factor: float, scale: float) -> Primitive:
    """An inverse y(x) whose slope is factor*exp(scale*y*y)."""
    return elementwise(
        name,
        lambda k, x: getattr(k, name)(x),
        Doc(forward, backward, "inverse of erf' (DLMF 7.2.E1)"),
        partials=(lambda y, x: mul(_constant(y, factor), exp(mul(_constant(y, scale), mul(y, y)))),),
        cheap=False,
    )


_HALF_ROOT_PI = math.sqrt(math.pi) / 2
erfinv = _inverse("erfinv", "the y with erf(y) = x", "g*(sqrt(pi)/2)*exp(y*y)", _HALF_ROOT_PI, 1.0)
erfcinv = _inverse("erfcinv", "the y with erfc(y) = x", "-g*(sqrt(pi)/2)*exp(y*y)", -_HALF_ROOT_PI, 1.0)
ndtri = _inverse("ndtri", "normal quantile", "g*sqrt(2*pi)*exp(y*y/2)", math.sqrt(2 * math.pi), 0.5)

erfcx = elementwise(
    "erfcx",
    lambda k, x: k.erfcx(x),
    Doc("exp(x*x)*erfc(x)", "g*(2*x*y - 2/sqrt(pi))", DLMF.format("7.2")),
    partials=(lambda y, x: sub(mul(_constant(x, 2), mul(x, y)), _constant(x, 2 / math.sqrt(math.pi))),),
    cheap=False,
)
ndtr = elementwise(
    "ndtr",
    lambda k, x: k.ndtr(x),
    Doc("normal distribution function", "g*exp(-x*x/2)/sqrt(2*pi)", DLMF.format("7.2")),
    partials=(lambda y, x: mul(_constant(x, 1 / math.sqrt(2 * math.pi)), exp(mul(_constant(x, -0.5), mul(x, x)))),),
    cheap=False,
)
log_ndtr = elementwise(
    "log_ndtr",
    lambda k, x: k.log_ndtr(x),
    Doc("logarithm of the normal distribution function", "g*sqrt(2/pi)/erfcx(-x/sqrt(2))", DLMF.format("7.2")),
    partials=(lambda y, x: div(_constant(x, math.sqrt(2 / math.pi)), erfcx(mul(_constant(x, -math.sqrt(0.5)), x))),),
    cheap=False,
)

# ---- gamma -------------------------------------------------------------------------------------------------------------------


def no_slope(what: str) -> Callable[..., Any]:
    """The partial derivative that is not there: an error, where None would stand for zero."""

    def partial(*values: Any, **params: Any) -> Any:
        raise errors.NonDifferentiableError(
            f"the derivative of {what} has no rule",
            why="It is no closed form, and a derivative that is not known must not pass for zero.",
            fix="Hold that argument fixed with fx.stop_gradient(a), or difference it: (f(a + h) - f(a - h)) / (2 * h).",
        )

    return partial


lgamma = elementwise(
    "lgamma",
    lambda k, x: k.lgamma(x),
    Doc("log|gamma(x)|", "g*digamma(x)", DLMF.format("5.2.E2")),
    partials=(lambda y, x: digamma(x),),
    cheap=False,
)
gamma = elementwise(
    "gamma",
    lambda k, x: k.gamma(x),
    Doc("gamma function", "g*y*digamma(x)", DLMF.format("5.2.E2")),
    partials=(lambda y, x: mul(y, digamma(x)),),
    cheap=False,
)
digamma = elementwise(
    "digamma",
    lambda k, x: k.digamma(x),
    Doc("logarithmic derivative of gamma", "g*polygamma(1, x)", DLMF.format("5.15")),
    partials=(lambda y, x: polygamma(x, n=1),),
    cheap=False,
)
polygamma = elementwise(
    "polygamma",
    lambda k, x, *, n: k.polygamma(x, n),
    Doc("n-th derivative of digamma, n >= 1 fixed", "g*polygamma(n + 1, x)", DLMF.format("5.15")),
    partials=(lambda y, x, *, n: polygamma(x, n=n + 1),),
    cheap=False,
)

gamma_density = elementwise(
    "gamma_density",
    lambda k, a, x: k.gamma_density(a, x),
    Doc("x**(a-1)*exp(-x)/gamma(a)", "g*y*(log(x) - digamma(a)), g*y*((a - 1)/x - 1)", DLMF.format("8.2")),
    partials=(lambda y, a, x: mul(y, sub(log(x), digamma(a))), lambda y, a, x: mul(y, _gamma_score(a, x))),
    cheap=False,
)


def _gamma_score(a: Any, x: Any) -> Any:
    one = _constant(x, 1)
    return sub(div(sub(a, one), x), one)


_twice = no_slope("an incomplete gamma function, twice by its first argument,")
gammainc_slope = elementwise(
    "gammainc_slope",
    lambda k, a, x: k.gammainc_slope(a, x),
    Doc("derivative of gammainc(a, x) by a", "raises; g*density*(log(x) - digamma(a))", "termwise, DLMF 8.7.E1 and 8.9.E2"),
    partials=(_twice, lambda y, a, x: mul(gamma_density(a, x), sub(log(x), digamma(a)))),
    cheap=False,
)
gammainc = elementwise(
    "gammainc",
    lambda k, a, x: k.gammainc(a, x),
    Doc("regularised lower incomplete gamma function", "g*gammainc_slope, g*density", DLMF.format("8.2")),
    partials=(lambda y, a, x: gammainc_slope(a, x), lambda y, a, x: gamma_density(a, x)),
    cheap=False,
)
gammaincc = elementwise(
    "gammaincc",
    lambda k, a, x: k.gammaincc(a, x),
    Doc("regularised upper incomplete gamma function", "-g*gammainc_slope, -g*density", DLMF.format("8.2")),
    partials=(lambda y, a, x: neg(gammainc_slope(a, x)), lambda y, a, x: neg(gamma_density(a, x))),
    cheap=False,
)

# ---- beta --------------------------------------------------------------------------------------------------------------------


def _beta_score(log_: Callable[[Any], Any], c: Any, a: Any, b: Any, x: Any) -> Any:
    return add(log_(x), sub(digamma(add(a, b)), digamma(c)))


beta_density = elementwise(
    "beta_density",
    lambda k, a, b, x: k.beta_density(a, b, x),
    Doc(
        "x**(a-1)*(1-x)**(b-1)/beta(a, b)",
        "g*y*(log(x) - digamma(a) + digamma(a+b)), the same of b and 1-x, g*y*((a-1)/x - (b-1)/(1-x))",
        DLMF.format("8.17"),
    ),
    partials=(
        lambda y, a, b, x: mul(y, _beta_score(log, a, a, b, x)),
        lambda y, a, b, x: mul(y, _beta_score(lambda t: log1p(neg(t)), b, a, b, x)),
        lambda y, a, b, x: mul(y, _beta_slope(a, b, x)),
    ),
    cheap=False,
)


def _beta_slope(a: Any, b: Any, x: Any) -> Any:
    one = _constant(x, 1)
    return sub(div(sub(a, one), x), div(sub(b, one), sub(one, x)))


betaln = elementwise(
    "betaln",
    lambda k, a, b: k.betaln(a, b),
    Doc("log|beta(a, b)|", "g*(digamma(a) - digamma(a+b)), g*(digamma(b) - digamma(a+b))", DLMF.format("5.12")),
    partials=(
        lambda y, a, b: sub(digamma(a), digamma(add(a, b))),
        lambda y, a, b: sub(digamma(b), digamma(add(a, b))),
    ),
    cheap=False,
)
_by_shape = no_slope("betainc by a shape parameter")
betainc = elementwise(
    "betainc",
    lambda k, a, b, x: k.betainc(a, b, x),
    Doc("regularised incomplete beta function", "raises; raises; g*density", DLMF.format("8.17")),
    partials=(_by_shape, _by_shape, lambda y, a, b, x: beta_density(a, b, x)),
    cheap=False,
)

# ---- modified Bessel functions -------------------------------------------------------------------------------------------------


def _over_x(y: Any, x: Any) -> Any:
    """I1(x)/x, 1/2 at 0."""
    zero = eq(x, _constant(x, 0))
    return select(zero, _constant(x, 0.5), div(y, select(zero, _constant(x, 1), x)))


def _bessel(name: str, forward: str, backward: str, slope: Callable[[Any, Any], Any]) -> Primitive:
    return elementwise(
        name,
        lambda k, x: getattr(k, name)(x),
        Doc(forward, backward, DLMF.format("10.29")),
        partials=(slope,),
        cheap=False,
    )


i0 = _bessel("i0", "modified Bessel function, order 0", "g*i1(x)", lambda y, x: i1(x))
i1 = _bessel("i1", "modified Bessel function, order 1", "g*(i0(x) - y/x)", lambda y, x: sub(i0(x), _over_x(y, x)))
i0e = _bessel("i0e", "exp(-|x|)*i0(x)", "g*(i1e(x) - sign(x)*y)", lambda y, x: sub(i1e(x), mul(sign(x), y)))
i1e = _bessel(
    "i1e",
    "exp(-|x|)*i1(x)",
    "g*(i0e(x) - y/x - sign(x)*y)",
    lambda y, x: sub(sub(i0e(x), _over_x(y, x)), mul(sign(x), y)),
)
