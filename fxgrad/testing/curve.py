"""The error of a central difference against its step: falling with h**2 from the right, rising with 1/h to the left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors, svg
from fxgrad.testing.check import Settings, prepared
from fxgrad.testing.differences import Estimate
from fxgrad.testing.reference import INFORMATIVE, Direction, Reference
from fxgrad.testing.subject import Subject

__all__ = ["Curve", "ErrorCurves", "gradient_error_curve"]

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222; } .soft { fill: #666; } .grid { stroke: #8884; }
polyline { fill: none; stroke-width: 1.6; } .c0 { stroke: #c1272d; } .c1 { stroke: #4d77cf; }
.model { stroke-dasharray: 4 3; opacity: .6; }
.dot0 { fill: #c1272d; } .dot1 { fill: #4d77cf; } .best { stroke-dasharray: 2 3; stroke-width: 1; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } .soft { fill: #999; } svg { background: #161616; } }
"""


class Curve(NamedTuple):
    """One precision: `errors[i]` is the relative error of the central difference with `steps[i]`, `model` what theory says.

    optimum: the derived best step, (3 eps |f| / |f'''|)**(1/3); nan where f''' is too small to be measured.
    best: the step with the least error that was measured; floor: that error.
    """

    dtype: str
    steps: np.ndarray
    errors: np.ndarray
    model: np.ndarray
    optimum: float
    best: float
    floor: float


