"""Quantities for people: three digits and a unit that fits."""

from __future__ import annotations

import math

__all__ = ["amount", "bytes_of", "flops_of", "percent", "rate", "ratio", "seconds_of"]

_LARGE = ("", "k", "M", "G", "T", "P")
_SMALL = ("", "m", "u", "n")


def _digits(x: float) -> str:
    return f"{x:.0f}" if x >= 99.95 else f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


def amount(x: float, unit: str) -> str:
    """`8.19 kB`: a number of whole things."""
    if x < 1000:
        return f"{x:.0f} {unit}" if x == int(x) else f"{_digits(x)} {unit}"
    power = min(int(math.log10(x) / 3 + 1e-9), len(_LARGE) - 1)
    if round(x / 1000**power) >= 1000 and power < len(_LARGE) - 1:
        power += 1
    return f"{_digits(x / 1000**power)} {_LARGE[power]}{unit}"


def bytes_of(x: float) -> str:
    return amount(x, "B")


def flops_of(x: float) -> str:
    return amount(x, "flop")


def seconds_of(x: float | None) -> str:
    """`41.2 us`; a dash for what was not measured."""
    if x is None:
        return "-"
    power = 0
    while power < len(_SMALL) - 1 and x * 1000**power < 0.9995:
        power += 1
    return f"{_digits(x * 1000**power)} {_SMALL[power]}s"


def rate(x: float | None, unit: str) -> str:
    """`97.6 GB/s`, a dash where there is none."""
    return "-" if x is None else amount(x, f"{unit}/s")


def ratio(x: float | None) -> str:
    """`0.25`, a dash where there is none."""
    return "-" if x is None else f"{x:.0f}" if x == 0 or x >= 100 else f"{x:.2g}" if x < 0.1 else f"{x:.3g}"


def percent(x: float | None) -> str:
    return "-" if x is None else f"{100 * x:.0f} %" if x >= 0.0995 else f"{100 * x:.1f} %"
