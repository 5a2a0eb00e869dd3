"""Modified Bessel functions of the first kind, orders 0 and 1, plain and scaled; computed in float64.

Up to 7.75 a polynomial in x^2/4, beyond it exp(x)/sqrt(x) times one in 1/x (DLMF 10.25, 10.40).
Coefficients: bench/coefficients.py.
"""

from __future__ import annotations

from typing import Any

from fxgrad.kernels import doubleword as dw
from fxgrad.kernels import math as m
from fxgrad.kernels import vector as v
from fxgrad.kernels.gamma import in_double

__all__ = ["i0", "i0e", "i1", "i1e"]

_SEAM, _MIDDLE = 7.75, 0.0625
_NEAR = {  # I0(x) = 1 + z p(z), I1(x) = x/2 (1 + z p(z)), z = x^2/4
    0: (
        1.0, 0.25, 0.027777777777777776, 0.0017361111111111108, 6.944444444444476e-05, 1.9290123456787727e-06,
        3.936759889153235e-08, 6.151187326329284e-10, 7.594058440186163e-12, 7.594058190637375e-14,
        6.276084839826818e-16, 4.358351344258786e-18, 2.5792439762696642e-20, 1.3138937911485793e-22,
        5.927802762906333e-25, 2.0592068778742826e-27, 1.1616423344112835e-29,
    ),
    1: (
        0.5, 0.08333333333333333, 0.006944444444444444, 0.0003472222222222222, 1.1574074074074099e-05,
        2.755731922398406e-07, 4.9209498614350106e-09, 6.834652585001527e-11, 7.594058436095082e-13,
        6.903689329005543e-15, 5.23006993717522e-17, 3.352584602039033e-19, 1.8422748953898967e-21,
        8.761193111542272e-24, 3.699136662488375e-26, 1.2217177467031917e-28, 6.367647834018555e-31,
    ),
}  # fmt: skip
_FAR = {  # exp(-x) sqrt(x) I(x) = p(1/x - 1/16)
    0: (
        0.4021765094450081, 0.053768831738686636, 0.034871315043673544, 0.04564186638554004, 0.0972454419955151,
        0.3118045763198736, 1.4884743715005846, 10.5558955827926, 92.63920970511306, 520.1746217146567,
        -7546.828961882807, -237022.3405450494, -1405961.3674547507, 34809395.60326371, 466800954.42647743,
        -4406088469.158401, -82569003148.425, 556465474054.616, 10022303244336.36, -63125863377069.58,
        -763865880968511.6, 5047119722086789.0, 2.721459814386733e+16, -1.953552748810023e+17,
    ),
    1: (
        0.38939845902587233, -0.15599323509177274, -0.05612435554078476, -0.06159788930859653, -0.12025267872927896,
        -0.3653089384630164, -1.6778990388185877, -11.576782513008148, -100.48367734895906, -580.2821452782404,
        7537.622553760724, 248140.76763569113, 1561593.4862663636, -35294009.7972381, -497024622.9988218,
        4349786333.222509, 86813405365.62463, -542740681157.93066, -10478240615161.953, 61810902499195.09,
        796429222248155.4, -4993210235408645.0, -2.833519789889854e+16, 1.9524795342314906e+17,
    ),
}  # fmt: skip


def _modified(x: Any, order: int, scaled: bool) -> Any:
    a = v.absolute(x)
    small = a < _SEAM
    b = v.select(small, a, v.constant(x, 1.0))
    z = b * b * 0.25
    near = v.fma(z, dw.horner(z, _NEAR[order]), 1.0)
    near = near * (b * 0.5) if order else near
    near = near * m.exp(-b) if scaled else near
    c = v.select(small, v.constant(x, 8.0), a)
    far = dw.horner(1.0 / c - _MIDDLE, _FAR[order])
    if scaled:
        far = far / v.sqrt(c)
    else:  # exp(x) overflows before the quotient does
        grown = m.exp(v.select(c > 800.0, 800.0, c) * 0.5)
        far = v.select(c > 800.0, v.constant(x, float("inf")), (far / v.sqrt(c) * grown) * grown)
    y = v.select(small, near, far)
    y = v.select(x == x, y, x)
    return v.copysign(y, x) if order else y


@in_double
def i0(x: Any) -> Any:
    """I0(x)."""
    return _modified(x, 0, False)


@in_double
def i0e(x: Any) -> Any:
    """exp(-|x|) I0(x)."""
    return _modified(x, 0, True)


@in_double
def i1(x: Any) -> Any:
    """I1(x)."""
    return _modified(x, 1, False)


@in_double
def i1e(x: Any) -> Any:
    """exp(-|x|) I1(x)."""
    return _modified(x, 1, True)
