"""Special functions whose values or slopes need a rule of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.primitives.base import Doc, Primitive, elementwise
from fxgrad.primitives.elementwise import DLMF, add, div, select
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
    from fxgrad.primitives.elementwise import eq

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