class ErrorCurves:
    """What `gradient_error_curve` found: `curves` by dtype ("float32", "float64"); `str()` is a table, `to_svg()` a picture.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> curves = fx.testing.gradient_error_curve(np.sin, (1.0,))
        >>> sorted(curves.curves)
        ['float32', 'float64']
    """

    def __init__(self, name: str, curves: dict[str, Curve], exact: float, against: str):
        self.name, self.curves, self.exact, self.against = name, curves, exact, against

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON; NaN is None."""

        def plain(x: Any) -> Any:
            if isinstance(x, np.ndarray):
                return [plain(v) for v in x.tolist()]
            return None if isinstance(x, float) and not math.isfinite(x) else x

        curves = {name: {field: plain(x) for field, x in curve._asdict().items()} for name, curve in self.curves.items()}
        return {"name": self.name, "exact": self.exact, "against": self.against, "curves": curves}

    def __str__(self) -> str:
        lines = [f"error of central differences of '{self.name}', against {self.against}"]
        lines += [
            f"  {c.dtype}: least {c.floor:.1e} at the step {c.best:.1e}; derived optimum {c.optimum:.1e}"
            for c in self.curves.values()
        ]
        lines.append("  step     " + "  ".join([f"{name:>9}" for name in self.curves]))
        every = next(iter(self.curves.values())).steps
        for i, step in enumerate(every):
            lines.append(f"  {step:.1e}  " + "  ".join([f"{c.errors[i]:9.1e}" for c in self.curves.values()]))
        return "\n".join(lines)

    def to_svg(self, file: str | Path | None = None, width: int = 640) -> str:
        """The curves as a picture, which is also written to `file` if one is named."""
        found = np.concatenate([c.errors for c in self.curves.values()])
        values, steps = found[np.isfinite(found) & (found > 0)], np.concatenate([c.steps for c in self.curves.values()])
        y = svg.decades([float(max(values.min(), 1e-18)), float(values.max())], 3) if values.size else (1e-16, 1.0)
        x_range = svg.decades([float(steps.min()), float(steps.max())], 3)
        axes = svg.LogAxes(
            width, 400, x_range, y, "step h, in units of the point", "relative error", lambda p: f"1e{p}", lambda p: f"1e{p}"
        )
        body = axes.grid()
        for number, c in enumerate(self.curves.values()):
            for e, kind in ((c.model, "model"), (c.errors, "")):
                points = [(axes.x(h), axes.y(min(max(v, y[0]), y[1]))) for h, v in zip(c.steps, e, strict=True) if np.isfinite(v)]
                body.append(svg.path(points, f"c{number} {kind}".strip()))
            body.append(svg.text(axes.left + 28, axes.bottom - 30 + 17 * number, f"{c.dtype} (best {c.best:.0e})"))
            body.append(svg.rect(axes.left + 12, axes.bottom - 40 + 17 * number, 10, 10, f"dot{number}"))
            if np.isfinite(c.optimum) and x_range[0] <= c.optimum <= x_range[1]:
                body.append(svg.line(axes.x(c.optimum), axes.top, axes.x(c.optimum), axes.bottom, f"c{number} best"))
        title = f"Error of central differences of {self.name} against the step; dashed: h^2 f'''/6 + eps f/h and its optimum"
        out = svg.picture(width, 400, title, body, _STYLE)
        if file is not None:
            Path(file).write_text(out + "\n", encoding="utf-8")
        return out


def gradient_error_curve(
    f: Callable[..., Any],
    args: Sequence[Any],
    steps: Sequence[float] | None = None,
    *,
    library: str | None = None,
    seed: int = 0,
) -> ErrorCurves:
    """The error of central differences of a function against their step, in float32 and float64: the U-curve.

    The derivative is that along one random direction v as long as the point, of the sum of the results with fixed weights. The
    error of (f(x + h v) - f(x - h v)) / 2h is h**2 |f'''| / 6 + eps |f| / h, least at h = (3 eps |f| / |f'''|)**(1/3): about
    6e-6 in float64, 5e-3 in float32 where f, f''' and x are about 1 (Press et al., Numerical Recipes, 5.7).

    Args:
        f, args, library: as for `check_grads`; f is evaluated in both precisions, so arguments are float32 or float64.
        steps: the h, positive numbers; 49 from 1e-12 to 1 where None.
        seed: of the direction and the weights.
    Returns:
        `ErrorCurves`. Errors are relative to the derivative, which is the library's own in float64, or, where it offers none
        or is off, the measured one.
    Raises:
        FxValueError: a step is not a positive number, or f is not finite around the point.

    >>> curves = gradient_error_curve(lambda x: np.exp(x), (1.0,), steps=[1e-8, 1e-5, 1e-2])
    >>> float(curves.curves["float64"].best)
    1e-05
    """
    hs = np.logspace(-12, 0, 49) if steps is None else np.asarray(steps, np.float64)
    if hs.ndim != 1 or not hs.size or not np.all((hs > 0) & np.isfinite(hs)):
        raise errors.FxValueError(
            f"steps={steps!r} are no steps of a difference",
            why="f is evaluated at x + h v and x - h v.",
            fix="Pass positive numbers: numpy.logspace(-12, 0, 49).",
        )
    subject, _ = prepared(f, args, library, Settings(None, None, None, 1000, seed))
    reference = Reference(subject, None, seed)
    v, found = reference.random(0, subject.size)
    w = np.ones(1) if subject.out_size == 1 else reference.rng.uniform(0.5, 1.0, subject.out_size)
    measured = found.weighted(w)
    exact, against = _exact(subject, reference, v, w, measured)
    if not np.isfinite(exact) or measured.bar[0] > INFORMATIVE * measured.size[0]:
        raise errors.FxValueError(
            f"no derivative of '{subject.name}' can be measured at this point",
            why="f is not finite around it, or jumps.",
            fix="Pass arguments inside the domain of f.",
        )
    third = _third(reference, v, w)
    curves = {}
    for name, dtype in (("float32", np.float32), ("float64", np.float64)):
        curve = _curve(subject, v, w, hs, name, dtype, exact, third)
        if curve is not None:
            curves[name] = curve
    return ErrorCurves(subject.name, curves, exact, against)


def _exact(subject: Subject, reference: Reference, v: Direction, w: np.ndarray, measured: Estimate) -> tuple[float, str]:
    """The derivative, in double precision: by reverse mode, if that is what was measured."""
    value, bar = float(measured.value[0]), float(measured.bar[0])
    computed = float(subject.pull(w, reference.precision)[v.positions] @ v.values)
    scale = max(abs(value), abs(computed))
    if abs(computed - value) <= 10 * bar + 4 * reference.eps ** (2 / 3) * scale:
        return computed, f"reverse mode of {subject.library.name}"
    return value, "extrapolated differences (the library's own derivative is off)"


def _third(reference: Reference, v: Direction, w: np.ndarray) -> float:
    """|f'''| along v, from central differences of four points; nan if rounding hides it."""
    path, h = reference.path(v), 2.0**-5
    with np.errstate(all="ignore"):
        a = [float(w @ path(t)) for t in (2 * h, h, -h, -2 * h)]
        third = (a[0] - 2 * a[1] + 2 * a[2] - a[3]) / (2 * h**3)
    noise = 4 * reference.eps * max([abs(x) for x in a]) / h**3
    return abs(third) if abs(third) > 4 * noise else math.nan


def _curve(
    subject: Subject, v: Direction, w: np.ndarray, hs: np.ndarray, name: str, dtype: Any, exact: float, third: float
) -> Curve | None:
    """Differences in one precision; None where the library cannot evaluate the function in it."""
    precision = subject.in_precision(float(np.finfo(dtype).eps))
    if precision is None:
        return None
    out, sizes = [], []
    for h in hs:
        ends = []
        for sign in (1, -1):
            x = subject.x.copy()
            x[v.positions] += sign * h * v.values
            with np.errstate(all="ignore"):
                ends.append(dtype(w @ subject(x, precision)))
        with np.errstate(all="ignore"):
            out.append(float((ends[0] - ends[1]) / dtype(2 * h)))
        sizes.append(max(abs(float(e)) for e in ends))
    unit = abs(exact) or 1.0
    error = np.abs(np.array(out) - exact) / unit
    eps, size = float(np.finfo(dtype).eps) / 2, sizes[int(np.argmin(hs))]
    model = (np.nan_to_num(third) * hs**2 / 6 + eps * size / hs) / unit
    optimum = (3 * eps * size / third) ** (1 / 3) if third and math.isfinite(third) else math.nan
    best = int(np.nanargmin(error)) if np.any(np.isfinite(error)) else 0
    return Curve(name, hs, error, model, optimum, float(hs[best]), float(error[best]))
