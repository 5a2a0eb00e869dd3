"""Inverses of erf, erfc and the normal distribution function, for float32 and float64.

Near 0 erfinv is a polynomial. In the tail, for s = sqrt(-log(q)), erfcinv(q) is s times a polynomial in 1/(s + 1): in float32
that is the answer, in float64 one step of Halley's method on the logarithm of erfc follows. Coefficients: bench/coefficients.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.kernels import doubleword as dw
from fxgrad.kernels import math as m
from fxgrad.kernels import vector as v
from fxgrad.kernels.error_function import scaled_erfc

__all__ = ["erfcinv", "erfinv", "ndtri"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_INF, _NAN = float("inf"), float("nan")
_MIDDLE = 0.3125

_SEAM = 0.521  # a little above erf(1/2), from where erfc is known well
_CENTRE = {  # erfinv(x) = x + x p(x^2), |x| <= 0.521
    _F32: (
        -0.11377307, 0.23201236, 0.12762119, 0.085351326, 0.075304426, 0.007833994, 0.12607819,
    ),
    _F64: (
        -0.11377307454724199, 0.2320136665346575, 0.1275561753051661, 0.08655212926140232, 0.06495961764277608,
        0.05173126124973168, 0.04283756083374311, 0.03644911407570446, 0.03189853836112865, 0.02623361423972485,
        0.03501494652973017, -0.016506400209425256, 0.12226456394297881, -0.14351059358487983, 0.14788288835640281,
    ),
}  # fmt: skip
_TAIL = {  # erfcinv(exp(-s^2)) = s p(1/(s + 1) - 5/16); in float64 to 2^-24
    _F32: (
        0.85367495, -0.9100659, -1.4360561, 0.20501277, 1.8705002, 2.6743007, -1.4533129, -5.6676664, -9.5775175,
        20.392725,
    ),
    _F64: (
        0.8536749094692575, -0.9100656937766084, -1.4360165745766538, 0.20493433333332503, 1.8625060379525689,
        2.6836305119981265, -0.8406785258391716, -6.089653266005497, -31.14176401108686, 28.16602572690221,
        353.4895286961777, -48.66576967134102, -2190.3471872952746,
    ),
}  # fmt: skip


def _centre(x: Any) -> Any:
    return v.fma(x, dw.horner(x * x, _CENTRE[x.dtype]), x)


def _tail(q: Any) -> Any:
    """erfcinv(q) for 0 < q < 0.48."""
    s = v.sqrt(-m.log(q))
    y = s * dw.horner(1.0 / (s + 1.0) - _MIDDLE, _TAIL[q.dtype])
    if q.dtype == _F32:
        return y
    # g(y) = log(erfc(y)/q), g' = -h with h = (2/sqrt(pi))/erfcx(y), g'' = h (2 y - h)
    mantissa, k, erfcx = scaled_erfc(y)
    tiny = q < 2.0**-900
    scaled = v.select(tiny, q * 2.0**300, q)
    k = v.select(tiny, k + 300, k)
    e = (dw.scale_by_power(mantissa, k) - scaled) / scaled
    g = v.fma(e * e, v.fma(e, 1 / 3, -0.5), e)  # log(1 + e), e below 1e-3
    h = (2 / math.sqrt(math.pi)) / erfcx
    return y + (g / h) / v.fma(g, (h - 2.0 * y) / (h + h), 1.0)


def erfinv(x: Any) -> Any:
    """The y with erf(y) = x; infinite at -1 and 1, NaN beyond."""
    a = v.absolute(x)
    inside = a < 1.0
    far = a > _SEAM
    y = v.select(far, _tail(v.select(far & inside, 1.0 - a, v.constant(x, 0.25))), _centre(a))
    return v.copysign(v.select(inside, y, v.select(a == 1.0, v.constant(x, _INF), _NAN)), x)


def _upper(q: Any) -> Any:
    """erfcinv(q) for 0 < q <= 1."""
    near = q > 1.0 - _SEAM
    return v.select(near, _centre(1.0 - q), _tail(v.select(near, v.constant(q, 0.25), q)))


def erfcinv(q: Any) -> Any:
    """The y with erfc(y) = q; +-infinity at 0 and 2, NaN outside."""
    low = q > 1.0
    p = v.select(low, 2.0 - q, q)
    y = _upper(v.select((p > 0.0) & (p <= 1.0), p, v.constant(q, 1.0)))
    y = v.select(p > 0.0, y, v.select(p == 0.0, v.constant(q, _INF), _NAN))
    return v.select(low, -y, y)


def ndtri(p: Any) -> Any:
    """The normal quantile: -sqrt(2) erfcinv(2 p), from the nearer end."""
    high = p > 0.5
    q = v.select(high, 1.0 - p, p)
    y = _upper(v.select((q > 0.0) & (q <= 0.5), q + q, v.constant(p, 1.0))) * math.sqrt(2)
    y = v.select(q > 0.0, y, v.select(q == 0.0, v.constant(p, _INF), _NAN))
    return v.select(high, y, 0.0 - y)  # +0 in the middle
