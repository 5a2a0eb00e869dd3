"""Window functions, and the Bessel function that one of them is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, operand, result_type, tensor

__all__ = ["bartlett", "blackman", "hamming", "hanning", "i0", "kaiser"]

# exp(-x)*sqrt(x)*I0(x) for x >= 8 as a Chebyshev series in 16/x - 1, from its values in 40 digits (mpmath) at 40 nodes
_BEYOND_8 = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06, 2.0489185894690638e-07,
    2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10, 1.1889147107846439e-11, -3.1499165279632416e-11,
    -1.3215811840447713e-11, -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
    -4.150569347287222e-14, -9.554846698828307e-15, 3.811680669352621e-15, 1.7725601330565245e-15, -3.425485619677142e-16,
    -2.827623980516646e-16, 3.461222867695658e-17, 4.465621420302078e-17, -4.8305044859640105e-18, -7.233180488043844e-18,
)  # fmt: skip
_UP_TO_8 = tuple(1 / math.factorial(k) ** 2 for k in range(30))


def _power_series(x: Any) -> Any:
    """sum (x*x/4)**k / k!**2 (DLMF 10.25.2), all terms positive; 30 are enough for x <= 8."""
    u = ew.multiply(ew.multiply(x, x), x.dtype.type(0.25))
    y: Any = x.dtype.type(_UP_TO_8[-1])
    for c in _UP_TO_8[-2::-1]:
        y = ew.add(ew.multiply(y, u), x.dtype.type(c))
    return y


def _chebyshev(t: Any) -> Any:
    """The series of _BEYOND_8 by Clenshaw's recurrence."""
    one = t.dtype.type
    later: Any = one(0)
    last: Any = one(0)
    for c in _BEYOND_8[:0:-1]:
        last, later = ew.add(ew.subtract(ew.multiply(ew.multiply(one(2), t), last), later), one(c)), last
    return ew.add(ew.subtract(ew.multiply(t, last), later), one(_BEYOND_8[0]))


def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind of order 0, as numpy.i0; any derivative.

    Source: the power series DLMF 10.25.2 up to 8, a Chebyshev series beyond.
    """
    x = tensor(x)
    if x.dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    x = x if x.dtype.kind == "f" else as_dtype(x, np.dtype(np.float64))
    large = ew.greater(ew.absolute(x), 8)
    near = _power_series(ew.where(large, 0.0, x))
    far = ew.where(large, ew.absolute(x), 8.0)
    t = ew.subtract(ew.divide(x.dtype.type(16), far), x.dtype.type(1))
    beyond = ew.divide(ew.multiply(ew.exp(far), _chebyshev(t)), ew.sqrt(far))
    return ew.where(ew.equal(x, x), ew.where(large, beyond, near), x)


def _window(name: str, shape: str, at: Callable[[np.ndarray, float], Any]) -> Callable[[Any], Any]:
    """The window function `name`: `at(n, M)` at n = 1-M, 3-M, ..., M-1."""

    def window(M: Any) -> Any:
        length = np.array([0.0, M])
        if length[1] < 1:
            return np.array([], dtype=length.dtype)
        if length[1] == 1:
            return np.ones(1, dtype=length.dtype)
        return at(np.arange(1 - length[1], length[1], 2), length[1])

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"The {name.capitalize()} window of M points, {shape}, as numpy.{name}."
    return window


def _waves(n: np.ndarray, M: float, first: float, second: float, third: float = 0.0) -> Any:
    turn = np.pi * n / (M - 1)
    y = ew.add(first, ew.multiply(second, ew.cos(turn)))
    return ew.add(y, ew.multiply(third, ew.cos(2.0 * turn))) if third else y


bartlett = _window("bartlett", "a triangle that ends in zeros", lambda n, M: np.where(n <= 0, 1 + n / (M - 1), 1 - n / (M - 1)))
hanning = _window("hanning", "0.5 + 0.5*cos", lambda n, M: _waves(n, M, 0.5, 0.5))
hamming = _window("hamming", "0.54 + 0.46*cos", lambda n, M: _waves(n, M, 0.54, 0.46))
blackman = _window("blackman", "0.42 + 0.5*cos + 0.08*cos", lambda n, M: _waves(n, M, 0.42, 0.5, 0.08))


def kaiser(M: Any, beta: Any) -> Any:
    """The Kaiser window of M points, as numpy.kaiser; its shape `beta` may be traced."""
    beta = operand(beta)
    dtype = result_type(np.dtype(float), beta)
    length = np.array([0.0, M])[1]
    if length == 1:
        return np.ones(1, dtype=dtype)
    n = np.arange(0, length)
    alpha = (length - 1) / 2.0
    root = np.sqrt(1 - ((n - alpha) / alpha) ** 2.0)
    return ew.divide(i0(ew.multiply(beta, root)), i0(as_dtype(beta, dtype)))
