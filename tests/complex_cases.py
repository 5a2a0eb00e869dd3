"""Complex operations as functions of their real and imaginary parts, for the shared table of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.primitives import complex as cx
from fxgrad.primitives import complex_functions as cf
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r

PAIRS = [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((0,), (0,)), ((17,), (17,))]
DOMAIN = (0.3, 1.4), (-1.2, -0.4)


def entries() -> list[tuple[str, Callable[..., Any], Callable[..., Any], dict[str, Any]]]:
    """(name, function of a complex array, the same in NumPy, options of the case)."""
    plain = {
        "exp": 8, "expm1": 8, "log": 8, "log1p": 8, "log2": 8, "log10": 8, "sqrt": 8, "sin": 8, "cos": 8, "tan": 16, "sinh": 8,
        "cosh": 8, "tanh": 16, "arcsin": 16, "arccos": 16, "arctan": 16, "arcsinh": 16, "arccosh": 16, "arctanh": 16,
        "square": 4, "reciprocal": 8, "negative": 4, "conjugate": 4,
    }  # fmt: skip
    found: list[Any] = [(n, getattr(fnp, n), getattr(np, n), {"rtol": v}) for n, v in plain.items()]
    found += [
        ("abs", lambda z: lax.complex(fnp.abs(z), fnp.abs(z)), lambda z: np.abs(z) * (1 + 1j), {"rtol": 8}),
        ("angle", lambda z: fnp.multiply(fnp.angle(z), 1j), lambda z: np.angle(z) * 1j, {"rtol": 8}),
        ("sign", fnp.sign, lambda z: z / np.abs(z), {"rtol": 8}),
        ("mul", lambda z: fnp.multiply(z, z + 2j), lambda z: z * (z + 2j), {"rtol": 16}),
        ("div", lambda z: fnp.divide(z + 1j, z), lambda z: (z + 1j) / z, {"rtol": 16}),
        ("add_sub", lambda z: fnp.subtract(2.0 + z, z), lambda z: 2.0 + z - z, {"rtol": 8}),
        ("pow", lambda z: fnp.power(z, z), lambda z: np.power(z, z), {"rtol": 64}),
        ("integer_pow", lambda z: fnp.power(z, 5), lambda z: z**5, {"rtol": 64}),
        ("lin_mul", lambda z: e.lin_mul(z, fnp.sin(z)), lambda z: z * np.sin(z), {"rtol": 32}),
        ("lin_div", lambda z: e.lin_div(z, fnp.sin(z)), lambda z: z / np.sin(z), {"rtol": 32}),
        ("where", lambda z: fnp.where(z.real > 0.8, z, fnp.square(z)), lambda z: np.where(z.real > 0.8, z, z * z), {"rtol": 8}),
        ("copysign", _with_size, lambda z: np.abs(z.real) * z, {"rtol": 8}),
        ("sum", lambda z: fnp.sum(z), lambda z: np.sum(z), {"rtol": 32}),
        ("prod", lambda z: fnp.prod(z), lambda z: np.prod(z), {"rtol": 64}),
        ("mean", lambda z: fnp.mean(fnp.square(z)), lambda z: np.mean(z * z), {"rtol": 64, "shapes": PAIRS[:3]}),
        ("var", _spreads(fnp, lax.complex), _spreads(np, _join), {"rtol": 64, "shapes": PAIRS[1:3]}),
        ("cumsum", lambda z: fnp.cumsum(z), lambda z: np.cumsum(z), {"rtol": 64}),
        ("cumprod", lambda z: fnp.cumprod(z), lambda z: np.cumprod(z), {"rtol": 64}),
        ("matmul", lambda z: fnp.matmul(z, fnp.conj(z).T), lambda z: z @ np.conj(z).T, {"rtol": 32, "shapes": PAIRS[1:3]}),
        ("moves", _moves(fnp), _moves(np), {"rtol": 8, "shapes": PAIRS[1:3]}),
        ("log_hypot", lambda z: _with_parts(cf.log_hypot, z), lambda z: np.log(np.abs(z)) * z, {"rtol": 16}),
        ("log1p_hypot", lambda z: _with_parts(cf.log1p_hypot, z), lambda z: np.log(np.abs(1 + z)) * z, {"rtol": 16}),
        ("gather", lambda z: z[np.array([0, -1, 0])], lambda z: z[np.array([0, -1, 0])], {"shapes": PAIRS[1:3]}),
        ("fft", lambda z: fnp.fft.fft(z), lambda z: np.fft.fft(z), {"rtol": 64, "shapes": PAIRS[1:3]}),
        ("ifft", lambda z: fnp.fft.ifft(z, 4, 0), lambda z: np.fft.ifft(z, 4, 0), {"rtol": 64, "shapes": PAIRS[1:3]}),
        ("rfft", lambda z: fnp.fft.rfft(lax.real(z)), lambda z: np.fft.rfft(z.real), {"rtol": 64, "shapes": PAIRS[1:3]}),
        ("irfft", lambda z: fnp.fft.irfft(z, 4) + 0j, lambda z: np.fft.irfft(z, 4) + 0j, {"rtol": 64, "shapes": PAIRS[1:3]}),
        (
            "linear_recurrence",
            lambda z: r.linear_recurrence(z, z * 0.5, axis=z.ndim - 1, reverse=False),
            lambda z: _recurrence(z, z * 0.5),
            {"rtol": 64, "shapes": PAIRS[1:3]},
        ),
    ]  # fmt: skip
    return [(f"complex_{name}", _joined(f, fnp, lax.complex), _joined(g, np, _join), o) for name, f, g, o in found]


def _with_parts(prim: Callable[..., Any], z: Any) -> Any:
    return fnp.multiply(prim(lax.real(z), lax.imag(z)), z)


def _with_size(z: Any) -> Any:
    return fnp.multiply(fnp.abs(cx.copysign(lax.real(z), lax.imag(z))), z)


def _spreads(np_: Any, join: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda z: join(np_.var(z), np_.std(np_.square(z)))


def _moves(np_: Any) -> Callable[[Any], Any]:
    def f(z: Any) -> Any:
        wide = np_.concatenate([np_.flip(z, 0), np_.square(z)], axis=0)
        return np_.pad(np_.reshape(wide, (-1,))[1::2], 2, constant_values=2j) + 1j

    return f


def _recurrence(b: np.ndarray, a: np.ndarray) -> np.ndarray:
    out, h = np.empty_like(b), np.zeros_like(b[..., 0])
    for i in range(b.shape[-1]):
        h = a[..., i] * h + b[..., i]
        out[..., i] = h
    return out


def _join(x: Any, y: Any) -> Any:
    return x + 1j * y


def _joined(f: Callable[..., Any], np_: Any, join: Callable[..., Any]) -> Callable[..., Any]:
    """Re f(x + iy) + Im f(x + iy) / 2."""

    def function(x: Any, y: Any) -> Any:
        w = f(join(x, y))
        return np_.real(w) + np_.imag(w) * 0.5

    return function
