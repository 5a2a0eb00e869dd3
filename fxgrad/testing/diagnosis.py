"""What is wrong with a derivative: the worst entry, by how much it is off, and what the pattern of errors suggests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.testing import differences
from fxgrad.testing.patterns import suspicion
from fxgrad.testing.reference import INFORMATIVE, Direction, Reference
from fxgrad.testing.subject import Leaf, ShapeError, Subject

__all__ = ["Finding", "GradientError", "diagnose", "inconclusive", "locate", "misshapen", "unsteady"]

SAMPLE = 40  # entries of the leaf that are measured to see a pattern


@dataclass(frozen=True)
class Finding:
    """One fault of a derivative.

    path, index: the worst entry: the argument it belongs to, and where in that array.
    computed, measured, bar: its derivative, what was measured, and how far that may be off.
    ulps: the difference, in units in the last place of the argument's dtype.
    kind: "wrong", "shape" or "unmeasured".

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> try:
        ...     fx.testing.check_grads(lambda x: np.sin(fx.stop_gradient(x)), (1.0,), order=1)
        ... except fx.testing.GradientError as error:
        ...     finding = error.findings[0]
        >>> finding.kind, finding.computed
        ('wrong', 0.0)
    """

    kind: str
    mode: str
    text: str
    suspicion: str
    path: str = ""
    index: tuple[int, ...] = ()
    computed: float = np.nan
    measured: float = np.nan
    bar: float = np.nan
    ulps: float = np.nan


class GradientError(errors.FxError, AssertionError):
    """A derivative is wrong, or could not be checked. `findings` has one `Finding` for each mode that failed.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.testing.check_grads(lambda x: np.sin(fx.stop_gradient(x)), (1.0,), order=1)
        Traceback (most recent call last):
            ...
        fxgrad.testing.diagnosis.GradientError: the derivative of '<lambda>' is wrong: forward mode, argument 'x'
          ...
    """

    findings: Sequence[Finding] = ()

    def __reduce__(self) -> tuple:
        return (*super().__reduce__(), {"findings": self.findings})

    def __init__(self, *args: Any, **kwargs: Any):
        if args and isinstance(args[0], Subject):
            subject, findings, agree, method = args
            self.findings = findings
            first = findings[0]
            lines = [first.text] + [f"also: {f.text.splitlines()[0]}" for f in findings[1:]]
            if agree:
                lines.append(f"right: {', '.join(agree)}")
            lines.append(f"measured by {method}")
            doubt = "cannot be checked" if first.kind == "unmeasured" else "is wrong"
            what = f"the derivative of '{subject.origin}' {doubt}: {first.mode}{first.path and f', {first.path}'}"
            what += f"[{', '.join(map(str, first.index))}]" if first.index else ""
            args, kwargs = (what,), {"why": "\n    ".join("\n".join(lines).splitlines()), "fix": first.suspicion}
        super().__init__(*args, **kwargs)


# ---- what one entry of a derivative is -----------------------------------------------------------------------------------


class _Scalar:
    """The function <w, f> of the arguments: computed and measured derivatives along any direction."""

    def __init__(self, reference: Reference, mode: str, precision: str, w: np.ndarray):
        self.reference, self.subject, self.mode, self.precision, self.w = reference, reference.subject, mode, precision, w
        self.gradient = self.subject.pull(w, precision) if mode == "rev" else None

    def computed(self, v: Direction) -> float:
        if self.gradient is not None:
            return float(np.sum(self.gradient[v.positions] * v.values))
        pushed = self.subject.push(v.dense(self.subject.size) / v.length, self.precision) * v.length
        return float(np.sum(self.w[self.w != 0] * pushed[self.w != 0]))

    def measured(self, v: Direction) -> tuple[float, float]:
        found = self.reference.along(v).weighted(self.w)
        return float(found.value[0]), float(found.bar[0])

    def entry(self, i: int) -> tuple[float, float, float]:
        """Computed, measured and error bar of the derivative by one entry."""
        v, estimate = self.reference.entry(i)
        found, step = estimate.weighted(self.w), v.values[0]
        return self.computed(v) / step, float(found.value[0]) / step, float(found.bar[0]) / step


def _locate(scalar: _Scalar, v: Direction) -> int:
    """A wrong entry: the wrong half of the direction, and again."""
    if scalar.gradient is not None and not np.all(np.isfinite(scalar.gradient[v.positions])):
        return int(v.positions[np.argmin(np.isfinite(scalar.gradient[v.positions]))])
    off = scalar.computed(v) - scalar.measured(v)[0]
    while v.positions.size > 1:
        middle = v.positions.size // 2
        left, right = (Direction(v.positions[part], v.values[part]) for part in (slice(middle), slice(middle, None)))
        of_left = scalar.computed(left) - scalar.measured(left)[0]
        of_right = off - of_left if np.isfinite(of_left) else 0.0  # derivatives along the halves add up
        v, off = (left, of_left) if not abs(of_left) < abs(of_right) else (right, of_right)
    return int(v.positions[0])


def locate(reference: Reference, mode: str, precision: str, v: Direction, w: np.ndarray) -> int:
    """The position of a wrong entry, where the derivative along v of the results weighted by w is."""
    return _locate(_Scalar(reference, mode, precision, w), v)


def _sample(leaf: Leaf, first: int, most: int) -> list[int]:
    """Entries of a leaf to measure: the one that was found, and others spread over the rest."""
    size = leaf.stop - leaf.start
    if size <= most:
        return list(range(leaf.start, leaf.stop))
    rng = np.random.default_rng(0)
    others = leaf.start + rng.choice(size, most - 1, replace=False)
    return [first, *[int(i) for i in others if i != first]]


# ---- findings ----------------------------------------------------------------------------------------------------------------


def diagnose(
    reference: Reference, mode: str, precision: str, v: Direction, w: np.ndarray, eps: float, label: str, sample: int
) -> Finding:
    """The report of a comparison that failed, along v and with the results weighted by w; it looks at `sample` entries."""
    subject = reference.subject
    scalar = _Scalar(reference, mode, precision, w)
    found = _locate(scalar, v)
    leaf = next(a for a in subject.ins if found < a.stop)
    places = _sample(leaf, found, max(1, min(SAMPLE, sample)))
    computed, measured, bars = np.array([scalar.entry(i) for i in places]).T
    with np.errstate(all="ignore"):
        scale = np.nanmax(np.abs(np.where(np.isfinite(measured), measured, np.nan)), initial=0.0)
        off = np.abs(computed - measured)
        wrong = ~(off <= 10 * bars + 4 * eps ** (2 / 3) * scale) & np.isfinite(bars)
        worst = int(np.argmax(np.where(wrong, np.where(np.isfinite(off), off, np.inf), -1.0)))
    if not np.any(wrong):  # each entry by itself is within its bar; together they are not
        worst = places.index(found)
    place, value, due, bar = places[worst], computed[worst], measured[worst], bars[worst]
    with np.errstate(over="ignore"):  # where the measured value is 0
        ulps = float(abs(value - due) / _spacing(due, eps)) if np.isfinite(value) and np.isfinite(due) else np.inf
    text = f"{label}: computed {value:.10g}, measured {due:.10g} +- {bar:.1g}"
    text += f"\n  off by {value - due:.3g}" + (f" ({abs(value - due) / abs(due):.3g} of it)" if due else "")
    text += f", {ulps:.3g} ulp of {leaf.kind.name if precision == 'native' else 'float64'}"
    if len(places) > 1:
        text += f"\n  {int(np.sum(wrong))} of {len(places)} entries looked at are off" + (
            f" (of {leaf.stop - leaf.start} in all)" if leaf.stop - leaf.start > len(places) else ""
        )
    if subject.out_size > 1:
        text += f"\n  {_of_results(subject, w)}"
    kink = _kink(reference, place, w, value)
    hint = kink or suspicion(leaf, places, computed, measured, wrong, scalar.entry, subject.size)
    entry = leaf.place(place)
    index = tuple(int(k) for k in entry[len(leaf.path) :].split("]")[0].strip("[").split(", ") if k.isdigit())
    return Finding("wrong", label, text, hint, leaf.path, index, float(value), float(due), float(bar), ulps)


def _of_results(subject: Subject, w: np.ndarray) -> str:
    if np.count_nonzero(w) == 1:
        j = int(np.argmax(w != 0))
        return f"the derivative of {next(a for a in subject.outs if j < a.stop).place(j)}"
    return f"the derivative of the sum of {np.count_nonzero(w)} results with fixed weights"


def _spacing(x: float, eps: float) -> float:
    """The distance of floating-point numbers of this precision at x."""
    return float(eps * 2.0 ** np.floor(np.log2(max(abs(x), 1e-300))))


def _kink(reference: Reference, place: int, w: np.ndarray, computed: float) -> str:
    """Whether slopes from the left and from the right differ at the entry."""
    v = reference.entry(place)[0]
    on = w != 0

    def path(t: float) -> np.ndarray:
        return np.sum(w[on] * reference.path(v)(t)[on], keepdims=True)

    here = np.sum(w[on] * reference.here[on], keepdims=True)
    noise = np.sum(np.abs(w[on]) * reference.noise[on], keepdims=True)
    left, right, bar = (float(x[0]) / abs(v.values[0]) for x in differences.one_sided(path, here, noise))
    if not np.isfinite(left + right + bar) or abs(right - left) <= 4 * bar + 1e-3 * max(abs(left), abs(right)):
        return ""
    sides = [name for name, slope in (("left", left), ("right", right)) if abs(computed - slope) <= 2 * bar + 1e-3 * abs(slope)]
    which = f"; the computed value is the one from the {sides[0]}" if sides else ""
    return (
        f"not differentiable here: the slope from the left is {left:.6g}, from the right {right:.6g}{which}. "
        "Check at another point, or take the convention of the library for right."
    )


def misshapen(subject: Subject, label: str, error: ShapeError, weights: Sequence[np.ndarray]) -> Finding:
    """The report of a derivative that has another shape than what it belongs to."""
    hint = error.hint or "Answer one array for each argument, of the argument's shape."
    found, due = error.found, error.due
    padded = (1,) * (len(found) - len(due)) + tuple(due)
    if len(found) >= len(due) and found != due and all([b in (1, a) for a, b in zip(found, padded, strict=True)]):
        axes = [i for i, (a, b) in enumerate(zip(found, padded, strict=True)) if a != b or i < len(found) - len(due)]
        hint = f"a missing sum over axes {axes}: an argument that was broadcast receives the sum over where it was used."
    elif len(due) > 1 and tuple(reversed(found)) == tuple(due):
        hint = "it is transposed."
    return Finding("shape", label, f"{label}: {error}", hint)


def unsteady(subject: Subject, label: str) -> Finding:
    """The report of a function that answers one thing now and another then."""
    text = f"{label}: two calls of '{subject.name}' with the same arguments answer different values"
    return Finding("unmeasured", label, text, "Fix its random numbers (pass a key or seed), and what else it reads that changes.")


def inconclusive(reference: Reference, label: str, v: Direction) -> Finding:
    """The report of a point at which nothing can be measured."""
    subject = reference.subject
    if not np.any(np.isfinite(reference.here)):
        text = f"{label}: '{subject.name}' is {reference.here[0]} at the point itself"
        return Finding("unmeasured", label, text, "Check at a point where the function has a finite value.")
    path = ""
    for i in [int(k) for k in v.positions[:64]]:
        found = reference.entry(i)[1]
        if v.positions.size == 1 or not np.any(found.bar <= INFORMATIVE * found.size):
            path = next(a for a in subject.ins if i < a.stop).place(i)
            break
    text = f"{label}: no derivative could be measured{f' by {path}' if path else ''}"
    if reference.failure is not None:
        text += f"\n  beside the point it raised {type(reference.failure).__name__}: {str(reference.failure).splitlines()[0]}"
    hint = "The function jumps, has no value on one side, or has an infinite slope there: check at another point."
    return Finding("unmeasured", label, text, hint)
