"""Special functions whose values or slopes need a rule of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.primitives.base import Doc, Primitive, elementwise
from fxgrad.primitives.elementwise import DLMF, abs_, add, div, eq, select, sign
from fxgrad.primitives.transcendental import log, log1p


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
