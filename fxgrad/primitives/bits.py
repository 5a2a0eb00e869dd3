"""Floats taken apart and put together, and divisors of integers: exact operations that NumPy computes, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Primitive, batch_elementwise, elementwise_shape, register, type_error
from fxgrad.primitives.elementwise import neg
from fxgrad.primitives.shape import broadcast

_INT32 = np.dtype(np.int32)


def _typ(name: str, kinds: str, result: np.dtype | None = None) -> Callable[..., list[Aval]]:
    """Operands of one dtype of these kinds; the result has it too, unless another is given."""

    def typ(*avals: Aval) -> list[Aval]:
        dtype = avals[0].dtype
        if dtype.kind not in kinds or any(a.dtype != dtype for a in avals):
            raise type_error(name, avals, f"It takes operands of one dtype, of kind {' '.join(kinds)}.")
        return [Aval(elementwise_shape(name, avals), result or dtype)]

    return typ


def _exact(
    name: str, numpy: Callable[..., Any], typ: Callable[..., list[Aval]], doc: Doc, jvp: Callable | None = None, **fields: Any
) -> Primitive:
    """Declare an elementwise operation of NumPy; without a jvp its derivative is 0 wherever it exists."""

    def constant(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        return [prim(*primals)], [None]

    prim = Primitive(name, "host", typ, doc, jvp=jvp or constant, batch=batch_elementwise(lambda: prim), numpy=numpy, **fields)
    return register(prim)


def _spread(t: Any, shape: tuple[int, ...]) -> Any:
    """The tangent of an operand in the result's shape, which a scalar operand need not have."""
    return t if aval_of(t).shape == shape else broadcast(t, shape=shape, dims=())


def _nextafter_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    y = nextafter(*primals)
    return [y], [None if tangents[0] is None else _spread(tangents[0], aval_of(y).shape)]


nextafter = _exact(
    "nextafter", np.nextafter, _typ("nextafter", "f"), Doc("the float next to x on the way to y", "g; 0", "x plus a constant"),
    _nextafter_jvp,
)  # fmt: skip
spacing = _exact("spacing", np.spacing, _typ("spacing", "f"), Doc("the distance of x to the next float beyond it", "0"))
exponent = _exact(
    "exponent", lambda x: np.frexp(x)[1], _typ("exponent", "f", _INT32), Doc("the n of x = m * 2**n, 1/2 <= |m| < 1", "0")
)


def _mantissa_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    (x,), (t,) = primals, tangents
    return [mantissa(x)], [None if t is None else ldexp(t, neg(exponent(x)))]


mantissa = _exact(
    "mantissa", lambda x: np.frexp(x)[0], _typ("mantissa", "f"),
    Doc("the m of x = m * 2**n, 1/2 <= |m| < 1", "g * 2**-n", "linear for fixed n"), _mantissa_jvp,
)  # fmt: skip


def _ldexp_typ(x: Aval, n: Aval) -> list[Aval]:
    if x.dtype.kind != "f" or n.dtype.kind != "i":
        raise type_error("ldexp", (x, n), "It takes floats and integers.")
    return [Aval(elementwise_shape("ldexp", (x, n)), x.dtype)]


def _ldexp_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    y, t = ldexp(*primals), tangents[0]
    return [y], [None if t is None else ldexp(_spread(t, aval_of(y).shape), primals[1])]


def _ldexp_transpose(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
    from fxgrad.primitives.reduce import sum_

    x, n = inputs
    g = ldexp(cts[0], n)
    rank = aval_of(g).ndim
    return [sum_(g, axes=tuple(range(rank))) if rank and not x.aval.shape else g, None]  # a scalar met every element


ldexp = _exact(
    "ldexp", np.ldexp, _ldexp_typ, Doc("x * 2**n, rounded once", "g * 2**n; 0"), _ldexp_jvp, transpose=_ldexp_transpose
)  # fmt: skip
gcd = _exact("gcd", np.gcd, _typ("gcd", "iu"), Doc("the greatest common divisor", "none: integers"))
lcm = _exact("lcm", np.lcm, _typ("lcm", "iu"), Doc("the least common multiple, wrapping", "none: integers"))

__all__ = ["exponent", "gcd", "lcm", "ldexp", "mantissa", "nextafter", "spacing"]
