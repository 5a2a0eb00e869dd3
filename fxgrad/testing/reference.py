"""The numerical derivatives of a function at a point, in whichever way is the most exact that it allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fxgrad.testing import differences
from fxgrad.testing.differences import Estimate
from fxgrad.testing.subject import DOUBLE, Subject

__all__ = ["INFORMATIVE", "Direction", "Reference"]

INFORMATIVE = 1e-3  # an error bar says something if it is smaller than this part of what f varies along the direction
_SAMPLES = 2  # points one ulp away at which f is evaluated to see its rounding errors


class Direction(NamedTuple):
    """A tangent of the vector of arguments that is zero but at `positions`."""

    positions: np.ndarray
    values: np.ndarray

    @property
    def length(self) -> float:
        return differences.norm(self.values)

    def dense(self, size: int) -> np.ndarray:
        out = np.zeros(size)
        out[self.positions] = self.values
        return out


class Reference:
    """Measured derivatives of a subject.

    Narrow arguments (float32, ...) are evaluated in double precision, at the same point, where the function allows it.
    Values of f are taken to be as wrong as they change when the point moves by an ulp: what no implementation can avoid.
    """

    def __init__(self, subject: Subject, step: float | None = None, seed: int = 0):
        self.subject, self.step = subject, step
        narrow = max([leaf.kind.eps for leaf in subject.ins])
        self.narrow = narrow > DOUBLE
        self.precision = "wide" if self.narrow and subject.allows("wide") else "native"
        self.eps = DOUBLE if self.precision == "wide" else narrow
        self.rng = np.random.default_rng(seed)
        self.here = subject(subject.x, self.precision)
        self.repeats = self._repeats()
        self.failure: Exception | None = None  # why f could not be evaluated beside the point
        self.noise = self._noise()
        self.analytic, self.size = False, np.zeros(self.here.shape)
        scales = [self._scale(subject.x[leaf.start : leaf.stop]) for leaf in subject.ins]
        self.scales = np.repeat(scales, [leaf.stop - leaf.start for leaf in subject.ins])

    @staticmethod
    def _scale(part: np.ndarray) -> float:
        """How large the entries of an argument are: their root mean square; 1 where all are zero."""
        part = part[np.isfinite(part)]
        return differences.norm(part) / part.size**0.5 or 1.0 if part.size else 1.0

    def nearby(self, eps: float) -> np.ndarray:
        """A point an ulp away."""
        return self.subject.x * (1 + eps * self.rng.choice([-1.0, 1.0], self.subject.size))

    def _repeats(self) -> bool:
        """Whether f answers the same again, but for rounding (sums of several threads may differ in that)."""
        finite = np.isfinite(self.here)
        off = np.abs(self.subject(self.subject.x, self.precision) - self.here, where=finite, out=np.zeros(self.here.shape))
        return bool(np.all(off <= self.eps**0.5 * np.max(np.abs(self.here), initial=0.0, where=finite)))

    def _noise(self) -> np.ndarray:
        moved = np.zeros(self.here.shape)
        for _ in range(_SAMPLES):
            moved = np.fmax(moved, np.abs(self._evaluate(self.nearby(self.eps)) - self.here))
        # a function that jumps at the point is not noisy: the differences will tell
        most = self.eps**0.5 * np.max(np.abs(self.here), initial=0.0, where=np.isfinite(self.here))
        return np.nan_to_num(np.minimum(moved, most) + 2 * self.eps * np.abs(self.here), nan=0.0, posinf=0.0)

    def _evaluate(self, x: np.ndarray) -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                return self.subject(x, self.precision)
        except (ArithmeticError, ValueError) as error:  # outside the domain: math.log(-1), a matrix that is not positive definite
            self.failure = error
            return np.full(self.here.shape, np.nan)

    def path(self, v: Direction) -> Callable[[float], np.ndarray]:
        def at(t: float) -> np.ndarray:
            x = self.subject.x.copy()
            x[v.positions] += t * v.values
            return self._evaluate(x)

        return at

    def complex_path(self, v: Direction) -> Callable[[complex], np.ndarray]:
        def at(t: complex) -> np.ndarray:
            x = self.subject.x.astype(complex)
            x[v.positions] += t * v.values
            return self.subject(x, "complex")

        return at

    def along(self, v: Direction) -> Estimate:
        """The derivative along v."""
        if self.step is not None:
            return differences.fixed(self.path(v), self.noise, self.step / v.length)
        if self.analytic:
            found = differences.complex_step(self.complex_path(v), self.noise, self.size)
            if np.all(np.isfinite(found.bar)):
                return found
        return differences.extrapolated(self.path(v), self.noise)

    def try_complex_step(self, v: Direction, found: Estimate) -> None:
        """Use the complex step from here on, if it gives what differences gave along v."""
        exact, self.size = self.precision == "wide" or not self.narrow, found.size
        if self.step is None and exact and not any([leaf.kind.complex for leaf in (*self.subject.ins, *self.subject.outs)]):
            self.analytic = differences.is_analytic(self.complex_path(v), self.here, self.noise, found)

    def describe(self) -> str:
        """How derivatives are measured, for reports."""
        digits = "double precision" if self.eps == DOUBLE else self.subject.ins[0].kind.name
        if self.step is not None:
            return f"central differences with the step {self.step:g}, in {digits}"
        return f"the complex step, in {digits}" if self.analytic else f"extrapolated central differences, in {digits}"

    # ---- directions --------------------------------------------------------------------------------------------------------

    def entry(self, i: int) -> tuple[Direction, Estimate]:
        """The derivative by one entry."""
        return self._first_usable(np.array([i]), np.ones(1))

    def random(self, start: int, stop: int) -> tuple[Direction, Estimate]:
        """The derivative along random entries of either sign."""
        n = stop - start
        return self._first_usable(np.arange(start, stop), self.rng.uniform(0.5, 1.0, n) * self.rng.choice([-1.0, 1.0], n))

    def _first_usable(self, positions: np.ndarray, values: np.ndarray) -> tuple[Direction, Estimate]:
        """With steps in proportion to the leaves; where these are too long for some entry, in proportion to each entry."""
        v = Direction(positions, values * self.scales[positions])
        found = self.along(v)
        if self.step is None and not np.any(found.bar <= INFORMATIVE * found.size):
            shorter = self._own_scale(positions, values)
            again = self.along(shorter)
            if np.any(again.bar <= INFORMATIVE * again.size):
                return shorter, again
        return v, found

    def _own_scale(self, positions: np.ndarray, values: np.ndarray) -> Direction:
        own = np.abs(self.subject.x[positions])
        return Direction(positions, values * np.where(own > 0, own, self.scales[positions]))

    def closer(self, v: Direction) -> Iterator[tuple[Direction, Estimate]]:
        """The derivative along v again, from steps much smaller than those it was measured with."""
        own = self._own_scale(v.positions, v.values / self.scales[v.positions])
        for direction, first in ((v, 2.0**-12), (own, 2.0**-6)):
            yield direction, differences.extrapolated(self.path(direction), self.noise, differences.FIRST_STEP * first)
