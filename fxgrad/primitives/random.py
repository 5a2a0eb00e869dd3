"""Random bits and draws: functions of a key, a counter and parameters, the same wherever and however often they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval
from fxgrad.primitives.base import Doc, Primitive, batch_elementwise, elementwise, elementwise_shape, register, type_error
from fxgrad.primitives.elementwise import lin_mul
from fxgrad.primitives.special import no_slope

__all__ = [
    "binomial_draw",
    "bounded_draw",
    "gamma_draw",
    "gamma_draw_slope",
    "normal_of_bits",
    "poisson_draw",
    "threefry2x32",
    "unit_of_bits",
]

_U32, _U64, _I64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_SALMON = "Salmon et al., SC 2011"


def _constant(name: str, typ: Callable[..., list[Aval]], body: Callable, doc: Doc) -> Primitive:
    """An elementwise operation on operands of several dtypes, without a derivative."""
    prim = Primitive(
        name,
        "map",
        typ,
        doc,
        jvp=lambda primals, tangents, **params: ([prim(*primals, **params)], [None]),
        batch=batch_elementwise(lambda: prim),
        body=body,
        cheap=False,
    )
    return register(prim)


def _words(name: str, avals: Sequence[Aval], count: int) -> None:
    if any(a.dtype != _U32 for a in avals[:count]):
        raise type_error(name, avals, f"Its first {count} operands are words of key and counter, uint32.")


def _threefry_typ(*avals: Aval, take: str) -> list[Aval]:
    _words("threefry2x32", avals, 4)
    return [Aval(elementwise_shape("threefry2x32", avals), _U64 if take == "both" else _U32)]


def _threefry_body(k: Any, *words: Any, take: str) -> Any:
    x, y = k.threefry2x32(*words)
    if take == "both":
        return (k.convert(x, _U64) << 32) | k.convert(y, _U64)
    return x ^ y if take == "xor" else x if take == "first" else y


threefry2x32 = _constant(
    "threefry2x32",
    _threefry_typ,
    _threefry_body,
    Doc("block (c0, c1) of the stream of the key (k0, k1): one word, both, or their exclusive or", "none (integers)", _SALMON),
)


def _of_bits_typ(name: str) -> Callable[..., list[Aval]]:
    def typ(bits: Aval) -> list[Aval]:
        if bits.dtype not in (_U32, _U64):
            raise type_error(name, (bits,), "It takes random bits, uint32 or uint64.")
        return [bits.with_dtype(_F32 if bits.dtype == _U32 else _F64)]

    return typ


unit_of_bits = _constant(
    "unit_of_bits",
    _of_bits_typ("unit_of_bits"),
    lambda k, n: k.unit_of_bits(n),
    Doc("(n + 1/2)/2**32 of uint32 as float32, (n + 1/2)/2**64 of uint64 as float64", "none (integers)", "inversion"),
)
normal_of_bits = _constant(
    "normal_of_bits",
    _of_bits_typ("normal_of_bits"),
    lambda k, n: k.normal_of_bits(n),
    Doc("standard normal number from random bits, by inversion", "none (integers)", "inversion"),
)


def _bounded_typ(*avals: Aval) -> list[Aval]:
    _words("bounded_draw", avals, 3)
    if len(avals) != 4 or avals[3].dtype not in (_U32, _U64):
        raise type_error("bounded_draw", avals, "The number of integers to choose from is uint32 or uint64.")
    return [Aval(elementwise_shape("bounded_draw", avals), avals[3].dtype)]


bounded_draw = _constant(
    "bounded_draw",
    _bounded_typ,
    lambda k, *xs: k.bounded_draw(*xs),
    Doc("integer below n, all as likely", "none (integers)", "Lemire, 2019; rejection"),
)


def _counts_typ(name: str, parameters: int) -> Callable[..., list[Aval]]:
    def typ(*avals: Aval) -> list[Aval]:
        _words(name, avals, 3)
        if len(avals) != 3 + parameters or any(a.dtype != _F64 for a in avals[3:]):
            raise type_error(name, avals, "Its parameters are float64.")
        return [Aval(elementwise_shape(name, avals), _I64)]

    return typ


poisson_draw = _constant(
    "poisson_draw",
    _counts_typ("poisson_draw", 1),
    lambda k, *xs: k.poisson_draw(*xs),
    Doc("count of the Poisson distribution", "none (integers)", "Hoermann, 1993"),
)
binomial_draw = _constant(
    "binomial_draw",
    _counts_typ("binomial_draw", 2),
    lambda k, *xs: k.binomial_draw(*xs),
    Doc("successes among n trials", "none (integers)", "Hoermann, 1993"),
)

_second = no_slope("a draw of the gamma distribution, twice by its shape,")
gamma_draw_slope = elementwise(
    "gamma_draw_slope",
    lambda k, a, x: k.gamma_draw_slope(a, x),
    Doc("dx/da of a draw x of the gamma distribution", "raises", "Figurnov, Mohamed and Mnih, 2018"),
    partials=(_second, _second),
    cheap=False,
)


def _gamma_typ(*avals: Aval) -> list[Aval]:
    _words("gamma_draw", avals, 3)
    if len(avals) != 4 or avals[3].dtype not in (_F32, _F64):
        raise type_error("gamma_draw", avals, "The shape parameter is float32 or float64.")
    return [Aval(elementwise_shape("gamma_draw", avals), avals[3].dtype)]


def _gamma_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    x = gamma_draw(*primals)
    t = tangents[3]
    return [x], [None if t is None else lin_mul(t, gamma_draw_slope(primals[3], x))]


gamma_draw = register(
    Primitive(
        "gamma_draw",
        "map",
        _gamma_typ,
        Doc(
            "draw of the gamma distribution, shape a >= 1", "g*dx/da at constant probability", "Figurnov, Mohamed and Mnih, 2018"
        ),
        jvp=_gamma_jvp,
        batch=batch_elementwise(lambda: gamma_draw),
        body=lambda k, *xs: k.gamma_draw(*xs),
        cheap=False,
    )
)
