"""Derivatives by differences, each with the error that it may have.

A central difference with step h is off by h**2 f'''/6 + ... (truncation) and by about eps |f| / h (rounding): large steps suffer
from the one, small steps from the other. Richardson's extrapolation takes the powers of h**2 out of the first, and the table
of extrapolations says how far it got (Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Adv. Eng. Softw. 4, 1982).
Steps are halved until rounding alone is more than the error reached, so functions that have a kink or leave their domain
nearby are followed down to the steps that fit between.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Estimate", "central", "complex_step", "extrapolated", "norm", "one_sided"]

Path = Callable[[float], np.ndarray]  # t -> f(x + t v) as a float64 vector; NaN where f has no value

FIRST_STEP = 0.37  # in units of the direction, which is as long as x; no neat number, so that no period fits it
SMALLEST_STEP = 2.0**-40
COLUMNS = 7  # of the table
AMPLIFIED = 2.2  # how much extrapolation with halved steps enlarges rounding: the product of (4**j + 1) / (4**j - 1)
IMAGINARY = 2.0**-100  # the complex step: its square is lost beside 1, so nothing is truncated


class Estimate(NamedTuple):
    """A derivative along a direction, one number for each output, and how far each may be off (inf: nothing known)."""

    value: np.ndarray
    bar: np.ndarray
    size: np.ndarray  # the largest values of f that it was made of
    step: float  # the smallest that was used

    def weighted(self, w: np.ndarray) -> Estimate:
        """Of the sum of the outputs with these weights; those with weight zero do not count, whatever they are."""
        on = w != 0
        value, bar, size = [
            np.sum(c[on] * x[on], keepdims=True) for c, x in ((w, self.value), (np.abs(w), self.bar), (np.abs(w), self.size))
        ]
        return Estimate(value, bar, size, self.step)


def norm(x: np.ndarray) -> float:
    """The Euclidean length of a vector, also where squares of its entries overflow or vanish."""
    largest = float(np.max(np.abs(x), initial=0.0))
    return largest * float(np.sqrt(np.sum((x / largest) ** 2))) if 0 < largest < np.inf else largest


def central(path: Path, step: float, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The central difference with this step, what rounding may do to it, and the size of the values."""
    above, below = path(step), path(-step)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(above), np.abs(below))
        return (above - below) / (2 * step), (noise + 2.0**-53 * size) / step, size


def extrapolated(path: Path, noise: np.ndarray, first: float = FIRST_STEP, smallest: float = SMALLEST_STEP) -> Estimate:
    """The derivative at 0 from steps that are halved as long as that helps.

    Args:
        path: t -> f(x + t v), float64[m].
        noise: float64[m]: what rounding does to a value of f.
        first, smallest: the range of steps.
    Returns:
        For each output the entry of Ridders' table with the least estimated error.
    """
    value, bar, size = np.full(noise.shape, np.nan), np.full(noise.shape, np.inf), np.zeros(noise.shape)
    step, row, mets = first, list[np.ndarray](), list[np.ndarray]()
    while step >= smallest:
        difference, rounding, met = central(path, step, noise)
        rounding *= AMPLIFIED
        mets.append(met)
        reach = met
        before, row = row, [difference]
        with np.errstate(all="ignore"):
            for j, old in enumerate(before[:COLUMNS]):
                new = row[j] + (row[j] - old) / (4.0 ** (j + 1) - 1)
                error = np.maximum(np.abs(new - row[j]), np.abs(new - old)) + rounding
                reach = np.fmax(reach, mets[-2 - j])  # not of longer steps: exp(x + 37) says nothing about exp(x)
                better = error < bar  # NaN is not
                value[better], bar[better], size[better] = new[better], error[better], reach[better]
                row.append(new)
        if np.all(np.isfinite(bar) & (bar <= 2 * rounding)):
            break
        step /= 2
    return Estimate(value, bar, size, step)


def fixed(path: Path, noise: np.ndarray, step: float) -> Estimate:
    """The central difference with a step that was asked for; the next half of it tells the truncation."""
    coarse, rounding, size = central(path, step, noise)
    fine, _, _ = central(path, step / 2, noise)
    bar = np.abs(coarse - fine) * (4 / 3) + rounding
    return Estimate(coarse, np.where(np.isnan(bar), np.inf, bar), size, step)


def complex_step(path: Callable[[complex], np.ndarray], noise: np.ndarray, size: np.ndarray) -> Estimate:
    """The derivative at 0 as the imaginary part of f(x + i h v) / h, for f analytic along v.

    `size` is how large f is over a step as long as the point. Nothing cancels, so it is good to rounding (Squire and Trapp,
    "Using complex variables to estimate derivatives of real functions", SIAM Review 40, 1998).
    """
    found = path(IMAGINARY * 1j)
    value = np.imag(found) / IMAGINARY
    bar = noise + 2.0**-48 * np.abs(value) + 2.0**-160 * size  # and h**2 of the third derivative
    return Estimate(value, np.where(np.isfinite(value), bar, np.inf), np.maximum(np.abs(found), size), IMAGINARY)


def is_analytic(path: Callable[[complex], np.ndarray], here: np.ndarray, noise: np.ndarray, reference: Estimate) -> bool:
    """Whether the function takes complex input and continues what it does on real input: the same value, the same slope."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # above all ComplexWarning, where an imaginary part is dropped
        try:
            found = np.asarray(path(IMAGINARY * 1j))
        except Exception:  # noqa: BLE001 -- somebody else's function on input it was not written for: any error is a no
            return False
    if not np.iscomplexobj(found) or not np.all(np.isfinite(found)) or not np.all(np.isfinite(reference.bar)):
        return False
    scale = np.max(np.abs(here), initial=0.0)
    same_value = np.all(np.abs(found.real - here) <= 16 * noise + 1e-13 * scale)
    slope = np.max(np.abs(reference.value), initial=0.0)
    same_slope = np.abs(found.imag / IMAGINARY - reference.value) <= 16 * reference.bar + 1e-10 * slope
    return bool(same_value and np.all(same_slope))


def one_sided(path: Path, here: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slopes from the left and from the right, and how far they may be off: they differ where f has a kink.

    A forward difference is off by h f''/2, which one extrapolation removes; the step is the one that balances
    h**2 and noise / h.
    """
    with np.errstate(all="ignore"):
        scale = np.maximum(np.max(np.abs(here), initial=0.0), 1e-300)
        step = float(np.clip((np.max(noise, initial=0.0) / scale) ** (1 / 3), 1e-6, 1e-2))
        sides = []
        for sign in (-1.0, 1.0):
            coarse = (path(sign * step) - here) / (sign * step)
            fine = (path(sign * step / 2) - here) / (sign * step / 2)
            sides.append((2 * fine - coarse, np.abs(fine - coarse)))
        (left, e1), (right, e2) = sides
        return left, right, np.maximum(e1, e2) + 8 * noise / step
